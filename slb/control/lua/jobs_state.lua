-- What the jobs' script stores, and what may become of a job; what is asked stands in jobs.lua, with the arguments.
-- All of this runs with each batch: what few batches need is in functions that are made when they are called for, here
-- and in the files behind, since making one costs as much as calling it.
-- Times are milliseconds of this server's clock.
-- KEYS, those with a colon at the end being the beginning of one key each:
--   1 job:       id: string, digest of what was submitted (24), whose it is (8), when (13 digits), and the job as its caller wrote it
--   2 run:       id: hash, what became of it, from its first change on: state, class, number, token (of its latest
--                attempt), attempts, failures, holder, member, begun, ended, error, remote, began (the token
--                that `remote` was begun with), report, reported (the token that the report came with), on (the
--                model that it has gone on at), lost (the token of an attempt whose holder was taken for dead),
--                spent (milliseconds of slots that its failed attempts took), progress (JSON: how far its latest attempt
--                has come), moves (how many it has made, and how often its progress changed), busy (how often GPUs
--                were busy for it while they took others), busy_at (since when it waits for that); of its
--                callback: callback_attempts, callback_error; of its task: task (how many were made), task_retries
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
--  21 times      hash: mean = milliseconds of slots that a job takes, a moving mean; ended = of how many that is; "taken "
--                and a model ("": their own) = when the last job began that its GPUs took
local JOB, RUN, RESULT, QUEUE, CLASSES, NUMBER, DELAYED = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local HOLDERS, HELD, DROPPED, RUNNING, DEADLINES = KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local ENDED, DEAD, CALLBACKS, COUNTS, BATCHES, WATCHED = KEYS[13], KEYS[14], KEYS[15], KEYS[16], KEYS[17], KEYS[18]
local LOOKS, BUFFERED, TIMES = KEYS[19], KEYS[20], KEYS[21]
local SLICE = 100  -- of what is due, in one call
local DIGEST, SAME, SUBMITTED = 32, 24, 13
local SINCE, WRITTEN = tostring(DIGEST), tostring(DIGEST + SUBMITTED)  -- where its time and the job itself begin
local call = redis.call
local holder, batch, lease, KEPT = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local limit, dispatches = tonumber(ARGV[6]), ARGV[7] == '1'
local asks, asked = tonumber(ARGV[8]), 0  -- how many there are, and the one that is answered now

local newest_batch = call('HGET', BATCHES, holder) or 0
if batch <= tonumber(newest_batch) then
  return {'late', newest_batch}
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
    fall = 'queued', lose = 'queued', cancel = 'cancelled', expire = 'failed', busy = 'retrying', put_off = 'retrying',
  },
  dead_lettered = {revive = 'queued', remove = 'removed'},
  failed = {revive = 'queued', remove = 'removed'},
  completed = {}, cancelled = {},
}

local function text(number)
  return string.format('%.0f', number)
end

-- By set, of those whose scores are times: when its first is due, false where it is empty, nil where that may have
-- changed.
local firsts = {}
local function first_of(set)
  if firsts[set] == nil then
    firsts[set] = tonumber(call('ZRANGE', set, 0, 0, 'WITHSCORES')[2]) or false
  end
  return firsts[set]
end
local has_deadlines = first_of(DEADLINES) ~= false

local NOW = text(now)  -- Redis takes long to write a number as text

-- What all asks of one batch come to is written once, at its end: how often what happened, and the passes.
local counted = {}

local function count(what)
  counted[what] = (counted[what] or 0) + 1
end

-- By line: its class; the model that its jobs have gone on at, "" for their own; and what they wait for: slots of that
-- model or, with "@" before it, a follower.
local class_of, on_of, wanted_in = {}, {}, {}

local function know_line(line)
  if not on_of[line] then
    local class, on = string.match(line, '^([^@]*)@(.*)$')
    class_of[line], on_of[line] = class or line, on or ''
    wanted_in[line] = class == '' and line or on or ''
  end
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
  know_line(line)
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
    local on = wanted_in[line]
    total, on_models[on] = total + size, (on_models[on] or 0) + size
  end
  return total, on_models
end
