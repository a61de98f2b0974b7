-- What rows do to leases, in a cluster, where their routes are in other slots. Begins with lua/leases.lua.
-- KEYS[1]: slb:leases. ARGV: for each row an operation, an entry and milliseconds ("lease" and "renew") or "".
-- Reply: for each row 1 or 0: a lease was there ("renew", "drop"), has ended ("ended", and "take", which removes it).
mend_leases()
local replies = {}

local function has_ended(entry)
  local ends, clock = redis.call('ZSCORE', LEASES, entry), read_clock()
  return ends and clock and tonumber(ends) <= clock and 1 or 0
end

local operations = {
  lease = function(entry, ttl)
    return redis.call('ZADD', LEASES, end_after(ttl), entry)
  end,
  renew = function(entry, ttl)
    if not redis.call('ZSCORE', LEASES, entry) then
      return 0
    end
    redis.call('ZADD', LEASES, end_after(ttl), entry)
    return 1
  end,
  drop = function(entry)
    return redis.call('ZREM', LEASES, entry)
  end,
  ended = has_ended,
  take = function(entry)
    return has_ended(entry) == 1 and redis.call('ZREM', LEASES, entry) or 0
  end,
}

for index = 1, #ARGV, 3 do
  replies[#replies + 1] = operations[ARGV[index]](ARGV[index + 1], tonumber(ARGV[index + 2]))
end
return replies
