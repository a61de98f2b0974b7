-- What the quota router's script stores: clock, buckets, slots. Times are milliseconds of this server's clock. Tokens
-- in a bucket are counted in 1/60000, so that one token a minute is one unit a millisecond: all numbers are whole.
-- docs/architecture.md has what each key is. All scores of models are 0, so that these stand in the order of
-- their bytes. In detail:
--   limits     "tokens a minute, slots, weight, bucket (0: not set), paused", in numbers
--   clock      now, since (the first call: another one is a loss), spare (until then none is reclaimed), cursor (served
--              last), number (of promises), restored (the models, since then), shift (by how much this server's clock
--              was set back: times are never less than they were)
--   promises:  "number estimate kept subset key", score = when they are due; in far: too if its caller comes back before
--   task:      model, estimate, taken, at, key, subset, state, ended
--   key:       of an idempotency key: "t" and its task, while that runs, or "p", its model, a blank and its promise
--   window:    calls, admits, and how often each wait was answered, in milliseconds
local MODELS, LIMITS, STATE, CLOCK, RUNNING, PROMISES = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local MINUTES, TASK, KEY, LEASES, ABANDONED, WINDOW = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local FAR = KEYS[13]
-- SLOT: milliseconds the last minute is counted in; MINUTE: so many of them. GRACE: a promise ends so long after its
-- caller was to come; EARLY: it may come so much sooner, since clocks are read in whole milliseconds. AWAY: a silence
-- of so long, or of half a lease, may be one in which no heartbeat could be sent. SET_BACK: less is clock drift.
local UNIT, SLOT, MINUTE, GRACE, EARLY, AWAY, SET_BACK = 60000, 500, 120, 2000, 5, 5000, 1000
-- HOUR: for so many milliseconds of the limit a bucket may be in debt. MOST_SHARE: tasks count with up to so many thousandths of
-- their estimates.
local HOUR, MOST_SHARE = 60 * 60000, 100000
local CHUNK = 1000  -- Lua cannot pass many more values at once
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local call = redis.call
local asked = cjson.decode(ARGV[1])

local function text(number)
  return string.format('%.0f', number + 0)  -- so that -0 is 0: Redis does not take "-0" for a number
end

local function find_time()
  local time = call('TIME')
  return time[1] * 1000 + floor(time[2] / 1000)
end

-- Another program may have written what is read here: what is no number, or none that is exact, is `otherwise`.
local function number_of(written, otherwise)
  local found = tonumber(written)
  return found and found > -2 ^ 53 and found < 2 ^ 53 and found or otherwise
end

local clock = call('HMGET', CLOCK, 'now', 'spare', 'cursor', 'number', 'since', 'shift')
local before, shift = number_of(clock[1]), number_of(clock[6], 0)
local now = (asked.at or find_time()) + shift
if before and before - now > SET_BACK then  -- or nothing would be refilled until that clock is there again
  now, shift = before, shift + before - now
end
now = max(now, before or now)
local spare = number_of(clock[2], 0)
if not before or now - before > min(AWAY, floor(asked.lease / 2)) then
  spare = now + asked.lease
end
local cursor, number, since = clock[3] or '', number_of(clock[4], 0), clock[5] or text(now)
local half = floor(now / SLOT)

-- Buckets. A bucket holds any minute to its limit and one bucket, but for tokens that are given back when they have been
-- refilled. So what was admitted is also counted by when it was, and that count is held to the same bound.

