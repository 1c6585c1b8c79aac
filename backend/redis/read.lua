-- Reads records of one namespace. apply.lua describes their format.
--
-- KEYS     the records
-- ARGV[1]  the time to use instead of the server's ("" outside of tests)
-- ARGV[2]  the retention
-- ARGV[3]  "1" to read the terms before the newest as well
--
-- Returns for each key the fields of its record, joined: r, x, c ("\0\0" if it
-- has none), and the terms that were asked for. It returns "" if there is no
-- record, and "!" if another program has written the key.

local clock = redis.call('TIME')
local now = tonumber(ARGV[1]) or clock[1] * 1000000 + clock[2]
local retention = tonumber(ARGV[2])
local fields = {'r', 'x', 'c'}
if ARGV[3] == '1' then
  for letter in string.gmatch('ABCDEFGHIJKLMNOPQRSTUVWXYZ01234', '.') do fields[#fields + 1] = letter end
end

local answers = {}
for i, key in ipairs(KEYS) do
  local kept = redis.pcall('HMGET', key, unpack(fields))
  local parts = {}
  if kept.err and not string.find(kept.err, 'WRONGTYPE', 1, true) then
    return kept -- for example, this user may not read the key: nothing is known of the record
  elseif kept.err then -- the key is no hash
    parts[1] = '!'
  else
    local gone = false -- no acquire needs it any more, whether or not it has expired yet
    if kept[1] and #kept[1] > 68 then
      local _, _, _, _, deadline, renewed, _, matters = struct.unpack('<BBBddddd', kept[1])
      gone = math.max(matters, deadline, renewed) + retention <= now
    end
    -- Another program may have written to the hash. Do not fill the caller's
    -- memory with longer fields than apply.lua writes.
    for field = 1, #fields do
      local most = field == 1 and 130 or field == 2 and 19223 or field == 3 and 1026 or 2048
      if kept[field] and #kept[field] > most then gone, parts[1] = true, '!' end
    end
    if kept[1] and not kept[3] then kept[3] = '\0\0' end
    for field = 1, gone and 0 or #fields do
      if kept[field] then parts[#parts + 1] = kept[field] end
    end
  end
  answers[i] = table.concat(parts)
end
return answers
