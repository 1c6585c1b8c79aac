-- The law of ownership (package tenure), carried out for a batch of requests on keys of one namespace.
--
-- KEYS[1]    the namespace's index: a sorted set of its keys, scored by when their records leave (milliseconds)
-- KEYS[1+i]  the record of request i
-- ARGV       retention, the time in place of the server's ("" but in tests), "1" to touch what stays unchanged; then the requests, each as its verb and what that takes
--
-- A record is a hash: "r" holds the record as lines of text, "t0" to "t30" the terms before the newest, "g<grant>" in which of these a grant is. The newest
-- term is not kept apart, the record says all of it.
--
-- Numbers are whole microseconds and tokens, all below 2^53: a Lua number holds them exactly, "%.0f" writes them exactly.
--
-- Returns the time, then for each request: its outcome ("" if it took effect), the record as it then stands, the terms before (for "taken_over" alone).

local HISTORY = 31 -- terms before the newest
local MAX_TOKEN = 9007199254740991
local RECORD = '^' .. string.rep('([^\n]*)\n', 22)
local TERM = '^' .. string.rep('([^\n]*)\n', 11)

local retention, touch = tonumber(ARGV[1]), ARGV[3] == '1'
local clock = redis.call('TIME')
local server = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now = tonumber(ARGV[2]) or server
local offset = now - server -- what Redis must be told in its own time
local index = KEYS[1]

local cursor = 3
local function argument()
  cursor = cursor + 1
  return ARGV[cursor]
end

local function number() return tonumber(argument()) end

local function milliseconds(at) return string.format('%.0f', math.ceil(at / 1000)) end

-- What each verb takes, after the grant.
local function byhand_takes(q)
  q.ttl, q.above, q.owner, q.instance, q.guards, q.actor, q.note = number(), number(), argument(), argument(), argument(), argument(), argument()
  q.byhand, q.every, q.holdfor = true, 0, 0
end

local takes = {
  acquire = function(q)
    q.ttl, q.above, q.every, q.holdfor, q.owner, q.instance, q.guards = number(), number(), number(), number(), argument(), argument(), argument()
  end,
  renew = function(q) q.resume, q.ttl = argument() == '1', number() end,
  report = function(q) q.resume, q.progress = argument() == '1', argument() end,
  release = function(q) q.failed = argument() == '1' end,
  takeover = byhand_takes,
  reserve = byhand_takes,
  revoke = byhand_takes,
}

-- Records ------------------------------------------------------------------------------------------------------------

local function parse(text)
  local r = {}
  r.leaves, r.token, r.grant, r.state, r.cause, r.ended, r.acquired, r.renewed, r.deadline, r.ttl, r.every, r.succeeded, r.hold,
    r.terms, r.transfers, r.owner, r.instance, r.actor, r.note, r.progress, r.progressed, r.guards = string.match(text, RECORD)
  for _, field in ipairs({'leaves', 'token', 'acquired', 'renewed', 'deadline', 'ttl', 'every', 'succeeded', 'hold', 'terms', 'transfers', 'progressed'}) do
    r[field] = tonumber(r[field])
    if not r[field] then return nil end -- not written by this script
  end
  return r
end

local function text(r)
  return string.format(
    '%.0f\n%.0f\n%s\n%s\n%s\n%s\n%.0f\n%.0f\n%.0f\n%.0f\n%.0f\n%.0f\n%.0f\n%.0f\n%.0f\n%s\n%s\n%s\n%s\n%s\n%.0f\n%s\n',
    r.leaves, r.token, r.grant, r.state, r.cause, r.ended, r.acquired, r.renewed, r.deadline, r.ttl, r.every, r.succeeded, r.hold,
    r.terms, r.transfers, r.owner, r.instance, r.actor, r.note, r.progress, r.progressed, r.guards)
end

local function alive(r) return r.state == 'held' and now < r.deadline end

-- When the record says nothing any more that a claim must respect.
local function quiet(r)
  local at = math.max(r.deadline, r.acquired, r.renewed, r.hold, r.token)
  if r.succeeded ~= 0 then at = math.max(at, r.succeeded + r.every) end
  return at
end

local function expire(key, r) redis.call('PEXPIREAT', key, milliseconds(r.leaves - offset)) end

local listed = {} -- scores and members for the index

