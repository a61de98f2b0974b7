-- With grants.lua the body of `open_queue(size)`; `size`: how many wait. Most calls do not open it: to make its functions
-- costs as much as a dozen commands.
-- A ticket is {number, class, weight, route, avoid, ordered} as JSON; its id is "<holder>/<n>". Those of one holder that
-- are of one class and route and avoid the same stand in one line. HEADS has the first number of each line, by its view
-- and by class: the next ticket is found without reading the others.

local function owner(ticket)
  return string.match(ticket, '^([^/]*)/') or ''
end

local function is_ticket(name)
  return string.match(name, '^[!-~]+/%d+$') ~= nil
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

-- One of a request is a whole number, of a job it may be less than 1.
local function is_weight(value)
  return type(value) == 'number' and value > 0 and value < MOST
end

local function read_ticket(text)
  local fields = read_json(text)
  local fits = fields and is_count(fields[1], 1) and type(fields[2]) == 'string' and fields[2] ~= VIRTUAL
    and fields[2] ~= OWED and is_weight(fields[3]) and type(fields[4]) == 'string' and is_texts(fields[5])
    and type(fields[6]) == 'boolean'
  return fits and fields or nil
end

-- A place in the fair order; 0 where what stands there is none.
local function pass_of(value)
  value = tonumber(value or 0)
  return value and value >= 0 and value < MOST and value or 0
end

-- Whether a holder has let a grant lapse, or got no message of one, and has sent nothing since: its tickets keep
-- their places, and are passed over.
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

-- Run a command on the line of a class. Raises DAMAGED where its key is of another type; reap.lua finds it, and mends
-- it.
local function in_class(class, command, ...)
  local found = redis.pcall(command, CLASS .. class, ...)
  if type(found) == 'table' and found.err then
    write()  -- what has been given is counted all the same
    redis.call('HSETNX', CLASSES, class, '0')
    error({err = 'DAMAGED ' .. CLASS .. class .. ': ' .. found.err})
  end
  return found
end

local function push(ticket, packed)
  local fields = read_ticket(packed)
  local class, id, line = CLASS .. fields[2], owner(ticket), line_of(fields)
  if in_class(fields[2], 'ZCARD') == 0 then
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

-- `rank`: its place in its line, where that is known.
local function take_out(ticket, fields, rank)
  local id, line = owner(ticket), line_of(fields)
  size = size - redis.call('HDEL', TICKETS, ticket)
  in_class(fields[2], 'ZREM', ticket)
  rank = rank or redis.call('ZRANK', LINE .. id .. ' ' .. line, ticket)
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

-- Take tickets of one line out, many at a time.
local function drop(id, line, tickets)
  local class = (read_line(line) or {})[2] or ''
  for first = 1, #tickets, CHUNK do
    local some = {unpack(tickets, first, math.min(first + CHUNK - 1, #tickets))}
    size = size - redis.call('HDEL', TICKETS, unpack(some))
    in_class(class, 'ZREM', unpack(some))
    redis.call('ZREM', LINE .. id .. ' ' .. line, unpack(some))
  end
  show_head(id, line)
end
