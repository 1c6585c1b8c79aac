-- The law of ownership (package tenure), carried out for a batch of requests on keys of one namespace.
--
-- KEYS[1]    the namespace's index: a sorted set of its keys, scored by when their records expire (milliseconds)
-- KEYS[1+i]  the record of request i
-- ARGV[1]    the settings and then the requests, packed: see SETTINGS and REQUEST
--
-- A record is a hash. "r" holds all of it but its texts, which are in "x", and the past; another form of it would have another name. "g" holds the first digits of the grants before the newest, the oldest first. Their terms are in fields of one letter, term n in that of n %
-- 31. "w" holds the stores that wait for the key, the first first.
--
-- A record is gone when its time to leave has come. Redis expires it some time after that, so that it need not be told anew at every change.
--
-- Times are whole microseconds; they and tokens are below 2^53, which a Lua number holds exactly.
--
-- Returns, in one text, the time, and for each request its outcome and the record as it then stands, with its texts unless they are those that were sent; "\0" if there is none. After "taken over" the terms before it follow, with
-- their length before them.
--
-- While a script runs, Redis serves nobody else. What costs is to call Redis, to define locals and fill tables, which is done at every run, and to make strings, of which every byte is hashed. So a record is read into
-- locals in one step, its texts are not looked at, and what is rare is out of the way.

--# Lines like these name numbers, texts and formats; each name is replaced by its value before the script is sent. Formats are those of the struct library. The Go side of all this is packed.go.
--# What a batch begins with: retention; the time in place of the server's (0 but in tests); flags, added up; the id of the store that asks.
--# SETTINGS '<ddBc8', REWRITE 1, CLUSTER 2
--# A request: verb, flag, grant, ttl, and the lengths of its texts: owner, instance, actor and note, each with its length before it; and guards, or progress. If the flag says so there is more before them: above, every, hold.
--# REQUEST '<BBc16dHH', MORE '<ddd'
--# ACQUIRE 1, RENEW 2, REPORT 3, RELEASE 4, TAKEOVER 5, RESERVE 6, REVOKE 7, LEAVE 8, ENTER 9
--# The flag says of an acquire that its store watches the key, of a renewal or report that it resumes, of a release that the term failed; and whether there is more.
--# WATCHING 1, RESUMING 1, FAILED 1, WITH_MORE 2
--# A record: state, ended, whether somebody may wait; expires, deadline, renewed, ttl, the moment before which it matters whatever its deadline is, succeeded, hold, progressed, the length of its progress. Then its term, which does not change: cause, every, token,
--# acquired, terms, transfers, grant, and the lengths of its other texts, as in a request.
--# HEAD '<BBBddddddddH', HEAD_SIZE 69, RECORD '<BBBddddddddHBdddI4I4c16HH', RECORD_SIZE 122, WAITED_AT 3
--# A term in the past: its end, the state it began with, when it ended, the term, and the first of its texts.
--# PAST '<BBd', PAST_TERM '<BBdBdddI4I4c16HH', PAST_SIZE 63
--# Another program may have written to the hash. No term that this script has written is longer, and the length of all of them must fit into two bytes.
--# MOST_TERM 2048
--# Nor are texts, guards and progress together, see tenure.MaxName, MaxText and MaxGuards; and no number is as far from 0, whatever the retention.
--# MOST_WORDS 19223, FAR 72057594037927936
--# FREE 1, HELD 2, RESERVED 3
--# FIRST 1, RELEASED 2, EXPIRED 3, HANDOFF 4, OPERATOR 5, CANCELLED 6, RECOVERY 7
--# END_RELEASED 1, END_FAILED 2, END_EXPIRED 3, END_TAKEN_OVER 4, END_SUPERSEDED 5
--# GRANTED 'g', DONE 'd', IS_HELD 'h', IS_HELD_IN_LINE 'H', IS_RESERVED 'r', IS_RESERVED_IN_LINE 'R', ON_HOLD 'o', IN_PERIOD 'p'
--# WAS_RELEASED 'l', HAS_EXPIRED 'e', WAS_SUPERSEDED 's', WAS_TAKEN_OVER 't', UNKNOWN 'u', SECRET_USED 'x', NO_TOKENS 'n', DAMAGED '!'
--# Terms before the newest and their fields; the bytes of a grant that are kept of each; the highest token; how many writes are a large batch.
--# HISTORY 31, OTHERS 30, LETTERS 'ABCDEFGHIJKLMNOPQRSTUVWXYZ01234', DIGITS 2, MAX_TOKEN 9007199254740991, LARGE 16
--# Who waits: at most so many, each by its id and when it last asked; one who has not asked for so long is passed over.
--# MOST_WAITERS 64, WAITER '<c8d', WAITER_SIZE 16, LAPSE 20000000
--# What watchers are told: that the key is held; otherwise the id of the one whose turn it is, or nothing if it is everybody's.
--# TAKEN 'held', NEXT 'next'
--# The channel of operators' acts, behind the store's prefix.
--# ACTS 'acts'

