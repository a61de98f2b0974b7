-- The jobs of one model: what one instance asks, one ask after another, in one step. With no ask, only what is due is
-- done: retries go back into their queue, what a dead holder had goes to others, what has stood long enough goes.
-- Times are milliseconds of this server's clock.
-- KEYS, those with a colon at the end being the beginning of one key each:
--   1 job:       id: string, digest of what was submitted (32), when (13 digits), and the job as its caller wrote it
--   2 run:       id: hash, what became of it, from its first change on: state, class, number, token (of its latest
--                attempt), attempts, failures, holder, member, begun, ended, error, remote, and of its callback:
--                callback_attempts, callback_error
--   3 result:    id: string
--   4 queue:     class: sorted set, jobs that may begin: id, score = number
--   5 classes    hash: class = its pass in the fair order
--   6 number     string: the last job's
--   7 delayed    sorted set: id, score = when it may begin again
--   8 holders    sorted set: holder, score = until when it lives
--   9 held:      holder: set of the jobs that it runs
--  10 dropped:   holder: list, "id token" of what it runs in vain: cancelled, or past its deadline
--  11 running    sorted set: id, score = when its attempt began
--  12 deadlines  sorted set: id, score = when it has failed unless it has ended
--  13 ended      sorted set: id, score = when it ended, until it is forgotten; without the dead ones
--  14 dead       sorted set: id, score = when it was given up
--  15 callbacks  sorted set: id, score = when its callback is due
--  16 counts     hash: what happened how often
--  17 batches    hash: holder = the number of its last batch
-- ARGV: holder, number of this batch, lease, kept (milliseconds that what has ended stays), weights
-- ("class=weight,..."), how many asks; then each ask: its name, the number of its arguments, these. A batch whose number
-- is not above the last one's was given up by its holder before it came here: {"late"}. An ask, and its reply:
--   submit id class digest job deadline (0: none) callback (1: one is to be sent at its end): {"new", position},
--     {"known", state} or {"mismatch"}
--   claim member: {id, token, attempts, failures, remote, member (where the attempt before was), job} or {}
--   remote id token remote: the GPU's own id of what it runs. {1} or {0}: not this attempt any more
--   finish id token move text ms: `move` is complete (text: the result), fail, retry (in ms), give_up (text: the error)
--     or back (at its old place: nothing was tried). {1}, once more too, or {0}: not this attempt any more
--   hold id token id token ...: the attempts that this holder knows of, after a batch whose reply it did not get. All
--     others of its go back into their queues. How many
--   cancel id: {what it was, token, member} or {}; nothing changes where it had ended
--   revive id: a dead one begins again. {1} or {0}
--   remove id: a dead one is forgotten. {1} or {0}
--   show id with (1: its result and what was submitted): {state, class, attempts, failures, begun, ended, error, member,
--     callback_attempts, callback_error, submitted, position, job, result} or {}
--   list kind first count: ids of queued, retrying, processing, ended or dead, the oldest first; of queued class by class
--   stats: {queued, delayed, running, callbacks, dead, ended, id and submission of the oldest that waits, then names and
--     numbers of counts in turn}
--   callbacks ms count: takes so many that are due, and makes them due in ms again: {id, and what `show` replies} each
--   sent id ended attempts error ms: the callback of that end was answered (ms = -1), or failed: due in ms again, or given up
--     (ms = -2). {1}, or {0}: it was noted already, or the job has begun again meanwhile
--   bury holder: it is dead, whatever its lease. {1}
-- Reply: {now, jobs queued, milliseconds until something is due or -1, dropped, a reply for each ask}.
local JOB, RUN, RESULT, QUEUE, CLASSES, NUMBER, DELAYED = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local HOLDERS, HELD, DROPPED, RUNNING, DEADLINES = KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local ENDED, DEAD, CALLBACKS, COUNTS, BATCHES = KEYS[13], KEYS[14], KEYS[15], KEYS[16], KEYS[17]
local SLICE = 100  -- of what is due, in one call
local DIGEST, SUBMITTED = 32, 13
local call = redis.call
local holder, batch, lease, kept = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

