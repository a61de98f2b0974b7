-- Writes back what this server has lost: of each entry only what is not older than what stands here, so that instances
-- with different tables end with the newest of all, in whatever order they come. Of the same number it may be the key
-- that was evicted, and not its number. A lease that stands here is of the older registration, and goes with it.
-- Begins with lua/revisions.lua and lua/leases.lua. KEYS[1]: slb:changes; then one key for each row, and slb:leases.
-- ARGV: for each row an entry, its number, "logged" or "floor" (its number is the caller's floor), "join", "leave",
-- "set", "unset" or "replace", how many arguments it has, and these: a member, a field and its value, a field, or of a
-- hash made anew fields and values in turn (none where it has left). Without rows KEYS[1] alone, and the caller's floor,
-- up to which its whole table has been written.
-- Reply: {how many rows were written, how many of them another type of key was in the way of}.
-- MOST_FIELDS: a hash that another program has made larger is not looked through.
local MOST_FIELDS = 1000
mend()
if #KEYS > 1 then
  mend_leases()
end
local COMMANDS = {join = 'SADD', leave = 'SREM', set = 'HSET', unset = 'HDEL'}

-- A hash made anew, but for fields that have changed since, there or not.
local function replace(key, first, last, number)
  local function is_older(field)
    return logged(key .. ' ' .. field) <= number
  end
  local size = redis.pcall('HLEN', key)
  if type(size) == 'table' then
    return size
  end
  if size > MOST_FIELDS then
    redis.call('DEL', key)
  else
    for _, field in ipairs(redis.call('HKEYS', key)) do
      if is_older(field) then
        redis.call('HDEL', key, field)
      end
    end
  end
  for index = first, last, 2 do
    if is_older(ARGV[index]) then
      redis.call('HSET', key, ARGV[index], ARGV[index + 1])
    end
  end
  return 1
end

local written, refused, at = 0, 0, 1
for row = 2, #KEYS - 1 do
  local entry, number, is_logged, first = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2] == 'logged', at + 5
  at = first + tonumber(ARGV[at + 4])
  local before = stands(entry)
  if number >= before then
    local command = COMMANDS[ARGV[first - 2]]
    local reply = command and redis.pcall(command, KEYS[row], unpack(ARGV, first, at - 1))
      or replace(KEYS[row], first, at - 1, number)
    if type(reply) == 'table' and reply.err then
      if not string.find(reply.err, 'WRONGTYPE', 1, true) then
        return reply -- no memory left: it is tried again
      end
      refused = refused + 1
    end
    if number > before then
      redis.call('ZREM', LEASES, entry)
    end
    if is_logged then
      redis.call('ZADD', CHANGES, ARGV[first - 4], entry)
    end
    written = written + 1
  end
end
-- Not while there are rows to come: what is cut raises the floor, and they would no longer be newer.
if #KEYS == 1 then
  if tonumber(ARGV[1]) > stands(FLOOR) then
    redis.call('ZADD', CHANGES, ARGV[1], FLOOR)
  end
  trim(last_number())
end
return {written, refused}
