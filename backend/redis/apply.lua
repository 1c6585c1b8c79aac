-- The law of ownership (package tenure), carried out for a batch of requests on keys of one namespace.
--
-- KEYS[1]    the namespace's index: a sorted set of its keys, scored by when their records expire (milliseconds)
-- KEYS[1+i]  the record of request i
-- ARGV       retention; the time in place of the server's ("" but in tests); flags: "w" to write also what stays unchanged, "c" on a cluster; the requests, each as
--            verb, grant, and
--              acquire                     ttl above every holdfor owner instance guards
--              renew                       resume ttl
--              report                      resume progress
--              release                     failed
--              takeover, reserve, revoke   ttl above owner instance guards actor note
--
-- A record is a hash: "r" holds the record, "t0" to "t30" the terms before the newest, term n in place n % 31, and "g" the first digits of their grants in a row, oldest first. The newest term is not kept
-- apart, the record says all of it. Records, terms and requests are arrays in MessagePack.
--
-- A record is gone when its time to leave has come. Redis expires it some time after that, so that it need not be told anew at every change.
--
-- Times are whole microseconds; they and tokens are below 2^53, which a Lua number holds exactly.
--
-- Returns the time, then for each request its outcome ("" if it took effect) and the record as it then stands, for "taken_over" with the terms before it.

--# The places in a record. Lines like these name numbers: each name is replaced by its number before the script is sent, because a local would cost at every run.
--# LEAVES 1, TOKEN 2, GRANT 3, STATE 4, CAUSE 5, ENDED 6, ACQUIRED 7, RENEWED 8, DEADLINE 9, TTL 10, EVERY 11, SUCCEEDED 12, HOLD 13
--# TERMS 14, TRANSFERS 15, OWNER 16, INSTANCE 17, ACTOR 18, NOTE 19, PROGRESS 20, PROGRESSED 21, GUARDS 22, EXPIRES 23
--# Those in a term that are looked at: token, grant, owner, instance, state, cause, actor, note, acquired, finished, ended.
--# TERM_GRANT 2, TERM_STATE 5, TERM_CAUSE 6, TERM_ENDED 11
--# Those in a request.
--# VERB 1, ASKING 2
--# Terms before the newest; the digits of a grant in "g"; the highest token; how many writes are a large batch.
--# HISTORY 31, DIGITS 4, MAX_TOKEN 9007199254740991, LARGE 16

local call, pack, unpacked, max, ceil = redis.call, cmsgpack.pack, cmsgpack.unpack, math.max, math.ceil

local retention = tonumber(ARGV[1])
local clock = call('TIME')
local server = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now = tonumber(ARGV[2]) or server
local offset = now - server -- what Redis must be told in its own time
local index = KEYS[1]
local latest, listed, changed = 0, {}, {} -- when the last record expires that was told to; scores and members for the index; keys whose waiters are to wake

-- Records ------------------------------------------------------------------------------------------------------------

local function alive(r) return r[STATE] == 'held' and now < r[DEADLINE] end

