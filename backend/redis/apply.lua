-- The law of ownership (package tenure), carried out for a batch of requests on keys of one namespace.
--
-- KEYS[1]    the namespace's index: a sorted set of its keys, scored by when their records leave (milliseconds)
-- KEYS[1+i]  the record of request i
-- ARGV       retention; the time in place of the server's ("" but in tests); "1" to touch what stays unchanged; then the requests, each as
--            how many words follow, verb, grant, and
--              acquire                     ttl above every holdfor owner instance guards
--              renew                       resume ttl
--              report                      resume progress
--              release                     failed
--              takeover, reserve, revoke   ttl above owner instance guards actor note
--
-- A record is a hash. "r" holds the record, "t0" to "t30" the terms before the newest, "g<grant>" in which of these a grant is; records and terms are arrays in MessagePack. The newest
-- term is not kept apart: the record says all of it.
--
-- Times are whole microseconds; they and tokens are below 2^53, which a Lua number holds exactly.
--
-- Returns the time, then for each request its outcome ("" if it took effect) and the record as it then stands, for "taken_over" with the terms before it.

--# The places in a record. Lines like these name numbers: each name is replaced by its number before the script is sent, because a local would cost at every run.
--# LEAVES 1, TOKEN 2, GRANT 3, STATE 4, CAUSE 5, ENDED 6, ACQUIRED 7, RENEWED 8, DEADLINE 9, TTL 10, EVERY 11, SUCCEEDED 12, HOLD 13
--# TERMS 14, TRANSFERS 15, OWNER 16, INSTANCE 17, ACTOR 18, NOTE 19, PROGRESS 20, PROGRESSED 21, GUARDS 22
--# Those in a term that are looked at: token, grant, owner, instance, state, cause, actor, note, acquired, finished, ended.
--# TERM_GRANT 2, TERM_STATE 5, TERM_CAUSE 6, TERM_ENDED 11
--# Terms before the newest; the highest token; how many writes are a large batch.
--# HISTORY 31, MAX_TOKEN 9007199254740991, LARGE 16

local call, pack, unpacked, ceil, max = redis.call, cmsgpack.pack, cmsgpack.unpack, math.ceil, math.max

local retention = tonumber(ARGV[1])
local clock = call('TIME')
local server = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now = tonumber(ARGV[2]) or server
local offset = now - server -- what Redis must be told in its own time
local index = KEYS[1]
local written, latest, listed = 0, 0, {} -- how many records; when the last of them leaves; scores and members for the index

-- Records ------------------------------------------------------------------------------------------------------------

local function alive(r) return r[STATE] == 'held' and now < r[DEADLINE] end

local function expire(key, r) call('PEXPIREAT', key, ceil((r[LEAVES] - offset) / 1000)) end

