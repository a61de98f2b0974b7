-- Which tickets get grants, and the messages of them; it stands behind queue.lua.
-- Reply: the queue's functions, and the tables `taken` and `silent`.
local granted = {}  -- instance -> what its tickets have been granted in this run: {ticket, member} each
local MOST_TOLD = 100  -- grants in one message
local MOST_SERVED = 256  -- grants of one call: Redis does nothing else meanwhile
local taken = {}  -- what the caller has been granted: {ticket, member} each

local function read_grant(text)
  local record = read_json(text)
  local fits = record and is_count(record[1], 0) and type(record[2]) == 'string' and is_member(record[2])
    and type(record[3]) == 'string' and read_ticket(record[3])
  return fits and record or nil
end

local function grant(ticket, packed, member)
  local id = owner(ticket)
  add(id, member, 1)
  if id == caller then
    taken[#taken + 1] = {ticket, member}
    return
  end
  redis.call('HSET', GRANTS, ticket, cjson.encode({now, member, packed}))
  if redis.call('ZADD', GRANTED, now, ticket) == 1 and redis.call('ZCARD', GRANTED) == 1 then
    renew(GRANTS)
    renew(GRANTED)
  end
  redis.call('ZADD', GRANTED_OF .. id, now, ticket)
  if redis.call('ZCARD', GRANTED_OF .. id) == 1 then
    renew(GRANTED_OF .. id)
  end
  local instance = string.match(id, '^[^-]*')
  granted[instance] = granted[instance] or {}
  table.insert(granted[instance], {ticket, member})
end

local function forget_grant(ticket)
  redis.call('HDEL', GRANTS, ticket)
  redis.call('ZREM', GRANTED, ticket)
  redis.call('ZREM', GRANTED_OF .. owner(ticket), ticket)
end

-- A holder's grants that it has not acknowledged yet.
local function pending(id)
  local tickets, found = redis.call('ZRANGE', GRANTED_OF .. id, 0, -1), {}
  for first = 1, #tickets, CHUNK do
    local last_one = math.min(first + CHUNK - 1, #tickets)
    for index, text in ipairs(redis.call('HMGET', GRANTS, unpack(tickets, first, last_one))) do
      local ticket = tickets[first + index - 1]
      local record = is_ticket(ticket) and read_grant(text or '')
      if record then
        found[ticket] = record
      else
        forget_grant(ticket)
      end
    end
  end
  return found
end

-- Take back a grant that is not taken up. True where a slot has become free.
local function ungrant(ticket, record)
  forget_grant(ticket)
  return add(owner(ticket), record[2], -1) ~= 0
end

-- Its holder uses a grant that came by message. Whether it had been taken back meanwhile: then it is counted again. One
-- that was in a reply, or was acknowledged before, has no record, and is counted already.
local function acknowledge(ticket, member)
  local record = read_grant(redis.call('HGET', GRANTS, ticket) or '')
  if record and record[2] == member then
    forget_grant(ticket)
    return false
  elseif record then
    ungrant(ticket, record)
  elseif not remove(ticket) then
    return false
  end
  add(owner(ticket), member, 1)
  return true
end

-- Its ticket keeps its place, and is passed over until its holder is heard of.
local function take_back(ticket, id, record)
  ungrant(ticket, record)
  redis.call('HSET', HELD .. id, SILENT, '1')
  silent[id] = true
  show_heads(id)
  push(ticket, record[3])
end

-- Take back grants not taken up for `patience` ms: their tickets keep their places, but the next is served first.
-- Returns how many; there is a maximum for one call.
local function take_back_lapsed(patience, besides)
  local taken_back = 0
  for _, ends in ipairs({{'-inf', now - patience}, {'(' .. string.format('%.0f', now + patience), '+inf'}}) do
    for _, ticket in ipairs(redis.call('ZRANGEBYSCORE', GRANTED, ends[1], ends[2], 'LIMIT', 0, 64)) do
      local id, record = owner(ticket), is_ticket(ticket) and read_grant(redis.call('HGET', GRANTS, ticket) or '')
      if not record then
        forget_grant(ticket)
      elseif id ~= besides then
        take_back(ticket, id, record)
        taken_back = taken_back + 1
      end
    end
  end
  return taken_back
end

local function has_room(view)
  local read = near[view] or read_near(view, 0)
  return read.bound < NO_ROOM or least_of(read, nil, 0) ~= nil
end

-- The first ticket of a class that goes by this view and can use something; `before`: only one with a lower number.
local function first_by_view(view, class, before)
  local heads, at = HEADS .. view .. ' ' .. class, 0
  while has_room(view) do
    local head = redis.call('ZRANGE', heads, at, at, 'WITHSCORES')
    if not head[1] or tonumber(head[2]) >= before then
      return nil
    end
    local id, line = string.match(head[1], '^([^ ]*) (.*)$')
    local parts = line and read_line(line)
    local member = parts and choose(view, parts[4], false, 0)
    if member then
      local ticket = redis.call('ZRANGE', LINE .. id .. ' ' .. line, 0, 0)[1]
      local packed = ticket and is_ticket(ticket) and redis.call('HGET', TICKETS, ticket)
      local fields = packed and read_ticket(packed)
      if fields then
        return {ticket = ticket, packed = packed, fields = fields, member = member, number = tonumber(head[2])}
      end
      redis.call('ZREM', LINE .. id .. ' ' .. line, ticket or '')
      redis.call('ZREM', heads, head[1])
      show_head(id, line)
    elseif parts then
      at = at + 1
    else
      redis.call('ZREM', heads, head[1])
    end
  end
end

local function first_usable(class)
  local best
  for _, view in ipairs(live_views()) do
    best = first_by_view(view, class, best and best.number or math.huge) or best
  end
  return best
end

local function read_classes()
  local passes, classes, virtual, owed = {}, {}, 0, false
  local stored = redis.call('HGETALL', CLASSES)
  for index = 1, #stored, 2 do
    if stored[index] == VIRTUAL then
      virtual = pass_of(stored[index + 1])
    elseif stored[index] == OWED then
      owed = true
    else
      classes[#classes + 1] = stored[index]
      passes[stored[index]] = pass_of(stored[index + 1])
    end
  end
  return passes, classes, virtual, owed
end

-- Give free slots to tickets: the class with the lowest pass first, in it the first ticket. Where more than
-- MOST_SERVED could be served (a cap was raised, many upstreams joined), OWED is set, and the next call goes on.
-- Whether it came to an end.
local function serve_queue()
  if size == 0 then
    forget_if_empty()
    return true
  end
  local passes, classes, virtual, owed = read_classes()
  local given, ended = 0, false
  while given < MOST_SERVED and not ended do
    table.sort(classes, function(a, b)
      return passes[a] < passes[b] or (passes[a] == passes[b] and a < b)
    end)
    local found, class
    for _, each in ipairs(classes) do
      found, class = first_usable(each), each
      if found then
        break
      end
    end
    ended = not found
    if found then
      take_out(found.ticket, found.fields, 0)
      grant(found.ticket, found.packed, found.member)
      -- A class that was passed over for long, unable to use free slots, has lent its share, not saved it.
      virtual = math.max(virtual, passes[class])
      passes[class] = virtual + 1 / found.fields[3]
      redis.call('HSET', CLASSES, VIRTUAL, string.format('%.17g', virtual),
        class, string.format('%.17g', passes[class]))
      given = given + 1
    end
  end
  if ended and owed then
    redis.call('HDEL', CLASSES, OWED)
  elseif not ended then
    redis.call('HSET', CLASSES, OWED, '1')
  end
  forget_if_empty()
  return ended
end

-- Where something is of another type, what has been given is counted all the same.
local function serve()
  local fine, ended = pcall(serve_queue)
  if not fine then
    write()
    error(ended, 0)
  end
  return ended
end

-- How many receive the message of an instance's grants. Those beyond MOST_TOLD come with the reply to its next batch.
local function publish(channel, pool, grants)
  local news = {pool = pool, at = now, epoch = epoch or redis.call('GET', EPOCH) or '', grants = {unpack(grants, 1, math.min(#grants, MOST_TOLD))}}
  local heard = redis.pcall('PUBLISH', channel, cjson.encode(news))  -- it is a hint: an ACL may forbid it
  return type(heard) == 'number' and heard or 0
end

-- Grants that no message reached. A holder that has sent nothing for a third of its lease is passed over at once, until
-- its next batch; any other has half the time to find them. Whether one has been passed over.
local function pass_over(grants, lease, patience)
  local passed_over = false
  for _, each in ipairs(grants) do
    local ticket, id = each[1], owner(each[1])
    local expiry = tonumber(redis.call('ZSCORE', HOLDERS, id) or 0)
    if expiry - now < lease * 2 / 3 then
      take_back(ticket, id, read_grant(redis.call('HGET', GRANTS, ticket)))
      passed_over = true
    else
      redis.call('ZADD', GRANTED, string.format('%.0f', now - patience / 2), ticket)
    end
  end
  return passed_over
end

-- Publish their grants to instances; what is taken back at once goes to the next. Times in milliseconds.
local function announce(channel, pool, lease, patience)
  while next(granted) do
    local sent, passed_over = granted, false
    granted = {}
    for instance, grants in pairs(sent) do
      if publish(channel .. instance, pool, grants) == 0 then
        passed_over = pass_over(grants, lease, patience) or passed_over
      end
    end
    if passed_over then
      serve()
      write()
    end
  end
end

return {
  acknowledge = acknowledge,
  announce = announce,
  drop = drop,
  forget_grant = forget_grant,
  forget_if_empty = forget_if_empty,
  is_ticket = is_ticket,
  line_of = line_of,
  owner = owner,
  pending = pending,
  push = push,
  read_grant = read_grant,
  read_ticket = read_ticket,
  remove = remove,
  serve = serve,
  show_head = show_head,
  show_heads = show_heads,
  silent = silent,
  size = function() return size end,
  in_class = in_class,
  take_back_lapsed = take_back_lapsed,
  taken = taken,
  ungrant = ungrant,
}
