-- What the ledger's scripts share: one pool's scores, who holds how much of them, and its queue. It stands in front of
-- ledger.lua and reap.lua when they are loaded; slots are given out and taken back here and nowhere else.
-- KEYS: see keys.pool_keys. Two of them are the beginnings of keys, one of each holder and of each class: the scripts
--   read who there is, and all lie in one hash slot.
local INFLIGHT, HOLDERS, HELD = KEYS[1], KEYS[2], KEYS[3]
local TICKETS, CLASS, CLASSES = KEYS[4], KEYS[5], KEYS[6]
local VIEWS, GRANTS, NUMBER, EPOCH = KEYS[7], KEYS[8], KEYS[9], KEYS[11]
local VIRTUAL = ' '  -- the field of the classes' hash that can be no class: the virtual time
local SEQUENCE, PUSHED, SILENT = 'seq', 'pushed', 'silent'  -- fields of a held hash that can be no member

local function is_member(field)
  return field ~= SEQUENCE and field ~= PUSHED and field ~= SILENT
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Scores and what is held, read once, changed here, written at the end; 0 where nothing is, or no number.
local scores, held = {}, {}
local touched_scores, touched_held = {}, {}

local MOST = 2 ^ 53  -- no count is ever so high: what shows it is damaged

local function count(value)
  value = tonumber(value)
  if not value or value ~= value or value < 0 then
    return 0
  end
  return math.min(math.floor(value), MOST)
end

local function is_count(value, least)
  return type(value) == 'number' and value >= least and value < MOST and value == math.floor(value)
end

-- The last ticket's number as it stands there: digits, that can be counted on from; else nil.
local function read_number(text)
  local number = string.match(text, '^%d+$') and tonumber(text)
  return number and is_count(number, 0) and number or nil
end

