-- The law of ownership (package tenure), carried out for a batch of requests on
-- keys of one namespace.
--
-- KEYS[1]    the namespace's index: a sorted set of its keys. A score is the
--            time at which the record expires, in milliseconds.
-- KEYS[1+i]  the record of request i
-- ARGV[1]    the settings and then the requests, packed: see SETTINGS, REQUEST
--
-- Times are whole microseconds. They and tokens are below 2^53, so a Lua number
-- holds them exactly.
--
-- A record is a hash with these fields:
--
--   r     all of the record but its texts and its past: see RECORD. Another
--         format would have another field.
--   x     the texts: owner, instance, actor, note, then guards, then progress
--   c     the checkpoint, with its length before it. Missing if none was saved.
--   g     the first bytes of the grants before the newest, oldest first
--   A..4  the terms before the newest. Term n is in letter n % 31: see LETTERS.
--   w     the stores that wait for the key, in their order: see WAITER
--
-- A record that no acquire needs any more counts as missing at once. Redis
-- expires it some time later, so that not every change has to set its expiry.
--
-- The reply is one string: the time, and for each request its outcome and the
-- record after it, or "\0" if there is none. The texts follow the record,
-- except after "granted": there they are those of the request. Then comes the
-- checkpoint, with its length before it. After "taken over" the older terms
-- follow, with their length before them.
--
-- Redis serves nobody else while a script runs. Three things are expensive:
-- calling Redis, defining locals and filling tables, which happens at every
-- run, and making strings, because Lua hashes every byte. So the script reads a
-- record into locals in one step, looks at its texts only where it must, and
-- keeps rare cases out of the common path.

--# Lines that begin like this one are not sent to Redis. They define names for
--# numbers, strings and formats. Before the script is sent, each name in it is
--# replaced by its value. Formats are those of the struct library. packed.go
--# reads and writes the same formats in Go.

--# A batch begins with the settings: the retention, the time to use instead of
--# the server's (0 outside of tests), flags added up, and the id of the store.
--# SETTINGS '<ddBc8', REWRITE 1, CLUSTER 2

--# A request: verb, flag, grant, ttl, the length of owner, instance, actor and
--# note together, and the length of guards, progress or checkpoint. Then come
--# these texts. Owner, instance, actor, note and checkpoint each have their
--# length before them. If the flag includes WITH_MORE, then above, every and
--# hold come before the texts.
--# REQUEST '<BBc16dHH', MORE '<ddd'
--# ACQUIRE 1, RENEW 2, REPORT 3, CHECKPOINT 4, RELEASE 5, TAKEOVER 6
--# RESERVE 7, REVOKE 8, LEAVE 9, ENTER 10

--# The flag's meaning depends on the verb. An acquire: the store watches the
--# key. A renewal, report or checkpoint: it resumes an expired lease. A
--# release: the term failed.
--# WATCHING 1, RESUMING 1, FAILED 1, WITH_MORE 2

--# A record begins with its head: state, ended, whether stores may wait;
--# expires, deadline, renewed, ttl, matters, succeeded, grid, hold, progressed,
--# and the length of its progress. An acquire needs the record until "matters",
--# whatever its deadline is. Then comes the term, which does not change: cause,
--# every, token, acquired, terms, transfers, grant, and the lengths of its
--# other texts.
--# HEAD '<BBBdddddddddH', HEAD_SIZE 77, RECORD '<BBBdddddddddHBdddI4I4c16HH'
--# RECORD_SIZE 130, WAITED_AT 3

--# A term in the past: its end, the state it began with, the time it ended,
--# then the term as in a record, and its owner, instance, actor and note.
--# PAST '<BBd', PAST_TERM '<BBdBdddI4I4c16HH', PAST_SIZE 63

--# Another program may have written to the hash. This script writes no term
--# that is longer, and the length of all terms must fit into two bytes.
--# MOST_TERM 2048

--# Nor does it write longer texts: see tenure.MaxName, MaxText, MaxGuards and
--# MaxCheckpoint. No time or duration is as far from 0, whatever the retention
--# is.
--# MOST_WORDS 19223, MOST_SAVED 1026, FAR 72057594037927936