local call, pack, read, sub, max = redis.call, struct.pack, struct.unpack, string.sub, math.max
local clock = call('TIME')
local server = clock[1] * 1000000 + clock[2]
local index, requests = KEYS[1], ARGV[1]
local retention, now, flags, asker, cursor = read(SETTINGS, requests)
if now == 0 then now = server end
local offset = now - server -- what Redis must be told in its own time
local answers, n = {pack('<d', now)}, 1
local changed, fate -- keys that have changed hands, and what those who watch each are told in the end
local acted -- the keys on which operators have acted
local listed, latest = nil, 0 -- scores and members for the index; when the last record expires that was told to
local wrote = false

-- The past -----------------------------------------------------------------------------------------------------------

-- The end of a grant's term before the newest, and the state and cause it began with; nil if it is not remembered.
local function past(key, grant, grants, transfers)
  grants = sub(grants or call('HGET', key, 'g') or '', -HISTORY * DIGITS)
  local digits, at = sub(grant, 1, DIGITS), 0
  while true do
    at = string.find(grants, digits, at + 1, true)
    if not at then return nil end
    local nth = transfers - (#grants - at + 1) / DIGITS
    local place = nth % HISTORY + 1
    local term = nth % 1 == 0 and call('HGET', key, sub(LETTERS, place, place))
    if term and #term >= PAST_SIZE and #term <= MOST_TERM then
      local ended, began, _, cause, _, _, _, _, _, theirs = read(PAST_TERM, term)
      if theirs == grant then return ended, began, cause end
    end
  end
end

-- Why a grant holds nothing, from its term.
local function lost(ended, began)
  if not ended then return UNKNOWN end
  if ended == END_RELEASED or ended == END_FAILED then return WAS_RELEASED end
  if ended == END_TAKEN_OVER then return WAS_TAKEN_OVER end
  if ended ~= 0 then return WAS_SUPERSEDED end
  if began ~= HELD then return WAS_RELEASED end
  return HAS_EXPIRED
end

for i = 2, #KEYS do
  -- The request and the record -----------------------------------------------------------------------------------------

  local key = KEYS[i]
  local verb, flag, grant, ttl, spoken, others, texts = read(REQUEST, requests, cursor)
  local above, every, holdfor = 0, 0, 0
  if flag >= WITH_MORE then
    flag = flag - WITH_MORE
    above, every, holdfor, texts = read(MORE, requests, texts)
  end
  cursor = texts + spoken + others

  local state, ended, waited, expires, deadline, renewed, lasts, matters, succeeded, hold, progressed, reached, cause, period, token, acquired, terms, transfers, holder, saying, guarding, began
  local outcome, found
  if verb == ACQUIRE then found = redis.pcall('HMGET', key, 'r', 'x', 'g') else found = redis.pcall('HMGET', key, 'r', 'x') end
  local record, words = found[1], found[2]
  if record and #record == RECORD_SIZE and words then
    state, ended, waited, expires, deadline, renewed, lasts, matters, succeeded, hold, progressed, reached, cause, period, token, acquired, terms, transfers, holder, saying, guarding = read(RECORD, record)
    began = ended == 0 and state or HELD -- what has ended was held
    -- Another program may have written to the hash. Go would read a state of 0
    -- as no record, and Redis refuses times without end in the middle of a batch.
    -- A sum of squares finds numbers that are too large, on both sides of 0, and
    -- those that are none.
    local sound = state >= FREE and state <= RESERVED and ended <= END_SUPERSEDED and cause >= FIRST and cause <= RECOVERY
      and saying + guarding + reached == #words and #words <= MOST_WORDS
      and expires * expires + deadline * deadline + renewed * renewed + lasts * lasts + matters * matters + succeeded * succeeded
        + hold * hold + progressed * progressed + period * period + token * token + acquired * acquired < FAR * FAR
    if sound and state == RESERVED then -- the four texts are read below: they fill their place
      local at = 1
      for _ = 1, 4 do at = at + 2 + (at < saying and read('<H', words, at) or MOST_WORDS) end
      sound = at == saying + 1
    end
    if not sound then
      outcome, record = DAMAGED, nil
    elseif max(matters, deadline, renewed) + retention <= now then -- gone, whether or not it has expired yet
      call('DEL', key)
      record = nil
    end
  elseif found.err and not string.find(found.err, 'WRONGTYPE', 1, true) then
    return found -- it may not be read, here or by this user, which says nothing of it
  elseif record or words or found.err then
    outcome, record = DAMAGED, nil -- not written by this script: nothing is decided from it
  end
  local mine, alive = record and holder == grant, record and state == HELD and now < deadline

  -- The decision -------------------------------------------------------------------------------------------------------

  local changes = false -- whether the record is to be written with its values as they then are
  local begins, because -- the state of a new term, and its cause
  local speaks = false -- whether its texts are others than before
  local tells -- those who watch the key

  if outcome then
  elseif verb == ACQUIRE then
    local over, as
    if mine then
      over, as = ended, began
    elseif record and transfers > 1 then
      over, as = past(key, grant, found[3] or '', transfers)
    end
    local reserved = record and state == RESERVED and now < deadline
    if mine and alive then
      outcome = DONE -- the reply was lost: same answer, same deadline
    elseif over then
      outcome = lost(over, as) -- a secret is granted once
    elseif alive then
      outcome = IS_HELD
    elseif reserved and sub(words, 1, 2 + read('<H', words)) ~= sub(requests, texts, texts + 1 + read('<H', requests, texts)) then
      outcome = IS_RESERVED -- for another owner
    elseif record and state == FREE and ended == END_RELEASED and now < hold then
      outcome = ON_HOLD
    elseif record and every > 0 and succeeded ~= 0 and 2 * (now - succeeded) < every then -- half a period, without a fraction that a number might lose
      outcome = IN_PERIOD
    else
      outcome, begins, tells = GRANTED, HELD, TAKEN
      if above > 0 and (not record or above >= token) then
        because = RECOVERY
      elseif not record then
        because = FIRST
      elseif state == FREE and cause == CANCELLED and ended == 0 then
        because = CANCELLED
      elseif state == FREE then
        because = RELEASED
      elseif reserved then
        because = HANDOFF
      else
        because = EXPIRED
      end
    end

  elseif verb == RELEASE then
    if mine and alive then
      outcome, changes, state, deadline = DONE, true, FREE, now
      if flag == FAILED then
        ended, hold, matters = END_FAILED, 0, token
        if succeeded ~= 0 then matters = max(token, succeeded + period) end
      else
        ended, succeeded, matters = END_RELEASED, acquired, max(token, hold, acquired + period)
      end
      tells = waited == 1 and NEXT or ''
    else
      local over, as
      if mine then
        over, as = ended, began
      elseif record then
        over, as = past(key, grant, nil, transfers)
      end
      if over == END_RELEASED or over == END_FAILED then outcome = DONE else outcome = lost(over, as) end -- already released by oneself is done
    end

  elseif verb == RENEW or verb == REPORT then
    if mine and state == HELD and (now < deadline or flag == RESUMING) then
      outcome, changes = DONE, true
      if verb == REPORT then
        progressed, reached, speaks = now, others, true
        words = sub(words, 1, saying + guarding) .. sub(requests, texts, cursor - 1)
      else
        if ttl ~= 0 then lasts = ttl end
        if now + lasts >= deadline or now < renewed then deadline = now + lasts end -- a shorter TTL takes nothing back; only a clock that has stepped back does
        renewed = now
      end
    elseif mine then
      outcome = lost(ended, began)
    elseif record then
      outcome = lost(past(key, grant, nil, transfers))
    else
      outcome = UNKNOWN
    end

  elseif verb == LEAVE then -- nobody's transition: a store that waits no more
    outcome = DONE

  elseif verb == ENTER then -- nor is this: a store that waits, and has not asked
    outcome = record and IS_HELD or UNKNOWN

  else -- by hand
    local over, as, by
    if mine then
      over, as, by = ended, began, cause
    elseif record then
      over, as, by = past(key, grant, nil, transfers)
    end
    local state_of, cause_of = HELD, OPERATOR
    if verb == RESERVE then
      state_of = RESERVED
    elseif verb == REVOKE then
      state_of, cause_of = FREE, CANCELLED
    end
    if not over then
      outcome, begins, because, tells = DONE, state_of, cause_of, ''
    elseif as ~= state_of or by ~= cause_of then
      outcome = SECRET_USED -- no repetition of this act: it would be taken for done
    elseif mine and ended == 0 and (as ~= HELD or alive) then
      outcome = DONE
    else
      outcome = lost(over, as)
    end
  end

  -- The new term -------------------------------------------------------------------------------------------------------

  local place, closed, before -- of the term before it: its field, the term; the grants up to it
  if begins then
    local burned = max((record and token or 0) + 1, above + 1, now)
    if burned > MAX_TOKEN then
      outcome, begins, tells = NO_TOKENS, nil, nil
    else
      local said = sub(requests, texts, cursor - 1)
      if record then
        local how, finished = ended, deadline -- a release has set both
        if ended == 0 then
          if began ~= HELD then
            how, finished = END_SUPERSEDED, now
          elseif now >= deadline then
            how = END_EXPIRED
          else
            how, finished = END_TAKEN_OVER, now
          end
        end
        closed = pack(PAST, how, began, finished) .. sub(record, HEAD_SIZE + 1) .. (#words > saying and sub(words, 1, saying) or words)
        place = transfers % HISTORY + 1
        place = sub(LETTERS, place, place)
        before = sub(found[3] or call('HGET', key, 'g') or '', -OTHERS * DIGITS) .. sub(holder, 1, DIGITS) -- the oldest is forgotten for it
        if because == HANDOFF then -- the operator's word stays with it: what follows owner and instance
          local at, from = 3 + read('<H', said), 3 + read('<H', words)
          at, from = at + 2 + read('<H', said, at), from + 2 + read('<H', words, from)
          said = sub(said, 1, at - 1) .. sub(words, from, saying) .. sub(said, spoken + 1)
          outcome, spoken = DONE, #said - others
        elseif others == 0 and verb ~= ACQUIRE then -- until they are raised, the next operator must find them, too
          said, others = said .. sub(words, saying + 1, saying + guarding), guarding
        end
      else
        words, expires, period, succeeded, terms, transfers, waited = nil, 0, 0, 0, 0, 0, 0
      end
      changes, state, ended, deadline, renewed, lasts, hold, progressed, reached = true, begins, 0, now + ttl, now, ttl, 0, 0, 0
      if every > 0 then period = every end
      if holdfor > 0 then hold = now + holdfor end
      if begins == HELD then terms = terms + 1 end
      transfers, token, matters = transfers + 1, burned, max(burned, hold)
      if succeeded ~= 0 and succeeded + period > matters then matters = succeeded + period end
      speaks, words = said ~= words, said
    end
  end

  -- The change ---------------------------------------------------------------------------------------------------------

  if changes then
    local leaves = max(matters, deadline, renewed) + retention -- it says nothing any more by then that a claim must respect
    local tell = expires < leaves or expires > leaves + retention / 4
    if tell then expires = math.ceil(leaves + retention / 8) end

    if begins then
      record = pack(RECORD, state, ended, waited, expires, deadline, renewed, lasts, matters, succeeded, hold, progressed, reached, because, period, token, now, terms, transfers, grant, spoken, others)
    else
      record = pack(HEAD, state, ended, waited, expires, deadline, renewed, lasts, matters, succeeded, hold, progressed, reached) .. sub(record, HEAD_SIZE + 1)
    end
    if closed and speaks then
      call('HSET', key, 'r', record, 'g', before, place, closed, 'x', words)
    elseif closed then
      call('HSET', key, 'r', record, 'g', before, place, closed)
    elseif speaks then
      call('HSET', key, 'r', record, 'x', words)
    else
      call('HSET', key, 'r', record)
    end
    wrote = true

    if tell then
      local score = math.ceil(expires / 1000)
      call('PEXPIREAT', key, score - math.floor(offset / 1000))
      if expires > latest then latest = expires end
      listed = listed or {}
      listed[#listed + 1] = score
      listed[#listed + 1] = sub(key, #index + 2) -- "…:i" and "…:k:name" begin the same
    end
    if tells and waited == 1 then -- where nobody stands in line nobody is told
      if not changed then changed, fate = {}, {} end
      if not fate[key] then changed[#changed + 1] = key end
      fate[key] = tells
    end
    if tells and verb >= TAKEOVER then
      acted = acted or {}
      acted[key] = true
    end
  elseif record and outcome == DONE and flags % 2 == REWRITE then
    call('HSET', key, 'r', record) -- WAIT counts what a connection has written
    wrote = true
  end

  -- Who waits ----------------------------------------------------------------------------------------------------------

  if record and (verb >= LEAVE or flag == WATCHING and verb == ACQUIRE) and (waited == 1 or outcome == IS_HELD or outcome == IS_RESERVED) then
    local line = waited == 1 and sub(call('HGET', key, 'w') or '', 1, MOST_WAITERS * WAITER_SIZE) or ''
    local at = string.find(line, asker, 1, true)
    if outcome == DONE or outcome == GRANTED then
      if at then line = sub(line, 1, at - 1) .. sub(line, at + WAITER_SIZE) end -- it has what it waited for, or has gone
    elseif outcome == IS_HELD or outcome == IS_RESERVED then
      if at then -- it keeps its place
        line = sub(line, 1, at - 1) .. pack(WAITER, asker, now) .. sub(line, at + WAITER_SIZE)
      elseif #line < MOST_WAITERS * WAITER_SIZE then
        at, line = #line, line .. pack(WAITER, asker, now)
      end
      if at then outcome = outcome == IS_HELD and IS_HELD_IN_LINE or IS_RESERVED_IN_LINE end
    end
    if at then
      call('HSET', key, 'w', line)
      wrote = true
      if waited == 0 then
        record = sub(record, 1, WAITED_AT - 1) .. '\1' .. sub(record, WAITED_AT + 1)
        call('HSET', key, 'r', record)
      end
    end
  end

  -- The answer ---------------------------------------------------------------------------------------------------------

  answers[n + 1], answers[n + 2] = outcome, record or '\0'
  n = n + 2
  if record and outcome ~= GRANTED then
    n = n + 1
    answers[n] = words
  end
  if outcome == WAS_TAKEN_OVER then -- by whom is said by the terms before it
    local fields, kept = {}, {}
    for nth = 1, HISTORY do fields[nth] = sub(LETTERS, nth, nth) end
    for _, term in ipairs(call('HMGET', key, unpack(fields))) do
      if term and #term <= MOST_TERM then kept[#kept + 1] = term end
    end
    kept = table.concat(kept)
    answers[n + 1], answers[n + 2] = pack('<H', #kept), kept
    n = n + 2
  end
end

-- A replica answers, too, from what it has heard of. It must not: what it refuses may be owned. It does not take changes, though, not even this one, which changes nothing.
if not wrote then
  local done = redis.pcall('ZREM', index, '')
  if type(done) == 'table' and not string.find(done.err, 'WRONGTYPE', 1, true) then return done end
end

-- Watchers are told ---------------------------------------------------------------------------------------------------

if changed then
  -- What has been decided stands, also if this user may not speak on channels:
  -- then those who wait ask now and then.
  for _, key in ipairs(changed) do
    local word = fate[key]
    if word == NEXT then -- the first who waits; it is a hint: whoever asks may have the key
      local line, id, asked = sub(call('HGET', key, 'w') or '', 1, MOST_WAITERS * WAITER_SIZE), nil, nil
      word = ''
      while word == '' and #line >= WAITER_SIZE do
        id, asked = read(WAITER, line)
        line = sub(line, WAITER_SIZE + 1)
        if asked + LAPSE > now then word, line = id, pack(WAITER, id, 0) .. line end -- it keeps its place, if somebody else is first, and has it no more the next time
      end
      if #line >= WAITER_SIZE then
        call('HSET', key, 'w', line)
      else
        local record = call('HGET', key, 'r')
        call('HSET', key, 'r', sub(record, 1, WAITED_AT - 1) .. '\0' .. sub(record, WAITED_AT + 1))
        call('HDEL', key, 'w')
      end
    end
    redis.pcall('PUBLISH', key, word)
  end
end

-- Holders are told of operators' acts -------------------------------------------------------------------------------

-- Each message is one key. What has been decided stands, also if this user may
-- not publish here. The prefix of a store has no brace: it ends at the tag's.
if acted then
  local channel = sub(index, 1, string.find(index, '{', 1, true) - 1) .. ACTS
  for key in pairs(acted) do
    local heard = redis.pcall('PUBLISH', channel, sub(key, #index + 2))
    -- One refusal stands for all. So does one message that nobody hears, but a
    -- node of a cluster does not know who listens at others.
    if type(heard) == 'table' or heard == 0 and flags < CLUSTER then break end
  end
end

-- The index ----------------------------------------------------------------------------------------------------------

-- It lists every record until that expires, and does not expire before the last of them. Now and then as many are looked at as were listed since, so that it does not outgrow its
-- records; a large batch does so by itself.
if listed then
  local many = #listed / 2
  local added = redis.pcall('ZADD', index, unpack(listed))
  if type(added) == 'table' then -- what has been decided stands, also if another program has taken the index's name
    if not string.find(added.err, 'WRONGTYPE', 1, true) then return added end
  elseif many >= LARGE or now + call('PTTL', index) * 1000 < latest or clock[2] % LARGE == 0 then
    local later = math.ceil((now + retention) / 1000) -- a score that keeps what stays behind what is still to be looked at
    for _, member in ipairs(call('ZRANGEBYSCORE', index, '-inf', math.floor(now / 1000), 'LIMIT', 0, many + 2 * LARGE)) do
      local key = sub(index, 1, -2) .. 'k:' .. member
      local found = redis.pcall('HGET', key, 'r')
      if not found or found.err then -- it has expired; another program may use its name
        call('ZREM', index, member)
      elseif #found ~= RECORD_SIZE then -- it is damaged, and stays for a listing to name it
        call('ZADD', index, later, member)
      else
        local _, _, _, expires, deadline, renewed, _, matters = read(HEAD, found)
        local sound = expires * expires + deadline * deadline + renewed * renewed + matters * matters < FAR * FAR
        if sound and max(matters, deadline, renewed) + retention <= now then
          call('ZREM', index, member)
          call('DEL', key)
        else
          call('ZADD', index, sound and expires > now and math.ceil(expires / 1000) or later, member)
        end
      end
    end
    local last = math.min(tonumber(call('ZREVRANGE', index, 0, 0, 'WITHSCORES')[2] or 0) * 1000, FAR) -- others may score, too
    call('PEXPIREAT', index, math.ceil((last + math.min(retention, 3600000000) - offset) / 1000))
  end
end
return table.concat(answers)
