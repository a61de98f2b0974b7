-- How long callers wait, and the places they are given meanwhile.
-- A place is a promise of tokens and a slot for a moment. A caller whose wait is longer than the longest that is
-- answered comes back sooner, gets the rest, and keeps its place.
-- Milliseconds. TICK: waits end on whole ones of these. FLOOR: no wait is shorter. LEEWAY: by so much tokens may be
-- late for a caller that is on time: callers are not exact to the millisecond, and what a full bucket cannot hold
-- while one is late the next would lack. FARTHEST: nothing is promised for later than in a day. MOST_NAMELESS:
-- callers without a key that come too early leave room for those that have one.
local TICK, FLOOR, LEEWAY, PAUSED_WAIT = 100, 50, 20, 1000
local MOST_PROMISES, MOST_NAMELESS, FARTHEST = 10000, 5000, 86400000
local counted, cursor_place = {}, 1
local kept_keys = {}  -- where places were added in this call: they stay for longer than any place, from its end on

local function add_up(field)
  counted[field] = (counted[field] or 0) + 1
end

local function deferred(ms, reason)
  add_up('calls')
  add_up(text(min(ms, 1000)))
  return {'wait', ms, reason or ''}
end

-- Whether there is no slot beyond those that run and are kept for callers due soon. `own`: the caller's place.
local function is_taken(model, own)
  if model.running >= model.slots or model.running + model.callers < model.slots then
    return model.running >= model.slots
  end
  local soon = now + kept(model)
  local others = call('ZCOUNT', PROMISES .. model.id, '-inf', text(soon))
  return model.running + others - ((own and own.due <= soon) and 1 or 0) >= model.slots
end

-- Milliseconds until the tokens are there beyond what is promised. Tokens that are there now go to the next caller,
-- unless those due before the bucket has been filled anew would lack them.
local function find_tokens(model, estimate, own)
  local wait = wait_for_tokens(model, estimate, model.tokens - (own and estimate or 0), 0)
  if wait > 0 and model.level >= taken_for(model, estimate) * UNIT then
    local by = now + ceil(model.cap / model.tpm)
    local soon = tokens_soon(model, by) - ((own and own.due <= by) and estimate or 0)
    return wait_for_tokens(model, estimate, soon, 0) > 0 and wait or 0
  end
  return wait
end

-- When the slot is likely to be free that frees after so many others: the task that has it has run for as long by then as
-- most do, and so have those that follow it in that slot. Where calls are not alike, hardly any ends before that.
local function frees(model, after)
  local place, rounds = after % model.slots, floor(after / model.slots) + 1
  local begun = tonumber(call('ZRANGE', RUNNING .. model.id, place, place, 'WITHSCORES')[2])
  local alike = 8 * model.off < model.held
  local each = alike and model.held + model.off or max(0, model.held - 2 * model.off)
  return begun and begun + ceil(rounds * each / 32) + (alike and EARLY or 0) or 0
end

-- Milliseconds until there is one, and after all places before. A caller that was on time and found none goes
-- before all but others of that kind. While no task has ended all look for one, ever more seldom.
local function wait_for_slot(model, own, is_overdue)
  local between, before = apart(model), model.callers - (own and 1 or 0)
  if model.long == 0 then
    return max(1, floor(before / 2), between), between
  elseif is_overdue then
    before = model.head > now and call('ZCOUNT', PROMISES .. model.id, '(' .. text(now), text(model.head)) or 0
    between = min(between, max(1, kept(model)))
    local free = frees(model, before) - now
    return free > 0 and free or max(0, model.head - now) + between, between
  end
  if not model.last then  -- when the last waiting caller is due: looked up once in a call
    model.last = tonumber(call('ZRANGE', PROMISES .. model.id, -1, -1, 'WITHSCORES')[2] or 0)
  end
  local due = max(now + (before + 1) * between, frees(model, before))
  return (due > model.last - TICK and max(due, model.last) or model.last + between) - now, between
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
    lack.slot, lack.apart = wait_for_slot(model, own, is_overdue)
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

