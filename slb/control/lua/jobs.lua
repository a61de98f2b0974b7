-- The jobs of one model: what one instance asks, one ask after another, in one step. With no ask, only what is due is
-- done. Behind jobs_state.lua, which lists the keys and has the moves, jobs_due.lua, jobs_shown.lua,
-- jobs_callbacks.lua, jobs_buffer.lua and jobs_attempts.lua.
-- ARGV: holder, number of this batch, lease, kept (milliseconds that what has ended stays), weights
-- ("class=weight,..."), how many that have ended stay, dispatches (1: it calls GPUs), how many asks; then each ask:
-- its name, the number of its arguments, these. A batch whose number is not above the last one's was given up by its
-- holder before it came here: {"late"}. An ask, and its reply:
--   submit id class digest job deadline (0: none) callback (1: one is to be sent at its end) buffer (1: it waits for
--     its task): {"new", position}, {"known", state} or {"mismatch"}
--   claim, remote, report, reported, finish, hold: of attempts, in jobs_attempts.lua
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
-- Reply: {now, jobs queued (names and numbers in turn: at which model, "" for their own, "@" before it where they wait
-- for a follower), milliseconds until something
-- is due or -1, dropped, a reply for each ask, to one that dispatches: what GPUs run in vain and nobody follows}.
function answer.submit(id, class, digest, written, deadline, callback, buffer)
  local job = call('EXISTS', JOB .. id) == 1 and read(id)
  if job then
    local same = call('GETRANGE', JOB .. id, 0, DIGEST - 1) == digest
    return same and {'known', job.state} or {'mismatch'}
  end
  call('SET', JOB .. id, digest .. string.format('%013.0f', now) .. written)
  local state = buffer == '1' and 'buffered' or 'queued'
  job = {id = id, class = class, number = text(call('INCR', NUMBER)), on = '', remote = ''}
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
  job.on, job.remote = '', ''  -- and begins at its own model
  call('HDEL', RUN .. id, 'ended', 'remote', 'report', 'on', 'spent', 'callback_attempts', 'callback_error')
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
write_times()
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
