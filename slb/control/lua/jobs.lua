-- The jobs of one model: what one instance asks, one ask after another, in one step. With no ask, only what is due is
-- done. Behind jobs_state.lua, which lists the keys and has the moves, jobs_due.lua, jobs_shown.lua and
-- jobs_callbacks.lua, jobs_buffer.lua.
-- ARGV: holder, number of this batch, lease, kept (milliseconds that what has ended stays), weights
-- ("class=weight,..."), how many that have ended stay, dispatches (1: it calls GPUs), how many asks; then each ask: its name, the number of its arguments, these. A batch whose
-- number is not above the last one's was given up by its holder before it came here: {"late"}. An ask, and its reply:
--   submit id class digest job deadline (0: none) callback (1: one is to be sent at its end) buffer (1: it waits for
--     its task): {"new", position}, {"known", state} or {"mismatch"}
--   claim member on from...: the next of those that are at one of the models `from` ("": their own), to go on at `on`:
--     {id, token, attempts, failures, remote, member (where the attempt before was), job} or {}
--   remote id token remote: the GPU's own id of what it runs. {1} or {0}: not this attempt any more
--   finish id token move text ms on: `move` is complete (text: the result), fail, retry (in ms), give_up (text: the
--     error), fall (at its old place among those at the model `on`, with attempts anew) or back (at its old place:
--     nothing was tried). {1}, once more too, or {0}: not this attempt any more
--   hold attempts ("id token", line by line): those that this holder knows of, after a batch whose reply it did not
--     get. All others of its go back into their queues; those of them that are not its any more are dropped. How many
--   cancel id: {what it was, token, member} or {}; nothing changes where it had ended
--   revive id: a dead one begins again. {1} or {0}
--   remove id: a dead one is forgotten. {1} or {0}
--   show id most: {state, class, attempts, failures, begun, ended, error, member, callback_attempts, callback_error,
--     on, task_retries, submitted, position, job, result, moves} or {}; what was submitted and the result where each has at
--     most so
--     many bytes
--   line id: where a queued job stands: {class, how many of it are before it, milliseconds of slots that a job takes ('':
--     none has ended yet), how many run, the classes in which jobs wait (name, pass, how many), since how many
--     milliseconds each of those that run does, the oldest 128} or {}
--   watch ms channel: for so long each move is published there: model, id, and what `show` replies, as JSON. {1}, or {0}:
--     none was published before it
--   list kind first count: ids of buffered, queued, retrying, processing, ended or dead, the oldest first; of queued class by
--     class
--   stats: {buffered, queued, delayed, running, callbacks, dead, ended, id and submission of the oldest that waits,
--     then names and numbers of counts in turn}
--   callbacks ms count: takes so many that are due, and makes them due in ms again: {id, and what `show` replies} each
--   sent id ended attempts error ms: the callback of that end was answered (ms = -1), or failed: due in ms again, or
--     given up (ms = -2). {1}, or {0}: it was noted already, or the job has begun again meanwhile
--   release, withhold, buffered, tasked: of jobs that wait for a task, in jobs_buffer.lua
--   bury holder: it is dead, whatever its lease. {1}
--   look member ms: {1}: the caller is to ask this GPU what it runs, and no other in the next ms; else {0}
--   silent ms: GPUs at which holders that have not called for so long run jobs
--   idle member ms: this GPU runs nothing: what those run there begins again. How many
-- An ask that fails by a fault of ours, or of data in Redis: {"!fault", Redis's error message}.
-- Reply: {now, jobs queued (names and numbers in turn: at which model, "" for their own), milliseconds until something
-- is due or -1, dropped, a reply for each ask, to one that dispatches: what GPUs run in vain and nobody follows}.
local weights = {}
for class, weight in string.gmatch(ARGV[5], '([^=,]+)=(%d+)') do
  weights[class] = tonumber(weight)
end

function answer.submit(id, class, digest, written, deadline, callback, buffer)
  local job = call('EXISTS', JOB .. id) == 1 and read(id)
  if job then
    local same = call('GETRANGE', JOB .. id, 0, DIGEST - 1) == digest
    return same and {'known', job.state} or {'mismatch'}
  end
  call('SET', JOB .. id, digest .. string.format('%013.0f', now) .. written)
  local state = buffer == '1' and 'buffered' or 'queued'
  job = {id = id, class = class, number = text(call('INCR', NUMBER)), on = ''}
  enter[state](job)
  if callback == '1' or buffer == '1' then
    call('HSET', RUN .. id, 'state', state, 'class', class, 'number', job.number, 'callback', callback)
  end
  if deadline ~= '0' then
    call('ZADD', DEADLINES, now + tonumber(deadline), id)
    has_deadlines = true
  end
  count('submitted')
  publish(id)
  return {'new', state == 'queued' and sizes[class] - 1 or -1}  -- its number is the highest
end

-- The line whose turn it is: the lowest pass among those in which jobs wait. One that comes back after a silence gets
-- no turns for the time in which it had no jobs.
local function next_line(from)
  local best, least
  for line, pass in pairs(passes) do
    if from[on_of(line)] and sizes[line] > 0 and (not least or pass < least or (pass == least and line < best)) then
      best, least = line, pass
    end
  end
  if best then
    for line, pass in pairs(passes) do
      if from[on_of(line)] and pass < least then
        set_pass(line, least)
      end
    end
    set_pass(best, least + 1 / (weights[parts_of(best)] or 1))
  end
  return best
end

-- It goes on at another model, with attempts anew; what it was there is of no use here.
local function go_on_at(job, on)
  job.on, job.failures, job.remote = on, '0', ''
  call('HSET', RUN .. job.id, 'on', on, 'failures', '0')
  call('HDEL', RUN .. job.id, 'remote')
end

function answer.claim(member, on, ...)
  local from = {}
  for _, each in ipairs({...}) do
    from[each] = true
  end
  local line = next_line(from)
  while line do
    local id, number = unpack(call('ZRANGE', QUEUE .. line, '0', '0', 'WITHSCORES'))
    local job, kept = read(id, line, number), call('GETRANGE', JOB .. id, SINCE, '-1')
    if #kept > SUBMITTED then
      local waited = now - (tonumber(string.sub(kept, 1, SUBMITTED)) or now)
      job.holder = holder
      local token, attempts = text(job.token + 1), text(job.attempts + 1)
      move(job, 'claim', 'token', token, 'attempts', attempts, 'holder', holder, 'member', member, 'begun', NOW)
      if job.on ~= on then
        go_on_at(job, on)
      end
      return {id, token, attempts, job.failures, job.remote, job.member, waited, string.sub(kept, SUBMITTED + 1)}
    end
    leave_queue(line, id)  -- somebody else has removed what it was
    line = next_line(from)
  end
  return {}
end

-- Whether a job waits since the holder of its latest attempt was taken for dead, and nobody has begun it again.
local function is_lost(job)
  return job.state == 'queued' and call('HGET', RUN .. job.id, 'lost') == job.token
end

-- The job, where this is its latest attempt and runs still, as far as its holder knows; whether `name` has ended it
-- before: the reply was lost.
local function attempt_of(id, token, name)
  local job = read(id)
  if job and job.token == token then
    if job.state == 'processing' then
      return job, false
    elseif MOVES.queued[name] and is_lost(job) then
      call('HDEL', RUN .. id, 'lost')
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

-- A job has ended that took so many milliseconds of slots: the mean of the last ones, those long ago with less weight.
-- It is read and written once for all of a batch, and no job's end fails for it.
local mean, ended
local function took(spent)
  if not mean then
    local known = redis.pcall('HMGET', TIMES, 'mean', 'ended')
    mean, ended = tonumber(known[1] or nil) or 0, tonumber(known[2] or nil) or 0
  end
  ended = ended + 1
  mean = mean + (spent - mean) / math.min(ended, 32)
end

local COUNTED = {
  complete = 'completed', fail = 'failed', give_up = 'dead_lettered', retry = 'retried', fall = 'fallen', back = 'busy',
}
local GOES_ON = {retry = true, fall = true, back = true}

function answer.finish(id, token, name, written, ms, on)
  local job, again = attempt_of(id, token, name)
  if not job then
    return {again and 1 or 0}
  end
  local spent = job.spent + now - (job.begun or now)
  if name == 'complete' then
    call('SET', RESULT .. id, written, 'PX', KEPT)
    move(job, name, 'ended', NOW, 'error', '')
  elseif name == 'retry' then
    call('ZADD', DELAYED, now + tonumber(ms), id)
    move(job, name, 'error', written, 'failures', text(job.failures + 1), 'spent', text(spent))
    call('HDEL', RUN .. id, 'remote')
  elseif name == 'fall' then
    go_on_at(job, on)
    move(job, name, 'error', written, 'spent', text(spent))
  elseif name == 'back' then
    move(job, name, 'attempts', text(job.attempts - 1))
  else
    move(job, name, 'error', written, 'failures', text(job.failures + 1), 'ended', NOW)
  end
  count(COUNTED[name])
  if not GOES_ON[name] then
    owe_callback(job)
    took(spent)
  end
  return {1}
end

function answer.hold(attempts)
  local known, lost = {}, 0
  for id, token in string.gmatch(attempts, '(%S+) (%S+)') do
    known[id] = token
    local job = read(id)
    if not job or job.state ~= 'processing' or job.holder ~= holder or job.token ~= token then
      call('RPUSH', DROPPED .. holder, id .. ' ' .. token)  -- the message of that may have been in the lost reply
    end
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
  if move(job, 'cancel', 'ended', NOW) then
    count('cancelled')
    owe_callback(job)
  end
  return {before, job.token, job.member}
end

function answer.revive(id)
  local job = read(id)
  if not job or not MOVES[job.state].revive then
    return {0}
  end
  job.on = ''  -- and begins at its own model
  call('HDEL', RUN .. id, 'ended', 'remote', 'on', 'spent', 'callback_attempts', 'callback_error')
  call('ZREM', CALLBACKS, id)
  move(job, 'revive', 'failures', '0', 'error', '')
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

function answer.watch(ms, name)
  local was = channel == name
  call('SET', WATCHED, name, 'PX', ms)
  channel = name
  return {was and 1 or 0}
end

function answer.bury(dead)
  if call('ZSCORE', HOLDERS, dead) then
    call('ZADD', HOLDERS, now, dead)
    reap()
  end
  return {1}
end

function answer.look(member, ms)
  call('ZREMRANGEBYSCORE', LOOKS, '-inf', now)
  return {call('ZADD', LOOKS, 'NX', now + tonumber(ms), member)}
end

function answer.silent(ms)
  local members, seen = {}, {}
  for _, job in ipairs(silent_attempts(tonumber(ms))) do
    if not seen[job.member] then
      members[#members + 1], seen[job.member] = job.member, true
    end
  end
  return members
end

function answer.idle(member, ms)
  local lost = 0
  for _, job in ipairs(silent_attempts(tonumber(ms))) do
    if job.member == member and move(job, 'lose', 'error', 'its dispatcher died', 'lost', job.token) then
      count('lost')
      lost = lost + 1
    end
  end
  return {lost}
end

-- Where no holder could renew its lease for half of one, Redis was away or frozen, or its clock was set: none of them is
-- dead for that.
local newest = call('ZREVRANGE', HOLDERS, 0, 0, 'WITHSCORES')[2]
if newest and now > newest - lease / 2 then
  for _, each in ipairs(call('ZRANGE', HOLDERS, 0, -1)) do
    call('ZADD', HOLDERS, now + lease, each)
  end
end
call('ZADD', HOLDERS, now + lease, holder)
expire()
promote()
reap()
forget()
local FAULT = '!fault'
local asks, replies, at = tonumber(ARGV[8]), {}, 9
for index = 1, asks do
  local size = tonumber(ARGV[at + 1])
  local is_done, reply = pcall(answer[ARGV[at]], unpack(ARGV, at + 2, at + 1 + size))
  replies[index] = is_done and reply or {FAULT, tostring(type(reply) == 'table' and reply.err or reply)}
  at = at + 2 + size
end
if mean then
  redis.pcall('HSET', TIMES, 'mean', string.format('%.3f', mean), 'ended', text(ended))
end
trim(SLICE + 2 * asks)  -- more than may have ended in this call
write_counts()
write_passes()
local due = -1
for _, set in ipairs({DELAYED, DEADLINES, CALLBACKS}) do
  local first = call('ZRANGE', set, 0, 0, 'WITHSCORES')[2]
  if first and (due < 0 or first - now < due) then
    due = math.max(0, first - now)
  end
end
local function told(whom)
  local all = call('LRANGE', DROPPED .. whom, 0, -1)
  if #all > 0 then
    call('DEL', DROPPED .. whom)
  end
  return all
end
local dropped, left = told(holder), dispatches and told(ANYBODY) or {}
local waiting = {}
for on, size in pairs(select(2, queued())) do
  waiting[#waiting + 1] = on
  waiting[#waiting + 1] = size
end
return {now, waiting, due, dropped, replies, left}