--# States, causes and ends of terms:
--# FREE 1, HELD 2, RESERVED 3
--# FIRST 1, RELEASED 2, EXPIRED 3, HANDOFF 4, OPERATOR 5, CANCELLED 6
--# RECOVERY 7
--# END_RELEASED 1, END_FAILED 2, END_EXPIRED 3, END_TAKEN_OVER 4
--# END_SUPERSEDED 5

--# Outcomes of a request. "In queue": the store now waits for the key.
--# GRANTED 'g', DONE 'd', IS_HELD 'h', IS_HELD_IN_QUEUE 'H', IS_RESERVED 'r'
--# IS_RESERVED_IN_QUEUE 'R'
--# ON_HOLD 'o', IN_PERIOD 'p', WAS_RELEASED 'l', HAS_EXPIRED 'e'
--# WAS_SUPERSEDED 's', WAS_TAKEN_OVER 't'
--# UNKNOWN 'u', SECRET_USED 'x', NO_TOKENS 'n', DAMAGED '!'

--# How many terms before the newest are kept, the same less one, and the fields
--# they are kept in. How many bytes of each grant are kept in "g". The highest
--# token. How many writes are a large batch.
--# HISTORY 31, OTHERS 30, LETTERS 'ABCDEFGHIJKLMNOPQRSTUVWXYZ01234', DIGITS 2
--# MAX_TOKEN 9007199254740991, LARGE 16

--# A waiter is the id of a store and the time when it last asked. A waiter that
--# has not asked for LAPSE is passed over.
--# MOST_WAITERS 64, WAITER '<c8d', WAITER_SIZE 16, LAPSE 20000000

--# What watchers of a key are told: TAKEN if it was granted. NEXT stands for
--# the id of the store whose turn it is. Nothing means that all of them may
--# ask.
--# TAKEN 'held', NEXT 'next'

--# The channel of operators' acts follows the store's prefix.
--# ACTS 'acts'

local call, pack, read, sub, max = redis.call, struct.pack, struct.unpack, string.sub, math.max
local clock = call('TIME')
local server = clock[1] * 1000000 + clock[2]
local index, requests = KEYS[1], ARGV[1]
local retention, now, flags, asker, cursor = read(SETTINGS, requests)
if now == 0 then now = server end
local offset = now - server -- expiry times for Redis are in its own time
local answers, n = {pack('<d', now)}, 1
local changed, messages -- keys that have changed hands; for each, what its watchers are told in the end
local acted -- keys that operators have acted on
local listed, latest = nil, 0 -- scores and members for the index; the latest expiry among them
local wrote = false

-- The past --------------------------------------------------------------------

