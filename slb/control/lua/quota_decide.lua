-- Who may go, and how long the others wait: behind quota_state.lua, which says what the keys are, and quota_models.lua,
-- and before quota.lua, which says what is asked. The twin is slb/quota/scheduler.py.
local TICK, FLOOR, LEEWAY, PAUSED_WAIT = 100, 50, 20, 1000
local MOST_PROMISES, MOST_NAMELESS, FARTHEST = 10000, 5000, 86400000
local counted, due_alike, cursor_place = {}, nil, 1

local function add_up(field)
  counted[field] = (counted[field] or 0) + 1
end

local function told(ms, reason)
  add_up('calls')
  add_up(text(min(ms, 1000)))
  return {'wait', ms, reason or ''}
end

-- Those anonymous callers who are to be back by now: "estimate subset" = their promises, the first first.
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
    return nil, told(PAUSED_WAIT + floor(PAUSED_WAIT * jitter / 10000), 'paused')
  end
  return usable
end

-- Waits (waiting.py)

local function is_taken(model, own)
  if model.running >= model.slots or model.running + model.callers < model.slots then
    return model.running >= model.slots
  end
  local soon = now + kept(model)
  local others = call('ZCOUNT', PROMISES .. model.id, '-inf', text(soon))
  return model.running + others - ((own and own.due <= soon) and 1 or 0) >= model.slots
end

local function find_tokens(model, estimate, own)
  local wait = wait_for_tokens(model, estimate, model.tokens - (own and estimate or 0), 0)
  if wait > 0 and model.level >= estimate * UNIT then
    local by = now + ceil(model.cap / model.tpm)
    local soon = tokens_soon(model, by) - ((own and own.due <= by) and estimate or 0)
    return wait_for_tokens(model, estimate, soon, 0) > 0 and wait or 0
  end
  return wait
end

-- Milliseconds until there is one, and after whoever comes before.
local function wait_for_slot(model, is_overdue)
  if is_overdue and kept(model) > 0 then
    return max(0, model.head - now) + kept(model), kept(model)
  end
  if not model.last then  -- when the last of those who wait is due: looked up once in a call
    model.last = tonumber(call('ZRANGE', PROMISES .. model.id, -1, -1, 'WITHSCORES')[2] or 0)
  end
  local between = apart(model)
  return max(0, model.last - now) + between, between
end

local function find_lack(model, estimate, promise)
  local own = promise and promise.model == model.id and promise or nil
  local lack, taken, is_overdue = {slot = 0, apart = 0}, nil, false
  if own and own.due <= now + EARLY then
    lack.tokens = wait_for_tokens(model, estimate, 0, LEEWAY)
    taken, is_overdue = model.running >= model.slots, own.kept > 0
  else
    lack.tokens = find_tokens(model, estimate, own)
    taken = is_taken(model, own)
  end
  if taken then
    lack.slot, lack.apart = wait_for_slot(model, is_overdue)
  end
  lack.ms = max(lack.tokens, lack.slot)
  return lack
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
  note_minute(model, half, estimate)
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

local function tick(at)
  local due = ceil(at / TICK) * TICK
  return due - now < FLOOR and due + TICK or due
end

-- When to come for a place that is due then.
local function back_for(due, jitter)
  if due - now <= asked.longest then
    return due
  end
  return floor((now + asked.longest - floor(asked.longest * jitter / 10000)) / TICK) * TICK
end

-- Their keys stay for longer than any promise; once in a call is enough.
local function keep(model, set)
  if not model['keeps' .. set] then
    model['keeps' .. set] = true
    call('PEXPIRE', set .. model.id, FARTHEST + 2 * asked.longest + 60000)
  end
end

local function set_back(model, member, due, back)
  if back < due then
    model.far = model.far + call('ZADD', FAR .. model.id, text(back), member)
    keep(model, FAR)
    keep(model, PROMISES)  -- never gone before the other: who comes back stands in both
  end
end

local function make_promise(model, due, back, estimate, long, subset, key)
  number = number + 1
  local member = table.concat({text(number), text(estimate), text(long), subset, key}, ' ')
  call('ZADD', PROMISES .. model.id, text(due), member)
  keep(model, PROMISES)
  set_back(model, member, due, back)
  if key ~= '' then
    call('SET', KEY .. key, 'p' .. model.id .. ' ' .. member, 'PX', 2 * asked.longest + 60000)
  end
  hold(model, due, 1, estimate)
end

local function sooner(model, promise)
  local before = call('ZCOUNT', PROMISES .. model.id, '-inf', '(' .. text(promise.due))
  local tokens = floor(model.tokens / model.callers) * before
  local wait = floor(wait_for_tokens(model, promise.estimate, tokens, 0) * 5 / 4)
  if promise.kept > 0 then
    wait = max(wait, (before + 1) * apart(model))
  end
  return tick(now + wait)
end

local function rest(model, promise, jitter)
  local far = model.far > 0 and call('ZSCORE', FAR .. model.id, promise.member)
  local due = promise.due
  if far then
    due = min(due, sooner(model, promise))
  end
  local back = back_for(due, jitter)
  if due ~= promise.due then
    call('ZADD', PROMISES .. model.id, text(due), promise.member)
    hold(model, promise.due, -1, -promise.estimate)
    hold(model, due, 1, promise.estimate)
  end
  set_back(model, promise.member, due, back)
  if far and back == due then
    model.far = model.far - call('ZREM', FAR .. model.id, promise.member)
  end
  if far and promise.key ~= '' then
    call('PEXPIRE', KEY .. promise.key, 2 * asked.longest + 60000)
  end
  promise.is_done = true
  return told(max(FLOOR, back - now))
end

local function give(usable, lacks, estimate, subset, key, jitter, overdue)
  local best
  local first, promised = turn(usable), 0
  for step = 0, #usable - 1 do
    local model = usable[(first + step - 1) % #usable + 1]
    if not best or lacks[model.id].ms < lacks[best.id].ms then
      best = model
    end
  end
  for _, model in ipairs(models) do
    promised = promised + model.callers
  end
  local lack = lacks[best.id]
  local for_slot = lack.slot > lack.tokens
  local most = for_slot and lack.apart or floor((best.cap - estimate * UNIT) / best.tpm)
  local due = tick(now + lack.ms + min(floor(lack.ms * jitter / 10000), floor(most / 4)))
  local back = back_for(due, jitter)
  if lack.ms <= FARTHEST and promised < (key ~= '' and MOST_PROMISES or MOST_NAMELESS) then
    local long = for_slot and max(1, kept(best)) or 0
    if long > 0 and overdue and overdue.kept > 0 and overdue.model == best.id then
      best.head = due
    end
    make_promise(best, due, back, estimate, long, subset, key)
  end
  return told(back - now)
end
