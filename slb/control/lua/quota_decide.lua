-- Who may go, and how long the others wait: between quota_state.lua, which says what the keys are, and quota.lua, which
-- says what is asked. The twin is slb/quota/scheduler.py.
local TICK, FLOOR, LEEWAY, PAUSED_WAIT, MOST_PROMISES = 100, 50, 20, 1000, 10000
local counted, due_alike, cursor_place = {}, nil, 1

local function add_up(field)
  counted[field] = (counted[field] or 0) + 1
end

local function told(ms, reason)
  add_up('calls')
  add_up(text(min(ms, 1000)))
  return {'wait', ms, reason or ''}
end

-- Those anonymous callers who are due: "estimate subset" = their promises, the first due first.
local function find_alike()
  due_alike = {}
  for _, model in ipairs(models) do
    local due = model.callers > 0
      and call('ZRANGEBYSCORE', PROMISES .. model.id, '-inf', text(now + EARLY), 'WITHSCORES') or {}
    for index = 1, #due, 2 do
      local promise = parse(due[index])
      promise.due, promise.model = tonumber(due[index + 1]), model.id
      if promise.key == '' then
        local name = text(promise.estimate) .. ' ' .. promise.subset
        due_alike[name] = due_alike[name] or {}
        table.insert(due_alike[name], promise)
      end
    end
  end
  for _, promises in pairs(due_alike) do
    table.sort(promises, function(one, other)
      return one.due < other.due or (one.due == other.due and one.number < other.number)
    end)
  end
end

-- What was promised under a key that is known as `known`.
local function find_keyed(known)
  local id, member = string.match(known or '', '^p(%S+) (.*)$')
  local due = id and models[id] and call('ZSCORE', PROMISES .. id, member)
  if not due then
    return nil
  end
  local promise = parse(member)
  promise.due, promise.model = tonumber(due), id
  return promise
end

local function find_promise(estimate, subset, key, known)
  if key == '' then
    if not due_alike then
      find_alike()
    end
    for _, promise in ipairs(due_alike[text(estimate) .. ' ' .. subset] or {}) do
      if not promise.dropped then
        return promise
      end
    end
    return nil
  end
  return find_keyed(known)
end

-- The models that could take it one day; or nil and the answer.
local function find_usable(named, estimate, jitter)
  local wanted = {}
  for _, id in ipairs(named or {}) do
    wanted[id] = true
    if not models[id] or models[id].gone > 0 then
      return nil, {'denied', 'unknown_model'}
    end
  end
  local any, large, usable = false, false, {}
  for _, model in ipairs(models) do
    if model.gone == 0 and (not named or wanted[model.id]) then
      any = true
      if estimate <= model.bucket then
        large = true
        if not model.paused then
          usable[#usable + 1] = model
        end
      end
    end
  end
  if not any then
    return nil, {'denied', 'no_models'}
  elseif not large then
    return nil, {'denied', 'estimate_exceeds_limit'}
  elseif #usable == 0 then
    return nil, told(PAUSED_WAIT + floor(PAUSED_WAIT * jitter / 10000), 'paused')
  end
  return usable
end

local function find_wait(model, estimate, promise)
  local tokens, leeway, taken, is_due = model.tokens, 0, model.running, false
  if promise and promise.model == model.id then
    is_due = promise.due <= now + EARLY
    if is_due then
      tokens, leeway = 0, LEEWAY
    else
      tokens = tokens - estimate
    end
  end
  if not is_due and taken + model.callers >= model.slots then
    local soon = now + kept(model)
    taken = taken + call('ZCOUNT', PROMISES .. model.id, '-inf', text(soon))
    if promise and promise.model == model.id and promise.due <= soon then
      taken = taken - 1
    end
  end
  local for_tokens = wait_for_tokens(model, estimate, tokens, leeway)
  return for_tokens, taken < model.slots and 0 or wait_for_slot(model)
end

-- How far those in `of` are from being served next, in turn: the position in it where the turn begins.
local function turn(of)
  for index, model in ipairs(of) do
    if model.place >= cursor_place then
      return index
    end
  end
  return 1
end

local function find_places()
  local from = cursor ~= '' and call('ZRANGEBYLEX', MODELS, '[' .. cursor, '+', 'LIMIT', 0, 1)[1]
  cursor_place = from and #models + 1 or (cursor == '' and 1 or #models + 1)
  for index, model in ipairs(models) do
    model.place = index
    if model.id == from then
      cursor_place = index
    end
  end
end

local function pick(ready, estimate)
  local rounds
  for _, model in ipairs(ready) do
    local needed = max(0, ceil((estimate - model.deficit) / model.weight))
    rounds = min(rounds or needed, needed)
  end
  if rounds > 0 then
    for _, model in ipairs(models) do
      if not model.paused and model.gone == 0 then
        put_by(model, rounds * model.weight)
      end
    end
  end
  local rich = {}
  for _, model in ipairs(ready) do
    if model.deficit >= estimate then
      rich[#rich + 1] = model
    end
  end
  return rich[turn(rich)]
end

local function admit(model, task, estimate, key, subset)
  cursor, cursor_place = model.id, model.place
  model.deficit = model.deficit - estimate
  model.level = model.level - estimate * UNIT
  model.minute = model.minute + estimate
  if call('HINCRBY', MINUTES .. model.id, text(half), text(estimate)) == estimate then
    call('PEXPIRE', MINUTES .. model.id, 2 * MINUTE * SLOT)
  end
  model.running = model.running + 1
  model.changed = true
  call('ZADD', RUNNING .. model.id, text(now), task)
  call('HSET', TASK .. task, 'model', model.id, 'estimate', text(estimate), 'at', text(now), 'key', key,
    'subset', subset, 'state', 'running')
  call('ZADD', LEASES, text(now + asked.lease), task)
  if key ~= '' then
    call('SET', KEY .. key, 't' .. task)  -- until it ends
  end
  add_up('calls')
  add_up('admits')
  return {'admitted', model.id, task}
end

local function make_promise(model, due, estimate, for_slot, subset, key)
  number = number + 1
  local member = table.concat({text(number), text(estimate), for_slot and '1' or '0', subset, key}, ' ')
  call('ZADD', PROMISES .. model.id, text(due), member)
  call('PEXPIRE', PROMISES .. model.id, 2 * asked.longest + 60000)
  if key ~= '' then
    call('SET', KEY .. key, 'p' .. model.id .. ' ' .. member, 'PX', 2 * asked.longest + 60000)
  end
  hold(model, 1, estimate)
end

local function promise_one(usable, waits, estimate, subset, key, jitter)
  local best
  local first = turn(usable)
  for step = 0, #usable - 1 do
    local model = usable[(first + step - 1) % #usable + 1]
    if not best or max(unpack(waits[model.id])) < max(unpack(waits[best.id])) then
      best = model
    end
  end
  local for_tokens, for_slot = unpack(waits[best.id])
  local needed, promised = max(for_tokens, for_slot), 0
  local base = min(needed, asked.longest)
  local extra = floor(base * jitter / 10000)
  for _, model in ipairs(models) do
    promised = promised + model.callers
  end
  local is_promised = base == needed and promised < MOST_PROMISES
  if is_promised and for_tokens >= for_slot then
    extra = min(extra, floor(floor((best.cap - estimate * UNIT) / best.tpm) / 4))
  end
  local due = ceil((now + base + extra) / TICK) * TICK
  if due - now < FLOOR then
    due = due + TICK
  end
  if is_promised then
    make_promise(best, due, estimate, for_slot > for_tokens, subset, key)
  end
  return told(due - now)
end
