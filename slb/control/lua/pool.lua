-- What the ledger's scripts share: one pool's scores, and what each holder has of them. Slots are given out and taken
-- back here and nowhere else. Nothing here walks all upstreams or tickets; a call costs a few commands more for each
-- version of the candidates in use (`LIVE`) and for each class.
-- Over 300 lines, for a score and what is held of it change nowhere else.
local CHUNK = 250  -- members that one command takes

local function is_member(name)
  return not OWN[name] and string.match(name, '^[!-~]+$') ~= nil
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local is_beat = false  -- whether the time of what is looked at is renewed
local caller  -- the holder whose batch this is: its grants are in the reply
local epoch  -- what messages of grants name, where it has been read
local life  -- milliseconds until a key goes that is not renewed; nil where keys keep the time they have

local function renew(key)
  if life then
    redis.call('PEXPIRE', key, life)
  end
end

-- Scores and what is held: read once, changed here, and written at the end if they differ. 0 where no number stands.
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

local function score_of(member)
  if not scores[member] then
    scores[member] = count(redis.call('ZSCORE', INFLIGHT, member))
  end
  return scores[member]
end

-- `text`: what stands there, where the caller has read it already.
local function held_by(id, member, text)
  held[id] = held[id] or {}
  if not held[id][member] then
    local holds = count(text == nil and redis.call('HGET', HELD .. id, member) or text)
    held[id][member] = holds < MOST and holds or 0
  end
  return held[id][member]
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

-- What stands in the queue's hashes as JSON, or nil where it is not what should stand there.
local function read_json(text)
  local fine, value = pcall(cjson.decode, text)
  return fine and type(value) == 'table' and value or nil
end

-- Views: the candidates of routes, each version stored once for all holders that have it. It is named by its size and
-- its digest. VIEW has each member's "<capacity> <slots>"; LOADS those with room, by their score per slot, and at the
-- end LAST, which is no member: so it stays, and keeps its TTL, where none has room.
local LAST = ''
local live
local function live_views()
  live = live or redis.call('ZRANGE', LIVE, 0, -1)
  return live
end

local specs = {}  -- view -> member -> {capacity, slots}, or false
local function read_spec(text)
  local capacity, slots = string.match(text or '', '^(%d+) (%d+)$')
  return capacity and {tonumber(capacity), tonumber(slots)} or false
end

local function spec_of(view, member)
  specs[view] = specs[view] or {}
  if specs[view][member] == nil then
    specs[view][member] = read_spec(redis.call('HGET', VIEW .. view, member))
  end
  return specs[view][member]
end

local function is_room(spec, score)
  return spec and (spec[1] == 0 or score < spec[1])
end

-- What is read of LOADS, from the least on, and what has moved since: {members, loads, index of each member, bound: all
-- others have at least that load}. What has moved is written where more has to be read, and at the end.
local PAGE, NO_ROOM, UNKNOWN = 32, math.huge, -1  -- the last two in the place of loads
local page = 4  -- how many are read at once, where none is avoided; PAGE at most
local near = {}
local moved = {}  -- view -> member -> the load it is stored with

local function load_in(view, member, score)
  local spec = spec_of(view, member)
  return is_room(spec, score) and score / spec[2] or NO_ROOM
end

local function put_near(read, member, load)
  local index = read.index[member]
  if not index then
    index = #read.members + 1
    read.members[index], read.index[member] = member, index
  end
  read.loads[index] = load
end

-- Put a member where its score belongs in a view; `before`: the score it is stored there with, where that is known.
local function arrange(view, member, before)
  if before and not spec_of(view, member) then
    return
  end
  moved[view] = moved[view] or {}
  if not before or not moved[view][member] then
    moved[view][member] = before and load_in(view, member, before) or UNKNOWN
  end
  if near[view] then
    put_near(near[view], member, load_in(view, member, score_of(member)))
  end
end

local function flush(view)
  for member, stored in pairs(moved[view] or {}) do
    local load = load_in(view, member, score_of(member))
    if load == NO_ROOM and stored ~= NO_ROOM then
      redis.call('ZREM', LOADS .. view, member)
    elseif load ~= stored then
      redis.call('ZADD', LOADS .. view, load, member)
    end
  end
  near[view], moved[view] = nil, nil
end

local function forget_view(view)
  redis.call('DEL', VIEW .. view, LOADS .. view)
  redis.call('ZREM', LIVE, view)
  live, specs[view], near[view], moved[view] = nil, nil, nil, nil
end

local function is_stored(view)
  for _, each in ipairs(live_views()) do
    if each == view then
      return redis.call('HLEN', VIEW .. view) == tonumber(string.match(view, '^(%d+)-'))
    end
  end
  return false
end

local function keep_view(view)
  redis.call('ZADD', LIVE, now, view)
  for _, key in ipairs({LIVE, VIEW .. view, LOADS .. view}) do
    renew(key)
  end
end

