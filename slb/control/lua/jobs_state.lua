-- What the jobs' script stores, and what may become of a job; what is due follows in jobs_due.lua, what is asked in
-- jobs.lua, with its arguments.
-- Times are milliseconds of this server's clock.
-- KEYS, those with a colon at the end being the beginning of one key each:
--   1 job:       id: string, digest of what was submitted (32), when (13 digits), and the job as its caller wrote it
--   2 run:       id: hash, what became of it, from its first change on: state, class, number, token (of its latest
--                attempt), attempts, failures, holder, member, begun, ended, error, remote, spent (milliseconds of
--                slots that its failed attempts took), moves (how many it has made), and of its callback:
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
--  18 watched    string, with a TTL: the channel on which moves are published, while somebody follows the model's jobs
--  19 times      hash: mean = milliseconds of slots that a job takes, a moving mean; ended = of how many that is
local JOB, RUN, RESULT, QUEUE, CLASSES, NUMBER, DELAYED = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local HOLDERS, HELD, DROPPED, RUNNING, DEADLINES = KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local ENDED, DEAD, CALLBACKS, COUNTS, BATCHES = KEYS[13], KEYS[14], KEYS[15], KEYS[16], KEYS[17]
local WATCHED, TIMES = KEYS[18], KEYS[19]
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
  local run = call('HMGET', RUN .. id, 'state', 'class', 'number', 'token', 'holder', 'member', 'attempts', 'failures',
    'begun', 'spent', 'moves')
  local job = {
    id = id, state = run[1], class = run[2], number = run[3], token = run[4] or '0', holder = run[5],
    member = run[6] or '', attempts = run[7] or '0', failures = run[8] or '0', begun = run[9], spent = run[10] or '0',
    moves = run[11] or '0',
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

local function lowest_pass()
  local least
  for _, pass in ipairs(call('HVALS', CLASSES)) do
    least = math.min(least or tonumber(pass), tonumber(pass))
  end
  return string.format('%.9f', least or 0)
end

local enter = {
  queued = function(job)
    call('ZADD', QUEUE .. job.class, job.number, job.id)
    if call('HEXISTS', CLASSES, job.class) == 0 then  -- its turns begin now
      call('HSET', CLASSES, job.class, lowest_pass())
    end
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

local publish  -- (id): its new state, to those who follow it; in jobs_shown.lua

-- The new state, or nil where the job may not make this move. `...`: fields and values that change with it.
local function move(job, name, ...)
  local state = MOVES[job.state][name]
  if not state then
    return nil
  end
  leave[job.state](job)
  job.state = state
  call('HSET', RUN .. job.id, 'state', state, 'class', job.class or '', 'number', job.number or '0',
    'moves', text(job.moves + 1), ...)
  enter[state](job)
  publish(job.id)
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
