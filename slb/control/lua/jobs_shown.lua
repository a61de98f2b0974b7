-- What is shown of the jobs of a model, and the table of all answers. Behind jobs_due.lua; jobs.lua lists what is
-- asked.
local answer = {}

local function position_of(job)
  return call('ZRANK', QUEUE .. job.class, job.id) or 0
end

local SHOWN = {'begun', 'ended', 'error', 'member', 'callback_attempts', 'callback_error'}

function answer.show(id, with)
  local job = read(id)
  if not job then
    return {}
  end
  local shown = {job.state, job.class or '', job.attempts, job.failures}
  for _, value in ipairs(call('HMGET', RUN .. id, unpack(SHOWN))) do
    shown[#shown + 1] = value or ''
  end
  shown[#shown + 1] = call('GETRANGE', JOB .. id, DIGEST, DIGEST + SUBMITTED - 1)
  shown[#shown + 1] = job.state == 'queued' and position_of(job) or -1
  shown[#shown + 1] = with == '1' and call('GETRANGE', JOB .. id, WRITTEN, '-1') or ''
  shown[#shown + 1] = with == '1' and call('GET', RESULT .. id) or ''
  return shown
end

function answer.list(kind, first, most)
  first = tonumber(first)
  local last = first + most - 1
  if kind ~= 'queued' then
    local sets = {retrying = DELAYED, processing = RUNNING, ended = ENDED, dead = DEAD}
    return call('ZRANGE', sets[kind], first, last)
  end
  local ids, before = {}, 0
  for class, size in pairs(sizes) do
    if last >= before and first < before + size then
      for _, id in ipairs(call('ZRANGE', QUEUE .. class, math.max(0, first - before), last - before)) do
        ids[#ids + 1] = id
      end
    end
    before = before + size
  end
  return ids
end

function answer.stats()
  local oldest, since = '', ''
  write_counts()
  for class in pairs(sizes) do
    local id = call('ZRANGE', QUEUE .. class, 0, 0)[1]
    local at = id and call('GETRANGE', JOB .. id, DIGEST, DIGEST + SUBMITTED - 1)
    if at and (since == '' or at < since) then
      oldest, since = id, at
    end
  end
  local shown = {
    queued(), call('ZCARD', DELAYED), call('ZCARD', RUNNING), call('ZCARD', CALLBACKS), call('ZCARD', DEAD),
    call('ZCARD', ENDED), oldest, since,
  }
  for _, each in ipairs(call('HGETALL', COUNTS)) do
    shown[#shown + 1] = each
  end
  return shown
end