if batch <= tonumber(call('HGET', BATCHES, holder) or 0) then
  return {'late'}
end
call('HSET', BATCHES, holder, ARGV[2])

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- What may become of a job. A move that does not stand here changes nothing.
local MOVES = {
  queued = {claim = 'processing', cancel = 'cancelled', expire = 'failed'},
  retrying = {due = 'queued', cancel = 'cancelled', expire = 'failed'},
  processing = {
    complete = 'completed', fail = 'failed', give_up = 'dead_lettered', retry = 'retrying', back = 'queued',
    lose = 'queued', cancel = 'cancelled', expire = 'failed',
  },
  dead_lettered = {revive = 'queued', remove = 'removed'},
  completed = {}, failed = {}, cancelled = {},
}

local function text(number)
  return string.format('%.0f', number)
end

local function count(what)
  call('HINCRBY', COUNTS, what, 1)
end

-- A job that nothing has happened to yet has no hash: it is queued.
local function read(id)
  local run = call('HMGET', RUN .. id, 'state', 'class', 'number', 'token', 'holder', 'member', 'attempts', 'failures')
  local job = {
    id = id, state = run[1], class = run[2], number = run[3], token = run[4] or '0', holder = run[5],
    member = run[6] or '', attempts = run[7] or '0', failures = run[8] or '0',
  }
  if not job.state and call('EXISTS', JOB .. id) == 1 then
    job.state = 'queued'
    for _, class in ipairs(call('HKEYS', CLASSES)) do
      local number = call('ZSCORE', QUEUE .. class, id)
      if number then
        job.class, job.number = class, number
      end
    end
  end
  return job.state and job
end

local function keep_for_a_while(id)
  for _, start in ipairs({JOB, RUN, RESULT}) do
    call('PEXPIRE', start .. id, kept)
  end
end

local function keep(id)
  for _, start in ipairs({JOB, RUN, RESULT}) do
    call('PERSIST', start .. id)
  end
end

-- Where a job stands while it is in a state: `leave` takes it out, `enter` puts it in.
local leave = {
  queued = function(job) call('ZREM', QUEUE .. (job.class or ''), job.id) end,
  retrying = function(job) call('ZREM', DELAYED, job.id) end,
  processing = function(job)
    call('ZREM', RUNNING, job.id)
    call('SREM', HELD .. job.holder, job.id)
  end,
  dead_lettered = function(job) call('ZREM', DEAD, job.id) end,
}

local function enter_end(job)
  call('ZADD', ENDED, now, job.id)
  call('ZREM', DEADLINES, job.id)
  keep_for_a_while(job.id)
end

local enter = {
  queued = function(job)
    call('ZADD', QUEUE .. job.class, job.number, job.id)
    call('HSETNX', CLASSES, job.class, '0')
  end,
  processing = function(job)
    call('ZADD', RUNNING, now, job.id)
    call('SADD', HELD .. job.holder, job.id)
  end,
  dead_lettered = function(job)
    call('ZADD', DEAD, now, job.id)
    call('ZREM', DEADLINES, job.id)
    keep(job.id)
  end,
  retrying = function() end,  -- with its time, by `finish`
  completed = enter_end, failed = enter_end, cancelled = enter_end,
}

-- The new state, or nil where the job may not make this move. `...`: fields and values that change with it.
local function move(job, name, ...)
  local state = MOVES[job.state][name]
  if not state then
    return nil
  end
  leave[job.state](job)
  job.state = state
  call('HSET', RUN .. job.id, 'state', state, 'class', job.class or '', 'number', job.number or '0', ...)
  enter[state](job)
  return state
end

local function drop_attempt(job)
  if job.state == 'processing' then
    call('RPUSH', DROPPED .. job.holder, job.id .. ' ' .. job.token)
    call('PEXPIRE', DROPPED .. job.holder, 10 * lease)
  end
end

-- The callback that was asked for is due; until it is delivered or given up, nothing of the job goes.
local function owe_callback(id)
  if call('HGET', RUN .. id, 'callback') == '1' then
    call('ZADD', CALLBACKS, now, id)
    keep(id)
  end
end

-- What is due

