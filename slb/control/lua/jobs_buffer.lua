-- Jobs that wait for a task of Cloud Tasks before they wait for a slot. Behind jobs_shown.lua. What is asked, and its
-- reply:
--   release id retries: its task was pushed, for the time after so many, or (retries = "") is not waited for: the job
--     waits for a slot now, at the place it was submitted to. {its state} or {}: there is no such job
--   withhold id ms: no slot was free: it waits for its task again, which is looked for in ms. {1}, or {0} where it was
--     begun meanwhile, or at any time before
--   buffered ms count: takes so many whose tasks are to be made or looked for, and makes them due in ms again: {id,
--     number, task} each
--   tasked id task ms: so many tasks were made for it; the last one is looked for in ms. {1} or {0}: it does not wait
function answer.release(id, retries)
  local job = read(id)
  if not job then
    return {}
  end
  move(job, 'release')
  if retries ~= '' and call('EXISTS', RUN .. id) == 1 then
    call('HSET', RUN .. id, 'task_retries', retries)
  end
  return {job.state}
end

function answer.withhold(id, ms)
  local job = read(id)
  if not job or job.token ~= '0' then
    return {0}
  end
  job.look = tonumber(ms)
  return {move(job, 'withhold') and 1 or 0}
end

function answer.buffered(ms, most)
  local taken = {}
  for _, id in ipairs(call('ZRANGEBYSCORE', BUFFERED, '-inf', now, 'LIMIT', 0, most)) do
    local run = call('HMGET', RUN .. id, 'number', 'task')
    if run[1] then
      call('ZADD', BUFFERED, now + tonumber(ms), id)
      taken[#taken + 1] = {id, run[1], run[2] or '0'}
    else
      call('ZREM', BUFFERED, id)
    end
  end
  return taken
end

function answer.tasked(id, task, ms)
  if not call('ZSCORE', BUFFERED, id) then
    return {0}
  end
  call('HSET', RUN .. id, 'task', task)
  call('ZADD', BUFFERED, now + tonumber(ms), id)
  return {1}
end
