-- The callbacks of ended jobs: which are due, and what became of them. Behind jobs_shown.lua; jobs.lua lists what is
-- asked.
function answer.callbacks(ms, most)
  local taken = {}
  for _, id in ipairs(call('ZRANGEBYSCORE', CALLBACKS, '-inf', now, 'LIMIT', 0, most)) do
    local shown = answer.show(id, math.huge)
    if #shown == 0 then
      call('ZREM', CALLBACKS, id)
    else
      call('ZADD', CALLBACKS, now + tonumber(ms), id)
      taken[#taken + 1] = {id, unpack(shown)}
    end
  end
  return taken
end

function answer.put_off(id, ms)
  return {call('ZADD', CALLBACKS, 'XX', now + tonumber(ms), id)}
end

function answer.sent(id, ended, attempts, error, ms)
  local run = call('HMGET', RUN .. id, 'ended', 'attempts')
  if not call('ZSCORE', CALLBACKS, id) or run[1] ~= ended or (run[2] or '0') ~= attempts then
    return {0}
  end
  call('HINCRBY', RUN .. id, 'callback_attempts', 1)
  call('HSET', RUN .. id, 'callback_error', error)
  if ms ~= '-1' and ms ~= '-2' then
    call('ZADD', CALLBACKS, now + tonumber(ms), id)
    return {1}
  end
  call('ZREM', CALLBACKS, id)
  count(ms == '-1' and 'delivered' or 'undelivered')
  local job = read(id)
  if job and OVER[job.state] then  -- kept from now on: its place in ENDED may have gone meanwhile
    enter(job)
    call('PEXPIRE', RESULT .. id, KEPT)
  end
  return {1}
end
