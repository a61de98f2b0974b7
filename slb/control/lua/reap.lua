-- Once a second, by the first caller: slots of dead holders are given back, once; grants not taken up go to the
-- next; scores are made the sum of what is held, and damage by hand is mended. A call takes about a millisecond at
-- most: it takes apart a part of the dead, and looks at a slice of what is there, another one each time.
-- ARGV: the lease in ms; until when the dead may be reaped, in ms of this server's clock (0: it has not answered for
--   one whole lease yet, and live holders may look dead; so they do to a call it was frozen over); how old a
--   grant may become in ms; how long until the next run in ms; the channel grants are announced on; the pool's name; how
--   long a key is kept in ms; the caller's holder where a call of it has met damage, or ''; then the ids of instances
--   that are known to have died: their leases are over, and the call need not be due.
-- Reply: {whether this was the run, holders reaped, drift (by how much scores were off), repaired (how many keys and
--   fields), grants taken back, whether there is more to take apart now}.
-- Over 300 lines, for it is one call: its steps follow each other, and share what was read before.
local lease, may_reap, patience = tonumber(ARGV[1]), now <= tonumber(ARGV[2]), tonumber(ARGV[3])
local MOST_TAKEN = 100  -- members and tickets of the dead in one call
local MOST_TICKETS = 30  -- and grants, that are looked at in one call
local MOST_MEMBERS = 100  -- that are
local MOST_HOLDERS = 50  -- whose keys are looked at in one call
local MOST_READ = 1000  -- counts of holders that are read for these
local repaired = 0
local ended = {}
for index = 9, #ARGV do
  ended[ARGV[index]] = true
end

local function of_type(key, wanted)
  local is = redis.call('TYPE', key).ok
  if is ~= 'none' and is ~= wanted then
    redis.call('DEL', key)
    repaired = repaired + 1
    return false
  end
  return true
end

-- In each period one call that may reap runs, and one that may not: the first does not wait for the second. What is
-- left to take apart does not wait. All others end here, so that a fleet does not cost a run for each instance.
local REAPED, period = KEYS[10], tonumber(ARGV[4])
of_type(REAPED, 'string')
local turn, ends = string.match(redis.call('GET', REAPED) or '', '^(%l+) (%d+)$')
turn = turn and tonumber(ends) > now and tonumber(ends) <= now + period and turn  -- what a hand wrote may never end
local is_due = not turn or (may_reap and turn ~= 'reaped')
if is_due then
  redis.call('SET', REAPED, string.format('%s %.0f', may_reap and 'reaped' or 'mended', now + period), 'PX', period)
elseif may_reap then
  is_due = redis.pcall('ZCARD', DYING) ~= 0  -- or it is no sorted set
end
if not is_due and ARGV[8] == '' and not next(ended) then
  return {0, 0, 0, 0, 0, 0}
end

for index, wanted in pairs({
  'zset', 'zset', false, 'hash', false, 'hash', 'hash', 'hash', 'string', false, 'string', 'zset',
  [19] = 'zset', [21] = 'zset', [22] = 'string',
}) do
  if wanted then
    of_type(KEYS[index], wanted)
  end
end
local classes = redis.call('HKEYS', CLASSES)
for _, class in ipairs(classes) do
  of_type(CLASS .. class, 'zset')
end

-- The keys of one holder are of the right type.
local function mend_keys(id)
  of_type(HELD .. id, 'hash')
  of_type(GRANTED_OF .. id, 'zset')
  of_type(LINES .. id, 'hash')
  for _, line in ipairs(redis.call('HKEYS', LINES .. id)) do
    of_type(LINE .. id .. ' ' .. line, 'zset')
  end
end
if ARGV[8] ~= '' then
  mend_keys(ARGV[8])  -- which may stand in no list of holders
end
if not is_due and repaired == 0 and not next(ended) then
  return {0, 0, 0, 0, 0, 0}
end

life, is_beat = tonumber(ARGV[7]), true
local queue = open_queue(redis.call('HLEN', TICKETS))

