-- What becomes due of the jobs of a model: retries, deadlines, what dead holders had, what was kept long enough. Behind
-- jobs_state.lua.
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
      if move(job, 'expire', 'error', 'its deadline has passed', 'ended', NOW) then
        count('failed')
        owe_callback(job)
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
local function silent_attempts(ms)
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

-- Their keys have gone by themselves, or go now.
local function forget()
  for _, id in ipairs(call('ZRANGEBYSCORE', ENDED, '-inf', now - KEPT, 'LIMIT', 0, SLICE)) do
    call('ZREM', ENDED, id)
  end
end

-- No more than so many jobs that have ended are kept, the oldest go first; at most `most` in one call. One whose
-- callback is due only leaves the list: it stands there again once that is answered. An id may have been submitted anew
-- whose earlier job has gone by itself.
local OVER = {completed = true, failed = true, cancelled = true}
local function trim(most)
  local over = math.min(call('ZCARD', ENDED) - limit, most)
  for _, id in ipairs(over > 0 and call('ZRANGE', ENDED, 0, over - 1) or {}) do
    call('ZREM', ENDED, id)
    if OVER[call('HGET', RUN .. id, 'state')] and not call('ZSCORE', CALLBACKS, id) then
      call('DEL', JOB .. id, RUN .. id, RESULT .. id)
    end
  end
end
