-- Reads records of one namespace, each as it stands now.
--
-- KEYS       the records
-- ARGV       the time in place of the server's ("" but in tests), the retention, "1" to read the terms before the newest as well
--
-- Returns for each key the record, with the terms before it (see apply.lua); "" if there is none.

local clock = redis.call('TIME')
local now = tonumber(ARGV[1]) or clock[1] * 1000000 + clock[2]
local retention = tonumber(ARGV[2])
local fields = {'r', 'x'}
if ARGV[3] == '1' then
  for letter in string.gmatch('ABCDEFGHIJKLMNOPQRSTUVWXYZ01234', '.') do fields[#fields + 1] = letter end
end

local answers = {}
for i, key in ipairs(KEYS) do
  local kept = redis.pcall('HMGET', key, unpack(fields))
  local parts = {}
  if kept.err and not string.find(kept.err, 'WRONGTYPE', 1, true) then
    return kept -- it may not be read, here or by this user, which says nothing of it
  elseif kept.err then -- of another type
    parts[1] = '!'
  else
    local gone = false -- its time to leave has come, whether or not it has expired yet
    if kept[1] and #kept[1] > 68 then
      local _, _, _, _, deadline, renewed, _, matters = struct.unpack('<BBBddddd', kept[1])
      gone = math.max(matters, deadline, renewed) + retention <= now
    end
    for field = 1, #fields do -- another program may have written to the hash, and the reader's memory is not its own
      local most = field == 1 and 122 or field == 2 and 19223 or 2048
      if kept[field] and #kept[field] > most then gone, parts[1] = true, '!' end
    end
    for field = 1, gone and 0 or #fields do
      if kept[field] then parts[#parts + 1] = kept[field] end
    end
  end
  answers[i] = table.concat(parts)
end
return answers