-- A holder that was removed comes back under another name, whatever of it is still here.
local reaped, holders, alive = 0, {}, {}
local stored = redis.call('ZRANGE', HOLDERS, 0, -1, 'WITHSCORES')
for index = 1, #stored, 2 do
  local id, expiry = stored[index], tonumber(stored[index + 1])
  if ended[string.match(id, '^(.*)%-%d+$')] or (may_reap and expiry <= now) then
    redis.call('ZREM', HOLDERS, id)
    redis.call('ZADD', DYING, now, id)
    renew(DYING)
    reaped = reaped + 1
  else
    alive[id] = true
    holders[#holders + 1] = id
    if not (expiry <= now + lease) then
      redis.call('ZADD', HOLDERS, now + lease, id)
      repaired = repaired + 1
    end
  end
end

-- What is looked at in this call: `at` counts the calls.
local at = count(redis.call('GET', ROUND)) + 1
redis.call('SET', ROUND, string.format('%.0f', at), 'PX', life)

-- The part of a list of `size` that has its turn, as ranks from 0: first and last.
local function part(size, most)
  local parts = math.max(1, math.ceil(size / most))
  local first = at % parts * most
  return first, first + most - 1
end

-- Views that are of another type, of which a part is gone, or that no holder has named for long go: a lane that uses
-- one sends it again.
local named = redis.call('ZRANGE', LIVE, 0, -1, 'WITHSCORES')
for index = 1, #named, 2 do
  local view, is_old, is_waited_in = named[index], tonumber(named[index + 1]) < now - lease / 2, false
  for _, class in ipairs(classes) do
    local heads = HEADS .. view .. ' ' .. class
    is_waited_in = of_type(heads, 'zset') and is_old and redis.call('EXISTS', heads) == 1 or is_waited_in
  end
  local is_whole = of_type(VIEW .. view, 'hash') and of_type(LOADS .. view, 'zset') and of_type(PLACES .. view, 'zset')
  if is_whole and not (redis.call('ZSCORE', LOADS .. view, LAST) and redis.call('ZSCORE', PLACES .. view, LAST)) then
    is_whole, repaired = false, repaired + 1
  end
  if not is_whole or (is_old and not is_waited_in) then
    forget_view(view)
  end
end

-- What one holder has in the queue: of the right type, and shown where it is looked for.
local function mend_lines(id)
  mend_keys(id)
  for _, line in ipairs(redis.call('HKEYS', LINES .. id)) do
    queue.show_head(id, line)
  end
end

for _, id in ipairs(holders) do
  of_type(HELD .. id, 'hash')
end
local first_holder, last_holder = part(#holders, MOST_HOLDERS)
for index = first_holder + 1, math.min(last_holder + 1, #holders) do
  mend_lines(holders[index])
end

local function take_out_line(id, line, most)
  local key, taken = LINE .. id .. ' ' .. line, 0
  for _, ticket in ipairs(redis.call('ZRANGE', key, 0, most - 1)) do
    redis.call('ZREM', key, ticket)
    queue.remove(ticket)
    taken = taken + 1
  end
  if redis.call('EXISTS', key) == 0 then
    queue.show_head(id, line)
  end
  return taken
end

-- Give back what a dead holder has, and take its tickets out of the queue. Whether nothing is left of it.
local function take_apart(id)
  of_type(HELD .. id, 'hash')
  redis.call('HSET', HELD .. id, SILENT, '1')  -- none of its tickets is served
  queue.silent[id] = true
  mend_lines(id)
  local left = MOST_TAKEN
  for _, ticket in ipairs(redis.call('ZRANGE', GRANTED_OF .. id, 0, left - 1)) do
    queue.forget_grant(ticket)
    left = left - 1
  end
  for _, member in ipairs(redis.call('HKEYS', HELD .. id)) do
    if left > 0 and is_member(member) then
      add(id, member, -held_by(id, member))
      redis.call('HDEL', HELD .. id, member)
      left = left - 1
    end
  end
  for _, line in ipairs(redis.call('HKEYS', LINES .. id)) do
    if left > 0 then
      left = left - take_out_line(id, line, left)
    end
  end
  if left > 0 then
    redis.call('DEL', HELD .. id, LINES .. id)
    redis.call('ZREM', DYING, id)
  end
  return left > 0
end

local more = 0
local dying = redis.call('ZRANGE', DYING, 0, 3)
for _, id in ipairs(dying) do
  if alive[id] then
    redis.call('ZREM', DYING, id)
  elseif more == 0 and not take_apart(id) then
    more = 1
  end
end
write()
more = redis.call('ZCARD', DYING) > 0 and 1 or more
for _, id in ipairs(redis.call('ZRANGE', DYING, 0, -1)) do
  of_type(HELD .. id, 'hash')
  holders[#holders + 1] = id  -- what they hold still counts
end
local is_known = as_set(holders) or {}

-- Whether the lists of the queue have as many tickets, and of each class those that have their turn are of holders.
local last_number = 0
local function is_queue_sound()
  local in_classes = 0
  for _, class in ipairs(classes) do
    if class ~= VIRTUAL and class ~= OWED then
      local size = redis.call('ZCARD', CLASS .. class)
      local share = math.ceil(MOST_TICKETS / math.max(1, #classes - 1))  -- one of them is the virtual time
      local last = redis.call('ZRANGE', CLASS .. class, -1, -1, 'WITHSCORES')
      last_number = math.max(last_number, count(last[2]))
      in_classes = in_classes + size
      for _, ticket in ipairs(redis.call('ZRANGE', CLASS .. class, part(size, share))) do
        if not (queue.is_ticket(ticket) and is_known[queue.owner(ticket)]) then
          return false
        end
      end
    end
  end
  return in_classes == redis.call('HLEN', TICKETS) and redis.call('ZCARD', GRANTED) == redis.call('HLEN', GRANTS)
end

-- Where it is damaged (by hand, or a key was evicted) it goes: what its holders miss with their next beats they send
-- again, each ticket with its number.
local function drop_queue()
  for id in pairs(is_known) do
    for _, line in ipairs(redis.call('HKEYS', LINES .. id)) do
      local class = (read_json(line) or {})[2]
      redis.call('DEL', LINE .. id .. ' ' .. line, CLASS .. (type(class) == 'string' and class or ''))
    end
    redis.call('DEL', LINES .. id, GRANTED_OF .. id)
  end
  for _, class in ipairs(classes) do
    redis.call('DEL', CLASS .. class)
    for _, view in ipairs(live_views()) do
      redis.call('DEL', HEADS .. view .. ' ' .. class)
    end
  end
  redis.call('DEL', TICKETS, CLASSES, VIEWS, GRANTS, GRANTED)
  queue, repaired = open_queue(0), repaired + 1
end

if not is_queue_sound() then
  drop_queue()
end
local number = redis.call('GET', NUMBER)
if number and (read_number(number) or -1) < last_number then
  redis.call('SET', NUMBER, string.format('%.0f', last_number), 'KEEPTTL')
  repaired = repaired + 1
end
local followed = redis.call('HGETALL', VIEWS)
for index = 1, #followed, 2 do
  local is_view = string.match(followed[index + 1], '^%d+%-%x+$')
  if not is_view or not alive[string.match(followed[index], '^([^ ]*) ') or followed[index]] then
    repaired = repaired + (is_view and 0 or 1)
    redis.call('HDEL', VIEWS, followed[index])
  end
end

-- Scores are the sum of what is held. Looked at: those that have a score, that a holder has something of, that a view
-- names; of each of these lists the part that has its turn, from another list on each time.
local most = math.max(1, math.min(MOST_MEMBERS, math.floor(MOST_READ / math.max(1, #holders))))
local lists = {{INFLIGHT}}
for _, id in ipairs(holders) do
  lists[#lists + 1] = {HELD .. id}
end
for _, view in ipairs(live_views()) do
  lists[#lists + 1] = {VIEW .. view, view}
end

-- Of a list those that have their turn. What slb cannot have written there is removed.
local function members_of(key, view)
  local is_scores, names, members = key == INFLIGHT, nil, {}
  if is_scores then
    names = redis.call('ZRANGE', key, part(redis.call('ZCARD', key), most))
  else
    local fields = redis.call('HKEYS', key)
    local first, last = part(#fields, most)
    names = {unpack(fields, first + 1, math.min(last + 1, #fields))}
  end
  for _, name in ipairs(names) do
    if is_member(name) then
      members[#members + 1] = name
    elseif view then
      forget_view(view)
      repaired = repaired + 1
    elseif is_scores or not OWN[name] then
      redis.call(is_scores and 'ZREM' or 'HDEL', key, name)
      repaired = repaired + 1
    end
  end
  return members
end

local members, truth = {}, {}
for step = 0, #lists - 1 do
  local list = lists[(at + step) % #lists + 1]
  if #members < most then
    for _, member in ipairs(members_of(unpack(list))) do
      if not truth[member] then
        truth[member] = 0
        members[#members + 1] = member
      end
    end
  end
end

-- What the dead held is not drift: it is what reaping is for.
local drift = 0
local function set_score(member, score)
  local is = truth[member]
  drift = drift + (score == score and math.abs(score) ~= math.huge and math.abs(score - is) or 1)
  scores[member] = is
  if is > 0 then
    redis.call('ZADD', INFLIGHT, is, member)
    renew(INFLIGHT)
  else
    redis.call('ZREM', INFLIGHT, member)
  end
end

if #members > 0 then
  for _, id in ipairs(holders) do
    for index, text in ipairs(redis.call('HMGET', HELD .. id, unpack(members))) do
      if text and not is_count(tonumber(text), 1) then
        redis.call('HDEL', HELD .. id, members[index])
        repaired = repaired + 1
      elseif text then
        truth[members[index]] = truth[members[index]] + tonumber(text)
      end
    end
  end
  for index, text in ipairs(redis.call('ZMSCORE', INFLIGHT, unpack(members))) do
    if tonumber(text or 0) ~= truth[members[index]] then
      set_score(members[index], tonumber(text or 0))
    end
    scores[members[index]] = truth[members[index]]
  end
  for _, view in ipairs(live_views()) do
    local is_sound = true
    local texts = redis.call('HMGET', VIEW .. view, unpack(members))
    local loads = redis.call('ZMSCORE', LOADS .. view, unpack(members))
    local places = redis.call('ZMSCORE', PLACES .. view, unpack(members))
    for index, member in ipairs(members) do
      local spec = read_spec(texts[index])
      local fits = is_room(spec, truth[member])
      local load, place = fits and truth[member] / spec[3] or nil, fits and spec[1] or nil
      is_sound = is_sound and (spec or not texts[index])
        and tonumber(loads[index] or nil) == load and tonumber(places[index] or nil) == place
    end
    if not is_sound then
      forget_view(view)
      repaired = repaired + 1
    end
  end
end

local taken_back = queue.take_back_lapsed(patience)
queue.serve()
write()
queue.announce(ARGV[5], ARGV[6], lease, patience)
return {1, reaped, string.format('%.17g', drift), repaired, taken_back, more}
