-- What the jobs' script stores, and what may become of a job; what is due follows in jobs_due.lua, what is asked in
-- jobs.lua, with its arguments.
-- Times are milliseconds of this server's clock.
-- KEYS, those with a colon at the end being the beginning of one key each:
--   1 job:       id: string, digest of what was submitted (32), when (13 digits), and the job as its caller wrote it
--   2 run:       id: hash, what became of it, from its first change on: state, class, number, token (of its latest
--                attempt), attempts, failures, holder, member, begun, ended, error, remote, began (the token that
--                `remote` was begun with), report, on (the model that it has gone on at), lost (the token of an attempt whose holder was taken for dead), spent (milliseconds of slots that its
--                failed attempts took), moves (how many it has made); of its callback:
--                callback_attempts, callback_error; of its task: task (how many were made), task_retries
--   3 result:    id: string
--   4 queue:     line: sorted set, jobs that may begin: id, score = number. A line is a class; or "class@model", of
--                jobs that have gone on at another model; or "@model" ("@": their own), of jobs that a GPU of it
--                runs on its own and nobody follows: they wait for a follower, and for no slot
--   5 classes    hash: line = its pass in the fair order of those of one model
--   6 number     string: the last job's
--   7 delayed    sorted set: id, score = when it may begin again
--   8 holders    sorted set: holder, score = until when it lives
--   9 held:      holder: set of the jobs that it runs
--  10 dropped:   holder: list, "id token" of what it runs in vain: cancelled, or past its deadline. Holder "*": what GPUs
--                run in vain that nobody follows, {id, member, on, remote} as JSON
--  11 running    sorted set: id, score = when its attempt began
--  12 deadlines  sorted set: id, score = when it has failed unless it has ended
--  13 ended      sorted set: id, score = when it ended, until it is forgotten; without the dead ones
--  14 dead       sorted set: id, score = when it was given up
--  15 callbacks  sorted set: id, score = when its callback is due
--  16 counts     hash: what happened how often
--  17 batches    hash: holder = the number of its last batch
--  18 watched    string, with a TTL: the channel on which moves are published, while somebody follows the model's jobs
--  19 looks      sorted set: member, score = until when no instance asks this GPU what it runs
--  20 buffered   sorted set: id, score = when its task in Cloud Tasks is to be made or looked for
--  21 times      hash: mean = milliseconds of slots that a job takes, a moving mean; ended = of how many that is
local JOB, RUN, RESULT, QUEUE, CLASSES, NUMBER, DELAYED = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local HOLDERS, HELD, DROPPED, RUNNING, DEADLINES = KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local ENDED, DEAD, CALLBACKS, COUNTS, BATCHES, WATCHED = KEYS[13], KEYS[14], KEYS[15], KEYS[16], KEYS[17], KEYS[18]
local LOOKS, BUFFERED, TIMES = KEYS[19], KEYS[20], KEYS[21]
local SLICE = 100  -- of what is due, in one call
local DIGEST, SUBMITTED = 32, 13
local SINCE, WRITTEN = tostring(DIGEST), tostring(DIGEST + SUBMITTED)  -- where its time and the job itself begin
local call = redis.call
local holder, batch, lease, KEPT = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local limit, dispatches = tonumber(ARGV[6]), ARGV[7] == '1'

if batch <= tonumber(call('HGET', BATCHES, holder) or 0) then
  return {'late'}