-- `candidates`: {member, capacity, slots} each. The one place where all of them are gone through: once a version.
local function store_view(view, candidates)
  forget_view(view)
  for first = 1, #candidates, CHUNK do
    local fields, members, loads = {}, {}, {}
    for index = first, math.min(first + CHUNK - 1, #candidates) do
      local member, capacity, slots = unpack(candidates[index])
      fields[#fields + 1] = member
      fields[#fields + 1] = string.format('%.0f %.0f', capacity, slots)
      members[#members + 1] = member
    end
    redis.call('HSET', VIEW .. view, unpack(fields))
    for index, score in ipairs(redis.call('ZMSCORE', INFLIGHT, unpack(members))) do
      local spec, load = read_spec(fields[2 * index]), count(score)
      if is_room(spec, load) then
        loads[#loads + 1] = load / spec[2]
        loads[#loads + 1] = members[index]
      end
    end
    if #loads > 0 then
      redis.call('ZADD', LOADS .. view, unpack(loads))
    end
  end
  redis.call('ZADD', LOADS .. view, 'inf', LAST)
  keep_view(view)
end

-- The one place where a score and a holder's part of it change, together.
local function add(id, member, change)
  local holds = held_by(id, member)
  change = is_member(member) and math.max(change, -holds) or 0
  if change == 0 then
    return 0
  end
  local before = score_of(member)
  held[id][member] = holds + change
  scores[member] = math.max(before + change, 0)
  touched_scores[member] = touched_scores[member] or before
  touched_held[id] = touched_held[id] or {}
  touched_held[id][member] = touched_held[id][member] or holds
  for _, view in ipairs(live_views()) do
    arrange(view, member, before)
  end
  return change
end

local function write()
  for member, before in pairs(touched_scores) do
    if scores[member] > 0 and scores[member] ~= before then
      redis.call('ZADD', INFLIGHT, scores[member], member)
    elseif scores[member] == 0 then
      redis.call('ZREM', INFLIGHT, member)
    end
  end
  for id, members in pairs(touched_held) do
    for member, before in pairs(members) do
      if held[id][member] > 0 and held[id][member] ~= before then
        redis.call('HSET', HELD .. id, member, held[id][member])
      elseif held[id][member] == 0 then
        redis.call('HDEL', HELD .. id, member)
      end
    end
  end
  touched_scores, touched_held = {}, {}
  for view in pairs(moved) do
    flush(view)
  end
end

-- Whether it may be taken; where a view lists one that has no room, the view is wrong, and mended.
local function may_take(view, member, avoid)
  if avoid and avoid[member] then
    return false
  end
  if is_room(spec_of(view, member), score_of(member)) then
    return true
  end
  arrange(view, member)
  return false
end

-- Where more are equal than are read, `start` decides.
local function read_near(view, start)
  local key, from = LOADS .. view, 0
  local found = redis.call('ZRANGE', key, 0, page - 1, 'WITHSCORES')
  if #found == 2 * page and found[2] == found[#found] then
    from = start % redis.call('ZCOUNT', key, found[2], found[2])
    found = redis.call('ZRANGE', key, from, from + page - 1, 'WITHSCORES')
  end
  local read = {members = {}, loads = {}, index = {}, bound = NO_ROOM}
  for index = 1, #found, 2 do
    if found[index] == LAST or (from > 0 and found[index + 1] ~= found[2]) then
      break
    end
    put_near(read, found[index], tonumber(found[index + 1]))
  end
  if #found > 0 and (from > 0 or found[#found - 1] ~= LAST) then
    read.bound = read.loads[#read.loads] or 0
  end
  for member in pairs(moved[view] or {}) do
    put_near(read, member, load_in(view, member, score_of(member)))
  end
  near[view] = read
  return read
end

-- Where all that were read are to be avoided: the first that is not.
local function first_behind(view, avoid)
  local rank = 0
  while true do
    local found = redis.call('ZRANGE', LOADS .. view, rank, rank + PAGE - 1)
    for _, member in ipairs(found) do
      if member ~= LAST and may_take(view, member, avoid) then
        return member
      end
    end
    if #found < PAGE then
      return nil
    end
    rank = rank + PAGE
  end
end

-- Of what is near, the least loaded and its load; of equals by `start`.
local function least_of(read, avoid, start)
  local members, loads = read.members, read.loads
  local least, ties = NO_ROOM, 0
  for index = 1, #loads do
    local load = loads[index]
    if load <= least and load < NO_ROOM and not (avoid and avoid[members[index]]) then
      ties = load < least and 1 or ties + 1
      least = load
    end
  end
  local left = ties > 0 and start % ties
  for index = 1, ties > 0 and #loads or 0 do
    if loads[index] == least and not (avoid and avoid[members[index]]) then
      if left == 0 then
        return members[index], least
      end
      left = left - 1
    end
  end
  return nil, NO_ROOM
end

-- The one with room and the least score per slot; of equals by `start`. The cost grows only with those to be avoided.
local function least_loaded(view, avoid, start)
  while true do
    local read = near[view] or read_near(view, start)
    local member, load = least_of(read, avoid, start)
    if member and load <= read.bound then
      if may_take(view, member, avoid) then
        return member
      end
    elseif read.bound == NO_ROOM then
      return nil
    elseif moved[view] then
      flush(view)
    else
      return first_behind(view, avoid)
    end
  end
end

-- The member to take a slot of, or nil where none has room: the first of those named that has, or the least loaded.
local function choose(view, avoid, named, start)
  for _, member in ipairs(named or {}) do
    if not (avoid and avoid[member]) and is_room(spec_of(view, member), score_of(member)) then
      return member
    end
  end
  return least_loaded(view, avoid, start)
end
