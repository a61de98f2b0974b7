-- One batch of one instance in one pool: what it gives back, which tickets have left, and what it asks for.
-- ARGV: the batch as JSON (see control/batch.py), the channel grants are announced on, the pool's name.
-- Reply, JSON, one of
--   {"gone": true, "epoch"}: this holder is not known; its lease has ended, or Redis has lost it
--   {"stale": true, "epoch"}: the batch was given up, and comes late
--   {"unknown": [view, ...]}: nothing was done; it is to be sent again with these candidates
--   {"granted": [[ticket, member], ...], "answers": for each ask a member, [number, position] of a ticket, or a reason,
--    "late": how many grants in `took` had been taken back, "holders": how many there are, "pushed": how many of them
--    have sent all they hold in this epoch (0 unless `fresh` or `settling`), "queued": how many wait, "jobs": how many of
--    them for jobs (false: not counted, where no job asks), "number": the last place that was given before this batch
--    (false where none of it may queue), "seen": the scores above 0 that the last ask found (see `explain`),
--    "differs": the next batch has to be full, "last": the batch's number before this one (-1: the holder was not
--    known), "epoch": the same as long as nothing of this pool has been lost, "now"}
-- Over 300 lines, for it is one call: its steps follow each other, and share what was read before.
local batch = cjson.decode(ARGV[1])
local id = batch.id
local asks, release, leave = batch.asks or {}, batch.release or {}, batch.leave or {}
local waiting, views, contents = batch.waiting or {}, batch.views or {}, batch.contents or {}
life, is_beat, caller = batch.life, batch.full or batch.beat, id
local MOST_SEEN = 100  -- upstreams whose scores an explanation has
local JOBS = 'jobs'  -- the class of jobs, as slb/job.py has it