end
call('HSET', BATCHES, holder, ARGV[2])

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- What may become of a job. A move that does not stand here changes nothing.
local MOVES = {
  buffered = {release = 'queued', cancel = 'cancelled', expire = 'failed'},
  queued = {
    claim = 'processing', withhold = 'buffered', cancel = 'cancelled', expire = 'failed',
    -- as an attempt ended whose holder was taken for dead:
    complete = 'completed', fail = 'failed', give_up = 'dead_lettered', retry = 'retrying', fall = 'queued',
  },
  retrying = {due = 'queued', cancel = 'cancelled', expire = 'failed'},
  processing = {
    complete = 'completed', fail = 'failed', give_up = 'dead_lettered', retry = 'retrying', back = 'queued',
    fall = 'queued', lose = 'queued', cancel = 'cancelled', expire = 'failed',
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

-- The class of a line, and the model that its jobs have gone on at: "" for their own.
local function parts_of(line)
  local class, on = string.match(line, '^([^@]*)@(.*)$')
  return class or line, on or ''
end

-- What its jobs wait for: slots of that model, "" for their own; or, with "@" before it, a follower.
local function wanted_in(line)
  local class, on = parts_of(line)
  return class == '' and line or on
end

local function line_of(job)
  if job.remote ~= '' then
    return '@' .. job.on
  end
  return (job.class or '') .. (job.on == '' and '' or '@' .. job.on)
end

local function write_counts()
  for what, times in pairs(counted) do
    call('HINCRBY', COUNTS, what, times)
  end
  counted = {}
end

-- By line: its pass, and how many wait in it. Nothing else changes them while this batch runs.
local passes, sizes, moved = {}, {}, {}
local read_passes = call('HGETALL', CLASSES)
for index = 1, #read_passes, 2 do
  local line = read_passes[index]
  passes[line], sizes[line] = tonumber(read_passes[index + 1]), call('ZCARD', QUEUE .. line)
end

local function set_pass(line, pass)
  passes[line], moved[line] = pass, true
end

local function write_passes()
  for line in pairs(moved) do
    call('HSET', CLASSES, line, string.format('%.9f', passes[line]))
  end
end

-- How many wait, by what they wait for.
local function queued()
  local total, on_models = 0, {[''] = 0}
  for line, size in pairs(sizes) do
    local on = wanted_in(line)
    total, on_models[on] = total + size, (on_models[on] or 0) + size
  end
  return total, on_models
end

local FIELDS = {
  'state', 'class', 'number', 'token', 'holder', 'member', 'attempts', 'failures', 'callback', 'remote', 'on',
  'begun', 'spent', 'moves',
}

-- A job that nothing has happened to yet has no hash: it is queued, in `line` as its `number`, where that is known.
local function read(id, line, number)
  local run = call('HMGET', RUN .. id, unpack(FIELDS))
  local job = {
    id = id, state = run[1], class = run[2], number = run[3], token = run[4] or '0', holder = run[5],
    member = run[6] or '', attempts = run[7] or '0', failures = run[8] or '0', callback = run[9], remote = run[10] or '',
    on = run[11] or '', begun = run[12], spent = run[13] or '0', moves = run[14] or '0',
  }
  if line then
    job.state, job.number = job.state or 'queued', number
    local class, on = parts_of(line)
    job.class, job.on = job.class or class, on
  elseif not job.state and call('EXISTS', JOB .. id) == 1 then
    job.state = 'queued'
    for each in pairs(passes) do
      local its_number = call('ZSCORE', QUEUE .. each, id)
      if its_number then
        job.class, job.number = parts_of(each), its_number
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
local function leave_queue(line, id)
  if sizes[line] then
    sizes[line] = sizes[line] - call('ZREM', QUEUE .. line, id)
  end
end

local leave = {
  buffered = function(job) call('ZREM', BUFFERED, job.id) end,
  queued = function(job) leave_queue(line_of(job), job.id) end,
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

local function lowest_pass(wanted)
  local least
  for line, pass in pairs(passes) do
    if wanted_in(line) == wanted then
      least = math.min(least or pass, pass)
    end
  end
  return least or 0
end

local enter = {
  buffered = function(job) call('ZADD', BUFFERED, now + (job.look or 0), job.id) end,
  queued = function(job)
    local line = line_of(job)
    if not passes[line] then  -- its turns begin now
      set_pass(line, lowest_pass(wanted_in(line)))
      sizes[line] = call('ZCARD', QUEUE .. line)
    end
    sizes[line] = sizes[line] + call('ZADD', QUEUE .. line, job.number, job.id)
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

local publish  -- (id): its new state, to those who follow it; in jobs_shown.lua

-- The new state, or nil where the job may not make this move. `...`: fields and values that change with it.
local function move(job, name, ...)
  local state = MOVES[job.state][name]
  if not state then
    return nil
  end
  leave[job.state](job)
  local moves = text(job.moves + 1)
  if job.state == 'queued' then  -- it may have no hash yet
    local class, number = job.class or '', job.number or '0'
    call('HSET', RUN .. job.id, 'state', state, 'moves', moves, 'class', class, 'number', number, ...)
  else
    call('HSET', RUN .. job.id, 'state', state, 'moves', moves, ...)
  end
  job.state = state
  enter[state](job)
  publish(job.id)
  return state
end

local function tell(whom, what)
  call('RPUSH', DROPPED .. whom, what)
  call('PEXPIRE', DROPPED .. whom, 10 * lease)
end

-- What a GPU runs for it on its own, and nobody follows, is in vain.
local ANYBODY = '*'
local function drop_remote(job)
  if job.remote ~= '' then
    tell(ANYBODY, cjson.encode({job.id, job.member, job.on, job.remote}))
  end
end

-- It ends before its attempt does.
local function drop_attempt(job)
  if job.state == 'processing' and call('ZSCORE', HOLDERS, job.holder) then
    tell(job.holder, job.id .. ' ' .. job.token)
  elseif job.state == 'processing' or job.state == 'queued' then
    drop_remote(job)
  end
end

-- What was told to nobody else than a holder that has died. It stays, for a holder that was frozen and comes back.
local function pass_on_dropped(dead)
  for _, each in ipairs(call('LRANGE', DROPPED .. dead, 0, -1)) do
    local id, token = string.match(each, '^(.*) (%S+)$')
    local job = id and read(id)
    if job and job.token == token then
      drop_remote(job)
    end
  end
end

-- The callback that was asked for is due; until it is delivered or given up, nothing of the job goes.
local function owe_callback(job)
  if job.callback == '1' then
    call('ZADD', CALLBACKS, NOW, job.id)
    keep(job.id)
  end
end