-- Writes a record, and with it what else of its hash has changed. It leaves a retention after it says nothing any more that a claim must respect.
local function keep(key, r, ...)
  local quiet = max(r[DEADLINE], r[ACQUIRED], r[RENEWED], r[HOLD], r[TOKEN])
  if r[SUCCEEDED] ~= 0 then quiet = max(quiet, r[SUCCEEDED] + r[EVERY]) end
  local leaves, expires = quiet + retention, r[EXPIRES]
  local tell = expires < leaves or expires > leaves + retention / 4
  if tell then expires = ceil(leaves + retention / 8) end
  r[LEAVES], r[EXPIRES] = leaves, expires
  local kept = pack(r)
  call('HSET', key, 'r', kept, ...)
  if tell then
    local score = ceil(expires / 1000)
    call('PEXPIREAT', key, score - math.floor(offset / 1000))
    if expires > latest then latest = expires end
    listed[#listed + 1] = score
    listed[#listed + 1] = string.sub(key, #index + 2) -- "…:i" and "…:k:name" begin the same
  end
  return kept
end

-- Terms --------------------------------------------------------------------------------------------------------------

-- The state the newest term began with: what has ended was held.
local function began(r)
  if r[ENDED] ~= '' then return 'held' end
  return r[STATE]
end

-- The end of a grant's term, and the state and cause it began with; nil if none is remembered. grants are those of the terms before the newest.
local function term(key, r, grant, grants)
  if not r then return nil end
  if r[GRANT] == grant then return r[ENDED], began(r), r[CAUSE] end
  grants = grants or call('HGET', key, 'g') or ''
  local digits, at = string.sub(grant, 1, DIGITS), 0
  while true do
    at = string.find(grants, digits, at + 1, true)
    if not at then return nil end
    local nth = r[TRANSFERS] - (#grants - at + 1) / DIGITS
    local kept = nth % 1 == 0 and call('HGET', key, 't' .. nth % HISTORY)
    local t = kept and unpacked(kept)
    if t and t[TERM_GRANT] == grant then return t[TERM_ENDED], t[TERM_STATE], t[TERM_CAUSE] end
  end
end

-- Why a grant holds nothing, from its term.
local function lost(ended, state)
  if not ended then return 'unknown' end
  if ended == 'released' or ended == 'failed' then return 'released' end
  if ended == 'taken_over' then return 'taken_over' end
  if ended ~= '' then return 'superseded' end
  if state ~= 'held' then return 'released' end
  return 'expired'
end

-- The newest term as a new grant leaves it.
local function closed(r)
  local finished, ended, state = now, r[ENDED], began(r)
  if ended ~= '' then
    finished = r[DEADLINE] -- a release has set it
  elseif state ~= 'held' then
    ended = 'superseded'
  elseif now >= r[DEADLINE] then
    finished, ended = r[DEADLINE], 'expired'
  else
    ended = 'taken_over'
  end
  return pack({r[TOKEN], r[GRANT], r[OWNER], r[INSTANCE], state, r[CAUSE], r[ACTOR], r[NOTE], r[ACQUIRED], finished, ended})
end

-- Burns a new token, closes the term before it and begins one.
local function begin(key, r, grants, above, grant, state, cause, ttl, owner, instance, actor, note, guards, every, hold)
  local token = max((r and r[TOKEN] or 0) + 1, above + 1, now)
  if token > MAX_TOKEN then return 'tokens' end
  local held = (r and r[TERMS] or 0) + (state == 'held' and 1 or 0)
  local next = {
    0, token, grant, state, cause, '', now, now, now + ttl, ttl, every > 0 and every or r and r[EVERY] or 0,
    r and r[SUCCEEDED] or 0, hold, held, (r and r[TRANSFERS] or 0) + 1, owner, instance, actor, note, '', 0, guards, r and r[EXPIRES] or 0,
  }
  changed[#changed + 1] = key
  if not r then return '', keep(key, next) end
  grants = grants or ''
  if #grants >= HISTORY * DIGITS then grants = string.sub(grants, DIGITS + 1) end -- the oldest is forgotten for it
  return '', keep(key, next, 'g', grants .. string.sub(r[GRANT], 1, DIGITS), 't' .. r[TRANSFERS] % HISTORY, closed(r))
end

-- Transitions: each returns its outcome and, if it has changed the record, the record -----------------------------------

local function acquire(key, r, q, grants)
  local _, grant, ttl, above, every, holdfor, owner, instance, guards = unpack(q)
  local cause, actor, note = 'first', '', ''
  if r then
    if r[GRANT] == grant and alive(r) then return '' end
    local ended, began_as = term(key, r, grant, grants)
    if ended then return lost(ended, began_as) end
    local reserved = r[STATE] == 'reserved' and now < r[DEADLINE]
    if alive(r) then return 'held' end
    if reserved and r[OWNER] ~= owner then return 'reserved' end
    if r[STATE] == 'free' and r[ENDED] == 'released' and now < r[HOLD] then return 'hold' end
    -- Half a period, without a fraction that a number might lose.
    if every > 0 and r[SUCCEEDED] ~= 0 and 2 * (now - r[SUCCEEDED]) < every then return 'period' end
    if r[STATE] == 'free' and r[CAUSE] == 'cancelled' and r[ENDED] == '' then
      cause = 'cancelled'
    elseif r[STATE] == 'free' then
      cause = 'released'
    elseif reserved then
      cause, actor, note = 'handoff', r[ACTOR], r[NOTE]
    else
      cause = 'expired'
    end
  end
  if above > 0 and above >= (r and r[TOKEN] or 0) then cause, actor, note = 'recovery', '', '' end
  local hold = holdfor > 0 and now + holdfor or 0
  return begin(key, r, grants, above, grant, 'held', cause, ttl, owner, instance, actor, note, guards, every, hold)
end

-- Whether the record is of this grant and held, or was and may be resumed.
local function owns(r, grant, resume) return r and r[GRANT] == grant and r[STATE] == 'held' and (now < r[DEADLINE] or resume == 1) end

local function renew(key, r, q, grants)
  local _, grant, resume, ttl = unpack(q)
  if not owns(r, grant, resume) then return lost(term(key, r, grant, grants)) end
  if ttl ~= 0 then r[TTL] = ttl end
  local deadline = now + r[TTL]
  if deadline < r[DEADLINE] and now >= r[RENEWED] then deadline = r[DEADLINE] end
  r[RENEWED], r[DEADLINE] = now, deadline
  return '', keep(key, r)
end

local function report(key, r, q, grants)
  local _, grant, resume, progress = unpack(q)
  if not owns(r, grant, resume) then return lost(term(key, r, grant, grants)) end
  r[PROGRESS], r[PROGRESSED] = progress, now
  return '', keep(key, r)
end

local function release(key, r, q, grants)
  local _, grant, failed = unpack(q)
  if not owns(r, grant) then
    local ended, began_as = term(key, r, grant, grants)
    if ended == 'released' or ended == 'failed' then return '' end
    return lost(ended, began_as)
  end
  r[STATE], r[DEADLINE] = 'free', now
  if failed == 1 then
    r[ENDED], r[HOLD] = 'failed', 0
  else
    r[ENDED], r[SUCCEEDED] = 'released', r[ACQUIRED]
  end
  changed[#changed + 1] = key
  return '', keep(key, r)
end

local function byhand(key, r, q, grants)
  local verb, grant, ttl, above, owner, instance, guards, actor, note = unpack(q)
  local state, cause = 'held', 'operator'
  if verb == 'reserve' then
    state, instance = 'reserved', ''
  elseif verb == 'revoke' then
    state, cause, owner, instance, ttl = 'free', 'cancelled', '', '', 0
  end
  local ended, began_as, began_by = term(key, r, grant, grants)
  if ended then
    if began_as ~= state or began_by ~= cause then return 'used' end
    if r[GRANT] == grant and r[ENDED] == '' and (state ~= 'held' or alive(r)) then return '' end
    return lost(ended, began_as)
  end
  if guards == '' and r then guards = r[GUARDS] end -- until they are raised, the next operator must find them, too
  return begin(key, r, grants, above, grant, state, cause, ttl, owner, instance, actor, note, guards, 0, 0)
end

local verbs = {acquire = acquire, renew = renew, report = report, release = release, takeover = byhand, reserve = byhand, revoke = byhand}

-- The batch ----------------------------------------------------------------------------------------------------------

-- The record that "r" holds; nil if this script has not written it.
local function parse(kept)
  local ok, r = pcall(unpacked, kept)
  if ok and type(r) == 'table' and #r == EXPIRES and type(r[LEAVES]) == 'number' then return r end
  return nil
end

local function history(key)
  local fields, terms = {}, {}
  for place = 0, HISTORY - 1 do fields[place + 1] = 't' .. place end
  for _, kept in ipairs(call('HMGET', key, unpack(fields))) do
    if kept then terms[#terms + 1] = kept end
  end
  return table.concat(terms)
end

local answers = {now}
for i, q in ipairs(unpacked(ARGV[4])) do
  local key, verb = KEYS[i + 1], q[VERB]
  local held
  if verb == 'renew' or verb == 'report' or verb == 'release' then -- who need the grants only to be refused
    held = redis.pcall('HMGET', key, 'r')
  else
    held = redis.pcall('HMGET', key, 'r', 'g')
  end
  local before, grants = held.err or held[1] or '', held[2]
  local r = held[1] and parse(held[1])
  if r and r[LEAVES] <= now then -- gone, whether or not it has expired yet
    call('DEL', key)
    r, before = nil, ''
  end
  local outcome, after = 'damaged', nil
  if r or before == '' then outcome, after = verbs[verb](key, r, q, grants) end
  if outcome == '' and not after and r and string.find(ARGV[3], 'w') then after = keep(key, r) end
  if outcome == 'taken_over' then before = before .. history(key) end
  answers[#answers + 1] = outcome
  answers[#answers + 1] = after or before
end

-- Waiters ------------------------------------------------------------------------------------------------------------

-- Whoever waits for one of many keys is asked for at once. A node of a cluster does not know of those who wait at others.
local waiting
if #changed > 1 and not string.find(ARGV[3], 'c') then waiting = call('PUBSUB', 'NUMSUB', unpack(changed)) end
for i, key in ipairs(changed) do
  if not waiting or tonumber(waiting[2 * i]) > 0 then call('PUBLISH', key, '') end
end

-- The index ----------------------------------------------------------------------------------------------------------

-- It lists every record until that expires, and does not expire before the last of them. Now and then as many are looked at as were listed since, so that it does not outgrow its
-- records; a large batch does so by itself.
local n = #listed / 2
if n > 0 then
  call('ZADD', index, unpack(listed))
  if n >= LARGE or now + call('PTTL', index) * 1000 < latest or tonumber(clock[2]) % LARGE == 0 then
    for _, member in ipairs(call('ZRANGEBYSCORE', index, '-inf', math.floor(now / 1000), 'LIMIT', 0, n + 2 * LARGE)) do
      local key = string.sub(index, 1, -2) .. 'k:' .. member
      local kept = call('HGET', key, 'r')
      local r = kept and parse(kept)
      if r and r[LEAVES] > now then
        call('ZADD', index, ceil(r[EXPIRES] / 1000), member)
      elseif r or not kept then
        call('ZREM', index, member)
        if r then call('DEL', key) end
      end
    end
    local last = tonumber(call('ZREVRANGE', index, 0, 0, 'WITHSCORES')[2] or 0) * 1000
    call('PEXPIREAT', index, ceil((last + math.min(retention, 3600000000) - offset) / 1000))
  end
end
return answers
