-- What the jobs' script stores, and what may become of a job; what is due follows in jobs_due.lua, what is asked in
-- jobs.lua, with its arguments.
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
local JOB, RUN, RESULT, QUEUE, CLASSES, NUMBER, DELAYED = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local HOLDERS, HELD, DROPPED, RUNNING, DEADLINES = KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local ENDED, DEAD, CALLBACKS, COUNTS, BATCHES = KEYS[13], KEYS[14], KEYS[15], KEYS[16], KEYS[17]
local SLICE = 100  -- of what is due, in one call
local DIGEST, SUBMITTED = 32, 13
local WRITTEN = tostring(DIGEST + SUBMITTED)  -- where the job itself begins
local call = redis.call
local holder, batch, lease, KEPT = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

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

local NOW = text(now)  -- Redis takes long to write a number as text

-- What all asks of one batch come to is written once, at its end: how often what happened, and the passes.
local counted = {}

local function count(what)
  counted[what] = (counted[what] or 0) + 1
end

local function write_counts()
  for what, times in pairs(counted) do
    call('HINCRBY', COUNTS, what, times)
  end
  counted = {}
end

-- By class: its pass, and how many wait in it. Nothing else changes them while this batch runs.
local passes, sizes, moved = {}, {}, {}
local read_passes = call('HGETALL', CLASSES)
for index = 1, #read_passes, 2 do
  local class = read_passes[index]
  passes[class], sizes[class] = tonumber(read_passes[index + 1]), call('ZCARD', QUEUE .. class)
end

local function set_pass(class, pass)
  passes[class], moved[class] = pass, true
end

local function write_passes()
  for class in pairs(moved) do
    call('HSET', CLASSES, class, string.format('%.9f', passes[class]))
  end
end

local function queued()
  local total = 0
  for _, size in pairs(sizes) do
    total = total + size
  end
  return total
end

local FIELDS = {
  'state', 'class', 'number', 'token', 'holder', 'member', 'attempts', 'failures', 'callback', 'remote',
}

-- A job that nothing has happened to yet has no hash: it is queued, in `class` as its `number`, where that is known.
local function read(id, class, number)
  local run = call('HMGET', RUN .. id, unpack(FIELDS))
  local job = {
    id = id, state = run[1], class = run[2], number = run[3], token = run[4] or '0', holder = run[5],
    member = run[6] or '', attempts = run[7] or '0', failures = run[8] or '0', callback = run[9], remote = run[10] or '',
  }
  if class then
    job.state, job.class, job.number = job.state or 'queued', class, number
  elseif not job.state and call('EXISTS', JOB .. id) == 1 then
    job.state = 'queued'
    for each in pairs(passes) do
      local its_number = call('ZSCORE', QUEUE .. each, id)
      if its_number then
        job.class, job.number = each, its_number
      end
    end
  end
  return job.state and job
end

-- A result is stored with that time.
local function keep_for_a_while(id)
  call('PEXPIRE', JOB .. id, KEPT)
  call('PEXPIRE', RUN .. id, KEPT)
end

local function keep(id)
  for _, start in ipairs({JOB, RUN, RESULT}) do
    call('PERSIST', start .. id)
  end
end

-- Where a job stands while it is in a state: `leave` takes it out, `enter` puts it in.
local function leave_queue(class, id)
  if sizes[class] then
    sizes[class] = sizes[class] - call('ZREM', QUEUE .. class, id)
  end
end

local leave = {
  queued = function(job) leave_queue(job.class, job.id) end,
  retrying = function(job) call('ZREM', DELAYED, job.id) end,
  processing = function(job)
    call('ZREM', RUNNING, job.id)
    call('SREM', HELD .. job.holder, job.id)
  end,
  dead_lettered = function(job) call('ZREM', DEAD, job.id) end,
}

local has_deadlines = call('EXISTS', DEADLINES) == 1

local function enter_end(job)
  call('ZADD', ENDED, NOW, job.id)
  if has_deadlines then
    call('ZREM', DEADLINES, job.id)
  end
  keep_for_a_while(job.id)
end

local function lowest_pass()
  local least
  for _, pass in pairs(passes) do
    least = math.min(least or pass, pass)
  end
  return least or 0
end

local enter = {
  queued = function(job)
    if not passes[job.class] then  -- its turns begin now
      set_pass(job.class, lowest_pass())
      sizes[job.class] = call('ZCARD', QUEUE .. job.class)
    end
    sizes[job.class] = sizes[job.class] + call('ZADD', QUEUE .. job.class, job.number, job.id)
  end,
  processing = function(job)
    call('ZADD', RUNNING, NOW, job.id)
    call('SADD', HELD .. job.holder, job.id)
  end,
  dead_lettered = function(job)
    call('ZADD', DEAD, NOW, job.id)
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
  if job.state == 'queued' then  -- it may have no hash yet
    call('HSET', RUN .. job.id, 'state', state, 'class', job.class or '', 'number', job.number or '0', ...)
  else
    call('HSET', RUN .. job.id, 'state', state, ...)
  end
  job.state = state
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
local function owe_callback(job)
  if job.callback == '1' then
    call('ZADD', CALLBACKS, NOW, job.id)
    keep(job.id)
  end
end