-- Finds a grant among the terms before the newest. Returns the end of its term,
-- and the state and cause it began with, or nil if it is not there.
local function past(key, grant, grants, transfers)
  grants = sub(grants or call('HGET', key, 'g') or '', -HISTORY * DIGITS)
  local digits, at = sub(grant, 1, DIGITS), 0
  while true do
    at = string.find(grants, digits, at + 1, true)
    if not at then return nil end
    local nth = transfers - (#grants - at + 1) / DIGITS
    local letter = nth % HISTORY + 1
    local term = nth % 1 == 0 and call('HGET', key, sub(LETTERS, letter, letter))
    if term and #term >= PAST_SIZE and #term <= MOST_TERM then
      local ended, began, _, cause, _, _, _, _, _, theirs = read(PAST_TERM, term)
      if theirs == grant then return ended, began, cause end
    end
  end
end

-- Says why a grant is not the owner, by the end of its term and the state that
-- the term began with.
local function lost(ended, began)
  if not ended then return UNKNOWN end
  if ended == END_RELEASED or ended == END_FAILED then return WAS_RELEASED end
  if ended == END_TAKEN_OVER then return WAS_TAKEN_OVER end
  if ended ~= 0 then return WAS_SUPERSEDED end
  if began ~= HELD then return WAS_RELEASED end
  return HAS_EXPIRED
end

for i = 2, #KEYS do
  -- The request and the record ------------------------------------------------

  local key = KEYS[i]
  local verb, flag, grant, ttl, new_names_size, new_rest_size, texts = read(REQUEST, requests, cursor)
  local above, every, holdfor = 0, 0, 0
  if flag >= WITH_MORE then
    flag = flag - WITH_MORE
    above, every, holdfor, texts = read(MORE, requests, texts)
  end
  cursor = texts + new_names_size + new_rest_size

  -- The fields of the record, in the order of RECORD, and the state that its
  -- term began with. period is its every, holder its grant. names_size is the
  -- length of owner, instance, actor and note together.
  local state, ended, waited, expires, deadline, renewed, lease_ttl, matters, succeeded, grid, hold,
    progressed, progress_size, cause, period, token, acquired, terms, transfers, holder,
    names_size, guards_size, began
  local outcome, found
  if verb == ACQUIRE then
    found = redis.pcall('HMGET', key, 'r', 'x', 'c', 'g')
  else
    found = redis.pcall('HMGET', key, 'r', 'x', 'c')
  end
  local record, words, saved = found[1], found[2], found[3]
  if record and #record == RECORD_SIZE and words then
    state, ended, waited, expires, deadline, renewed, lease_ttl, matters, succeeded, grid, hold,
      progressed, progress_size, cause, period, token, acquired, terms, transfers, holder,
      names_size, guards_size = read(RECORD, record)
    began = ended == 0 and state or HELD -- a term that has ended was held
    -- Another program may have written to the hash. Go would read a state of 0
    -- as no record, and Redis refuses infinite times in the middle of a batch.
    -- One sum of squares finds all numbers that are too large, above or below
    -- 0, and those that are not numbers.
    local sound = state >= FREE and state <= RESERVED and ended <= END_SUPERSEDED
      and cause >= FIRST and cause <= RECOVERY
      and names_size + guards_size + progress_size == #words and #words <= MOST_WORDS
      and (not saved or #saved >= 2 and #saved <= MOST_SAVED and 2 + read('<H', saved) == #saved)
      and expires * expires + deadline * deadline + renewed * renewed + lease_ttl * lease_ttl + matters * matters
        + succeeded * succeeded + grid * grid + hold * hold + progressed * progressed + period * period
        + token * token + acquired * acquired < FAR * FAR
    if sound and state == RESERVED then -- only then are the four texts read below: check their lengths
      local at = 1
      for _ = 1, 4 do at = at + 2 + (at < names_size and read('<H', words, at) or MOST_WORDS) end
      sound = at == names_size + 1
    end
    if not sound then
      outcome, record = DAMAGED, nil
    elseif max(matters, deadline, renewed) + retention <= now then -- gone, whether or not it has expired yet
      call('DEL', key)
      record, saved = nil, nil
    end
  elseif found.err and not string.find(found.err, 'WRONGTYPE', 1, true) then
    return found -- for example, this user may not read the key: nothing is known of the record
  elseif record or words or saved or found.err then
    outcome, record = DAMAGED, nil -- this script has not written it: decide nothing by it
  end
  local mine, alive = record and holder == grant, record and state == HELD and now < deadline

  -- The decision --------------------------------------------------------------

  local record_changed = false -- the record must be written
  local new_state, new_cause -- of the new term, if one begins
  local words_changed = false -- the texts must be written
  local message -- the message for watchers of the key; nil for none

  if outcome then
  elseif verb == ACQUIRE then
    local over, as
    if mine then
      over, as = ended, began
    elseif record and transfers > 1 then
      over, as = past(key, grant, found[4] or '', transfers)
    end
    local is_reserved = record and state == RESERVED and now < deadline
    if mine and alive then
      outcome = DONE -- the reply was lost: same answer, same deadline
    elseif over then
      outcome = lost(over, as) -- a secret is granted once
    elseif alive then
      outcome = IS_HELD
    elseif is_reserved and sub(words, 1, 2 + read('<H', words))
      ~= sub(requests, texts, texts + 1 + read('<H', requests, texts)) then
      outcome = IS_RESERVED -- for another owner
    elseif record and state == FREE and ended == END_RELEASED and now < hold then
      outcome = ON_HOLD
    elseif record and every > 0 and succeeded ~= 0 and now < succeeded + (every
      - (succeeded - (every == period and grid ~= 0 and grid or succeeded) + math.floor(every / 2)) % every) then
      outcome = IN_PERIOD -- in the window of the last success: see tenure.Record.Due
    else
      outcome, new_state, message = GRANTED, HELD, TAKEN
      if above > 0 and (not record or above >= token) then
        new_cause = RECOVERY
      elseif not record then
        new_cause = FIRST
      elseif state == FREE and cause == CANCELLED and ended == 0 then
        new_cause = CANCELLED
      elseif state == FREE then
        new_cause = RELEASED
      elseif is_reserved then
        new_cause = HANDOFF
      else
        new_cause = EXPIRED
      end
    end

  elseif verb == RELEASE then
    if mine and alive then
      outcome, record_changed, state, deadline = DONE, true, FREE, now
      if flag == FAILED then
        ended, hold, matters = END_FAILED, 0, token
        if succeeded ~= 0 then matters = max(token, succeeded + period) end
      else
        ended, succeeded, matters = END_RELEASED, acquired, max(token, hold, acquired + period)
        if period > 0 and grid == 0 then grid = acquired end
      end
      message = waited == 1 and NEXT or ''
    else
      local over, as
      if mine then
        over, as = ended, began
      elseif record then
        over, as = past(key, grant, nil, transfers)
      end
      if over == END_RELEASED or over == END_FAILED then
        outcome = DONE -- the grant has released the key before
      else
        outcome = lost(over, as)
      end
    end

  elseif verb == RENEW or verb == REPORT or verb == CHECKPOINT then
    if mine and state == HELD and (now < deadline or flag == RESUMING) then
      outcome, record_changed = DONE, true
      if verb == REPORT then
        progressed, progress_size, words_changed = now, new_rest_size, true
        words = sub(words, 1, names_size + guards_size) .. sub(requests, texts, cursor - 1)
      elseif verb == CHECKPOINT then -- no other request changes it
        progressed, saved = now, sub(requests, texts, cursor - 1)
        call('HSET', key, 'c', saved)
      else
        if ttl ~= 0 then lease_ttl = ttl end
        -- A shorter TTL does not move the deadline back, unless the clock has
        -- stepped back.
        if now + lease_ttl >= deadline or now < renewed then deadline = now + lease_ttl end
        renewed = now
      end
    elseif mine then
      outcome = lost(ended, began)
    elseif record then
      outcome = lost(past(key, grant, nil, transfers))
    else
      outcome = UNKNOWN
    end

  elseif verb == LEAVE then -- the store waits no more; the record does not change
    outcome = DONE

  elseif verb == ENTER then -- the store waits without having asked; the record does not change
    outcome = record and IS_HELD or UNKNOWN

  else -- an operator's act
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
      outcome, new_state, new_cause, message = DONE, state_of, cause_of, ''
    elseif as ~= state_of or by ~= cause_of then
      outcome = SECRET_USED -- for another act: "done" would be taken for this one
    elseif mine and ended == 0 and (as ~= HELD or alive) then
      outcome = DONE
    else
      outcome = lost(over, as)
    end
  end

  -- The new term --------------------------------------------------------------

  local letter, old_term, old_grants -- the term before: its field, and its value; and the grants up to it, for "g"
  if new_state then
    local new_token = max((record and token or 0) + 1, above + 1, now)
    if new_token > MAX_TOKEN then
      outcome, new_state, message = NO_TOKENS, nil, nil
    else
      local new_words = sub(requests, texts, cursor - 1)
      if record then
        local how, finished = ended, deadline -- as a release has set them
        if ended == 0 then
          if began ~= HELD then
            how, finished = END_SUPERSEDED, now
          elseif now >= deadline then
            how = END_EXPIRED
          else
            how, finished = END_TAKEN_OVER, now
          end
        end
        old_term = pack(PAST, how, began, finished) .. sub(record, HEAD_SIZE + 1)
          .. (#words > names_size and sub(words, 1, names_size) or words)
        letter = transfers % HISTORY + 1
        letter = sub(LETTERS, letter, letter)
        -- Forget the oldest grant if there are too many.
        old_grants = sub(found[4] or call('HGET', key, 'g') or '', -OTHERS * DIGITS) .. sub(holder, 1, DIGITS)
        if new_cause == HANDOFF then -- keep the operator's texts, which follow owner and instance
          local at, from = 3 + read('<H', new_words), 3 + read('<H', words)
          at, from = at + 2 + read('<H', new_words, at), from + 2 + read('<H', words, from)
          new_words = sub(new_words, 1, at - 1) .. sub(words, from, names_size) .. sub(new_words, new_names_size + 1)
          outcome, new_names_size = DONE, #new_words - new_rest_size
        elseif new_rest_size == 0 and verb ~= ACQUIRE then
          -- Keep the guards: until they are raised, the next operator must find
          -- them.
          new_words, new_rest_size = new_words .. sub(words, names_size + 1, names_size + guards_size), guards_size
        end
      else
        words, expires, period, succeeded, grid, terms, transfers, waited = nil, 0, 0, 0, 0, 0, 0, 0
      end
      record_changed, state, ended, deadline, renewed, lease_ttl = true, new_state, 0, now + ttl, now, ttl
      hold, progressed, progress_size = 0, 0, 0
      if every > 0 and every ~= period then period, grid = every, 0 end
      if holdfor > 0 then hold = now + holdfor end
      if new_state == HELD then terms = terms + 1 end
      transfers, token, matters = transfers + 1, new_token, max(new_token, hold)
      if succeeded ~= 0 and succeeded + period > matters then matters = succeeded + period end
      words_changed, words = new_words ~= words, new_words
    end
  end

  -- The change ----------------------------------------------------------------

  if record_changed then
    local leaves = max(matters, deadline, renewed) + retention -- from then on no acquire needs the record
    local sets_expiry = expires < leaves or expires > leaves + retention / 4
    if sets_expiry then expires = math.ceil(leaves + retention / 8) end

    if new_state then
      record = pack(RECORD, state, ended, waited, expires, deadline, renewed, lease_ttl, matters, succeeded, grid, hold,
        progressed, progress_size, new_cause, period, token, now, terms, transfers, grant,
        new_names_size, new_rest_size)
    else
      record = pack(HEAD, state, ended, waited, expires, deadline, renewed, lease_ttl, matters, succeeded, grid, hold,
        progressed, progress_size) .. sub(record, HEAD_SIZE + 1)
    end
    if old_term and words_changed then
      call('HSET', key, 'r', record, 'g', old_grants, letter, old_term, 'x', words)
    elseif old_term then
      call('HSET', key, 'r', record, 'g', old_grants, letter, old_term)
    elseif words_changed then
      call('HSET', key, 'r', record, 'x', words)
    else
      call('HSET', key, 'r', record)
    end
    wrote = true

    if sets_expiry then
      local score = math.ceil(expires / 1000)
      call('PEXPIREAT', key, score - math.floor(offset / 1000))
      if expires > latest then latest = expires end
      listed = listed or {}
      listed[#listed + 1] = score
      listed[#listed + 1] = sub(key, #index + 2) -- "…:i" and "…:k:name" begin the same
    end
    if message and waited == 1 then -- without waiters nobody is told
      if not changed then changed, messages = {}, {} end
      if not messages[key] then changed[#changed + 1] = key end
      messages[key] = message
    end
    if message and verb >= TAKEOVER then
      acted = acted or {}
      acted[key] = true
    end
  elseif record and outcome == DONE and flags % 2 == REWRITE then
    call('HSET', key, 'r', record) -- WAIT covers only writes of its own connection
    wrote = true
  end

  -- The waiters ---------------------------------------------------------------

  if record and (verb >= LEAVE or flag == WATCHING and verb == ACQUIRE)
    and (waited == 1 or outcome == IS_HELD or outcome == IS_RESERVED) then
    local queue = waited == 1 and sub(call('HGET', key, 'w') or '', 1, MOST_WAITERS * WAITER_SIZE) or ''
    local at = string.find(queue, asker, 1, true)
    if outcome == DONE or outcome == GRANTED then -- the store waits no more
      if at then queue = sub(queue, 1, at - 1) .. sub(queue, at + WAITER_SIZE) end
    elseif outcome == IS_HELD or outcome == IS_RESERVED then
      if at then -- the store keeps its position
        queue = sub(queue, 1, at - 1) .. pack(WAITER, asker, now) .. sub(queue, at + WAITER_SIZE)
      elseif #queue < MOST_WAITERS * WAITER_SIZE then
        at, queue = #queue, queue .. pack(WAITER, asker, now)
      end
      if at then outcome = outcome == IS_HELD and IS_HELD_IN_QUEUE or IS_RESERVED_IN_QUEUE end
    end
    if at then
      call('HSET', key, 'w', queue)
      wrote = true
      if waited == 0 then
        record = sub(record, 1, WAITED_AT - 1) .. '\1' .. sub(record, WAITED_AT + 1)
        call('HSET', key, 'r', record)
      end
    end
  end

  -- The answer ----------------------------------------------------------------

  answers[n + 1], answers[n + 2] = outcome, record or '\0'
  n = n + 2
  if record and outcome ~= GRANTED then
    n = n + 1
    answers[n] = words
  end
  if record then
    n = n + 1
    answers[n] = saved or '\0\0'
  end
  if outcome == WAS_TAKEN_OVER then -- the older terms say by whom
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

-- A replica must not answer: its records may be old. It refuses every write, so
-- try to write without changing anything, and return the refusal.
if not wrote then
  local done = redis.pcall('ZREM', index, '')
  if type(done) == 'table' and not string.find(done.err, 'WRONGTYPE', 1, true) then return done end
end

-- Watchers are told -----------------------------------------------------------

if changed then
  -- Messages are hints. If this user may not publish, the decision stands, and
  -- waiters ask from time to time.
  for _, key in ipairs(changed) do
    local word = messages[key]
    if word == NEXT then -- name the first waiter that has not lapsed; others may still ask first
      local queue, id, asked = sub(call('HGET', key, 'w') or '', 1, MOST_WAITERS * WAITER_SIZE), nil, nil
      word = ''
      while word == '' and #queue >= WAITER_SIZE do
        id, asked = read(WAITER, queue)
        queue = sub(queue, WAITER_SIZE + 1)
        -- The named store keeps its position in case another one asks first.
        -- Its time is 0, so the next message passes it over, unless it asks.
        if asked + LAPSE > now then word, queue = id, pack(WAITER, id, 0) .. queue end
      end
      if #queue >= WAITER_SIZE then
        call('HSET', key, 'w', queue)
      else
        local record = call('HGET', key, 'r')
        call('HSET', key, 'r', sub(record, 1, WAITED_AT - 1) .. '\0' .. sub(record, WAITED_AT + 1))
        call('HDEL', key, 'w')
      end
    end
    redis.pcall('PUBLISH', key, word)
  end
end

-- Holders are told of operators' acts -----------------------------------------

-- Each message is one key. If this user may not publish here, the decision
-- stands. A store's prefix contains no brace, so it ends where the tag begins.
if acted then
  local channel = sub(index, 1, string.find(index, '{', 1, true) - 1) .. ACTS
  for key in pairs(acted) do
    local listeners = redis.pcall('PUBLISH', channel, sub(key, #index + 2))
    -- Stop if Redis refuses, or if nobody listens. A node of a cluster does not
    -- know who listens at other nodes.
    if type(listeners) == 'table' or listeners == 0 and flags < CLUSTER then break end
  end
end

-- The index -------------------------------------------------------------------

-- The index lists every record until the record expires, and expires after the
-- last of them. To keep it from outgrowing its records, large batches, and
-- other ones at random, look at the members that are due. On average they look
-- at as many as were added.
if listed then
  local many = #listed / 2
  local added = redis.pcall('ZADD', index, unpack(listed))
  if type(added) == 'table' then
    -- If another program has taken the index's name, the decision stands.
    if not string.find(added.err, 'WRONGTYPE', 1, true) then return added end
  elseif many >= LARGE or now + call('PTTL', index) * 1000 < latest or clock[2] % LARGE == 0 then
    local later = math.ceil((now + retention) / 1000) -- the new score of members that stay without an expiry
    local due = call('ZRANGEBYSCORE', index, '-inf', math.floor(now / 1000), 'LIMIT', 0, many + 2 * LARGE)
    for _, member in ipairs(due) do
      local key = sub(index, 1, -2) .. 'k:' .. member
      local found = redis.pcall('HGET', key, 'r')
      if not found or found.err then -- the record has expired; another program may use its name
        call('ZREM', index, member)
      elseif #found ~= RECORD_SIZE then -- damaged: it stays, so that listings report it
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
    -- Another program may have added members with any score.
    local last = math.min(tonumber(call('ZREVRANGE', index, 0, 0, 'WITHSCORES')[2] or 0) * 1000, FAR)
    call('PEXPIREAT', index, math.ceil((last + math.min(retention, 3600000000) - offset) / 1000))
  end
end
return table.concat(answers)
