-- Writes back what this server has lost: of each entry only what is not older than what stands here, so that
-- instances that know different things end with the newest of all, in whatever order they come. Of the same number
-- it may be the key that was lost, and not its number: a server that evicts takes one key or the other.
-- A lease that stands here is of the older registration, and goes with it; the next renewal makes a new one.
-- Begins with lua/revisions.lua and lua/leases.lua. KEYS[1]: slb:changes; then one key for each row, and slb:leases;
-- no other key where there are no rows. ARGV: for each row an entry, its
-- number, "logged" or "floor" (it does not stand in the caller's log: its number is the caller's floor),
-- "join" or "leave" or "replace", how many arguments it has, and these: a member, or fields and values in turn (none
-- where the hash has left). Without rows: the caller's floor, which all that it knows has been written to.
-- Reply: {how many rows were written, how many of them another type of key was in the way of}.
mend()
if #KEYS > 1 then
  mend_leases()
end
local operations = {
  join = function(key, first)
    return redis.pcall('SADD', key, ARGV[first])
  end,
  leave = function(key, first)
    return redis.pcall('SREM', key, ARGV[first])
  end,
  replace = function(key, first, last)
    local kind = redis.call('TYPE', key).ok
    if kind ~= 'hash' and kind ~= 'none' then
      return redis.error_reply('WRONGTYPE it is no hash')
    end
    redis.call('DEL', key)
    for index = first, last, 2 do
      redis.call('HSET', key, ARGV[index], ARGV[index + 1])
    end
    return 1
  end,
}

local written, refused, at = 0, 0, 1
for row = 2, #KEYS - 1 do
  local entry, number, is_logged, first = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2] == 'logged', at + 5
  at = first + tonumber(ARGV[at + 4])
  local before = stands(entry)
  if number >= before then
    local reply = operations[ARGV[first - 2]](KEYS[row], first, at - 1)
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