local function keep(key, r)
  r.leaves = quiet(r) + retention
  local kept = text(r)
  redis.call('HSET', key, 'r', kept)
  expire(key, r)
  listed[#listed + 1] = milliseconds(r.leaves)
  listed[#listed + 1] = string.sub(key, #index + 2) -- "…:i" and "…:k:name" begin the same
  return kept
end

-- Terms --------------------------------------------------------------------------------------------------------------

-- The newest term began in this state: it is free only if it was never held, or if it has ended.
local function began(r)
  if r.ended ~= '' then return 'held' end
  return r.state
end

-- The term of a grant: its end, the state and the cause it began with; nil if none is remembered. slot is what the record says of the grant.
local function term(key, r, grant, slot)
  if r.grant == grant then return {ended = r.ended, state = began(r), cause = r.cause} end
  if not slot then return nil end
  local kept = redis.call('HGET', key, 't' .. slot)
  local _, _, _, _, state, cause, _, _, _, _, ended = string.match(kept, TERM)
  return {ended = ended, state = state, cause = cause}
end

-- Why a grant holds nothing.
local function lost(t)
  if not t then return 'unknown' end
  if t.ended == 'released' or t.ended == 'failed' then return 'released' end
  if t.ended == 'taken_over' then return 'taken_over' end
  if t.ended ~= '' then return 'superseded' end
  if t.state ~= 'held' then return 'released' end
  return 'expired'
end

-- Keeps the term that a new grant ends.
local function close(key, r)
  local finished, ended, state = now, r.ended, began(r)
  if ended ~= '' then
    finished = r.deadline -- a release has set it
  elseif state ~= 'held' then
    ended = 'superseded'
  elseif now >= r.deadline then
    finished, ended = r.deadline, 'expired'
  else
    ended = 'taken_over'
  end
  local slot = string.format('%.0f', r.transfers % HISTORY)
  if r.transfers > HISTORY then -- the term that is forgotten for it
    local oldest = redis.call('HGET', key, 't' .. slot)
    if oldest then
      local _, grant = string.match(oldest, TERM)
      redis.call('HDEL', key, 'g' .. grant)
    end
  end
  redis.call('HSET', key, 'g' .. r.grant, slot, 't' .. slot, string.format('%.0f\n%s\n%s\n%s\n%s\n%s\n%s\n%s\n%.0f\n%.0f\n%s\n',
    r.token, r.grant, r.owner, r.instance, state, r.cause, r.actor, r.note, r.acquired, finished, ended))
end

-- Burns a new token, closes the term before it and begins one. q.guards is nil where the holder's stay.
local function grant(key, r, q, state, cause)
  local before = r and r.token or 0
  local token = math.max(before + 1, q.above + 1, now)
  if token > MAX_TOKEN then return 'tokens' end
  if r then
    close(key, r)
  else
    r = {terms = 0, transfers = 0, every = 0, succeeded = 0, actor = '', note = '', guards = ''}
  end
  r.token, r.grant, r.owner, r.instance = token, q.grant, q.owner, q.instance
  r.state, r.cause, r.ended = state, cause, ''
  r.acquired, r.renewed, r.deadline, r.ttl = now, now, now + q.ttl, q.ttl
  r.hold, r.progress, r.progressed = 0, '', 0
  r.actor, r.note = q.actor or r.actor, q.note or r.note
  if q.guards ~= '' or not q.byhand then r.guards = q.guards end
  if q.every > 0 then r.every = q.every end
  if q.holdfor > 0 then r.hold = now + q.holdfor end
  if state == 'held' then r.terms = r.terms + 1 end
  r.transfers = r.transfers + 1
  local kept = keep(key, r)
  redis.call('PUBLISH', key, state)
  return '', kept
end

-- Transitions: each returns its outcome and, if it has changed the record, the record's new text ------------------------

local function refused(r, q)
  if r.state == 'held' and now < r.deadline then return 'held' end
  if r.state == 'reserved' and now < r.deadline and r.owner ~= q.owner then return 'reserved' end
  if r.state == 'free' and r.ended == 'released' and now < r.hold then return 'hold' end
  -- Half a period, without a fraction that a number might lose.
  if q.every > 0 and r.succeeded ~= 0 and 2 * (now - r.succeeded) < q.every then return 'period' end
  return nil
end

local function causeof(r, q)
  if q.above > 0 and q.above >= (r and r.token or 0) then return 'recovery' end
  if not r then return 'first' end
  if r.state == 'free' and r.cause == 'cancelled' and r.ended == '' then return 'cancelled' end
  if r.state == 'free' then return 'released' end
  if r.state == 'reserved' and now < r.deadline then return 'handoff' end
  return 'expired'
end

local function acquire(key, r, q, slot)
  if r then
    if r.grant == q.grant and alive(r) then return '' end
    local t = term(key, r, q.grant, slot)
    if t then return lost(t) end
    local why = refused(r, q)
    if why then return why end
  end
  local cause = causeof(r, q)
  if cause ~= 'handoff' then q.actor, q.note = '', '' end
  return grant(key, r, q, 'held', cause)
end

local function owns(r, q) return r and r.grant == q.grant and r.state == 'held' and (now < r.deadline or q.resume) end

local function renew(key, r, q, slot)
  if not owns(r, q) then return lost(r and term(key, r, q.grant, slot)) end
  if q.ttl ~= 0 then r.ttl = q.ttl end
  local deadline = now + r.ttl
  if deadline < r.deadline and now >= r.renewed then deadline = r.deadline end
  r.renewed, r.deadline = now, deadline
  return '', keep(key, r)
end

local function report(key, r, q, slot)
  if not owns(r, q) then return lost(r and term(key, r, q.grant, slot)) end
  r.progress, r.progressed = q.progress, now
  return '', keep(key, r)
end

local function release(key, r, q, slot)
  if not (r and r.grant == q.grant and alive(r)) then
    local t = r and term(key, r, q.grant, slot)
    if t and (t.ended == 'released' or t.ended == 'failed') then return '' end
    return lost(t)
  end
  r.state, r.deadline = 'free', now
  if q.failed then
    r.ended, r.hold = 'failed', 0
  else
    r.ended, r.succeeded = 'released', r.acquired
  end
  local kept = keep(key, r)
  redis.call('PUBLISH', key, 'free')
  return '', kept
end

local function byhand(key, r, q, slot)
  local state, cause = 'held', 'operator'
  if q.verb == 'reserve' then
    state, q.instance = 'reserved', ''
  elseif q.verb == 'revoke' then
    state, cause = 'free', 'cancelled'
    q.owner, q.instance, q.ttl = '', '', 0
  end
  local t = r and term(key, r, q.grant, slot)
  if t then
    if t.state ~= state or t.cause ~= cause then return 'used' end
    if r.grant == q.grant and r.ended == '' and (state ~= 'held' or alive(r)) then return '' end
    return lost(t)
  end
  return grant(key, r, q, state, cause)
end

local verbs = {acquire = acquire, renew = renew, report = report, release = release, takeover = byhand, reserve = byhand, revoke = byhand}

-- The batch ----------------------------------------------------------------------------------------------------------

local function history(key)
  local fields = {}
  for slot = 0, HISTORY - 1 do fields[#fields + 1] = 't' .. slot end
  local terms = {}
  for _, kept in ipairs(redis.call('HMGET', key, unpack(fields))) do
    if kept then terms[#terms + 1] = kept end
  end
  return table.concat(terms)
end

local answers = {string.format('%.0f', now)}
for i = 2, #KEYS do
  local key, q = KEYS[i], {verb = argument(), grant = argument()}
  takes[q.verb](q)
  local held = redis.pcall('HMGET', key, 'r', 'g' .. q.grant)
  local before, slot = held.err or held[1] or '', held[2]
  local r = held[1] and parse(held[1])
  if r and r.leaves <= now then -- due to leave: it is gone, whether or not it has been removed yet
    redis.call('DEL', key)
    r, before, slot = nil, '', nil
  end
  local outcome, after = 'damaged', nil
  if r or before == '' then outcome, after = verbs[q.verb](key, r, q, slot) end
  if touch and outcome == '' and not after and r then expire(key, r) end
  answers[#answers + 1] = outcome
  answers[#answers + 1] = after or before
  answers[#answers + 1] = outcome == 'taken_over' and history(key) or ''
end

-- The index lists every record until it leaves. For each that is written here, one that has left is taken off the list: so it does not outgrow its records.
if #listed > 0 then
  redis.call('ZADD', index, unpack(listed))
  local due = redis.call('ZRANGEBYSCORE', index, '-inf', string.format('%.0f', math.floor(now / 1000)), 'LIMIT', 0, #listed / 2)
  for _, member in ipairs(due) do
    local key = string.sub(index, 1, -2) .. 'k:' .. member
    local kept = redis.call('HGET', key, 'r')
    local leaves = kept and tonumber(string.match(kept, '^(%d+)\n'))
    if leaves and leaves > now then
      redis.call('ZADD', index, milliseconds(leaves), member)
    else
      redis.call('ZREM', index, member)
      if leaves then redis.call('DEL', key) end
    end
  end
  local last = redis.call('ZREVRANGE', index, 0, 0, 'WITHSCORES')
  redis.call('PEXPIREAT', index, milliseconds(tonumber(last[2]) * 1000 + 1000000 - offset))
end
return answers
