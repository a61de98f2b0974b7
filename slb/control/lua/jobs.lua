-- The jobs of one model: what one instance asks, one ask after another, in one step. With no ask, only what is due is
-- done. Behind jobs_state.lua, which lists the keys, and the other files of this name.
-- ARGV: holder, number of this batch, lease, kept (milliseconds that what has ended stays), weights
-- ("class=weight,..."), how many that have ended stay, dispatches (1: it calls GPUs), how many asks; then each ask:
-- its name, the number of its arguments, these. A batch whose number is not above the last one's was given up by its
-- holder before it came here: {"late", that number}. An ask, and its reply:
--   submit id class digest job deadline (0: none) callback (1: one is to be sent at its end) buffer (1: it waits for
--     its task): {"new", position}, {"known", state} or {"mismatch"}
--   claim, remote, finish: of attempts, in jobs_attempts.lua
--   progress, report, reported, hold: of attempts, in jobs_seldom.lua
--   cancel id: {what it was, token, member} or {}; nothing changes where it had ended
--   revive id: a dead or failed one begins again. {1} or {0}
--   remove id: a dead or failed one is forgotten. {1} or {0}
--   show id most: {state, class, attempts, failures, begun, ended, error, member, callback_attempts, callback_error,
--     on, task_retries, submitted, position, job, result, moves, progress, busy, owner} or {}; what was submitted, the result
--     and the progress where each has at most so many bytes
--   line id: where a queued job stands: {class, how many of it are before it, milliseconds of slots that a job takes ('':
--     none has ended yet), how many run, the classes in which jobs wait (name, pass, how many), since how many
--     milliseconds each of those that run does, the oldest 128} or {}
--   watch ms channel: for so long each move is published there: model, id, and what `show` replies, as JSON. {1}, or {0}:
--     none was published before it
--   list kind first count: ids of buffered, queued, retrying, processing, ended or dead, the oldest first; of queued class by
--     class
--   stats: {buffered, queued, delayed, running, callbacks, dead, ended, id and submission of the oldest that waits,
--     when the first of the dead was given up, then names and numbers of counts in turn}
--   callbacks ms count: takes so many that are due, and makes them due in ms again: {id, and what `show` replies} each
--   sent id ended attempts error ms: the callback of that end was answered (ms = -1), or failed: due in ms again, or
--     given up (ms = -2). {1}, or {0}: it was noted already, or the job has begun again meanwhile
--   put_off id ms: its callback is due again in ms, and was not tried. {0}
--   release, withhold, buffered, tasked: of jobs that wait for a task, in jobs_buffer.lua
--   bury holder: it is dead, whatever its lease. {1}
--   look member ms: {1}: the caller is to ask this GPU what it runs, and no other in the next ms; else {0}
--   silent ms: GPUs at which holders that have not called for so long run jobs
--   idle member ms: this GPU runs nothing: what those run there begins again. How many
-- An ask that fails by a fault of ours, or of data in Redis: {"!fault", Redis's error message}.
-- Reply: {now, jobs queued (names and numbers in turn: at which model, "" for their own, "@" before it where they wait
-- for a follower), milliseconds until something
-- is due or -1, dropped, a reply for each ask, to one that dispatches: what GPUs run in vain and nobody follows}.
local WHEN = string.format('%013.0f', now)
local reserved, numbers = 0, 0

-- The next submission's. They are taken for all that may be submitted in this batch yet: some are never given.
local function next_number()
  if reserved == 0 then
    reserved = asks - asked + 1
    numbers = tonumber(call('GET', NUMBER) or 0)
    call('SET', NUMBER, text(numbers + reserved))
  end
  numbers, reserved = numbers + 1, reserved - 1
  return text(numbers)
end

function answer.submit(id, class, digest, written, deadline, callback, buffer)
  local job = call('EXISTS', JOB .. id) == 1 and read(id)
  if job then
    local same = call('GETRANGE', JOB .. id, 0, SAME - 1) == string.sub(digest, 1, SAME)
    if same and job.state == 'queued' and not job.number then  -- its place has been lost
      job.class, job.number, job.is_new = class, next_number(), true
      enter(job)
    end
    return same and {'known', job.state} or {'mismatch'}
  end
  local state = buffer == '1' and 'buffered' or 'queued'
  job = {id = id, state = state, class = class, number = next_number(), on = '', remote = '', is_new = true}
  enter(job)  -- where that fails there is no such job, and the next submit of it is not told that it waits
  call('SET', JOB .. id, digest .. WHEN .. written)
  if callback == '1' or buffer == '1' then
    call('HSET', RUN .. id, 'state', state, 'class', class, 'number', job.number, 'callback', callback)
  end
  if deadline ~= '0' then
    call('ZADD', DEADLINES, text(now + tonumber(deadline)), id)
    firsts[DEADLINES] = nil
    has_deadlines = true
  end
  count('submitted')
  publish(id)
  return {'new', state == 'queued' and sizes[class] - 1 or -1}  -- its number is the highest
end

-- Where no holder could renew its lease for half of one, Redis was away or frozen, or its clock was set: none of them is
-- dead for that. Where one has a lease that ends a minute later than a new one would, the clock was set back: all begin
-- anew, or a dead one would live for as long as that was.
local newest = call('ZREVRANGE', HOLDERS, 0, 0, 'WITHSCORES')[2]
if newest and (now > newest - lease / 2 or now + lease + 60000 < tonumber(newest)) then
  for _, each in ipairs(call('ZRANGE', HOLDERS, 0, -1)) do
    call('ZADD', HOLDERS, now + lease, each)
  end
end
call('ZADD', HOLDERS, text(now + lease), holder)
local function is_due(set)
  return first_of(set) and first_of(set) <= now
end
local dead = call('ZRANGEBYSCORE', HOLDERS, '-inf', NOW, 'LIMIT', '0', '1')[1]
if dead or is_due(DEADLINES) or is_due(DELAYED) then
  open_due()
  due.expire()
  due.promote()
  if dead then
    due.reap(dead)
  end
end

-- Kept long enough: their keys have gone by themselves, or go now.
local gone = call('ZRANGEBYSCORE', ENDED, '-inf', text(now - KEPT), 'LIMIT', '0', '100')
if gone[1] then
  call('ZREM', ENDED, unpack(gone))
end

local FAULT = '!fault'
local GATHERED = {submit = true, claim = true, finish = true, remote = true}  -- read no set without writing it first
local replies, at = {}, 9
for index = 1, asks do
  local name, size = ARGV[at], tonumber(ARGV[at + 1])
  asked, gathers = index, GATHERED[name] or false
  if not gathers then
    open_due()
    open_rest()
    write_gathered()
  end
  local is_done, reply = pcall(answer[name], unpack(ARGV, at + 2, at + 1 + size))
  replies[index] = is_done and reply or {FAULT, tostring(type(reply) == 'table' and reply.err or reply)}
  at = at + 2 + size
end
gathers = false
write_gathered()
if spoiled then
  at = 9
  for index = 1, asks do
    replies[index] = GATHERED[ARGV[at]] and {FAULT, tostring(spoiled)} or replies[index]
    at = at + 2 + tonumber(ARGV[at + 1])
  end
end
write_times()
local over = (has_ended or asks == 0) and call('ZCARD', ENDED) - limit or 0
if over > 0 then
  open_due()
  due.trim(math.min(over, SLICE + 2 * asks))  -- more than may have ended in this call
end
write_counts()
write_passes()
local soonest = -1
for _, set in ipairs({DELAYED, DEADLINES, CALLBACKS}) do
  local first = first_of(set)
  if first and (soonest < 0 or first - now < soonest) then
    soonest = math.max(0, first - now)
  end
end
local function told(whom)
  local all = call('LRANGE', DROPPED .. whom, 0, -1)
  if #all > 0 then
    call('DEL', DROPPED .. whom)
  end
  return all
end
local dropped, left = {}, {}
if call('EXISTS', DROPPED .. holder, DROPPED .. ANYBODY) > 0 then
  dropped, left = told(holder), dispatches and told(ANYBODY) or {}
end
local waiting, on_models = {}, select(2, queued())
for on, size in pairs(on_models) do
  waiting[#waiting + 1] = on
  waiting[#waiting + 1] = size
end
return {now, waiting, soonest, dropped, replies, left}
