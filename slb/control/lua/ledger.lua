-- One batch of one instance in one pool: what it gives back, who of its own has left, and what it asks for.
-- ARGV: the batch as JSON (see control/batch.py), the channel grants are announced on, the pool's name.
-- Reply, JSON: {"gone": true, "epoch"} where this holder is not known (its lease has ended, or Redis has lost it);
--   {"stale": true, "epoch"} for a batch that was given up, and comes late; {"unknown": [view, ...]} where it names
--   candidates that are not stored here, and nothing was done: it is to be sent again with them; else
--   {"granted": [[ticket, member], ...], "late": how many of the grants in `took` had been taken back, "answers": one
--   for each ask, "holders": how many there are, "pushed": how many of them have said what they hold since the epoch
--   began (0 where neither `fresh` nor `settling` asks for it),
--   "queued": how many wait, "number": the last place in the queue that was given before this batch (false where none
--   of it may queue), "seen": the scores the last ask found, "differs": whether what this holder counts is not
--   what is counted here, so that its next batch has to be full, "last": the sequence number known before (-1: the
--   holder was not known), "epoch": as long as it stays the same, nothing of this pool has been lost, "now": ms}.
--   An answer is a member; or [number, position] of a ticket that waits; or a reason.
local batch = cjson.decode(ARGV[1])
local id = batch.id
life, is_beat, caller = batch.life, batch.full or batch.beat, id

-- A key that is not of its type fails the first command that reads it, here, before anything is changed; reap.lua
-- mends it.
local lease = redis.call('ZSCORE', HOLDERS, id)
local queued = redis.call('HLEN', TICKETS)
redis.call('HLEN', GRANTS)
redis.call('HLEN', VIEWS)
local is_new = redis.call('ZCARD', INFLIGHT) == 0
redis.call('ZCARD', GRANTED)
local known = redis.pcall('HMGET', HELD .. id, SEQUENCE, SILENT)
if known.err then
  if lease then
    return redis.error_reply('DAMAGED ' .. HELD .. id .. ': ' .. known.err)
  end
  redis.call('DEL', HELD .. id)  -- nobody else would: it belongs to no holder
  known = {}
end
local classes, numbers = {}, false
if queued > 0 then
  classes = as_set(redis.call('HKEYS', CLASSES)) or {}
  classes[VIRTUAL], classes[OWED] = nil, nil
end
for _, asks in ipairs({batch.asks, batch.waiting}) do
  for _, ask in ipairs(asks) do
    if ask[7] > 0 then
      classes[ask[5]], numbers = true, true
    end
  end
end
for class in pairs(classes) do
  local found = redis.pcall('ZCARD', CLASS .. class)
  if type(found) == 'table' then
    redis.call('HSETNX', CLASSES, class, '0')  -- so that reap.lua finds it
    return redis.error_reply('DAMAGED ' .. CLASS .. class .. ': ' .. found.err)
  end
end
local number = numbers and redis.call('GET', NUMBER)
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
local last = count(known[1])
if last == MOST then
  last = 0
end
if batch.seq <= last then
  return cjson.encode({stale = true, epoch = epoch})
