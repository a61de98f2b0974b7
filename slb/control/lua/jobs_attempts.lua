-- The attempts at the jobs of a model, from the claim to the end. Behind jobs_moves.lua. What is asked, and its reply:
--   claim member on from...: the next of those that are at one of the models `from` ("": their own), to go on at `on`;
--     with `from` = "@on" and without a member, of those that are to be followed at the GPUs of `on` that run them:
--     {id, token, attempts, failures, remote, member (where the attempt before was), milliseconds
--     since it was submitted, job, busy} or {}; {"later"}: the jobs that this batch is answered with are long already
--   remote id token remote: the GPU's own id of what it runs. {1} or {0}: not this attempt any more
--   finish id token move text ms on ago: it ended `ago` milliseconds ago (0 where left out); `move` is complete (text: the result), fail, retry (in ms), give_up (text: the
--     error), fall (at its old place among those at the model `on`, with attempts anew) or back (at its old place:
--     nothing was tried). Where its GPU was busy it is put_off (text: what that answered; it comes back in ms, and later
--     while others wait and GPUs take none of them), or busy (the same where others wait, else it is back at once). {1},
--     once more too, or {0}: not this attempt any more
local weights
local function weight_of(line)
  if not weights then
    weights = {}
    for class, weight in string.gmatch(ARGV[5], '([^=,]+)=(%d+)') do
      weights[class] = tonumber(weight)
    end
  end
  return weights[class_of[line]] or 1
end

-- The line whose turn it is: the lowest pass among those in which jobs wait. One that comes back after a silence gets
-- no turns for the time in which it had no jobs.
local function next_line(from)
  local best, least
  for line, pass in pairs(passes) do
    if from[wanted_in[line]] and sizes[line] > 0 and (not least or pass < least or (pass == least and line < best)) then
      best, least = line, pass
    end
  end
  if best then
    for line, pass in pairs(passes) do
      if from[wanted_in[line]] and pass < least then
        set_pass(line, least)
      end
    end
    set_pass(best, least + 1 / weight_of(best))
  end
  return best
end

-- It goes on at another model, with attempts anew; what it was there is of no use here.
local function go_on_at(job, on)
  job.on, job.failures, job.remote = on, '0', ''
  call('HSET', RUN .. job.id, 'on', on, 'failures', '0')
  call('HDEL', RUN .. job.id, 'remote', 'report', 'busy')
end

-- The next attempt's token: which it is, and the number of the submission. An id that has gone may be submitted anew,
-- and an attempt at what it was may come back.
local function next_token(job)
  return one_more(job.token == '0' and '0' or string.match(job.token, '^%d+')) .. '.' .. job.number
end

-- The first of a line, and its number; nil where the line is empty. Those behind it are read with it, for as many as
-- may be claimed in this batch.
local MOST_HEADS = 64
local function take_head(line)
  local head = heads[line]
  if not head or not head[head.at] then
    write_gathered()
    head = call('ZRANGE', QUEUE .. line, '0', text(math.min(asks - asked, MOST_HEADS)), 'WITHSCORES')
    head.at = 1
    heads[line] = head
  end
  head.taken, head.at = head[head.at], head.at + 2
  return head.taken, head[head.at - 1]
end

-- The models of a claim, which are mostly those of the claim before.
local from_named, from_set
local function from_of(...)
  local named = table.concat({...}, ' ')
  if named ~= from_named then
    from_named, from_set = named, {}
    for _, each in ipairs({...}) do
      from_set[each] = true
    end
  end
  return from_set
end

local MOST_HANDED = 2097152
local handed = 0  -- bytes of the jobs that this batch is answered with
function answer.claim(member, on, ...)
  if handed > MOST_HANDED then
    return {'later'}
  end
  local from = from_of(...)
  local line = next_line(from)
  while line do
    local id, number = take_head(line)
    if not id then  -- it has fewer than was thought
      sizes[line] = 0
    end
    local job, kept = id and read(id, line, number), id and redis.pcall('GETRANGE', JOB .. id, SINCE, '-1') or ''
    if job and type(kept) == 'string' and #kept > SUBMITTED then
      local waited = now - (tonumber(string.sub(kept, 1, SUBMITTED)) or now)
      job.holder = holder
      local where = member == '' and job.member or member
      local token, attempts = next_token(job), one_more(job.attempts)
      if move(
        job, 'claim', 'token', token, 'attempts', attempts, 'holder', holder, 'member', where, 'begun', NOW
      ) then
        if job.on ~= on then
          go_on_at(job, on)
        end
        if job.attempts ~= '0' and job.remote == '' then  -- it begins from nothing
          call('HDEL', RUN .. id, 'progress')
        end
        handed = handed + #kept
        local written = string.sub(kept, SUBMITTED + 1)
        return {id, token, attempts, job.failures, job.remote, job.member, waited, written, job.busy}
      end
    end
    if id then
      leave_queue(line, id)  -- it does not wait, or somebody else has removed or damaged what it was
      if not job or type(kept) ~= 'string' then
        error('the job ' .. id .. ' is damaged: it does not wait any more', 0)
      end
    end
    line = next_line(from)
  end
  return {}
