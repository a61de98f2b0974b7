-- Promises: for a caller that comes back at a given time so many tokens and a slot of this model are kept.
-- A caller that comes back is found by its idempotency key; without one by estimate and the models it named. No other
-- caller gets what is promised, so that large requests do not starve. A promise ends GRACE after its caller was to come.

local function parse(member)
  local of, estimate, long, subset, key = string.match(member, '^(%d+) (%d+) (%d+) (%S*) (.*)$')
  return {member = member, number = tonumber(of), estimate = tonumber(estimate), kept = tonumber(long),
    subset = subset, key = key}
end

local function hold(model, due, callers, tokens)
  model.callers, model.tokens = model.callers + callers, model.tokens + tokens
  if due <= model.by then
    model.soon = model.soon + tokens
  end
  if callers > 0 then
    model.last = model.last and max(model.last, due)
  elseif due == model.last then
    model.last = nil
  end
  model.changed = true
end

local function count_far(model, added)
  model.far = model.far + added
  model.changed = true
end

local function drop(model, promise)
  promise.is_done = true
  call('ZREM', PROMISES .. model.id, promise.member)
  if model.far > 0 then
    count_far(model, -call('ZREM', FAR .. model.id, promise.member))
  end
  hold(model, promise.due, -1, -promise.estimate)
end

-- Promises of one of the two sets whose score is at most so much; those that are far are due later than that.
local function promises_by(model, set, most)
  local rows, found = call('ZRANGEBYSCORE', set .. model.id, '-inf', most, 'WITHSCORES'), {}
  for index = 1, #rows, 2 do
    local promise = parse(rows[index])
    promise.model, promise.back, promise.due = model.id, tonumber(rows[index + 1]), tonumber(rows[index + 1])
    if set == FAR then
      promise.due = tonumber(call('ZSCORE', PROMISES .. model.id, promise.member))
    end
    found[#found + 1] = promise
  end
  return found
end

local function forget_promises(model)
  model.callers, model.tokens, model.soon, model.by, model.far, model.head = 0, 0, 0, 0, 0, 0
  model.last, model.changed = nil, true
end

local function void(model)
  call('DEL', PROMISES .. model.id, FAR .. model.id)
  forget_promises(model)
end

local function expire(model)
  if model.callers == 0 then
    return
  elseif call('EXISTS', PROMISES .. model.id) == 0 then
    return void(model)
  end
  for _, set in ipairs(model.far > 0 and {FAR, PROMISES} or {PROMISES}) do
    for _, promise in ipairs(promises_by(model, set, '(' .. text(now - GRACE))) do
      drop(model, promise)
    end
  end
end

-- How many tokens are promised to those due by then, which never goes back.
local function tokens_soon(model, by)
  if by > model.by and model.callers > 0 then
    for _, member in ipairs(call('ZRANGEBYSCORE', PROMISES .. model.id, '(' .. text(model.by), text(by))) do
      model.soon = model.soon + tonumber(string.match(member, '^%d+ (%d+)'))
    end
    model.by, model.changed = by, true
  end
  return model.soon
end