local function promote()
  for _, id in ipairs(call('ZRANGEBYSCORE', DELAYED, '-inf', now, 'LIMIT', 0, SLICE)) do
    local job = read(id)
    if not job or not move(job, 'due') then
      call('ZREM', DELAYED, id)
    end
  end
end

local function expire()
  for _, id in ipairs(call('ZRANGEBYSCORE', DEADLINES, '-inf', now, 'LIMIT', 0, SLICE)) do
    local job = read(id)
    call('ZREM', DEADLINES, id)
    if job then
      drop_attempt(job)
      if move(job, 'expire', 'error', 'its deadline has passed', 'ended', text(now)) then
        count('failed')
        owe_callback(id)
      end
    end
  end
end

-- The jobs of a dead holder begin again, before all that came later. The set goes when it is empty.
local function reap()
  local dead = call('ZRANGEBYSCORE', HOLDERS, '-inf', now, 'LIMIT', 0, 1)[1]
  if not dead then
    return
  end
  local ids = call('SRANDMEMBER', HELD .. dead, SLICE)
  for _, id in ipairs(ids) do
    local job = read(id)
    if job and job.holder == dead and move(job, 'lose', 'error', 'its dispatcher died') then
      count('lost')
    else
      call('SREM', HELD .. dead, id)
    end
  end
  if #ids < SLICE then
    call('ZREM', HOLDERS, dead)
    call('HDEL', BATCHES, dead)
  end
end

-- Their keys have gone by themselves, or go now.
local function forget()
  for _, id in ipairs(call('ZRANGEBYSCORE', ENDED, '-inf', now - kept, 'LIMIT', 0, SLICE)) do
    call('ZREM', ENDED, id)
  end
end

-- Asks

local answer = {}

local weights = {}
for class, weight in string.gmatch(ARGV[5], '([^=,]+)=(%d+)') do
  weights[class] = tonumber(weight)
end

local function position_of(job)
  return call('ZRANK', QUEUE .. job.class, job.id) or 0
end

function answer.submit(id, class, digest, written, deadline, callback)
  local job = call('EXISTS', JOB .. id) == 1 and read(id)
  if job then
    local same = call('GETRANGE', JOB .. id, 0, DIGEST - 1) == digest
    return same and {'known', job.state} or {'mismatch'}
  end
  call('SET', JOB .. id, digest .. string.format('%013.0f', now) .. written)
  job = {id = id, class = class, number = text(call('INCR', NUMBER))}
  enter.queued(job)
  if callback == '1' then
    call('HSET', RUN .. id, 'state', 'queued', 'class', class, 'number', job.number, 'callback', '1')
  end
  if deadline ~= '0' then
    call('ZADD', DEADLINES, now + tonumber(deadline), id)
  end
  count('submitted')
  return {'new', position_of(job)}
end

-- The class whose turn it is: the lowest pass among those in which jobs wait. One that comes back after a silence gets
-- no turns for the time in which it had no jobs.
local function next_class()
  local passes, best, least = call('HGETALL', CLASSES), nil, nil
  for index = 1, #passes, 2 do
    local class, pass = passes[index], tonumber(passes[index + 1])
    if call('EXISTS', QUEUE .. class) == 1 and (not least or pass < least or (pass == least and class < best)) then
      best, least = class, pass
    end
  end
  if best then
    for index = 1, #passes, 2 do
      if tonumber(passes[index + 1]) < least then
        call('HSET', CLASSES, passes[index], string.format('%.9f', least))
      end
    end
    call('HSET', CLASSES, best, string.format('%.9f', least + 1 / (weights[best] or 1)))
  end
  return best
end

function answer.claim(member)
  local class = next_class()
  while class do
    local id = call('ZRANGE', QUEUE .. class, 0, 0)[1]
    local job, written = read(id), call('GETRANGE', JOB .. id, DIGEST + SUBMITTED, -1)
    if job and written ~= '' then
      job.class, job.number = class, call('ZSCORE', QUEUE .. class, id)
      job.holder = holder
      local token, attempts = text(job.token + 1), text(job.attempts + 1)
      local remote = call('HGET', RUN .. id, 'remote') or ''
      move(job, 'claim', 'token', token, 'attempts', attempts, 'holder', holder, 'member', member, 'begun', text(now))
      return {id, token, attempts, job.failures, remote, job.member, written}
    end
    call('ZREM', QUEUE .. class, id)  -- somebody else has removed what it was
    class = next_class()
  end
  return {}
