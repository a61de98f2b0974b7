-- What is shown of the jobs of a model. Behind jobs_attempts.lua, inside a function, with the files that follow; jobs.lua
-- lists what is asked.
local function position_of(job)
  return call('ZRANK', QUEUE .. line_of(job), job.id) or 0
end

local SHOWN = {'begun', 'ended', 'error', 'member', 'callback_attempts', 'callback_error', 'on', 'task_retries', 'progress'}

-- The string at `key` from `first` on, where it has at most `most` bytes; '' where that is no string.
local function short(key, first, most)
  local length = redis.pcall('STRLEN', key)
  return most > 0 and type(length) == 'number' and length - first <= most and call('GETRANGE', key, first, -1) or ''
end

local function submitted_at(id)
  local found = redis.pcall('GETRANGE', JOB .. id, DIGEST, DIGEST + SUBMITTED - 1)
  return type(found) == 'string' and found or ''
end

function answer.show(id, most)
  local job = read(id)
  if not job then
    return {}
  end
  most = tonumber(most)
  local shown = {job.state, job.class or '', job.attempts, job.failures}
  for _, value in ipairs(call('HMGET', RUN .. id, unpack(SHOWN))) do
    shown[#shown + 1] = value or ''
  end
  local progress = table.remove(shown)
  shown[#shown + 1] = submitted_at(id)
  shown[#shown + 1] = job.state == 'queued' and position_of(job) or -1
  shown[#shown + 1] = short(JOB .. id, WRITTEN, most)
  shown[#shown + 1] = short(RESULT .. id, 0, most)
  shown[#shown + 1] = job.moves
  shown[#shown + 1] = #progress <= most and progress or ''
  shown[#shown + 1] = job.busy
  local owner = redis.pcall('GETRANGE', JOB .. id, SAME, DIGEST - 1)
  shown[#shown + 1] = type(owner) == 'string' and owner or ''
  return shown
end

function answer.line(id)
  local job = read(id)
  if not job or job.state ~= 'queued' or job.remote ~= '' then
    return {}
  end
  local classes, since = {}, {}
  for line, pass in pairs(passes) do
    if sizes[line] > 0 and wanted_in[line] == job.on then
      classes[#classes + 1] = {class_of[line], string.format('%.9f', pass), sizes[line]}
    end
  end
  local begun = call('ZRANGE', RUNNING, 0, 127, 'WITHSCORES')
  for index = 2, #begun, 2 do
    since[#since + 1] = math.max(0, now - begun[index])
  end
  local mean = call('HGET', TIMES, 'mean') or ''
  return {job.class, position_of(job), mean, call('ZCARD', RUNNING), classes, since}
end

function answer.list(kind, first, most)
  first = tonumber(first)
  local last = first + most - 1
  if kind ~= 'queued' then
    local sets = {buffered = BUFFERED, retrying = DELAYED, processing = RUNNING, ended = ENDED, dead = DEAD}
    return call('ZRANGE', sets[kind], first, last)
  end
  local ids, before = {}, 0
  for line, size in pairs(sizes) do
    if last >= before and first < before + size then
      for _, id in ipairs(call('ZRANGE', QUEUE .. line, math.max(0, first - before), last - before)) do
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
  for line in pairs(sizes) do
    local id = call('ZRANGE', QUEUE .. line, 0, 0)[1]
    local at = id and submitted_at(id) or ''
    if at ~= '' and (since == '' or at < since) then
      oldest, since = id, at
    end
  end
  local total = queued()
  local shown = {
    call('ZCARD', BUFFERED), total, call('ZCARD', DELAYED), call('ZCARD', RUNNING), call('ZCARD', CALLBACKS),
    call('ZCARD', DEAD), call('ZCARD', ENDED), oldest, since,
    call('ZRANGE', DEAD, 0, 0, 'WITHSCORES')[2] or '',
  }
  for _, each in ipairs(call('HGETALL', COUNTS)) do
    shown[#shown + 1] = each
  end
  return shown
end
