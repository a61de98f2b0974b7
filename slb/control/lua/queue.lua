-- What the ledger's scripts share of the queue: the body of `open_queue(size)`, behind pool.lua; `size` is how many
-- wait. Most calls have nothing to do with the queue, and do not open it: to make its functions costs as much as a
-- dozen commands.
-- Reply: its functions, and the tables `taken` and `silent`.

-- The queue. A ticket is {number, class, weight, route, avoid, ordered} as JSON; its id is "<holder>/<n>". Those of one
-- holder that can use the same, being of one class and route and avoiding the same, stand in one line. HEADS has the
-- first number of each line, by the view it goes by and by class: who is next is found without looking at who is not.
local granted = {}  -- instance -> what its tickets have been granted in this run: {ticket, member} each
local MOST_TOLD = 100  -- grants in one message
local MOST_SERVED = 256  -- grants of one call: Redis does nothing else meanwhile
local taken = {}  -- what the caller has been granted: {ticket, member} each

local function owner(ticket)
  return string.match(ticket, '^([^/]*)/') or ''
end

local function is_texts(list)
  if type(list) ~= 'table' then
    return false
  end
  for _, each in pairs(list) do
    if type(each) ~= 'string' then
      return false
    end
  end
  return true
end

local function read_ticket(text)
  local fields = read_json(text)
  local fits = fields and is_count(fields[1], 1) and type(fields[2]) == 'string' and fields[2] ~= VIRTUAL
    and fields[2] ~= OWED and is_count(fields[3], 1) and type(fields[4]) == 'string' and is_texts(fields[5])
    and type(fields[6]) == 'boolean'
  return fits and fields or nil
end

local function read_grant(text)
  local record = read_json(text)
  local fits = record and is_count(record[1], 0) and type(record[2]) == 'string' and type(record[3]) == 'string'
    and read_ticket(record[3])
  return fits and record or nil
end

-- A place in the fair order; 0 where what stands there is none.
local function pass_of(value)
  value = tonumber(value or 0)
  return value and value >= 0 and value < MOST and value or 0
end

-- Whether a holder has let a grant lapse and said nothing since: its tickets keep their places, and are passed over.
local silent = {}
local function is_silent(id)
  if silent[id] == nil then
    silent[id] = redis.call('HEXISTS', HELD .. id, SILENT) == 1
  end
  return silent[id]
end

local function line_of(fields)
  return cjson.encode({fields[4], fields[2], fields[6], unpack(fields[5])})
end

local lines = {}  -- line -> {route, class, ordered, avoid}
local function read_line(line)
  if lines[line] == nil then
    local parts = read_json(line)
    local fits = parts and type(parts[1]) == 'string' and type(parts[2]) == 'string'
    lines[line] = fits and {parts[1], parts[2], parts[3] == true, as_set({unpack(parts, 4)})} or false
  end
  return lines[line]
end

-- Let a line stand in HEADS with the number of its first ticket, under the view that its holder goes by now.
local function show_head(id, line)
  local parts = read_line(line)
  if not parts then
    redis.call('HDEL', LINES .. id, line)
    return
  end
  local first = redis.call('ZRANGE', LINE .. id .. ' ' .. line, 0, 0, 'WITHSCORES')
  local stands = redis.call('HGET', LINES .. id, line)
  local view = first[1] and not is_silent(id) and redis.call('HGET', VIEWS, id .. ' ' .. parts[1]) or ''
  if stands and stands ~= '' and stands ~= view then
    redis.call('ZREM', HEADS .. stands .. ' ' .. parts[2], id .. ' ' .. line)
  end
  if view ~= '' then
    local heads = HEADS .. view .. ' ' .. parts[2]
    if redis.call('ZADD', heads, first[2], id .. ' ' .. line) == 1 or is_beat then
      renew(heads)
    end
  end
  if not first[1] then
    redis.call('HDEL', LINES .. id, line)
    return
  end
  if stands ~= view then
    redis.call('HSET', LINES .. id, line, view)
    renew(LINES .. id)
  end
  if stands ~= view or is_beat then
    renew(LINE .. id .. ' ' .. line)
  end
end

local function show_heads(id)
  for _, line in ipairs(redis.call('HKEYS', LINES .. id)) do
    show_head(id, line)
  end
end

local function forget_if_empty()
  if size == 0 then
    redis.call('DEL', CLASSES)
  end
end

-- How many wait in a class. Raises DAMAGED where its key is of another type; reap.lua finds it, and mends it.
local function size_of(class)
  local found = redis.pcall('ZCARD', CLASS .. class)
  if type(found) == 'table' then
    write()  -- what has been given is counted all the same
    redis.call('HSETNX', CLASSES, class, '0')
    error({err = 'DAMAGED ' .. CLASS .. class .. ': ' .. found.err})
  end
  return found
end