end

-- Whether a job waits since the holder of its latest attempt was taken for dead, and nobody has begun it again.
local function is_lost(job)
  return job.state == 'queued' and call('HGET', RUN .. job.id, 'lost') == job.token
end

-- The job, where this is its latest attempt and runs still, as far as its holder knows; whether `name` has ended it
-- before: the reply was lost.
local function attempt_of(id, token, name)
  local job = read(id)
  if job and job.token == token then
    if job.state == 'processing' then
      return job, false
    elseif MOVES.queued[name] and is_lost(job) then
      call('HDEL', RUN .. id, 'lost')
      return job, false
    elseif job.state == MOVES.processing[name] or (name == 'busy' and job.state == 'queued') then
      return nil, true
    end
  end
  count('stale')
  return nil, false
end

function answer.remote(id, token, remote)
  local job = attempt_of(id, token)
  if job then
    call('HSET', RUN .. id, 'remote', remote, 'began', token)
  end
  return {job and 1 or 0}
end

-- A job has ended that took so many milliseconds of slots: the mean of the last ones, those long ago with less weight.
-- It is read and written once for all of a batch, and no job's end fails for it.
local mean, ended
local taken = {}  -- by model, when the last one began that its GPUs took
local function took(job, spent)
  if not mean then
    local known = redis.pcall('HMGET', TIMES, 'mean', 'ended')
    mean, ended = tonumber(known[1] or nil) or 0, tonumber(known[2] or nil) or 0
  end
  ended = ended + 1
  mean = mean + (spent - mean) / math.min(ended, 32)
  taken[job.on] = math.max(taken[job.on] or 0, tonumber(job.begun) or 0)
end

local function write_times()
  if mean then
    local fields = {'mean', string.format('%.3f', mean), 'ended', text(ended)}
    for on, begun in pairs(taken) do
      fields[#fields + 1] = 'taken ' .. on
      fields[#fields + 1] = text(begun)
    end
    redis.pcall('HSET', TIMES, unpack(fields))
  end
end

local COUNTED = {
  complete = 'completed', fail = 'failed', give_up = 'dead_lettered', retry = 'retried', fall = 'fallen', back = 'busy',
  busy = 'busy', put_off = 'busy',
}
local GOES_ON = {retry = true, fall = true, back = true, busy = true, put_off = true}

-- Its GPU was busy: that is no attempt. Others are to have their turn meanwhile, for it may be the job; where there are
-- none, it is the GPU. Of very many that wait so, each is looked at every second.
local MOST_ASIDE = 1000
local function finish_busy(job, name, written, ms)
  local attempts, id = text(job.attempts - 1), job.id
  local aside = name == 'busy' and call('ZCARD', DELAYED)
  local others = name == 'busy' and select(2, queued())[job.on] or 0
  if name == 'busy' and (others + aside == 0 or aside > MOST_ASIDE) then
    move(job, 'back', 'attempts', attempts, 'error', written)
    return
  end
  firsts[DELAYED] = nil
  call('ZADD', DELAYED, text(now + tonumber(ms)), id)
  move(job, name, 'attempts', attempts, 'error', written, 'busy_at', NOW)
end

function answer.finish(id, token, name, written, ms, on, ago)
  local job, again = attempt_of(id, token, name)
  if not job then
    return {again and 1 or 0}
  end
  local begun = tonumber(job.begun) or now
  local ended = ago and math.min(now, math.max(begun, now - ago)) or now  -- by the clock of another machine
  local spent, at = job.spent + math.max(0, ended - begun), ago and text(ended) or NOW  -- the clock may be set back
  if name == 'complete' then
    call('SET', RESULT .. id, written, 'PX', KEPT)
    move(job, name, 'ended', at, 'error', '')
  elseif name == 'retry' then
    firsts[DELAYED] = nil
    call('ZADD', DELAYED, text(now + tonumber(ms)), id)
    move(job, name, 'error', written, 'failures', text(job.failures + 1), 'spent', text(spent))
    call('HDEL', RUN .. id, 'remote', 'report')
  elseif name == 'fall' then
    leave(job)  -- the line that it waits in maybe, before its model is another
    go_on_at(job, on)
    move(job, name, 'error', written, 'spent', text(spent))
  elseif name == 'back' then
    move(job, name, 'attempts', text(job.attempts - 1))
  elseif name == 'busy' or name == 'put_off' then
    finish_busy(job, name, written, ms)
  else
    move(job, name, 'error', written, 'failures', text(job.failures + 1), 'ended', at)
  end
  count(COUNTED[name])
  if not GOES_ON[name] then
    if job.remote ~= '' then
      call('HDEL', RUN .. id, 'report', name == 'complete' and 'progress' or 'report')
    end
    owe_callback(job)
    took(job, spent)
  end
  return {1}
end
