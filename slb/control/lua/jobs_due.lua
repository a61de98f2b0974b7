-- What becomes due of the jobs of a model: retries, deadlines, what dead holders had, what was kept long enough. Behind
-- jobs_state.lua, inside a function: most batches have nothing of it to do.
local function tell(whom, what)
  call('RPUSH', DROPPED .. whom, what)
  call('PEXPIRE', DROPPED .. whom, 10 * lease)
end

-- What a GPU runs for it on its own, and nobody follows, is in vain.
local function drop_remote(job)
  if job.remote ~= '' then
    tell(ANYBODY, cjson.encode({job.id, job.member, job.on, job.remote}))
  end
end

-- It ends before its attempt does.
function due.drop_attempt(job)
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

-- Whether GPUs of a model have taken a job that began since then. One that runs is taken where it has run for longer than
-- `least` milliseconds.
local function have_taken(on, since, least)
  if (tonumber(call('HGET', TIMES, 'taken ' .. on) or nil) or 0) > since then
    return true
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', RUNNING, since, now - least, 'LIMIT', 0, SLICE)) do
    local job = read(id)
    if job and job.on == on then
      return true
    end
  end
  return false
end

-- Whether a job is passed over yet for which GPUs were busy: until they have taken another one, and so it was the job, or
-- no other waits.
local AGAIN, TAKEN = 1000, 1000
local function is_passed_over(job)
  local since = tonumber(call('HGET', RUN .. job.id, 'busy_at') or nil)
  if not since then
    return false
  end
  if have_taken(job.on, since, TAKEN + math.max(0, since - (tonumber(job.begun) or since))) then
    call('HSET', RUN .. job.id, 'busy', text(job.busy + 1))
  elseif (select(2, queued())[job.on] or 0) > 0 then
    return true
  end
  call('HDEL', RUN .. job.id, 'busy_at')
  return false
end

function due.promote()
  firsts[DELAYED] = nil
  for _, id in ipairs(call('ZRANGEBYSCORE', DELAYED, '-inf', now, 'LIMIT', 0, SLICE)) do
    local job = read(id)
    if job and is_passed_over(job) then
      call('ZADD', DELAYED, text(now + AGAIN), id)
    elseif not job or not move(job, 'due') then
      call('ZREM', DELAYED, id)
    end
  end
end

function due.expire()
  firsts[DEADLINES] = nil
  for _, id in ipairs(call('ZRANGEBYSCORE', DEADLINES, '-inf', now, 'LIMIT', 0, SLICE)) do
    local job = read(id)
    call('ZREM', DEADLINES, id)
    if job then
      due.drop_attempt(job)
      if move(job, 'expire', 'error', 'its deadline has passed', 'ended', NOW) then
        count('failed')
        owe_callback(job)
      end
    end
  end
end

-- The jobs of a dead holder begin again, before all that came later. The set goes when it is empty.
function due.reap(dead)
  local ids = call('SRANDMEMBER', HELD .. dead, SLICE)
  for _, id in ipairs(ids) do
    local job = read(id)
    if job and job.holder == dead and move(job, 'lose', 'error', 'its dispatcher died', 'lost', job.token) then
      count('lost')
    else
      call('SREM', HELD .. dead, id)
    end
  end
  if #ids < SLICE then
    call('ZREM', HOLDERS, dead)
    call('HDEL', BATCHES, dead)
    pass_on_dropped(dead)
  end
end

-- Attempts of holders that have not called for `ms`, so that none of these is younger. One that is alive calls every
-- second, and what it has claimed last may not have come to its GPU.
function due.silent_attempts(ms)
  local found = {}
  for _, each in ipairs(call('ZRANGEBYSCORE', HOLDERS, '-inf', now + lease - ms, 'LIMIT', 0, SLICE)) do
    for _, id in ipairs(call('SRANDMEMBER', HELD .. each, SLICE)) do
      local job = read(id)
      if job and job.state == 'processing' and job.holder == each then
        found[#found + 1] = job
      end
    end
  end
  return found
end

-- No more than so many jobs that have ended are kept, the oldest go first; at most `most` in one call. One whose
-- callback is due only leaves the list: it stands there again once that is answered. An id may have been submitted anew
-- whose earlier job has gone by itself.
function due.trim(most)
  local ids = call('ZRANGE', ENDED, 0, most - 1)
  call('ZREM', ENDED, unpack(ids))
  for _, id in ipairs(ids) do
    if OVER[call('HGET', RUN .. id, 'state')] and not call('ZSCORE', CALLBACKS, id) then
      call('DEL', JOB .. id, RUN .. id, RESULT .. id)
    end
  end
end