local function push(ticket, packed)
  local fields = read_ticket(packed)
  local class, id, line = CLASS .. fields[2], owner(ticket), line_of(fields)
  if size_of(fields[2]) == 0 then
    local virtual = pass_of(redis.call('HGET', CLASSES, VIRTUAL))
    local pass = pass_of(redis.call('HGET', CLASSES, fields[2]))
    redis.call('HSET', CLASSES, fields[2], string.format('%.17g', math.max(pass, virtual)))
  end
  size = size + redis.call('HSET', TICKETS, ticket, packed)
  if redis.call('ZADD', class, fields[1], ticket) == 1 and redis.call('ZCARD', class) == 1 then
    for _, key in ipairs({TICKETS, CLASSES, VIEWS, NUMBER, class}) do
      renew(key)
    end
  end
  redis.call('ZADD', LINE .. id .. ' ' .. line, fields[1], ticket)
  if redis.call('ZRANK', LINE .. id .. ' ' .. line, ticket) == 0 then
    show_head(id, line)
  end
  return redis.call('ZRANK', class, ticket)
end

local function take_out(ticket, fields)
  local id, line = owner(ticket), line_of(fields)
  size = size - redis.call('HDEL', TICKETS, ticket)
  redis.call('ZREM', CLASS .. fields[2], ticket)
  local rank = redis.call('ZRANK', LINE .. id .. ' ' .. line, ticket)
  if rank then
    redis.call('ZREM', LINE .. id .. ' ' .. line, ticket)
    if rank == 0 then
      show_head(id, line)
    end
  end
end

local function remove(ticket)
  local packed = redis.call('HGET', TICKETS, ticket)
  local fields = packed and read_ticket(packed)
  if fields then
    take_out(ticket, fields)
  elseif packed then
    size = size - redis.call('HDEL', TICKETS, ticket)
  end
  return packed
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

-- Take back a grant that nobody has taken up. True where a slot has become free.
local function ungrant(ticket, record)
  forget_grant(ticket)
  return add(owner(ticket), record[2], -1) ~= 0
end

-- Its holder uses a grant that it was told of by message. Whether it had been taken back meanwhile, and maybe given to
-- another ticket: then it counts beside that. One that a reply told of since, or that was acknowledged before, has left
-- no trace, and is counted already.
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

-- Grants that nobody has taken up for so many milliseconds: their tickets keep their places, but the next is served
-- first. How many; at most so many in one call.
local function take_back_lapsed(patience, besides)
  local taken_back = 0
  for _, ends in ipairs({{'-inf', now - patience}, {'(' .. string.format('%.0f', now + patience), '+inf'}}) do
    for _, ticket in ipairs(redis.call('ZRANGEBYSCORE', GRANTED, ends[1], ends[2], 'LIMIT', 0, 64)) do
      local id, record = owner(ticket), read_grant(redis.call('HGET', GRANTS, ticket) or '')
      if not record then
        forget_grant(ticket)
      elseif id ~= besides then
        ungrant(ticket, record)
        redis.call('HSET', HELD .. id, SILENT, '1')
        silent[id] = true
        show_heads(id)
        push(ticket, record[3])
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
    local member = parts and choose(view, parts[4], parts[3] and {}, 0)
    if member then
      local ticket = redis.call('ZRANGE', LINE .. id .. ' ' .. line, 0, 0)[1]
      local packed = ticket and redis.call('HGET', TICKETS, ticket)
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

-- Give free slots to who waits: the class with the lowest pass first, and in it who came first. Where more than
-- MOST_SERVED could be served (a cap was raised, many upstreams joined), OWED says so, and the next call goes on.
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
      take_out(found.ticket, found.fields)
      grant(found.ticket, found.packed, found.member)
      -- Who was passed over for long, unable to use what there was, has lent its share and not saved it.
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

-- Tell the instances what they have been granted: pool, time, epoch, and [ticket, member] of each; of more than
-- MOST_TOLD they learn by their next batch, as of all that they do not take from the message.
local function announce(channel, pool)
  for instance, grants in pairs(granted) do
    local told = {pool = pool, at = now, epoch = redis.call('GET', EPOCH) or '', grants = grants}
    for index = #grants, MOST_TOLD + 1, -1 do
      grants[index] = nil
    end
    redis.call('PUBLISH', channel .. instance, cjson.encode(told))
  end
end

return {
  acknowledge = acknowledge,
  announce = announce,
  forget_grant = forget_grant,
  forget_if_empty = forget_if_empty,
  line_of = line_of,
  owner = owner,
  push = push,
  read_grant = read_grant,
  read_ticket = read_ticket,
  remove = remove,
  serve = serve_queue,
  show_head = show_head,
  show_heads = show_heads,
  silent = silent,
  size = function() return size end,
  size_of = size_of,
  take_back_lapsed = take_back_lapsed,
  taken = taken,
  ungrant = ungrant,
}
