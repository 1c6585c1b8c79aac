-- Reads a page of an index.
--
-- KEYS[1]  the index
-- ARGV[1]  where the page begins: a cursor of ZSCAN
--
-- Returns where the next page begins ("0" if this is the last), and then the
-- members of this one. Returns "!" alone if the key is no index. It leaves out
-- members that are too long for a key: another program has added them.

local page = redis.pcall('ZSCAN', KEYS[1], ARGV[1], 'COUNT', 1000)
if page.err then
  return string.find(page.err, 'WRONGTYPE', 1, true) and {'!'} or page
end
local answer = {page[1]}
for i = 1, #page[2], 2 do -- a score follows each
  local member = page[2][i]
  if #member <= 512 then answer[#answer + 1] = member end
end
return answer
