-- Reads records of one namespace, each as it stands now.
--
-- KEYS       the records
-- ARGV       the time in place of the server's ("" but in tests), "1" to read the terms before the newest as well
--
-- Returns the time, then for each key the record, with the terms before it (see apply.lua); "" if there is none.

local clock = redis.call('TIME')
local now = tonumber(ARGV[1]) or tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local fields = {'r'}
if ARGV[2] == '1' then
  for place = 0, 30 do fields[place + 2] = 't' .. place end
end

local answers = {now}
for _, key in ipairs(KEYS) do
  local kept = redis.call('HMGET', key, unpack(fields))
  local ok, r = pcall(cmsgpack.unpack, kept[1] or '')
  local gone = ok and type(r) == 'table' and type(r[1]) == 'number' and r[1] <= now -- its time to leave has come, whether or not it has expired yet
  local parts = {}
  for i = 1, gone and 0 or #fields do
    if kept[i] then parts[#parts + 1] = kept[i] end
  end
  answers[#answers + 1] = table.concat(parts)
end
return answers