end
local unknown = {}
for _, view in pairs(batch.views) do
  if not batch.contents[view] and not is_stored(view) then
    unknown[#unknown + 1] = view
  end
end
if #unknown > 0 then
  return cjson.encode({unknown = unknown})
end
redis.call('HSET', HELD .. id, SEQUENCE, batch.seq)

local changed, freed, differs = false, false, false

for view, candidates in pairs(batch.contents) do
  if not is_stored(view) then
    store_view(view, candidates)
    changed = true
  end
end
silent[id] = false
if known[2] then  -- its tickets are served again
  redis.call('HDEL', HELD .. id, SILENT)
  show_heads(id)
  changed = true
end

-- From now on the tickets of this holder and route go by this view.
local follows = {}
local function follow_view(route)
  local view, key = batch.views[route], id .. ' ' .. route
  if follows[route] then
    return
  end
  follows[route] = true
  if redis.call('HGET', VIEWS, key) ~= view then
    redis.call('HSET', VIEWS, key, view)
    show_heads(id)
    changed = true
  end
end

local function pending()
  local tickets, found = redis.call('ZRANGE', GRANTED_OF .. id, 0, -1), {}
  for first = 1, #tickets, CHUNK do
    local last_one = math.min(first + CHUNK - 1, #tickets)
    for index, text in ipairs(redis.call('HMGET', GRANTS, unpack(tickets, first, last_one))) do
      local ticket = tickets[first + index - 1]
      local record = read_grant(text or '')
      if record then
        found[ticket] = record
      else
        forget_grant(ticket)
      end
    end
  end
  return found
end

-- Grants not taken up are counted for this holder, and it does not know of them yet.
local function with_pending(truth, grants, adds)
  for _, record in pairs(grants) do
    if adds or truth[record[2]] then
      truth[record[2]] = (truth[record[2]] or 0) + 1
    end
  end
  return truth
end

local function hold(truth)
  for member, holds in pairs(truth) do
    if add(id, member, holds - held_by(id, member)) < 0 then
      freed = true
    end
  end
end

local function ticket_of(ask, its_number)
  return cjson.encode({its_number, ask[5], ask[6], ask[2], ask[4], ask[3] and true})
end

-- The place of one that comes: the next, or the one that it had before (this Redis may have lost its own count).
-- Every second number is given out: one that was granted at once, and comes again, stands between those that queued
-- before and after it.
local function next_number(known_number)
  local last_one = count(redis.call('GET', NUMBER))
  local place = known_number == 0 and last_one + 2 or known_number
  if place > last_one then
    redis.call('SET', NUMBER, place, 'PX', batch.life)
  end
  return place
end

local function keep_waiting(rows)
  for _, ask in ipairs(rows) do
    local ticket = ask[1]
    follow_view(ask[2])
    local packed = redis.call('HGET', TICKETS, ticket)
    local stands = packed and read_ticket(packed)
    if stands and not redis.call('ZSCORE', LINE .. id .. ' ' .. line_of(stands), ticket) then
      push(ticket, packed)
      changed = true
    elseif not stands and not read_grant(redis.call('HGET', GRANTS, ticket) or '') then
      forget_grant(ticket)
      push(ticket, ticket_of(ask, next_number(ask[8])))
      changed = true
    end
  end
end

-- Of this holder's tickets only those go on that it says wait.
local function drop_others(rows)
  local waiting = {}
  for _, ask in ipairs(rows) do
    waiting[ask[1]] = true
  end
  for _, line in ipairs(redis.call('HKEYS', LINES .. id)) do
    for _, ticket in ipairs(redis.call('ZRANGE', LINE .. id .. ' ' .. line, 0, -1)) do
      if not waiting[ticket] and not remove(ticket) then
        redis.call('ZREM', LINE .. id .. ' ' .. line, ticket)
      end
    end
    show_head(id, line)
  end
end

local late = 0
for _, taken_up in ipairs(batch.took) do
  if acknowledge(taken_up[1], taken_up[2]) then
    late, freed = late + 1, true
  end
end

-- What this instance truly holds and who truly waits with it, whatever stood here.
if batch.full then
  local grants, truth = pending(), batch.held
  if batch.bye then
    for ticket in pairs(grants) do
      forget_grant(ticket)
    end
  else
    truth = with_pending(truth, grants, true)
  end
  for _, member in ipairs(redis.call('HKEYS', HELD .. id)) do
    if is_member(member) and not truth[member] then
      truth[member] = 0
      if held_by(id, member) == 0 then
        redis.call('HDEL', HELD .. id, member)  -- it is no number
      end
    end
  end
  hold(truth)
  drop_others(batch.waiting)
  changed = true
end
if batch.full or batch.beat then
  redis.call('ZADD', HOLDERS, now + batch.lease, id)
  redis.call('HSET', HELD .. id, PUSHED, epoch)
end

if take_back_lapsed(batch.patience, id) > 0 then
  changed = true
end
for member, releases in pairs(batch.release) do
  freed = add(id, member, -releases) ~= 0 or freed
end
for _, ticket in ipairs(batch.leave) do
  if not remove(ticket) then
    local record = read_grant(redis.call('HGET', GRANTS, ticket) or '')
    freed = record and ungrant(ticket, record) or freed
  end
end

for _, route in ipairs(batch.changed) do
  follow_view(route)
  changed = true
end
if batch.full then
  keep_waiting(batch.waiting)
end

-- A beat that is not full says how much it counts, and a part of it whole; another part each time.
if batch.beat and not batch.full then
  local grants, tickets, pending_now = pending(), 0, 0
  for _ in pairs(grants) do
    pending_now = pending_now + 1
  end
  hold(with_pending(batch.held, grants, false))
  write()
  local stored = redis.call('HLEN', HELD .. id) - 2  -- without SEQUENCE and PUSHED
  for _, line in ipairs(redis.call('HKEYS', LINES .. id)) do
    tickets = tickets + redis.call('ZCARD', LINE .. id .. ' ' .. line)
    show_head(id, line)
  end
  differs = stored < batch.holds or stored > batch.holds + pending_now or tickets + pending_now ~= batch.waits
  keep_waiting(batch.waiting)
end

local owed = redis.call('HEXISTS', CLASSES, OWED) == 1
if changed or freed or owed then
  local fine, ended = pcall(serve_queue)
  if not fine then  -- something is of another type: what has been given is counted all the same
    write()
    return redis.error_reply(type(ended) == 'table' and ended.err or ended)
  end
  owed = not ended
elseif #batch.leave > 0 then
  forget_if_empty()
end

-- After each step nobody waits who could use what is free: so what is free now is nobody's turn before this one's.
local answers = {}
queued = redis.call('HLEN', TICKETS)
local seen = {}
local function look_at(view)
  local members = redis.call('HKEYS', VIEW .. view)
  local found = #members > 0 and redis.call('ZMSCORE', INFLIGHT, unpack(members)) or {}
  for index, score in ipairs(found) do
    seen[index] = {members[index], scores[members[index]] or count(score)}
  end
end

local function slot_for(ask, start)
  local view, avoid = batch.views[ask[2]], as_set(ask[4])
  local member
  if #ask[9] > 0 then
    local cold = as_set(ask[9])
    for each in pairs(avoid or {}) do
      cold[each] = true
    end
    member = choose(view, cold, ask[3], start)
  end
  return member or choose(view, avoid, ask[3], start)
end

for index, ask in ipairs(batch.asks) do
  local view = batch.views[ask[2]]
  if index == #batch.asks and tonumber(string.match(view, '^%d+')) <= MOST_SEEN then  -- for who asks why
    look_at(view)
  end
  local waits = owed and ask[7] > 0  -- others do who could use what is free
  local member = not waits and slot_for(ask, batch.start + index)
  if member then
    add(id, member, 1)
    answers[index] = member
  elseif ask[7] == 0 then
    answers[index] = 'pool_saturated'
  elseif ask[8] == 0 and queued >= ask[7] then  -- whoever had a place or a slot is as one who waits already
    answers[index] = 'queue_full'
  else
    local its_number = next_number(ask[8])
    follow_view(ask[2])
    queued = queued + 1
    answers[index] = {its_number, push(ask[1], ticket_of(ask, its_number))}
  end
end

for ticket, record in pairs(pending()) do
  forget_grant(ticket)
  taken[#taken + 1] = {ticket, record[2]}
end

write()
if batch.bye then  -- it has given all back, and is no longer one of those who share
  redis.call('ZREM', HOLDERS, id)
  redis.call('DEL', HELD .. id, LINES .. id)
end
if batch.full or batch.beat then
  local kept = {INFLIGHT, HOLDERS, HELD .. id, TICKETS, CLASSES, VIEWS, GRANTS, NUMBER, EPOCH, LINES .. id, GRANTED,
    GRANTED_OF .. id, DYING, ROUND}
  for _, key in ipairs(kept) do
    renew(key)
  end
  for _, class in ipairs(redis.call('HKEYS', CLASSES)) do
    renew(CLASS .. class)
  end
  for _, view in ipairs(batch.uses) do
    if redis.call('ZSCORE', LIVE, view) then
      keep_view(view)
    end
  end
elseif is_new then
  renew(INFLIGHT)
end
announce(ARGV[2], ARGV[3])

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
  late = late,
  answers = answers,
  seen = seen,
  holders = redis.call('ZCARD', HOLDERS),
  pushed = pushed,
  queued = queued,
  number = numbers and count(number),
  differs = differs,
  last = lease and last or -1,
  epoch = epoch,
  now = now,
})
