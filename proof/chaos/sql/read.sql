SELECT holds FROM chaos_state WHERE key = $1