end

-- The job, where this is its latest attempt and runs still; whether `name` has ended it before: the reply was lost.
local function attempt_of(id, token, name)
  local job = read(id)
  if job and job.token == token then
    if job.state == 'processing' then
      return job, false
    elseif job.state == MOVES.processing[name] then
      return nil, true
    end
  end
  count('stale')
  return nil, false
end

function answer.remote(id, token, remote)
  local job = attempt_of(id, token)
  if job then
    call('HSET', RUN .. id, 'remote', remote)
  end
  return {job and 1 or 0}
end

local COUNTED = {complete = 'completed', fail = 'failed', give_up = 'dead_lettered', retry = 'retried', back = 'busy'}

function answer.finish(id, token, name, written, ms)
  local job, again = attempt_of(id, token, name)
  if not job then
    return {again and 1 or 0}
  end
  if name == 'complete' then
    call('SET', RESULT .. id, written)
    move(job, name, 'ended', text(now), 'error', '')
  elseif name == 'retry' then
    call('ZADD', DELAYED, now + tonumber(ms), id)
    move(job, name, 'error', written, 'failures', text(job.failures + 1))
    call('HDEL', RUN .. id, 'remote')
  elseif name == 'back' then
    move(job, name, 'attempts', text(job.attempts - 1))
  else
    move(job, name, 'error', written, 'failures', text(job.failures + 1), 'ended', text(now))
  end
  count(COUNTED[name])
  if name ~= 'retry' and name ~= 'back' then
    owe_callback(id)
  end
  return {1}
end

function answer.hold(...)
  local known, lost = {}, 0
  for index = 1, select('#', ...), 2 do
    known[select(index, ...)] = select(index + 1, ...)
  end
  for _, id in ipairs(call('SMEMBERS', HELD .. holder)) do
    local job = read(id)
    if not job or job.holder ~= holder or job.token ~= known[id] then
      if job and move(job, 'lose', 'error', 'its dispatcher lost it', 'attempts', text(job.attempts - 1)) then
        lost = lost + 1
      else
        call('SREM', HELD .. holder, id)
      end
    end
  end
  return {lost}
end

function answer.cancel(id)
  local job = read(id)
  if not job then
    return {}
  end
  local before = job.state
  drop_attempt(job)
  if move(job, 'cancel', 'ended', text(now)) then
    count('cancelled')
    owe_callback(id)
  end
  return {before, job.token, job.member}
end

function answer.revive(id)
  local job = read(id)
  if not job or not move(job, 'revive', 'failures', '0', 'error', '') then
    return {0}
  end
  call('HDEL', RUN .. id, 'ended', 'remote', 'callback_attempts', 'callback_error')
  call('ZREM', CALLBACKS, id)
  count('revived')
  return {1}
end

function answer.remove(id)
  local job = read(id)
  if not job or not MOVES[job.state].remove then
    return {0}
  end
  leave[job.state](job)
  call('ZREM', CALLBACKS, id)
  call('DEL', JOB .. id, RUN .. id, RESULT .. id)
  return {1}
end

local SHOWN = {'begun', 'ended', 'error', 'member', 'callback_attempts', 'callback_error'}