-- Writes a record, and a term with it. It leaves a retention after it says nothing any more that a claim must respect.
local function keep(key, r, ...)
  local quiet = max(r[DEADLINE], r[ACQUIRED], r[RENEWED], r[HOLD], r[TOKEN])
  if r[SUCCEEDED] ~= 0 then quiet = max(quiet, r[SUCCEEDED] + r[EVERY]) end
  r[LEAVES] = quiet + retention
  local kept = pack(r)
  call('HSET', key, 'r', kept, ...)
  expire(key, r)
  latest, written = max(latest, r[LEAVES]), written + 1
  if r[ACQUIRED] == now or #KEYS > LARGE then -- otherwise it is listed already, and when it leaves is only a hint
    listed[#listed + 1] = ceil(r[LEAVES] / 1000)
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

-- The end of a grant's term, and the state and cause it began with; nil if none is remembered. slot is what the record says of the grant.
local function term(key, r, grant, slot)
  if not r then return nil end
  if r[GRANT] == grant then return r[ENDED], began(r), r[CAUSE] end
  if not slot then return nil end
  local t = unpacked(call('HGET', key, 't' .. slot))
  return t[TERM_ENDED], t[TERM_STATE], t[TERM_CAUSE]
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

-- The newest term as a new grant leaves it, and where it is kept.
local function closed(key, r)
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
  local slot = r[TRANSFERS] % HISTORY
  if r[TRANSFERS] > HISTORY then -- the oldest is forgotten for it
    local oldest = call('HGET', key, 't' .. slot)
    if oldest then call('HDEL', key, 'g' .. unpacked(oldest)[TERM_GRANT]) end
  end
  return slot, pack({r[TOKEN], r[GRANT], r[OWNER], r[INSTANCE], state, r[CAUSE], r[ACTOR], r[NOTE], r[ACQUIRED], finished, ended})
end

-- Burns a new token, closes the term before it and begins one.
local function begin(key, r, above, grant, state, cause, ttl, owner, instance, actor, note, guards, every, hold)
  local token = max((r and r[TOKEN] or 0) + 1, above + 1, now)
  if token > MAX_TOKEN then return 'tokens' end
  local terms = (r and r[TERMS] or 0) + (state == 'held' and 1 or 0)
  local next = {
    0, token, grant, state, cause, '', now, now, now + ttl, ttl, every > 0 and every or r and r[EVERY] or 0,
    r and r[SUCCEEDED] or 0, hold, terms, (r and r[TRANSFERS] or 0) + 1, owner, instance, actor, note, '', 0, guards,
  }
  call('PUBLISH', key, state)
  if not r then return '', keep(key, next) end
  local slot, before = closed(key, r)
  return '', keep(key, next, 't' .. slot, before, 'g' .. r[GRANT], slot)
end

-- Transitions: each returns its outcome and, if it has changed the record, the record. at is where its words are. --------

local function acquire(key, r, slot, at)
  local grant, ttl, above, every, holdfor = ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  local owner, instance, guards = ARGV[at + 6], ARGV[at + 7], ARGV[at + 8]
  local cause, actor, note = 'first', '', ''
  if r then
    if r[GRANT] == grant and alive(r) then return '' end
    local ended, began_as = term(key, r, grant, slot)
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
  return begin(key, r, above, grant, 'held', cause, ttl, owner, instance, actor, note, guards, every, hold)
end

-- Whether the record is of this grant and held, or was and may be resumed.
local function owns(r, grant, resume) return r and r[GRANT] == grant and r[STATE] == 'held' and (now < r[DEADLINE] or resume == '1') end

local function renew(key, r, slot, at)
  local grant, ttl = ARGV[at + 1], tonumber(ARGV[at + 3])
  if not owns(r, grant, ARGV[at + 2]) then return lost(term(key, r, grant, slot)) end
  if ttl ~= 0 then r[TTL] = ttl end
  local deadline = now + r[TTL]
  if deadline < r[DEADLINE] and now >= r[RENEWED] then deadline = r[DEADLINE] end
  r[RENEWED], r[DEADLINE] = now, deadline
  return '', keep(key, r)
end

local function report(key, r, slot, at)
  local grant = ARGV[at + 1]
  if not owns(r, grant, ARGV[at + 2]) then return lost(term(key, r, grant, slot)) end
  r[PROGRESS], r[PROGRESSED] = ARGV[at + 3], now
  return '', keep(key, r)
end

local function release(key, r, slot, at)
  local grant, failed = ARGV[at + 1], ARGV[at + 2] == '1'
  if not owns(r, grant) then
    local ended, began_as = term(key, r, grant, slot)
    if ended == 'released' or ended == 'failed' then return '' end
    return lost(ended, began_as)
  end
  r[STATE], r[DEADLINE] = 'free', now
  if failed then
    r[ENDED], r[HOLD] = 'failed', 0
  else
    r[ENDED], r[SUCCEEDED] = 'released', r[ACQUIRED]
  end
  call('PUBLISH', key, 'free')
  return '', keep(key, r)
end

local function byhand(key, r, slot, at)
  local verb, grant, ttl, above = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local owner, instance, guards, actor, note = ARGV[at + 4], ARGV[at + 5], ARGV[at + 6], ARGV[at + 7], ARGV[at + 8]
  local state, cause = 'held', 'operator'
  if verb == 'reserve' then
    state, instance = 'reserved', ''
  elseif verb == 'revoke' then
    state, cause, owner, instance, ttl = 'free', 'cancelled', '', '', 0
  end
  local ended, began_as, began_by = term(key, r, grant, slot)
  if ended then
    if began_as ~= state or began_by ~= cause then return 'used' end
    if r[GRANT] == grant and r[ENDED] == '' and (state ~= 'held' or alive(r)) then return '' end
    return lost(ended, began_as)
  end
  if guards == '' and r then guards = r[GUARDS] end -- until they are raised, the next operator must find them, too
  return begin(key, r, above, grant, state, cause, ttl, owner, instance, actor, note, guards, 0, 0)
end

local verbs = {acquire = acquire, renew = renew, report = report, release = release, takeover = byhand, reserve = byhand, revoke = byhand}

-- The batch ----------------------------------------------------------------------------------------------------------

-- The record that "r" holds; nil if this script has not written it.
local function parse(kept)
  local ok, r = pcall(unpacked, kept)
  if ok and type(r) == 'table' and #r == GUARDS and type(r[LEAVES]) == 'number' then return r end
  return nil
end

local function history(key)
  local fields = {}
  for slot = 0, HISTORY - 1 do fields[slot + 1] = 't' .. slot end
  local terms = {}
  for _, kept in ipairs(call('HMGET', key, unpack(fields))) do
    if kept then terms[#terms + 1] = kept end
  end
  return table.concat(terms)
end

local answers = {now}
local at = 4
for i = 2, #KEYS do
  local key = KEYS[i]
  local held = redis.pcall('HMGET', key, 'r', 'g' .. ARGV[at + 2])
  local before, slot = held.err or held[1] or '', held[2]
  local r = held[1] and parse(held[1])
  if r and r[LEAVES] <= now then -- due to leave: it is gone, whether or not it has been removed yet
    call('DEL', key)
    r, before, slot = nil, '', nil
  end
  local outcome, after = 'damaged', nil
  if r or before == '' then outcome, after = verbs[ARGV[at + 1]](key, r, slot, at + 1) end
  if outcome == '' and not after and r and ARGV[3] == '1' then expire(key, r) end
  if outcome == 'taken_over' then before = before .. history(key) end
  answers[#answers + 1] = outcome
  answers[#answers + 1] = after or before
  at = at + 1 + tonumber(ARGV[at])
end

-- The index ----------------------------------------------------------------------------------------------------------

-- It lists every record until that leaves, and does not leave before the last of them. Now and then as many are looked at as were written since, so that it does not outgrow its
-- records; a large batch does so by itself.
if #listed > 0 then call('ZADD', index, unpack(listed)) end
if written > 0 then
  local left = call('PTTL', index) * 1000
  if now + left < latest or written >= LARGE or tonumber(clock[2]) % LARGE == 0 then
    for _, member in ipairs(call('ZRANGEBYSCORE', index, '-inf', math.floor(now / 1000), 'LIMIT', 0, written + 2 * LARGE)) do
      local key = string.sub(index, 1, -2) .. 'k:' .. member
      local kept = call('HGET', key, 'r')
      local r = kept and parse(kept)
      if r and r[LEAVES] > now then
        call('ZADD', index, ceil(r[LEAVES] / 1000), member)
      elseif r or not kept then
        call('ZREM', index, member)
        if r then call('DEL', key) end
      end
    end
    local last = call('ZREVRANGE', index, 0, 0, 'WITHSCORES')[2] or 0
    call('PEXPIREAT', index, ceil((max(latest, tonumber(last) * 1000) + math.min(retention, 3600000000) - offset) / 1000))
  end
end
return answers
