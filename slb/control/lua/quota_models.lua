-- The quota router's models and tasks, and what has happened until now.

-- Models

local function set_limits(model, row)
  local tpm, slots, weight, burst, paused = string.match(row, '^(%d+) (%d+) (%d+) (%d+) (%d)$')
  model.tpm, model.slots, model.weight = tonumber(tpm), tonumber(slots), tonumber(weight)
  model.burst, model.paused = tonumber(burst), paused == '1'
  model.bucket = model.burst > 0 and model.burst or ceil(model.tpm / 6)
  model.cap = model.bucket * UNIT
end

local FIELDS = {'level', 'at', 'deficit', 'minute', 'first', 'long', 'stretch', 'gone', 'callers', 'tokens', 'margin',
  'seen', 'soon', 'by', 'far', 'head', 'estimated', 'spent', 'held', 'off', 'missed'}

local function save(model)
  local values = {}
  for index, field in ipairs(FIELDS) do
    values[index] = text(model[field])
  end
  return table.concat(values, ' ')
end

local function load(id, limits, state)
  local model = {id = id, running = call('ZCARD', RUNNING .. id)}
  set_limits(model, limits)
  local value = string.gmatch(state, '%S+')
  for _, field in ipairs(FIELDS) do
    model[field] = number_of(value(), 0)
  end
  if model.estimated == 0 then  -- it is new, or was written before there was such a field
    model.estimated, model.spent = model.bucket, model.bucket
  end
  return model
end

local models, order = {}, call('ZRANGE', MODELS, 0, -1)
for from = 1, #order, CHUNK do
  local last = min(from + CHUNK - 1, #order)
  local limits = call('HMGET', LIMITS, unpack(order, from, last))
  local states = call('HMGET', STATE, unpack(order, from, last))
  for index = from, last do
    local id = order[index]
    models[index] = load(id, limits[index - from + 1], states[index - from + 1] or '')
    models[id] = models[index]
  end
end

local function add(id, row)  -- and `find_order`, before anything else is decided
  local model = load(id, row, '')
  model.level, model.at, model.first, model.stretch, model.changed = model.cap, now, half, 1000, true
  call('ZADD', MODELS, 0, id)
  models[id] = model
end

local function find_order()
  for index, id in ipairs(call('ZRANGE', MODELS, 0, -1)) do
    models[index] = models[id]
  end
end

local function put_by(model, tokens)  -- credit, or with a minus debt, of at most one bucket
  model.deficit = max(-model.bucket, min(model.bucket, model.deficit + tokens))
  model.changed = true
end

-- Tasks

local function find_task(task)
  local row = call('HMGET', TASK .. task, 'model', 'estimate', 'at', 'key', 'state', 'ended', 'subset', 'taken')
  if not row[1] then
    return nil
  end
  local found = {id = task, model = row[1], estimate = tonumber(row[2]), at = tonumber(row[3]), key = row[4],
    state = row[5], ended = tonumber(row[6] or 0), subset = row[7], taken = tonumber(row[8] or row[2])}
  if found.state ~= 'running' and found.ended <= now - asked.kept then
    return nil
  end
  return found
end

local function end_task(task, state)
  local model = models[task.model]
  task.state = state
  call('HSET', TASK .. task.id, 'state', state, 'ended', text(now))
  call('PEXPIRE', TASK .. task.id, asked.kept)
  call('ZREM', LEASES, task.id)
  if call('ZREM', RUNNING .. task.model, task.id) == 1 then
    model.running = model.running - 1
  end
  if task.key ~= '' and call('GET', KEY .. task.key) == 't' .. task.id then
    call('DEL', KEY .. task.key)
  end
  return model
end

local function undo(model, task)
  give_back(model, task.taken, task.at)
  put_by(model, task.estimate)
end

local reclaimed = 0

local function reclaim()
  for _, id in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', text(now), 'LIMIT', 0, 1000)) do
    local task = find_task(id)
    if task and task.state == 'running' then
      undo(end_task(task, 'abandoned'), task)
      reclaimed = reclaimed + 1
      call('ZADD', ABANDONED, text(now), id)
      call('PEXPIRE', ABANDONED, asked.kept)
    else
      call('ZREM', LEASES, id)
    end
  end
end

-- Deleted models of which nothing counts any more go. A call begins with that; so does an ask that may add a model, as
-- those before it in the same call may have deleted one or ended the last task of one.
local function forget_deleted()
  local alive = {}
  for _, model in ipairs(models) do
    local is_unused = model.level == model.cap and model.minute == 0
    if model.gone > 0 and model.running == 0 and (is_unused or model.gone <= now - asked.kept) then
      call('ZREM', MODELS, model.id)
      call('HDEL', LIMITS, model.id)
      call('HDEL', STATE, model.id)
      call('DEL', MINUTES .. model.id)
      models[model.id] = nil
    else
      alive[#alive + 1] = model
    end
  end
  for index = 1, max(#models, #alive) do
    models[index] = alive[index]
  end
end

-- What happened until now

for _, model in ipairs(models) do
  refill(model)
  expire(model)
end
call('ZREMRANGEBYSCORE', ABANDONED, '-inf', text(now - asked.kept))
if now >= spare then
  reclaim()
end
forget_deleted()

local function save_all()
  local changed = {}
  for _, model in ipairs(models) do
    if model.changed then
      changed[#changed + 1] = model.id
      changed[#changed + 1] = save(model)
    end
  end
  for from = 1, #changed, CHUNK do
    call('HSET', STATE, unpack(changed, from, min(from + CHUNK - 1, #changed)))
  end
  call('HSET', CLOCK, 'now', text(now), 'spare', text(spare), 'cursor', cursor, 'number', text(number),
    'since', since, 'shift', text(shift))
end