function answer.show(id, with)
  local job = read(id)
  if not job then
    return {}
  end
  local shown = {job.state, job.class or '', job.attempts, job.failures}
  for _, value in ipairs(call('HMGET', RUN .. id, unpack(SHOWN))) do
    shown[#shown + 1] = value or ''
  end
  shown[#shown + 1] = call('GETRANGE', JOB .. id, DIGEST, DIGEST + SUBMITTED - 1)
  shown[#shown + 1] = job.state == 'queued' and position_of(job) or -1
  shown[#shown + 1] = with == '1' and call('GETRANGE', JOB .. id, DIGEST + SUBMITTED, -1) or ''
  shown[#shown + 1] = with == '1' and call('GET', RESULT .. id) or ''
  return shown
end

function answer.list(kind, first, most)
  first = tonumber(first)
  local last = first + most - 1
  if kind ~= 'queued' then
    local sets = {retrying = DELAYED, processing = RUNNING, ended = ENDED, dead = DEAD}
    return call('ZRANGE', sets[kind], first, last)
  end
  local ids, before = {}, 0
  for _, class in ipairs(call('HKEYS', CLASSES)) do
    local size = call('ZCARD', QUEUE .. class)
    if last >= before and first < before + size then
      for _, id in ipairs(call('ZRANGE', QUEUE .. class, math.max(0, first - before), last - before)) do
        ids[#ids + 1] = id
      end
    end
    before = before + size
  end
  return ids
end

local function queued()
  local total = 0
  for _, class in ipairs(call('HKEYS', CLASSES)) do
    total = total + call('ZCARD', QUEUE .. class)
  end
  return total
end

function answer.stats()
  local oldest, since = '', ''
  for _, class in ipairs(call('HKEYS', CLASSES)) do
    local id = call('ZRANGE', QUEUE .. class, 0, 0)[1]
    local at = id and call('GETRANGE', JOB .. id, DIGEST, DIGEST + SUBMITTED - 1)
    if at and (since == '' or at < since) then
      oldest, since = id, at
    end
  end
  local shown = {
    queued(), call('ZCARD', DELAYED), call('ZCARD', RUNNING), call('ZCARD', CALLBACKS), call('ZCARD', DEAD),
    call('ZCARD', ENDED), oldest, since,
  }
  for _, each in ipairs(call('HGETALL', COUNTS)) do
    shown[#shown + 1] = each
  end
  return shown
end

function answer.callbacks(ms, most)
  local taken = {}
  for _, id in ipairs(call('ZRANGEBYSCORE', CALLBACKS, '-inf', now, 'LIMIT', 0, most)) do
    local shown = answer.show(id, '1')
    if #shown == 0 then
      call('ZREM', CALLBACKS, id)
    else
      call('ZADD', CALLBACKS, now + tonumber(ms), id)
      taken[#taken + 1] = {id, unpack(shown)}
    end
  end
  return taken
end

function answer.sent(id, ended, attempts, error, ms)
  local run = call('HMGET', RUN .. id, 'ended', 'attempts')
  if not call('ZSCORE', CALLBACKS, id) or run[1] ~= ended or (run[2] or '0') ~= attempts then
    return {0}
  end
  call('HINCRBY', RUN .. id, 'callback_attempts', 1)
  call('HSET', RUN .. id, 'callback_error', error)
  if ms ~= '-1' and ms ~= '-2' then
    call('ZADD', CALLBACKS, now + tonumber(ms), id)
    return {1}
  end
  call('ZREM', CALLBACKS, id)
  count(ms == '-1' and 'delivered' or 'undelivered')
  local job = read(id)
  if job and enter[job.state] == enter_end then  -- kept from now on: its place in ENDED may have gone meanwhile
    enter_end(job)
  end
  return {1}
end

function answer.bury(dead)
  if call('ZSCORE', HOLDERS, dead) then
    call('ZADD', HOLDERS, now, dead)
    reap()
  end
  return {1}
end

call('ZADD', HOLDERS, now + lease, holder)
expire()
promote()
reap()
forget()
local replies, at = {}, 7
for index = 1, tonumber(ARGV[6]) do
  local size = tonumber(ARGV[at + 1])
  replies[index] = answer[ARGV[at]](unpack(ARGV, at + 2, at + 1 + size))
  at = at + 2 + size
end
local due = -1
for _, set in ipairs({DELAYED, DEADLINES, CALLBACKS}) do
  local first = call('ZRANGE', set, 0, 0, 'WITHSCORES')[2]
  if first and (due < 0 or first - now < due) then
    due = math.max(0, first - now)
  end
end
local dropped = call('LRANGE', DROPPED .. holder, 0, -1)
if #dropped > 0 then
  call('DEL', DROPPED .. holder)
end
return {now, queued(), due, dropped, replies}
