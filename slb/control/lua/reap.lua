-- Once a second, by whoever comes first: what the dead held is given back, once; grants nobody took up go to the next;
-- scores are made the sum of what is held, and what a hand has damaged is mended.
-- ARGV: the lease in ms; until when the dead may be reaped, in ms of this server's clock (0: it has not answered for
--   one whole lease yet, and everybody may look dead who is not; so they do to a call it was frozen over); how old a
--   grant may become in ms; how long until the next run in ms; the channel grants are announced on; the pool's name;
--   then the ids of instances that are known to have died: their leases are over, and it is everybody's turn.
-- Reply: {whether this was the run, holders reaped, drift (by how much scores were off), repaired (how many keys and
--   fields), grants taken back}.
local lease, may_reap, patience = tonumber(ARGV[1]), now <= tonumber(ARGV[2]), tonumber(ARGV[3])
local repaired = 0
local ended = {}
for index = 7, #ARGV do
  ended[ARGV[index]] = true
end

for index, wanted in ipairs({
  'zset', 'zset', false, 'hash', false, 'hash', 'hash', 'hash', 'string', 'string', 'string',
}) do
  local is = wanted and redis.call('TYPE', KEYS[index]).ok
  if wanted and is ~= 'none' and is ~= wanted then
    redis.call('DEL', KEYS[index])
    repaired = repaired + 1
  end
end
-- Who may not reap takes nobody's turn who may.
local is_due
if may_reap then
  is_due = redis.call('SET', KEYS[10], '1', 'NX', 'PX', ARGV[4])
else
  is_due = redis.call('EXISTS', KEYS[10]) == 0
end
if not is_due and repaired == 0 and not next(ended) then
  return {0, 0, 0, 0, 0}
end

local reaped = 0
local alive = {}
local holders = redis.call('ZRANGE', HOLDERS, 0, -1, 'WITHSCORES')
for index = 1, #holders, 2 do
  local id, expiry = holders[index], tonumber(holders[index + 1])
  if ended[string.match(id, '^(.*)%-%d+$')] or (may_reap and expiry <= now) then
    redis.call('DEL', HELD .. id)
    redis.call('ZREM', HOLDERS, id)
    reaped = reaped + 1
  else
    alive[id] = true
    if not (expiry <= now + lease) then
      redis.call('ZADD', HOLDERS, now + lease, id)
      repaired = repaired + 1
    end
  end
end

-- The queue loses what belongs to nobody, and what is not to be read.
local function sweep(key, read)
  local all = redis.call('HGETALL', key)
  for index = 1, #all, 2 do
    local value = read(all[index + 1])
    if not value or not alive[string.match(all[index], '^([^/ ]*)') or ''] then
      if not value then
        repaired = repaired + 1
      end
      if key == TICKETS and value then
        redis.call('ZREM', CLASS .. value[2], all[index])
      end
      redis.call('HDEL', key, all[index])
    end
  end
end
for _, class in ipairs(redis.call('HKEYS', CLASSES)) do
  local is = redis.call('TYPE', CLASS .. class).ok
  if is ~= 'none' and is ~= 'zset' then
    redis.call('DEL', CLASS .. class)
    repaired = repaired + 1
  end
end
sweep(TICKETS, read_ticket)
sweep(VIEWS, read_view)
sweep(GRANTS, read_grant)
local last_number = 0
local tickets = redis.call('HGETALL', TICKETS)
for index = 1, #tickets, 2 do
  local fields = read_ticket(tickets[index + 1])
  last_number = math.max(last_number, fields[1])
  if redis.call('HEXISTS', CLASSES, fields[2]) == 0 then
    redis.call('HSET', CLASSES, fields[2], '0')
  end
  if not redis.call('ZSCORE', CLASS .. fields[2], tickets[index]) then
    push(tickets[index], tickets[index + 1])
    repaired = repaired + 1
  end
end
local number = redis.call('GET', NUMBER)
if number and (read_number(number) or -1) < last_number then
  redis.call('SET', NUMBER, string.format('%.0f', last_number), 'KEEPTTL')
  repaired = repaired + 1
end

-- Scores are the sum of what is held.
local truth = {}
for id in pairs(alive) do
  local is = redis.call('TYPE', HELD .. id).ok
  if is ~= 'none' and is ~= 'hash' then
    redis.call('DEL', HELD .. id)
    repaired = repaired + 1
  end
  local all = redis.call('HGETALL', HELD .. id)
  for index = 1, #all, 2 do
    local field, value = all[index], tonumber(all[index + 1])
    if is_member(field) then
      if not is_count(value, 1) then
        redis.call('HDEL', HELD .. id, field)
        repaired = repaired + 1
      else
        truth[field] = (truth[field] or 0) + value
      end
    end
  end
end
-- What the dead held is not drift: it is what reaping is for.
local drift = 0
local found = redis.call('ZRANGE', INFLIGHT, 0, -1, 'WITHSCORES')
for index = 1, #found, 2 do
  local member, score = found[index], tonumber(found[index + 1])
  local is = truth[member] or 0
  if score ~= is then
    if reaped == 0 or not (score > is) then
      drift = drift + (score == score and math.abs(score) ~= math.huge and math.abs(score - is) or 1)
    end
    if is > 0 then
      redis.call('ZADD', INFLIGHT, is, member)
    else
      redis.call('ZREM', INFLIGHT, member)
    end
  end
  truth[member] = nil
end
for member, is in pairs(truth) do
  redis.call('ZADD', INFLIGHT, is, member)
  drift = drift + is
end

local taken_back = take_back_lapsed(patience)
serve_queue(math.huge)
forget_if_empty()
write()
announce(ARGV[5], ARGV[6], '')
return {1, reaped, string.format('%.17g', drift), repaired, taken_back}