-- Of those that wait for a slot a twentieth of a call, where calls are short: it is idle meanwhile.
local function tick_of(model)
  return model.long > 0 and max(10, min(TICK, floor(model.long / 20))) or TICK
end

-- The first tick from then on that is not too soon.
local function tick(at, size)
  local due = ceil(at / size) * size
  return due - now < min(FLOOR, size) and due + size or due
end

-- When to come for a place that is due then: on a tick, of which any number may share one; where that is too long, sooner
-- by up to a tenth of the longest wait, so that not all of these come at once.
local function back_for(due, jitter, size)
  if due - now <= asked.longest then
    return tick(due, size)
  end
  return floor((now + asked.longest - floor(asked.longest * jitter / 10000)) / TICK) * TICK
end

local function set_back(model, member, due, back)
  if back < due and call('ZADD', FAR .. model.id, text(back), member) == 1 then
    count_far(model, 1)
    kept_keys[FAR .. model.id] = true
    kept_keys[PROMISES .. model.id] = true  -- never gone before the other: a caller back early is in both
  end
end

local function make_promise(model, due, back, estimate, long, subset, key)
  number = number + 1
  local member = table.concat({text(number), text(estimate), text(long), subset, key}, ' ')
  call('ZADD', PROMISES .. model.id, text(due), member)
  kept_keys[PROMISES .. model.id] = true
  set_back(model, member, due, back)
  if key ~= '' then
    call('SET', KEY .. key, 'p' .. model.id .. ' ' .. member, 'PX', 2 * asked.longest + 60000)
  end
  hold(model, due, 1, estimate)
end

-- When a place would be due by how many there are before it now. What each of them takes is not looked up, so a quarter
-- of the tokens is added.
local function sooner(model, promise)
  local before = call('ZCOUNT', PROMISES .. model.id, '-inf', '(' .. text(promise.due))
  local tokens = floor(model.tokens / model.callers) * before
  local wait = floor(wait_for_tokens(model, promise.estimate, tokens, 0) * 5 / 4)
  if promise.kept > 0 then
    wait = max(wait, (before + 1) * apart(model))
  end
  return now + wait
end

-- The answer to a caller that comes before its place is due: nothing has changed. But if it came only for the rest
-- of its wait, those before it may have gone, or take less than expected.
local function rest(model, promise, jitter)
  local far = model.far > 0 and call('ZSCORE', FAR .. model.id, promise.member)
  local due = promise.due
  if far then
    due = min(due, sooner(model, promise))
  end
  local back = back_for(due, jitter, promise.kept > 0 and tick_of(model) or TICK)
  if due ~= promise.due then
    call('ZADD', PROMISES .. model.id, text(due), promise.member)
    hold(model, promise.due, -1, -promise.estimate)
    hold(model, due, 1, promise.estimate)
  end
  set_back(model, promise.member, due, back)
  if far and back >= due then
    count_far(model, -call('ZREM', FAR .. model.id, promise.member))
  end
  if far and promise.key ~= '' then
    call('PEXPIRE', KEY .. promise.key, 2 * asked.longest + 60000)
  end
  promise.is_done = true
  return deferred(max(FLOOR, back - now))
end

-- The answer to a caller that gets a place: later than what is needed by up to a tenth, never sooner; and by no more
-- than a quarter of the time the bucket could still fill in, since what it cannot hold is lost, or of the time between
-- two that wait for a slot, which would be idle. `overdue`: the place it had until now.
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
  local most = for_slot and lack.apart or floor((best.cap - taken_for(best, estimate) * UNIT) / best.tpm)
  local due = now + lack.ms + min(floor(lack.ms * jitter / 10000), floor(most / 4))
  local back = back_for(due, jitter, for_slot and tick_of(best) or TICK)
  if lack.ms <= FARTHEST and promised < (key ~= '' and MOST_PROMISES or MOST_NAMELESS) then
    local long = for_slot and max(1, kept(best)) or 0
    if long > 0 and overdue and overdue.kept > 0 and overdue.model == best.id then
      best.head = due
    end
    make_promise(best, due, back, estimate, long, subset, key)
  end
  return deferred(back - now)
end
