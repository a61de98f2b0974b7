-- Which model: weighted deficit round robin over what buckets and slots allow.
-- A model can take a request when it has a slot and tokens for it beyond what is promised to others. Where several can,
-- each is given its weight, round by round, until one has saved up the estimate; among those that have, the next in
-- turn takes it. Models that cannot take it save too, but no more than a bucket: so shares follow the weights as far as
-- limits allow, and no further.
local due_alike

-- The anonymous callers that are due by now: "estimate subset" = their promises, the first first.
local function find_alike()
  local known = {}
  due_alike = {}
  for _, model in ipairs(models) do
    for _, set in ipairs(model.far > 0 and {FAR, PROMISES} or model.callers > 0 and {PROMISES} or {}) do
      for _, promise in ipairs(promises_by(model, set, text(now + EARLY))) do
        if promise.key == '' and not known[promise.number] then
          local name = text(promise.estimate) .. ' ' .. promise.subset
          known[promise.number], due_alike[name] = true, due_alike[name] or {}
          table.insert(due_alike[name], promise)
        end
      end
    end
  end
  for _, promises in pairs(due_alike) do
    table.sort(promises, function(one, other)
      return one.back < other.back or (one.back == other.back and one.number < other.number)
    end)
  end
end

-- With its limits its places go, also those that were looked up before in this call.
local function void_places(model)
  void(model)
  due_alike = nil
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
      if not promise.is_done then
        return promise
      end
    end
    return nil
  end
  return find_keyed(known)
end

-- `id`: of the model that is not known, or that takes most of those that would do; `most`: so many tokens.
local function denied(reason, id, most)
  return {'denied', reason, id or '', most or 0}
end

-- The models that could take it one day; or nil and the answer.
local function find_usable(named, estimate, jitter)
  local wanted = {}
  for _, id in ipairs(named or {}) do
    wanted[id] = true
    if not models[id] or models[id].gone > 0 then
      return nil, denied('unknown_model', id)
    end
  end
  local roomiest, usable = nil, {}
  for _, model in ipairs(models) do
    if model.gone == 0 and (not named or wanted[model.id]) then
      if not roomiest or model.bucket > roomiest.bucket then
        roomiest = model
      end
      if estimate <= model.bucket and not model.paused then
        usable[#usable + 1] = model
      end
    end
  end
  if not roomiest then
    return nil, denied('no_models')
  elseif estimate > roomiest.bucket then
    return nil, denied('estimate_exceeds_limit', roomiest.id, roomiest.bucket)
  elseif #usable == 0 then
    return nil, deferred(PAUSED_WAIT + floor(PAUSED_WAIT * jitter / 10000), 'paused')
  end
  return usable
end

-- Rounds are given until one of `ready` has saved the estimate; the first of those, from the one that was served last.
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
  local taken = taken_for(model, estimate)
  model.level = model.level - taken * UNIT
  note_minute(model, half, taken)
  if call('HINCRBY', MINUTES .. model.id, text(half), text(taken)) == taken then
    call('PEXPIRE', MINUTES .. model.id, 2 * MINUTE * SLOT)
  end
  model.running = model.running + 1
  model.changed = true
  call('ZADD', RUNNING .. model.id, text(now), task)
  call('HSET', TASK .. task, 'model', model.id, 'estimate', text(estimate), 'taken', text(taken), 'at', text(now), 'key', key,
    'subset', subset, 'state', 'running')
  call('ZADD', LEASES, text(now + asked.lease), task)
  if key ~= '' then
    call('SET', KEY .. key, 't' .. task)  -- until it ends
  end
  add_up('calls')
  add_up('admits')
  return {'admitted', model.id, task}
end
