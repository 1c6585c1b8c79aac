-- The law of writing (package fence). The script checks a stamp against the
-- mark and then carries out the caller's commands, in one step.
--
-- KEYS[1]  the mark: a hash of key, token, grant and seq, and of the last rekey
-- KEYS[2]  the guarded data; more keys may follow, all on one node
-- ARGV     "write", "raise", "rekey" or "reset", and then
--          for write and raise: key, token, grant, seq; for write also the
--          commands, each as its number of words and its words
--          for rekey: key, actor, note
--          for reset: key, actor, note, token, grant, seq, floor. If the mark
--          still has this key, token, grant and seq, its token becomes floor.
--
-- Returns whether the stamp was admitted ("1" or "0"), the four fields of the
-- mark after that, and whether the data was there before its first mark. For
-- write it also returns how many commands succeeded, and all replies. After a
-- command that fails it tries no other.

local guarded = KEYS[1]
local held = redis.call('HMGET', guarded, 'key', 'token', 'grant', 'seq')
local mark = (held[1] or held[2] or held[3] or held[4])
  and {key = held[1] or '', token = held[2] or '', grant = held[3] or '', seq = held[4] or ''} or nil

local function answer(admitted, adopted)
  local m = mark or {key = '', token = '0', grant = '', seq = '0'}
  return {admitted and '1' or '0', m.key, m.token, m.grant, m.seq, adopted and '1' or '0'}
end

local function keep(next)
  mark = next
  redis.call('HSET', guarded, 'key', mark.key, 'token', mark.token, 'grant', mark.grant, 'seq', mark.seq)
end

-- Another program may have written to the hash. A damaged mark admits nothing.
-- The reply shows it, shortened. The "?" makes sure that Go sees the damage.
local function sound(text, most, pattern) return text and #text <= most and string.find(text, pattern) end
-- Numbers are compared as texts, so each must have no leading zeros.
local function number(text, most)
  return sound(text, most, '^%d+$') and (text == '0' or string.sub(text, 1, 1) ~= '0')
end
if mark and not (sound(held[1], 512, '') and number(held[2], 16)
  and sound(mark.grant, 32, '') and number(held[4], 20)) then
  for name, text in pairs(mark) do mark[name] = string.sub(text, 1, 80) end
  mark.token = '?' .. mark.token
  return answer(false)
end

-- Writes a new mark, and who moved it and why.
local function moved(from, next)
  local clock = redis.call('TIME')
  redis.call('HSET', guarded, 'rekeyed_from', from,
    'rekeyed_by', ARGV[3], 'rekeyed_note', ARGV[4], 'rekeyed_at', clock[1])
  keep(next)
  return answer(true)
end

if ARGV[1] == 'rekey' then
  local last = redis.call('HMGET', guarded, 'rekeyed_by', 'rekeyed_note')
  if mark and mark.key == ARGV[2] and mark.grant == '' and last[1] == ARGV[3] and last[2] == ARGV[4] then
    return answer(true) -- the same rekey was sent again: keep rekeyed_from
  end
  return moved(mark and mark.key or '', {key = ARGV[2], token = mark and mark.token or '0', grant = '', seq = '0'})
end

if ARGV[1] == 'reset' then
  local last = redis.call('HMGET', guarded, 'rekeyed_by', 'rekeyed_note')
  if mark and mark.key == ARGV[2] and mark.grant == '' and mark.token == ARGV[8]
    and last[1] == ARGV[3] and last[2] == ARGV[4] then
    return answer(true) -- the same reset was sent again
  end
  if not mark or mark.key ~= ARGV[2] or mark.token ~= ARGV[5] or mark.grant ~= ARGV[6] or mark.seq ~= ARGV[7] then
    return answer(false) -- the mark has moved since the caller read it
  end
  return moved(mark.key, {key = mark.key, token = ARGV[8], grant = '', seq = '0'})
end

local stamp = {key = ARGV[2], token = ARGV[3], grant = ARGV[4], seq = ARGV[5]}

-- Compares sequence numbers as texts: they have up to 64 bits, more than a Lua
-- number holds.
local function above(a, b)
  if #a ~= #b then return #a > #b end
  return a > b
end

-- Returns whether the stamp is admitted, and whether the mark advances to it.
local function admit()
  if not mark then return true, true end
  if ARGV[1] == 'raise' and stamp.key == mark.key and stamp.token == mark.token
    and stamp.grant == mark.grant and stamp.seq == mark.seq then
    return true, false -- raised before
  end
  if stamp.key ~= mark.key then return false end
  local new, old = tonumber(stamp.token), tonumber(mark.token) -- below 2^53
  if new > old then return true, true end
  if new < old or mark.grant ~= stamp.grant then return false end
  if stamp.seq == '0' then return true, false end
  return above(stamp.seq, mark.seq), true
end

local admitted, advances = admit()
if not admitted then return answer(false) end
local adopted = ARGV[1] == 'write' and not mark and redis.call('EXISTS', KEYS[2]) == 1
if advances then keep(stamp) end
local reply = answer(true, adopted)
if ARGV[1] == 'raise' then return reply end

local done, cursor, replies = 0, 6, {}
while cursor <= #ARGV do
  local words = tonumber(ARGV[cursor])
  local answered = redis.pcall(unpack(ARGV, cursor + 1, cursor + words))
  replies[#replies + 1] = answered
  if type(answered) == 'table' and answered.err then break end
  done, cursor = done + 1, cursor + words + 1
end
reply[7], reply[8] = tostring(done), replies
return reply
