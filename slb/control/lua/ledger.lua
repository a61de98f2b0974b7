-- One batch of one instance in one pool: what it gives back, who of its own has left, and what it asks for.
-- ARGV: the batch as JSON (see control/batch.py), the channel grants are announced on, the pool's name.
-- Reply, JSON: {"gone": true, "epoch"} where this holder is not known (its lease has ended, or Redis has lost it);
--   {"stale": true, "epoch"} for a batch that was given up, and comes late; else {"granted": [[ticket, member], ...],
--   "answers": one for each ask, "holders": how many there are, "pushed": how many of them have said what they hold
--   since the epoch began (0 where neither `fresh` nor `settling` asks for it), "queued": how many wait, "number":
--   the last place in the queue that was given before this batch, "seen": the scores the last ask found, "last": the
--   sequence number known before (-1: the holder was not known), "epoch": as long as it stays the same, nothing of
--   this pool has been lost, "now": ms}.
--   An answer is a member; or [number, position] of a ticket that waits; or a reason.
local batch = cjson.decode(ARGV[1])
local id = batch.id

-- A key that is not of its type would end this in the middle: reap.lua mends it before anything is changed.
local TYPES = {
  [INFLIGHT] = 'zset', [HOLDERS] = 'zset', [TICKETS] = 'hash', [CLASSES] = 'hash', [VIEWS] = 'hash',
  [GRANTS] = 'hash', [NUMBER] = 'string', [EPOCH] = 'string',
}
for key, wanted in pairs(TYPES) do
  local is = redis.call('TYPE', key).ok
  if is ~= 'none' and is ~= wanted then
    return redis.error_reply('DAMAGED ' .. key .. ' is a ' .. is)
  end
end
local lease = redis.call('ZSCORE', HOLDERS, id)
local kept = redis.call('TYPE', HELD .. id).ok
if kept ~= 'hash' and kept ~= 'none' then
  if lease then
    return redis.error_reply('DAMAGED ' .. HELD .. id .. ' is a ' .. kept)
  end
  redis.call('DEL', HELD .. id)  -- nobody else would: it belongs to no holder
end
local lines = {}
for _, class in ipairs(redis.call('HKEYS', CLASSES)) do
  lines[class] = true
end
for _, asks in ipairs({batch.asks, batch.waiting}) do
  for _, ask in ipairs(asks) do
    lines[ask[5]] = ask[7] > 0 or lines[ask[5]]
  end
end
for class, used in pairs(lines) do
  local is = used and redis.call('TYPE', CLASS .. class).ok or 'none'
  if is ~= 'none' and is ~= 'zset' then
    redis.call('HSETNX', CLASSES, class, '0')  -- so that reap.lua finds it
    return redis.error_reply('DAMAGED ' .. CLASS .. class .. ' is a ' .. is)
  end
end
local number = redis.call('GET', NUMBER)
if number and not read_number(number) then
  return redis.error_reply('DAMAGED ' .. NUMBER .. ' is no number')
end

-- What is written here is lost with the rest, and a server that takes another's place (a replica, or a restart from
-- its disk) is known by its run id, though it has all the keys: it may lack what came last. A lane that was not cut
-- off speaks to the same server still: only its first batch on a connection asks for that.
local function read_epoch()
  local stored = string.match(redis.call('GET', EPOCH) or '', '^%w* %d+$')
  if stored and not batch.fresh then
    return stored
  end
  local info = redis.pcall('INFO', 'server')  -- an ACL may forbid it
  local server = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
  if stored and (server == '' or server == string.match(stored, '^%w*')) then
    return stored
  end
  local made = string.format('%s %.0f', server, now)
  redis.call('SET', EPOCH, made, 'PX', batch.life)
  return made
end

local epoch = read_epoch()
if not lease and not batch.join then
  return cjson.encode({gone = true, epoch = epoch})
end
local last = count(redis.call('HGET', HELD .. id, SEQUENCE))
if last == MOST then
  last = 0
end
if batch.seq <= last then
  return cjson.encode({stale = true, epoch = epoch})
end
redis.call('HSET', HELD .. id, SEQUENCE, batch.seq)

local freed = 0
local changed = redis.call('HDEL', HELD .. id, SILENT) == 1  -- its tickets are served again

local function pending_of(holder)
  local found = {}
  local all = redis.call('HGETALL', GRANTS)
  for index = 1, #all, 2 do
    local record = owner(all[index]) == holder and read_grant(all[index + 1])
    if record then
      found[all[index]] = record
    end
  end
  return found
end

-- What this instance truly holds and who truly waits with it, whatever stood here. Grants not taken up are counted
-- for it and it does not know of them yet.
if batch.full then
  local truth = batch.held
  for ticket, record in pairs(pending_of(id)) do
    if batch.bye then
      redis.call('HDEL', GRANTS, ticket)
    else
      truth[record[2]] = (truth[record[2]] or 0) + 1
    end
  end
  local stored = redis.call('HKEYS', HELD .. id)
  for _, member in ipairs(stored) do
    if is_member(member) and not truth[member] then
      freed = freed - add(id, member, -held_by(id, member))
    end
  end
  for member, holds in pairs(truth) do
    freed = freed - add(id, member, holds - held_by(id, member))
  end
  local waiting = {}
  for _, ticket in ipairs(batch.waiting) do
    waiting[ticket[1]] = true
  end
  for _, ticket in ipairs(redis.call('HKEYS', TICKETS)) do
    if owner(ticket) == id and not waiting[ticket] then
      remove(ticket)
    end
  end
  changed = true
end
if batch.full or batch.beat then
  redis.call('ZADD', HOLDERS, now + batch.lease, id)
  redis.call('HSET', HELD .. id, PUSHED, epoch)
