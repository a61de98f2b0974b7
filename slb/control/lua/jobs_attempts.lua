-- The attempts at the jobs of a model, from the claim to the end. Behind jobs_shown.lua. What is asked, and its reply:
--   claim member on from...: the next of those that are at one of the models `from` ("": their own), to go on at `on`;
--     with `from` = "@on" and without a member, of those that are to be followed at the GPUs of `on` that run them:
--     {id, token, attempts, failures, remote, member (where the attempt before was), milliseconds
--     since it was submitted, job} or {}
--   remote id token remote: the GPU's own id of what it runs. {1} or {0}: not this attempt any more
--   report id token text: the GPU's own word of how that attempt goes, for the one who follows it. {1}; {0}: it is
--     neither the latest attempt nor what that follows, or has ended; {}: there is no such job
--   reported id: {text}, or {} where its GPU has reported nothing
--   finish id token move text ms on: `move` is complete (text: the result), fail, retry (in ms), give_up (text: the
--     error), fall (at its old place among those at the model `on`, with attempts anew) or back (at its old place:
--     nothing was tried). {1}, once more too, or {0}: not this attempt any more
--   hold attempts ("id token", line by line): those that this holder knows of, after a batch whose reply it did not
--     get. All others of its go back into their queues; those of them that are not its any more are dropped. How many
local weights = {}
for class, weight in string.gmatch(ARGV[5], '([^=,]+)=(%d+)') do
  weights[class] = tonumber(weight)
end

-- The line whose turn it is: the lowest pass among those in which jobs wait. One that comes back after a silence gets
-- no turns for the time in which it had no jobs.
local function next_line(from)
  local best, least
  for line, pass in pairs(passes) do
    if from[wanted_in(line)] and sizes[line] > 0 and (not least or pass < least or (pass == least and line < best)) then
      best, least = line, pass
    end
  end
  if best then
    for line, pass in pairs(passes) do
      if from[wanted_in(line)] and pass < least then
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
  call('HDEL', RUN .. job.id, 'remote', 'report')
end

-- The next attempt's token: which it is, and the number of the submission. An id that has gone may be submitted anew,
-- and an attempt at what it was may come back.
local function next_token(job)
  return text(string.match(job.token, '^%d+') + 1) .. '.' .. text(job.number)
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
      local at = member == '' and job.member or member
      local token, attempts = next_token(job), text(job.attempts + 1)
      local begun = {'token', token, 'attempts', attempts, 'holder', holder, 'member', at, 'begun', NOW}
      if move(job, 'claim', unpack(begun)) then
        if job.on ~= on then
          go_on_at(job, on)
        end
        return {id, token, attempts, job.failures, job.remote, job.member, waited, string.sub(kept, SUBMITTED + 1)}
      end
    end
    leave_queue(line, id)  -- it does not wait, or somebody else has removed what it was
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
    call('HSET', RUN .. id, 'remote', remote, 'began', token)
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

local function write_times()
  if mean then
    redis.pcall('HSET', TIMES, 'mean', string.format('%.3f', mean), 'ended', text(ended))
  end
end

-- What a GPU tells by itself of the attempt that it runs, be its holder dead meanwhile, or another attempt that follows
-- it: the GPU knows the number of the one that began it.
function answer.report(id, token, written)
  local job = read(id)
  if not job then
    return {}
  end
  local is_its = job.token == token or job.remote ~= '' and call('HGET', RUN .. id, 'began') == token
  if not is_its or (job.state ~= 'processing' and job.state ~= 'queued') then
    count('stale')
    return {0}
  end
  call('HSET', RUN .. id, 'report', written)
  return {1}
end

function answer.reported(id)
  return {call('HGET', RUN .. id, 'report') or nil}
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
    call('HDEL', RUN .. id, 'remote', 'report')
  elseif name == 'fall' then
    leave[job.state](job)  -- the line that it waits in maybe, before its model is another
    go_on_at(job, on)
    move(job, name, 'error', written, 'spent', text(spent))
  elseif name == 'back' then
    move(job, name, 'attempts', text(job.attempts - 1))
  else
    move(job, name, 'error', written, 'failures', text(job.failures + 1), 'ended', NOW)
  end
  count(COUNTED[name])
  if not GOES_ON[name] then
    if job.remote ~= '' then
      call('HDEL', RUN .. id, 'report')
    end
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