-- A key that is not of its type fails the first command that reads it; reap.lua mends it, and the full batch behind
-- an error has all that this one had.
local lease = redis.call('ZSCORE', HOLDERS, id)
local queued = redis.call('HLEN', TICKETS)
local granted = redis.call('ZCARD', GRANTED)
local in_flight = redis.call('ZCARD', INFLIGHT)
local released = {}
for member in pairs(release) do
  released[#released + 1] = #released < CHUNK and member or nil
end
local known = redis.pcall('HMGET', HELD .. id, SEQUENCE, SILENT, unpack(released))
if known.err then
  if lease then
    return redis.error_reply('DAMAGED ' .. HELD .. id .. ': ' .. known.err)
  end
  redis.call('DEL', HELD .. id)  -- nothing else would: it belongs to no holder
  known = {}
end
local may_queue = #waiting > 0
local most_read, has_jobs = 0, false
for _, ask in ipairs(asks) do
  has_jobs = has_jobs or ask[5] == JOBS
  may_queue = may_queue or ask[7] > 0
  most_read = most_read + page + #ask[4] + #ask[9]
end
page = math.min(PAGE, math.max(page, most_read))
local number = may_queue and redis.call('GET', NUMBER)
if number and not read_number(number) then
  return redis.error_reply('DAMAGED ' .. NUMBER .. ' is no number')
end
local last_number = count(number)  -- the last place that was given

-- A server that takes another's place (a replica, or a restart from its disk) may lack what came last: it is known by
-- its run id, which the first batch on a connection asks for.
epoch = string.match(redis.call('GET', EPOCH) or '', '^%w* %d+$')
if not epoch or batch.fresh then
  local info = redis.pcall('INFO', 'server')  -- an ACL may forbid it
  local server = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
  if not epoch or (server ~= '' and server ~= string.match(epoch, '^%w*')) then
    epoch = string.format('%s %.0f', server, now)
    redis.call('SET', EPOCH, epoch, 'PX', life)
  end
end
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
for _, view in pairs(views) do
  if not contents[view] and not is_stored(view) then
    unknown[#unknown + 1] = view
  end
end
if #unknown > 0 then
  return cjson.encode({unknown = unknown})
end
redis.call('HSET', HELD .. id, SEQUENCE, batch.seq)

local changed, freed, differs = false, false, false
for view, candidates in pairs(contents) do
  if not is_stored(view) then
    store_view(view, candidates)
    changed = true
  end
end

-- Replaced views go, for each costs a write at every change of a score: a holder that uses one sends it again.
for _, view in ipairs(batch.drops or {}) do
  if is_stored(view) then
    forget_view(view)
  end
end

local queue
local function need_queue()
  if not queue then
    queue = open_queue(queued)
    queue.silent[id] = false
  end
end

local late = 0
for _, taken_up in ipairs(batch.took or {}) do  -- before any of them is released
  need_queue()
  if queue.acknowledge(taken_up[1], taken_up[2]) then
    late, freed = late + 1, true
  end
end
-- Grants to other holders concern this batch where they have lapsed.
granted = queue and redis.call('ZCARD', GRANTED) or granted
local has_pending = granted > 0 and redis.call('ZCARD', GRANTED_OF .. id) > 0
local has_lapsed = granted > 0 and redis.call('ZCOUNT', GRANTED, '-inf', now - batch.patience) > 0

for index, member in ipairs(released) do
  held_by(id, member, known[2 + index])
end
for member, releases in pairs(release) do
  freed = add(id, member, -releases) ~= 0 or freed
end

-- From now on the tickets of this holder and route go by this view.
local follows = {}
local function follow_view(route)
  local view, key = views[route], id .. ' ' .. route
  if follows[route] then
    return
  end
  follows[route] = true
  if redis.call('HGET', VIEWS, key) ~= view then
    redis.call('HSET', VIEWS, key, view)
    queue.show_heads(id)
    changed = true
  end
end

local function ticket_of(ask, its_number)
  return cjson.encode({its_number, ask[5], ask[6], ask[2], ask[4], ask[3] and true})
end

-- The place of one that comes: the next, or the one it had before. Every second number is given out: one that was
-- granted at once, and comes again, stands between those that queued before and after it.
local function next_number(known_number)
  local place = known_number == 0 and last_number + 2 or known_number
  if place > last_number then
    redis.call('SET', NUMBER, place, 'PX', life)
    last_number = place
  end
  return place
end

-- Whether more can be served than one call serves.
local owed = queued > 0 and redis.call('HEXISTS', CLASSES, OWED) == 1

-- What of a batch concerns the queue, or may free slots for it.
local function follow_queue()
  need_queue()

  -- Grants not taken up are counted for this holder, which does not have them yet.
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

  local function keep_waiting(rows)
    local shown = {}
    for _, ask in ipairs(rows) do
      local ticket = ask[1]
      follow_view(ask[2])
      local packed = redis.call('HGET', TICKETS, ticket)
      local stands = packed and queue.read_ticket(packed)
      local line = stands and queue.line_of(stands)
      if stands and not redis.call('ZSCORE', LINE .. id .. ' ' .. line, ticket) then
        queue.push(ticket, packed)
        changed = true
      elseif stands and not shown[line] and (batch.full or not batch.beat) then  -- a beat shows all lines below
        queue.show_head(id, line)
        shown[line] = true
      elseif not stands and not queue.read_grant(redis.call('HGET', GRANTS, ticket) or '') then
        queue.forget_grant(ticket)
        queue.push(ticket, ticket_of(ask, next_number(ask[8])))
        changed = true
      end
    end
  end

  -- Of this holder's tickets only those in its batch go on.
  local function drop_others(tickets)
    local waits = {}
    for _, key in ipairs(tickets) do
      waits[string.format('%s/%.0f', id, key)] = true
    end
    for _, line in ipairs(redis.call('HKEYS', LINES .. id)) do
      local others = {}
      for _, ticket in ipairs(redis.call('ZRANGE', LINE .. id .. ' ' .. line, 0, -1)) do
        others[#others + 1] = not waits[ticket] and ticket or nil
      end
      queue.drop(id, line, others)
    end
  end

  for class in pairs(as_set(redis.call('HKEYS', CLASSES)) or {}) do
    if class ~= VIRTUAL and class ~= OWED then
      queue.in_class(class, 'ZCARD')
    end
  end
  if known[2] then  -- its tickets are served again
    redis.call('HDEL', HELD .. id, SILENT)
    queue.show_heads(id)
    changed = true
  end

  -- What this instance holds and which tickets wait there, whatever stood here.
  if batch.full then
    local grants, truth = queue.pending(id), batch.held or {}
    if batch.bye then
      for ticket in pairs(grants) do
        queue.forget_grant(ticket)
      end
    else
      truth = with_pending(truth, grants, true)
    end
    for _, member in ipairs(redis.call('HKEYS', HELD .. id)) do
      if not OWN[member] and not truth[member] then
        truth[member] = 0
        if held_by(id, member) == 0 or not is_member(member) then
          redis.call('HDEL', HELD .. id, member)  -- it is no number, or of no upstream
        end
      end
    end
    hold(truth)
    drop_others(batch.tickets or {})
    changed = true
  end
  if is_beat then
    redis.call('ZADD', HOLDERS, now + batch.lease, id)
    redis.call('HSET', HELD .. id, PUSHED, epoch)
  end

  if (is_beat or has_lapsed) and queue.take_back_lapsed(batch.patience, id) > 0 then
    changed = true
  end
  for _, ticket in ipairs(leave) do
    if not queue.remove(ticket) then
      local record = queue.read_grant(redis.call('HGET', GRANTS, ticket) or '')
      freed = record and queue.ungrant(ticket, record) or freed
    end
  end
  for _, route in ipairs(batch.changed or {}) do
    follow_view(route)
    changed = true
  end
  keep_waiting(waiting)

  -- A beat that is not full has its counts, and a part of it whole; another part each time.
  if batch.beat and not batch.full then
    local grants, tickets, pending_now = queue.pending(id), 0, 0
    for _ in pairs(grants) do
      pending_now = pending_now + 1
    end
    hold(with_pending(batch.held or {}, grants, false))
    write()
    local stored = redis.call('HLEN', HELD .. id) - 2  -- without SEQUENCE and PUSHED
    local holds, waits = batch.holds or 0, batch.waits or 0
    for _, line in ipairs(redis.call('HKEYS', LINES .. id)) do
      tickets = tickets + redis.call('ZCARD', LINE .. id .. ' ' .. line)
      queue.show_head(id, line)
    end
    differs = stored < holds or stored > holds + pending_now or tickets + pending_now ~= waits
  end

  if changed or freed or owed then
    owed = not queue.serve()
  elseif #leave > 0 then
    queue.forget_if_empty()
  end
end

-- Most batches change nothing in the queue; what was damaged by hand there the next beat mends.
local serves = queued > 0 and (changed or freed or owed or #leave > 0)
if is_beat or #waiting > 0 or serves or has_pending or has_lapsed or known[2] or batch.changed then
  follow_queue()
end
queued = queue and queue.size() or queued

-- After each step no ticket waits that could use a free slot: so what is free now is for this batch's asks.
local answers, seen = {}, nil

-- What is in flight now, for an explanation: member -> score.
local function look_at()
  local found = redis.call('ZRANGE', INFLIGHT, 0, -1, 'WITHSCORES')
  seen = {}
  for index = 1, #found, 2 do
    seen[found[index]] = is_member(found[index]) and count(found[index + 1]) or nil
  end
  for member, score in pairs(scores) do
    seen[member] = score
  end
end

local function slot_for(ask, start)
  local view, avoid = views[ask[2]], as_set(ask[4])
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

for index, ask in ipairs(asks) do
  local explains = batch.explain and index == #asks and in_flight <= MOST_SEEN
  if explains and tonumber(string.match(views[ask[2]], '^%d+')) <= MOST_SEEN then
    look_at()
  end
  local waits = owed and ask[7] > 0  -- tickets do that could use it
  local member = not waits and slot_for(ask, batch.start + index)
  if member then
    add(id, member, 1)
    answers[index] = member
  elseif ask[7] == 0 then
    answers[index] = 'pool_saturated'
  elseif ask[8] == 0 and queued >= ask[7] then  -- one that had a place or a slot keeps its place
    answers[index] = 'queue_full'
  else
    need_queue()
    local its_number = next_number(ask[8])
    follow_view(ask[2])
    queued = queued + 1
    answers[index] = {its_number, queue.push(ask[1], ticket_of(ask, its_number))}
  end
end

local taken = queue and queue.taken or {}
if is_beat or has_pending then
  for ticket, record in pairs(queue.pending(id)) do
    queue.forget_grant(ticket)
    taken[#taken + 1] = {ticket, record[2]}
  end
end

write()
if batch.bye then  -- it has given all back, and is no holder any more
  redis.call('ZREM', HOLDERS, id)
  redis.call('DEL', HELD .. id, LINES .. id)
end
if is_beat then
  local kept = {INFLIGHT, HOLDERS, HELD .. id, TICKETS, CLASSES, VIEWS, GRANTS, NUMBER, EPOCH, LINES .. id, GRANTED,
    GRANTED_OF .. id, DYING, ROUND}
  for _, key in ipairs(kept) do
    renew(key)
  end
  for _, class in ipairs(redis.call('HKEYS', CLASSES)) do
    renew(CLASS .. class)
  end
  for _, view in ipairs(batch.uses or {}) do
    if redis.call('ZSCORE', LIVE, view) then
      keep_view(view)
    end
  end
elseif in_flight == 0 then
  renew(INFLIGHT)
end
if queue then
  queue.announce(ARGV[2], ARGV[3], batch.lease, batch.patience)
end

local of_jobs = 0
if queued > 0 then
  of_jobs = has_jobs and redis.pcall('ZCARD', CLASS .. JOBS)
  if type(of_jobs) == 'table' then
    of_jobs = 0  -- it is no set, which others mend
  end
end

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
  jobs = of_jobs,
  number = may_queue and count(number),
  differs = differs,
  last = lease and last or -1,
  epoch = epoch,
  now = now,
})