local function load_scores(members)
  local missing = {}
  for _, member in ipairs(members) do
    if not scores[member] then
      scores[member] = 0
      missing[#missing + 1] = member
    end
  end
  for first = 1, #missing, 1000 do
    local last = math.min(first + 999, #missing)
    local found = redis.call('ZMSCORE', INFLIGHT, unpack(missing, first, last))
    for index, score in ipairs(found) do
      scores[missing[first + index - 1]] = count(score)
    end
  end
end

local function score_of(member)
  if not scores[member] then
    load_scores({member})
  end
  return scores[member]
end

local function held_by(id, member)
  if not held[id] then
    held[id] = {}
    local is = redis.call('TYPE', HELD .. id).ok
    if is ~= 'hash' and is ~= 'none' then
      redis.call('DEL', HELD .. id)
    end
  end
  if not held[id][member] then
    local holds = count(redis.call('HGET', HELD .. id, member))
    held[id][member] = holds < MOST and holds or 0
  end
  return held[id][member]
end

-- The one place where a score and what somebody holds of it change, together.
local function add(id, member, change)
  local holds = held_by(id, member)
  if holds + change < 0 then
    change = -holds
  end
  if change == 0 then
    return 0
  end
  held[id][member] = holds + change
  scores[member] = math.max(score_of(member) + change, 0)
  touched_scores[member] = true
  touched_held[id] = touched_held[id] or {}
  touched_held[id][member] = true
  return change
end

local function write()
  for member in pairs(touched_scores) do
    if scores[member] > 0 then
      redis.call('ZADD', INFLIGHT, scores[member], member)
    else
      redis.call('ZREM', INFLIGHT, member)
    end
  end
  for id, members in pairs(touched_held) do
    for member in pairs(members) do
      if held[id][member] > 0 then
        redis.call('HSET', HELD .. id, member, held[id][member])
      else
        redis.call('HDEL', HELD .. id, member)
      end
    end
  end
end

-- Who gets a slot: of {member, capacity, slots} the first with room, or the least loaded one per slot. The search
-- begins at `start` (from 0), so that ties do not all fall to the first. nil where nobody has room.
local function choose(candidates, avoid, ordered, start)
  local best, best_load
  local size = #candidates
  for step = 0, size - 1 do
    local candidate = candidates[(start + step) % size + 1]
    local member, capacity = candidate[1], candidate[2]
    local score = score_of(member)
    if (capacity == 0 or score < capacity) and not (avoid and avoid[member]) then
      if ordered then
        return member
      end
      local load = score / candidate[3]
      if not best or load < best_load then
        best, best_load = member, load
        if load == 0 then
          return best
        end
      end
    end
  end
  return best
end

local function as_set(list)
  if type(list) ~= 'table' or #list == 0 then
    return nil
  end
  local set = {}
  for _, each in ipairs(list) do
    set[each] = true
  end
  return set
end

-- The queue. A ticket is {number, class, weight, view, avoid, ordered} as JSON; its id is "<holder>/<n>".
local views = {}
local granted = {}  -- holder -> whether it has been granted something in this run

local function owner(ticket)
  return string.match(ticket, '^([^/]*)/') or ''
end

-- What stands in the queue's hashes as JSON, or nil where it is not what should stand there.
local function read_json(text)
  local fine, value = pcall(cjson.decode, text)
  return fine and type(value) == 'table' and value or nil
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
    and is_count(fields[3], 1) and type(fields[4]) == 'string' and is_texts(fields[5])
    and type(fields[6]) == 'boolean'
  return fits and fields or nil
end

local function read_view(text)
  local view = read_json(text)
  for _, candidate in pairs(view or {}) do
    if type(candidate) ~= 'table' or type(candidate[1]) ~= 'string' or not is_count(candidate[2], 0)
      or not is_count(candidate[3], 1) then
      return nil
    end
  end
  return view
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

local function view_of(ticket, wanted)
  local name = owner(ticket) .. ' ' .. wanted
  if views[name] == nil then
    local found = redis.call('HGET', VIEWS, name)
    views[name] = found and read_view(found) or false
    if views[name] then
      local members = {}
      for index, candidate in ipairs(views[name]) do
        members[index] = candidate[1]
      end
      load_scores(members)
    end
  end
  return views[name]
end

local function forget_if_empty()
  if redis.call('HLEN', TICKETS) == 0 then
    redis.call('DEL', CLASSES)
  end
end

local function push(ticket, packed)
  local fields = read_ticket(packed)
  local class = fields[2]
  local line = CLASS .. class
  if redis.call('EXISTS', line) == 0 then
    local virtual = pass_of(redis.call('HGET', CLASSES, VIRTUAL))
    local pass = pass_of(redis.call('HGET', CLASSES, class))
    redis.call('HSET', CLASSES, class, string.format('%.17g', math.max(pass, virtual)))
  end
  redis.call('HSET', TICKETS, ticket, packed)
  redis.call('ZADD', line, fields[1], ticket)
  return redis.call('ZRANK', line, ticket)
end

local function remove(ticket)
  local packed = redis.call('HGET', TICKETS, ticket)
  if not packed then
    return nil
  end
  redis.call('HDEL', TICKETS, ticket)
  local fields = read_ticket(packed)
  if fields then
    redis.call('ZREM', CLASS .. fields[2], ticket)
  end
  return packed
end

local function grant(ticket, packed, member)
  local id = owner(ticket)
  add(id, member, 1)
  redis.call('HSET', GRANTS, ticket, cjson.encode({now, member, packed}))
  granted[id] = true
end

-- Take back a grant that nobody has taken up. True where a slot has become free.
local function ungrant(ticket, record)
  redis.call('HDEL', GRANTS, ticket)
  return add(owner(ticket), record[2], -1) ~= 0
end

-- Grants that nobody has taken up for so many milliseconds: their tickets keep their places, but the next is served
-- first. How many.
local function take_back_lapsed(patience, besides)
  local taken_back = 0
  local grants = redis.call('HGETALL', GRANTS)
  for index = 1, #grants, 2 do
    local record = read_grant(grants[index + 1])
    local lapses = record and owner(grants[index]) ~= besides
    if lapses and (record[1] + patience <= now or record[1] > now + patience) then
      ungrant(grants[index], record)
      redis.call('HSET', HELD .. owner(grants[index]), SILENT, '1')
      push(grants[index], record[3])
      taken_back = taken_back + 1
    end
  end
  return taken_back
end

-- Whether a holder has let a grant lapse and said nothing since: its tickets keep their places, and are passed over.
local silent = {}
local function is_silent(id)
  if silent[id] == nil then
    silent[id] = redis.call('HEXISTS', HELD .. id, SILENT) == 1
  end
  return silent[id]
end

-- The first ticket of a class that can use something, with what it would use. `full`: views known to have no room.
local function first_usable(class, full)
  local line, first = CLASS .. class, 0
  while true do
    local tickets = redis.call('ZRANGE', line, first, first + 31)
    if #tickets == 0 then
      return nil
    end
    local packed = redis.call('HMGET', TICKETS, unpack(tickets))
    for index, ticket in ipairs(tickets) do
      if not packed[index] then
        redis.call('ZREM', line, ticket)
        first = first - 1
      else
        local fields = read_ticket(packed[index])
        local name = fields and owner(ticket) .. ' ' .. fields[4]
        local passed_over = not fields or full[name] or is_silent(owner(ticket))
        local candidates = not passed_over and view_of(ticket, fields[4])
        if candidates then
          local member = choose(candidates, as_set(fields[5]), fields[6], 0)
          if member then
            return ticket, packed[index], member, fields[3]
          elseif #fields[5] == 0 then
            full[name] = true
          end
        end
      end
    end
    first = first + 32
  end
end

-- Give free slots to who waits: the class with the lowest pass first, and in it who came first. At most `most`.
local function serve_queue(most)
  local given = 0
  if redis.call('EXISTS', TICKETS) == 0 then
    return given
  end
  local passes, classes, virtual = {}, {}, 0
  local stored = redis.call('HGETALL', CLASSES)
  for index = 1, #stored, 2 do
    if stored[index] ~= VIRTUAL then
      classes[#classes + 1] = stored[index]
      passes[stored[index]] = pass_of(stored[index + 1])
    else
      virtual = pass_of(stored[index + 1])
    end
  end
  local full = {}
  while given < most do
    table.sort(classes, function(a, b)
      return passes[a] < passes[b] or (passes[a] == passes[b] and a < b)
    end)
    local ticket, packed, member, weight, class
    for _, each in ipairs(classes) do
      ticket, packed, member, weight = first_usable(each, full)
      if ticket then
        class = each
        break
      end
    end
    if not ticket then
      break
    end
    remove(ticket)
    grant(ticket, packed, member)
    -- Who was passed over for long, unable to use what there was, has lent its share and not saved it.
    virtual = math.max(virtual, passes[class])
    redis.call('HSET', CLASSES, VIRTUAL, string.format('%.17g', virtual))
    passes[class] = virtual + 1 / weight
    redis.call('HSET', CLASSES, class, string.format('%.17g', passes[class]))
    given = given + 1
  end
  forget_if_empty()
  return given
end

-- Tell the instances that something waits for them; a hint: what was granted stands in GRANTS.
local function announce(channel, pool, besides)
  for id in pairs(granted) do
    if id ~= besides then
      redis.call('PUBLISH', channel .. string.match(id, '^[^-]*'), pool)
    end
  end
end
