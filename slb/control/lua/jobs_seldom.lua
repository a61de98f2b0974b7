-- What is asked of the jobs of a model now and then, besides what jobs_shown.lua, jobs_callbacks.lua and jobs_buffer.lua
-- answer. Behind these, and in one function with them. jobs.lua lists most of it, and besides:
--   progress id token text: how far that attempt has come, as JSON. {1}, or {0}: not this attempt any more
--   report id token text progress: the GPU's own word of how that attempt ended, for the one who follows it, and how far
--     it has come; '' for neither. {1}; {0}: it is neither the latest attempt nor what that follows, or has ended; {}:
--     there is no such job
--   reported id: {text}, or {} where its GPU has reported no end
--   hold attempts ("id token", line by line): those that this holder knows of, after a batch whose reply it did not
--     get. All others of its go back into their queues; those of them that are not its any more are dropped. How many
function answer.cancel(id)
  local job = read(id)
  if not job then
    return {}
  end
  local before = job.state
  due.drop_attempt(job)
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
  job.on, job.remote = '', ''  -- and begins at its own model
  call('HDEL', RUN .. id, 'ended', 'remote', 'report', 'on', 'spent', 'busy', 'callback_attempts', 'callback_error')
  call('ZREM', CALLBACKS, id)
  keep(id)
  move(job, 'revive', 'failures', '0', 'error', '')
  count('revived')
  return {1}
end

function answer.remove(id)
  local job = read(id)
  if not job or not MOVES[job.state].remove then
    return {0}
  end
  leave(job)
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
    due.reap(dead)
  end
  return {1}
end

function answer.look(member, ms)
  call('ZREMRANGEBYSCORE', LOOKS, '-inf', now)
  return {call('ZADD', LOOKS, 'NX', now + tonumber(ms), member)}
end

function answer.silent(ms)
  local members, seen = {}, {}
  for _, job in ipairs(due.silent_attempts(tonumber(ms))) do
    if not seen[job.member] then
      members[#members + 1], seen[job.member] = job.member, true
    end
  end
  return members
end

function answer.idle(member, ms)
  local lost = 0
  for _, job in ipairs(due.silent_attempts(tonumber(ms))) do
    if job.member == member and move(job, 'lose', 'error', 'its dispatcher died', 'lost', job.token) then
      count('lost')
      lost = lost + 1
    end
  end
  return {lost}
end

-- It is told to those who follow the job as a move is.
local function note_progress(job, progress)
  if call('HGET', RUN .. job.id, 'progress') ~= progress then
    call('HSET', RUN .. job.id, 'progress', progress, 'moves', one_more(job.moves))
    publish(job.id)
  end
end

function answer.progress(id, token, progress)
  local job = read(id)
  if not job or job.token ~= token or job.state ~= 'processing' then
    return {0}
  end
  note_progress(job, progress)
  return {1}
end

-- What a GPU tells by itself of the attempt that it runs, be its holder dead meanwhile, or another attempt that follows
-- it: the GPU knows the number of the one that began it.
function answer.report(id, token, written, progress)
  local job = read(id)
  if not job then
    return {}
  end
  local is_its = job.token == token or job.remote ~= '' and call('HGET', RUN .. id, 'began') == token
  if not is_its or (job.state ~= 'processing' and (job.state ~= 'queued' or job.remote == '')) then
    count('stale')
    return {0}
  end
  if written ~= '' then
    call('HSET', RUN .. id, 'report', written, 'reported', token)
  end
  if progress ~= '' then
    note_progress(job, progress)
  end
  return {1}
end

function answer.reported(id)
  local run = call('HMGET', RUN .. id, 'report', 'reported', 'token', 'remote', 'began')
  local is_its = run[2] == run[3] or (run[4] or '') ~= '' and run[2] == run[5]  -- else an attempt before told it
  return {run[1] and is_its and run[1] or nil}
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