-- Where the minute was looked up in this call that follows, if it is the latest half second; or is looked up again.
local function note_minute(model, slot, tokens)
  local halves, sums = model.halves, model.sums
  if halves and slot == halves[#halves] then
    sums[#sums] = sums[#sums] + tokens
  else
    model.halves = nil
  end
  model.minute = model.minute + tokens
  model.changed = true
end

local function count_minute(model, slot, tokens)
  local key = MINUTES .. model.id
  if tokens ~= 0 and (call('HEXISTS', key, text(slot)) == 1 or (slot == half and tokens > 0)) then
    call('HINCRBY', key, text(slot), text(tokens))
    call('PEXPIRE', key, 2 * MINUTE * SLOT)
    note_minute(model, slot, tokens)
  end
end

-- The half seconds of the last minute, the oldest first, and what was admitted up to the end of each.
local function find_minute(model)
  if not model.halves then
    local row, taken, halves, sums = call('HGETALL', MINUTES .. model.id), {}, {}, {}
    for index = 1, #row, 2 do
      halves[#halves + 1] = tonumber(row[index])
      taken[halves[#halves]] = tonumber(row[index + 1])
    end
    table.sort(halves)
    for index, slot in ipairs(halves) do
      sums[index] = (sums[index - 1] or 0) + taken[slot]
    end
    model.halves, model.sums = halves, sums
  end
  return model.halves, model.sums
end

local function refill(model)
  model.level = min(model.cap, model.level + (now - model.at) * model.tpm)
  model.at = now
  local first = half - MINUTE
  if model.minute == 0 then
    model.first = max(model.first, first)
  elseif model.first < first then
    local key = MINUTES .. model.id
    local slots, minute = call('HGETALL', key), 0
    for index = 1, #slots, 2 do
      if tonumber(slots[index]) < first then
        call('HDEL', key, slots[index])
      else
        minute = minute + tonumber(slots[index + 1])
      end
    end
    model.first, model.minute = first, minute
    model.changed = true
  end
end

local function give_back(model, tokens, taken_at)
  model.level = min(model.cap, model.level + tokens * UNIT)
  count_minute(model, floor(taken_at / SLOT), -tokens)
  model.changed = true
end

-- What a task took beyond what was taken for it when it began: a debt, of at most an hour of the limit, so that one wrong
-- report does not close a model for days.
local function charge(model, tokens, taken_at)
  local debt = max(0, min(tokens * UNIT, model.level + HOUR * model.tpm))
  model.level = model.level - debt
  count_minute(model, floor(taken_at / SLOT), floor(debt / UNIT))
  model.changed = true
end

-- A task has ended that came to so many: about the last 32 count.
local function settled(model, estimate, spent)
  model.estimated = model.estimated + estimate - floor(model.estimated / 32)
  model.spent = model.spent + spent - floor(model.spent / 32)
  model.changed = true
end

local function wait_for_minute(model, tokens)
  local over = model.minute + tokens - model.tpm - model.bucket
  if over <= 0 then
    return 0
  end
  local halves, sums = find_minute(model)
  local low, high = 1, #halves
  while low < high do  -- the first half second with which enough has gone out of the minute, or the last
    local middle = floor((low + high) / 2)
    if sums[middle] >= over then
      high = middle
    else
      low = middle + 1
    end
  end
  return halves[low] and (halves[low] + MINUTE + 1) * SLOT - now or 0
end

-- What tasks came to of late, of their estimates, in thousandths.
local function share_of(model)
  return min(MOST_SHARE, floor(model.spent * 1000 / model.estimated))
end

-- What is taken for a task when it begins: where tasks come to more than they had estimated, as much more.
local function taken_for(model, estimate)
  return max(estimate, min(model.bucket, floor(estimate * share_of(model) / 1000)))
end

-- What so many promised tokens will be. Where tasks come to less, a tenth is left for those that are not as most are.
local function come_to(model, promised)
  local share = share_of(model)
  if share < 1000 then
    share = max(250, min(1000, floor(share * 11 / 10)))
  end
  return floor(promised * share / 1000)
end

-- Milliseconds until a task of that estimate may go beyond what is promised; `leeway`: it may be so much too soon. The
-- margin is what promises leave in the bucket, since tasks that take more than they had estimated make those late that
-- come after them.
local function wait_for_tokens(model, estimate, promised, leeway)
  local tokens = taken_for(model, estimate)
  local short = (tokens + come_to(model, promised)) * UNIT - model.level - leeway * model.tpm
  if short > 0 or promised > 0 then
    short = short + max(0, min(model.margin, floor((model.cap - tokens * UNIT) / 4)))
  end
  return max(0, ceil(short / model.tpm), wait_for_minute(model, tokens))
end

-- Slots. When one frees is not known, so what was seen so far is followed. `long` follows how long slots are held, so
-- that nine in ten are free by then: each sample moves it up by nine small steps, or down by one. Of several slots one
-- frees about that many times sooner. A slot that frees shortly before a caller is due is kept for it; how long before
-- is what `stretch` follows, in thousandths of that time: longer where callers came back and found no slot. `held` and
-- `off` are 32 times how long a slot is held, and how far off from that, on average of late.

local function saw(model, held)
  held = max(1, held)
  model.seen = min(64, model.seen + 1)
  if model.long == 0 then
    model.long, model.held = held, 32 * held
  else
    local small = max(1, floor(model.long / max(8, model.seen)))
    model.long = max(1, model.long + (held > model.long and 9 * small or -small))
    model.off = model.off + floor(math.abs(held - model.held / 32)) - floor(model.off / 32)
    model.held = model.held + held - floor(model.held / 32)
  end
  model.changed = true
end

-- For how many milliseconds before a caller is due a slot is kept for it.
local function kept(model)
  return floor(model.long * model.stretch / (1000 * model.slots))
end

-- Milliseconds between two waits: with fewer than 16 slots up to four times as long as a slot is kept; with MANY, of which
-- one frees as regularly as clockwork, hardly more than between two that free. Where none is measured yet, an eighth of
-- what a task has run for.
local MANY = 64

local function apart(model)
  if model.long == 0 then
    local first = call('ZRANGE', RUNNING .. model.id, 0, 0, 'WITHSCORES')
    return floor((first[2] and now - tonumber(first[2]) or 0) / 8)
  end
  if model.slots < MANY then
    return max(1, floor(kept(model) * max(1000, min(4000, floor(16000 / model.slots))) / 1000))
  end
  return max(1, floor(model.held / (23 * model.slots)))
end

-- A caller with a promised time has come back. `stretch` is stable where one in 14 finds no room. It changes only
-- after 32 samples of how long slots are held; a promise made with a much shorter estimate does not count.
local function came_back(model, promise, found_room)
  if promise.kept == 0 then
    if found_room then
      model.margin = model.margin - floor(model.margin / 32)
    else
      local short = max(0, taken_for(model, promise.estimate) * UNIT - model.level)
      model.margin = min(floor(model.cap / 4), model.margin + short)
    end
    model.changed = true
  elseif model.seen >= 32 then
    if found_room then
      model.stretch = max(62, model.stretch - floor(model.stretch / 32))
    elseif 2 * promise.kept > kept(model) and model.missed ~= now then
      model.stretch = min(16000, 4000 * model.slots, model.stretch + floor(model.stretch / 2))
      model.missed = now
    end
    model.changed = true
  end
end
