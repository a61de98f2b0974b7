-- What the callers of one instance ask of the quota router, decided one after another in one step; with no question,
-- only what has lapsed is reclaimed. Behind the other quota_*.lua: control/scripts.py has their order.
-- ARGV[1], JSON: {"asks": [...], "lease", "longest", "kept": milliseconds (see Rules), "at": the time in milliseconds, in
--   tests and simulations; otherwise this server's clock}. An ask, and its reply:
--   ["schedule", task, estimate, jitter, key, models or false]: {"admitted", model, task}, {"wait", ms, reason} or
--     {"denied", reason, model, tokens}
--   ["complete", task, tokens or -1] and ["heartbeat", task]: {the task's state, empty where it is not known}
--   ["withdraw", task]: {}. Its admission reached no caller: slot and tokens are free again; where this comes before its
--     schedule, by another connection, that is not admitted any more
--   ["put", model, tokens a minute, slots, weight, burst (0: none), paused]: each but the first may be -1: as it was;
--     {"put", limits} or {"denied", "incomplete" or "too_many_models"}. ["delete", model]: {1} or {0}
--   ["models"]: a row each: {model, limits, running, level, deficit, promised tokens, callers, minute}
--   ["waiting", model, rows]: so many of the callers that it has a place for, the first that is due first: {due, estimate,
--     key, due, estimate, key, ...}. None for a model that is not known
--   ["abandoned", task or "", rows]: so many of those behind that task, or from the first on: how many are behind
--     them, and a row each: {task, model, estimate, reclaimed at, key}
--   ["advice"]: {calls, admits, running, slots, wait, count, wait, count, ...}
--   ["restore", {{model, tokens a minute, slots, weight, burst, paused}, ...}]: as put for those that are not known,
--     with empty buckets, for they were lost; how many. Once after each loss, unless there are none
-- An ask that fails by a fault of ours, or of data in Redis: {"failed", Redis's error message}.
-- Reply: {now, since when Redis has known anything, how many were reclaimed, a reply for each ask}.
local MOST_MODELS = 500
local RESTORED_WITHIN = 10000  -- milliseconds after a loss; later models that are not there may have been deleted

local function limits_of(model)
  local paused = model.paused and 1 or 0
  return string.format('%.0f %.0f %.0f %.0f %d', model.tpm, model.slots, model.weight, model.burst, paused)
end

local answer = {}

function answer.schedule(task, estimate, jitter, key, named)
  local known = key ~= '' and call('GET', KEY .. key)
  local subset = table.concat(named or {}, ',')
  local replayed = known and string.sub(known, 1, 1) == 't' and find_task(string.sub(known, 2))
  local is_running = replayed and replayed.state == 'running'
  local earlier = is_running and replayed or find_keyed(known)
  if earlier and (earlier.estimate ~= estimate or (earlier.subset or subset) ~= subset) then
    return denied('idempotency_mismatch')
  elseif is_running then
    return {'admitted', replayed.model, replayed.id}
  end
  local usable, refused = find_usable(named, estimate, jitter)
  if not usable then
    return refused
  elseif call('HGET', TASK .. task, 'state') == 'withdrawn' then
    return deferred(FLOOR)  -- nobody is there to hear it
  end
  local promise = find_promise(estimate, subset, key, known)
  local lacks, ready = {}, {}
  for _, model in ipairs(usable) do
    lacks[model.id] = find_lack(model, estimate, promise)
    if lacks[model.id].ms == 0 then
      ready[#ready + 1] = model
    end
  end
  local is_due = promise and promise.due <= now + EARLY
  if is_due then
    came_back(models[promise.model], promise, #ready > 0)
  end
  if promise and #ready == 0 and not is_due then
    return rest(models[promise.model], promise, jitter)
  end
  if promise then
    drop(models[promise.model], promise)
  end
  if #ready > 0 then
    return admit(pick(ready, estimate), task, estimate, key, subset)
  end
  return give(usable, lacks, estimate, subset, key, jitter, promise)
end

function answer.complete(id, actual)
  local task = find_task(id)
  if not task or task.state ~= 'running' then
    return {task and task.state or ''}
  end
  local model = end_task(task, 'completed')
  saw(model, now - task.at)
  if actual >= 0 then
    put_by(model, task.estimate - actual)
    if actual <= task.taken then
      give_back(model, task.taken - actual, task.at)
    else
      charge(model, actual - task.taken, task.at)
    end
    settled(model, task.estimate, actual)
  end
  return {task.state}
end

function answer.withdraw(id)
  local task = find_task(id)
  if not task then
    call('HSET', TASK .. id, 'state', 'withdrawn')
    call('PEXPIRE', TASK .. id, asked.lease)
  elseif task.state == 'running' then
    undo(end_task(task, 'completed'), task)
  end
  return {}
end

function answer.heartbeat(id)
  local task = find_task(id)
  if task and task.state == 'running' then
    call('ZADD', LEASES, text(now + asked.lease), id)
  end
  return {task and task.state or ''}
end

function answer.put(id, ...)
  forget_deleted()
  local model, given = models[id], {...}
  local present = model and model.gone == 0
    and {model.tpm, model.slots, model.weight, model.burst, model.paused and 1 or 0} or {-1, -1, 1, 0, 0}
  for index, value in ipairs(given) do
    present[index] = value >= 0 and value or present[index]
    if present[index] < 0 then
      return {'denied', 'incomplete'}
    end
    present[index] = text(present[index])
  end
  local row = table.concat(present, ' ')
  if not model and #models >= MOST_MODELS then
    return {'denied', 'too_many_models'}
  end
  call('HSET', LIMITS, id, row)
  if not model then
    add(id, row)
    find_order()
    find_places()
    return {'put', row}
  end
  present[3] = text(model.weight)
  if model.gone > 0 or table.concat(present, ' ') ~= limits_of(model) then  -- a weight moves no place
    void_places(model)
    set_limits(model, row)
    model.level = max(-model.cap, min(model.level, model.cap))
  end
  set_limits(model, row)
  model.margin = min(model.margin, floor(model.cap / 4))
  model.gone = 0
  put_by(model, 0)
  return {'put', row}
end

local function has_any()
  for _, model in ipairs(models) do
    if model.gone == 0 then
      return true
    end
  end
  return false
end

function answer.restore(lost)
  forget_deleted()
  local restored = 0
  local is_first = call('HSETNX', CLOCK, 'restored', 1) == 1
  if has_any() and not (is_first and now - since < RESTORED_WITHIN) then
    return {0}
  end
  for _, each in ipairs(lost) do
    local id, limits = each[1], {unpack(each, 2)}
    if not models[id] and #models + restored < MOST_MODELS then
      local row = {}
      for index, value in ipairs(limits) do
        row[index] = text(value)
      end
      row = table.concat(row, ' ')
      call('HSET', LIMITS, id, row)
      add(id, row)
      models[id].level = 0
      restored = restored + 1
    end
  end
  find_order()
  find_places()
  return {restored}
end

function answer.delete(id)
  local model = models[id]
  if not model or model.gone > 0 then
    return {0}
  end
  model.gone = now
  void_places(model)
  return {1}
end

function answer.models()
  local rows = {}
  for _, model in ipairs(models) do
    if model.gone == 0 then
      rows[#rows + 1] = {model.id, limits_of(model), model.running, text(model.level), text(model.deficit),
        text(model.tokens), model.callers, text(model.minute)}
    end
  end
  return rows
end

function answer.waiting(id, most)
  local rows, found = call('ZRANGE', PROMISES .. id, 0, most - 1, 'WITHSCORES'), {}
  for index = 1, #rows, 2 do
    local promise = parse(rows[index])
    local due, estimate = number_of(rows[index + 1]), number_of(promise.estimate)
    if due and estimate then  -- else another program has written it
      found[#found + 1] = text(due - shift)
      found[#found + 1] = text(estimate)
      found[#found + 1] = promise.key
    end
  end
  return found
end

function answer.abandoned(behind, most)
  local rank = behind ~= '' and call('ZRANK', ABANDONED, behind)  -- one that is forgotten was the oldest
  local from = rank and rank + 1 or 0
  local ids, rows = call('ZRANGE', ABANDONED, from, from + most - 1), {}
  for _, id in ipairs(ids) do
    local task = find_task(id)
    if task then
      rows[#rows + 1] = {id, task.model, text(task.estimate), text(task.ended - shift), task.key}
    end
  end
  return {max(0, call('ZCARD', ABANDONED) - from - #ids), rows}
end

function answer.advice()
  local total, running, slots = {}, 0, 0
  for field, count in pairs(counted) do
    total[field] = count
  end
  for second = floor(now / 1000) - 59, floor(now / 1000) do
    local row = call('HGETALL', WINDOW .. text(second))
    for index = 1, #row, 2 do
      total[row[index]] = (total[row[index]] or 0) + tonumber(row[index + 1])
    end
  end
  for _, model in ipairs(models) do
    running = running + model.running
    slots = slots + ((model.gone == 0 and not model.paused) and model.slots or 0)
  end
  local reply = {total.calls or 0, total.admits or 0, running, slots}
  for field, count in pairs(total) do
    if tonumber(field) then
      reply[#reply + 1] = tonumber(field)
      reply[#reply + 1] = count
    end
  end
  return reply
end

find_places()
local replies = {}
for index, ask in ipairs(asked.asks) do
  local is_done, reply = pcall(answer[ask[1]], unpack(ask, 2))  -- a fault of one does not fail the others
  replies[index] = is_done and reply or {'failed', type(reply) == 'table' and reply.err or tostring(reply)}
end
for key in pairs(kept_keys) do
  call('PEXPIRE', key, 2 * FARTHEST)
end
local second = WINDOW .. text(floor(now / 1000))
for field, count in pairs(counted) do
  call('HINCRBY', second, field, count)
  call('PEXPIRE', second, 120000)
end
save_all()
return {text(now), since, reclaimed, replies}
