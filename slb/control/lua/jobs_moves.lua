-- The moves of jobs between their states, and the sets that they stand in. Behind jobs_state.lua.
-- The sets that jobs go through, which all of a batch change: while it `gathers`, what is to stand in them is noted here
-- (by set: id = score; true where it has no scores; false: it goes), and written in one command a set, before anything
-- reads one of them. A set that is no set spoils all that was gathered: those asks fail.
local gathers, gathered, heads, spoiled = false, {}, {}, nil

-- How many went in or out, as far as is known.
local function put(set, id, score)
  if gathers then
    local changes = gathered[set]
    if not changes then
      changes = {}
      gathered[set] = changes
    end
    changes[id] = score
    return 1
  elseif not score then
    return call(string.sub(set, 1, #HELD) == HELD and 'SREM' or 'ZREM', set, id)
  end
  return score == true and call('SADD', set, id) or call('ZADD', set, score, id)
end

local function write_gathered()
  for set, changes in pairs(gathered) do
    local to_add, added, to_remove, removed, has_scores = {}, 0, {}, 0, string.sub(set, 1, #HELD) ~= HELD
    for id, score in pairs(changes) do
      if not score then
        removed = removed + 1
        to_remove[removed] = id
      else
        if has_scores then
          added = added + 1
          to_add[added] = score
        end
        added = added + 1
        to_add[added] = id
      end
    end
    local failed = removed > 0 and redis.pcall(has_scores and 'ZREM' or 'SREM', set, unpack(to_remove))
    spoiled = type(failed) == 'table' and failed.err or spoiled
    failed = added > 0 and redis.pcall(has_scores and 'ZADD' or 'SADD', set, unpack(to_add))
    spoiled = type(failed) == 'table' and failed.err or spoiled
  end
  gathered, heads = {}, {}
end

local FIELDS = {
  'state', 'class', 'number', 'token', 'holder', 'member', 'attempts', 'failures', 'callback', 'remote', 'on',
  'begun', 'spent', 'moves', 'busy',
}

local function is_number(text)
  local number = tonumber(text)
  return number and number == number
end

-- Another program may have written there.
local function is_whole(job)
  return MOVES[job.state] and is_number(job.attempts) and is_number(job.failures) and is_number(job.spent)
    and is_number(job.moves) and is_number(job.busy) and string.match(job.token, '^%d+') and (not job.number or is_number(job.number))
    and (job.state ~= 'processing' or job.holder and job.number)
end

-- A job that nothing has happened to yet has no hash: it is queued, in `line` as its `number`, where that is known. What
-- is damaged is no job.
local function read(id, line, number)
  local is_new = line and call('EXISTS', RUN .. id) == 0
  local run = is_new and {} or redis.pcall('HMGET', RUN .. id, unpack(FIELDS))
  if run.err then
    return nil
  end
  local job = {
    id = id, state = run[1], class = run[2], number = run[3], token = run[4] or '0', holder = run[5],
    member = run[6] or '', attempts = run[7] or '0', failures = run[8] or '0', callback = run[9], remote = run[10] or '',
    on = run[11] or '', begun = run[12], spent = run[13] or '0', moves = run[14] or '0',
    busy = run[15] or '0',
  }
  if line then
    job.state, job.number = job.state or 'queued', number
    job.class, job.on = job.class or class_of[line], on_of[line]
  elseif not job.state and call('EXISTS', JOB .. id) == 1 then
    job.state = 'queued'
    write_gathered()
    for each in pairs(passes) do
      local its_number = call('ZSCORE', QUEUE .. each, id)
      if its_number then
        job.class, job.number = class_of[each], its_number
      end
    end
  end
  return job.state and is_whole(job) and job or nil
end

-- A result is stored with that time.
local function keep_for_a_while(id)
  call('PEXPIRE', JOB .. id, KEPT)
  call('PEXPIRE', RUN .. id, KEPT)
end

local function keep(id)
  for _, start in ipairs({JOB, RUN, RESULT}) do
    call('PERSIST', start .. id)
  end
end

-- Where a job stands while it is in a state: `leave` takes it out, `enter` puts it in.
local function leave_queue(line, id)
  if sizes[line] then
    if heads[line] and heads[line].taken ~= id then
      heads[line] = nil
    end
    sizes[line] = sizes[line] - put(QUEUE .. line, id, false)
  end
end

local function leave(job)
  if job.state == 'processing' then
    put(RUNNING, job.id, false)
    put(HELD .. job.holder, job.id, false)
  elseif job.state == 'queued' then
    leave_queue(line_of(job), job.id)
  elseif job.state == 'retrying' then
    firsts[DELAYED] = nil
    call('ZREM', DELAYED, job.id)
  elseif job.state == 'buffered' then
    call('ZREM', BUFFERED, job.id)
  elseif job.state == 'dead_lettered' then
    call('ZREM', DEAD, job.id)
  elseif job.state == 'failed' then
    put(ENDED, job.id, false)
  end
end

local function lowest_pass(wanted)
  local least
  for line, pass in pairs(passes) do
    if wanted_in[line] == wanted then
      least = math.min(least or pass, pass)
    end
  end
  return least or 0
end

local OVER, has_ended = {completed = true, failed = true, cancelled = true}, false
local function enter(job)
  local id, state = job.id, job.state
  if OVER[state] or state == 'dead_lettered' then
    if has_deadlines then
      firsts[DEADLINES] = nil
      call('ZREM', DEADLINES, id)
    end
    if OVER[state] then
      has_ended = true
      put(ENDED, id, NOW)
      keep_for_a_while(id)
    else
      call('ZADD', DEAD, NOW, id)
      keep(id)
    end
  elseif state == 'processing' then
    put(RUNNING, id, NOW)
    put(HELD .. job.holder, id, true)
  elseif state == 'queued' then
    local line = line_of(job)
    if not passes[line] then  -- its turns begin now
      know_line(line)
      set_pass(line, lowest_pass(wanted_in[line]))
      sizes[line] = call('ZCARD', QUEUE .. line)
    end
    if not job.is_new then  -- else it is the last
      heads[line] = nil
    end
    sizes[line] = sizes[line] + put(QUEUE .. line, id, job.number)
  elseif state == 'buffered' then
    call('ZADD', BUFFERED, now + (job.look or 0), id)
  end  -- one that is to be tried again: with its time, by `finish`
end

-- What few batches need: once open, `due` has what stands in jobs_due.lua, `answer` what stands in the files from
-- jobs_shown.lua to jobs_seldom.lua. A holder "*" of what was dropped is anybody.
local due, answer, open_due, open_rest = {}, {}, nil, nil
local ANYBODY = '*'

-- Its new state, to those who follow it. A message is a hint: an ACL may forbid it, and it may be missed.
local channel = redis.pcall('GET', WATCHED)
channel = type(channel) == 'string' and channel
local function publish(id)
  if channel then
    open_rest()
    write_gathered()
    local model, most = string.match(JOB, '{jobs:(.*)}:job:$'), 8192
    redis.pcall('PUBLISH', channel, cjson.encode({model, id, unpack(answer.show(id, most))}))
  end
end

local function one_more(number)
  return number == '0' and '1' or number == '1' and '2' or text(number + 1)
end

-- The new state, or nil where the job may not make this move. `...`: fields and values that change with it.
local function move(job, name, ...)
  local state = MOVES[job.state][name]
  if not state then
    return nil
  end
  leave(job)
  local moves = one_more(job.moves)
  if job.state == 'queued' then  -- it may have no hash yet
    local class, number = job.class or '', job.number or '0'
    call('HSET', RUN .. job.id, 'state', state, 'moves', moves, 'class', class, 'number', number, ...)
  else
    call('HSET', RUN .. job.id, 'state', state, 'moves', moves, ...)
  end
  job.state = state
  enter(job)
  publish(job.id)
  return state
end

-- The callback that was asked for is due; until it is delivered or given up, nothing of the job goes.
local function owe_callback(job)
  if job.callback == '1' then
    call('ZADD', CALLBACKS, NOW, job.id)
    keep(job.id)
  end
end