end

if redis.call('EXISTS', GRANTS) == 1 and take_back_lapsed(batch.patience, id) > 0 then
  changed = true
end
for member, number in pairs(batch.release) do
  freed = freed - add(id, member, -number)
end
for _, ticket in ipairs(batch.leave) do
  if not remove(ticket) then
    local record = read_grant(redis.call('HGET', GRANTS, ticket) or '')
    if record and ungrant(ticket, record) then
      freed = freed + 1
    end
  end
end
if #batch.leave > 0 then
  forget_if_empty()
end

-- A view is stored while somebody waits who goes by it.
local stored_views = {}
local function store_view(name)
  if not stored_views[name] then
    stored_views[name] = true
    redis.call('HSET', VIEWS, id .. ' ' .. name, cjson.encode(batch.views[name]))
    views[id .. ' ' .. name] = nil
  end
end
for _, name in ipairs(batch.changed) do
  store_view(name)
  changed = true
end

-- The place of one that comes: the next, or the one that it had before (this Redis may have lost its own count).
-- Every second number is given out: one that was granted at once, and comes again, stands between those that queued
-- before and after it.
local function number_of(ask)
  local last = count(redis.call('GET', NUMBER))
  local place = ask[8] == 0 and last + 2 or ask[8]
  if place > last then
    redis.call('SET', NUMBER, place, 'PX', batch.life)
  end
  return place
end

local function ticket_of(ask, number)
  return cjson.encode({number, ask[5], ask[6], ask[2], ask[4], ask[3] and true})
end

if batch.full then
  for _, ask in ipairs(batch.waiting) do
    local ticket = ask[1]
    store_view(ask[2])
    if not read_ticket(redis.call('HGET', TICKETS, ticket) or '')
      and not read_grant(redis.call('HGET', GRANTS, ticket) or '') then
      redis.call('HDEL', GRANTS, ticket)
      push(ticket, ticket_of(ask, number_of(ask)))
    end
  end
end

if changed then
  serve_queue(math.huge)
elseif freed > 0 then
  serve_queue(freed)
end

local answers = {}
local queued = redis.call('HLEN', TICKETS)
for _, candidates in pairs(batch.views) do
  local members = {}
  for index, candidate in ipairs(candidates) do
    members[index] = candidate[1]
  end
  load_scores(members)
end
local function in_order(candidates, members)
  local by_member, ordered = {}, {}
  for _, candidate in ipairs(candidates) do
    by_member[candidate[1]] = candidate
  end
  for _, member in ipairs(members) do
    ordered[#ordered + 1] = by_member[member]
  end
  return ordered
end

-- After each step nobody waits who could use what is free: so what is free now is nobody's turn before this one's.
local seen = {}
for index, ask in ipairs(batch.asks) do
  local candidates = batch.views[ask[2]]
  if ask[3] then
    candidates = in_order(candidates, ask[3])
  end
  if index == #batch.asks and #candidates <= 100 then  -- what the last one saw, for who asks why
    for place, candidate in ipairs(candidates) do
      seen[place] = {candidate[1], score_of(candidate[1])}
    end
  end
  local start = ask[3] and 0 or batch.start + index
  local avoid = as_set(ask[4])
  local member
  if #ask[9] > 0 then
    local warm = as_set(ask[9])
    for each in pairs(avoid or {}) do
      warm[each] = true
    end
    member = choose(candidates, warm, ask[3], start)
  end
  member = member or choose(candidates, avoid, ask[3], start)
  if member then
    add(id, member, 1)
    answers[index] = member
  elseif ask[7] == 0 then
    answers[index] = 'pool_saturated'
  elseif ask[8] == 0 and queued >= ask[7] then  -- whoever had a place or a slot is as one who waits already
    answers[index] = 'queue_full'
  else
    local number = number_of(ask)
    store_view(ask[2])
    queued = queued + 1
    answers[index] = {number, push(ask[1], ticket_of(ask, number))}
  end
end

local taken = {}
if queued > 0 or granted[id] or redis.call('EXISTS', GRANTS) == 1 then
  for ticket, record in pairs(pending_of(id)) do
    redis.call('HDEL', GRANTS, ticket)
    taken[#taken + 1] = {ticket, record[2]}
  end
end

write()
if batch.bye then  -- it has given all back, and is no longer one of those who share
  redis.call('ZREM', HOLDERS, id)
  redis.call('DEL', HELD .. id)
end
if batch.full or batch.beat or queued > 0 then
  for _, key in ipairs({INFLIGHT, HOLDERS, HELD .. id, TICKETS, CLASSES, VIEWS, GRANTS, NUMBER, EPOCH}) do
    redis.call('PEXPIRE', key, batch.life)
  end
  for _, class in ipairs(redis.call('HKEYS', CLASSES)) do
    redis.call('PEXPIRE', CLASS .. class, batch.life)
  end
elseif next(touched_scores) then  -- it may be new
  redis.call('PEXPIRE', INFLIGHT, batch.life)
end
announce(ARGV[2], ARGV[3], id)

local pushed = 0
if batch.fresh or batch.settling then
  for _, holder in ipairs(redis.call('ZRANGE', HOLDERS, 0, -1)) do
    if redis.pcall('HGET', HELD .. holder, PUSHED) == epoch then
      pushed = pushed + 1
    end
  end
end
return cjson.encode({
  granted = taken,
  answers = answers,
  seen = seen,
  holders = redis.call('ZCARD', HOLDERS),
  pushed = pushed,
  queued = queued,
  number = count(number),
  last = lease and last or -1,
  epoch = epoch,
  now = now,
})
