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
