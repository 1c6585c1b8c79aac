-- Reads records of one namespace, each as it stands now.
--
-- KEYS       the records
-- ARGV       the time in place of the server's ("" but in tests), "1" to read the terms before the newest as well
--
-- Returns the time, then for each key: the record as lines of text, "" if there is none, and the terms before (see apply.lua).

local clock = redis.call('TIME')
local now = tonumber(ARGV[1]) or tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local fields = {'r'}
if ARGV[2] == '1' then
  for slot = 0, 30 do fields[#fields + 1] = 't' .. slot end
end

local answers = {string.format('%.0f', now)}
for _, key in ipairs(KEYS) do
  local kept = redis.call('HMGET', key, unpack(fields))
  local record = kept[1] or ''
  local leaves = tonumber(string.match(record, '^(%d+)\n'))
  local terms = {}
  if leaves and leaves <= now then -- due to leave: it is gone, whether or not it has been removed yet
    record = ''
  else
    for i = 2, #fields do
      if kept[i] then terms[#terms + 1] = kept[i] end
    end
  end
  answers[#answers + 1] = record
  answers[#answers + 1] = table.concat(terms)
end
return answers
