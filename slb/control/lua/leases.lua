-- Leases of registrations, and the clock they end by. The last of KEYS: slb:leases, a sorted set: "<route's set> <member>"
-- = the end of its lease, in milliseconds of the fleet's clock. "clock": what that shows, "ticked": when that was written,
-- by this server's own clock. It goes on while instances ask what has ended (lua/leases_due.lua): not while Redis is away,
-- frozen or refuses writes, while no instance runs, or where this server's own clock jumps. So no lease ends whose renewal
-- could not be heard.
-- LONGEST_TICK, LONGEST_TTL: milliseconds. What lies longer back was no tick, but a pause; an entry that ends later has
-- lost its clock, or was written by hand.
local LEASES, CLOCK, TICKED = KEYS[#KEYS], 'clock', 'ticked'
local LONGEST_TICK, LONGEST_TTL = 2000, 86400e3

local function whole(number)
  return string.format('%.0f', number)
end

-- What the clock shows as written, how long ago that is as far as it counts, and this server's own clock.
local function read_clock()
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local scores = redis.call('ZMSCORE', LEASES, CLOCK, TICKED)
  local clock, ticked = tonumber(scores[1] or nil), tonumber(scores[2] or nil)
  if not clock or not ticked or clock < 0 or clock >= 2 ^ 53 then
    return nil, 0, now
  end
  local passed = now - ticked
  return clock, passed >= 0 and passed <= LONGEST_TICK and passed or 0, now
end

local function set_clock(clock, now)
  redis.call('ZADD', LEASES, whole(clock), CLOCK, whole(now), TICKED)
end

-- The end of a lease that begins now. Never too early: it counts from now, not from the last tick. The clock is read
-- once in a script, however many leases begin.
local begins
local function end_after(ttl)
  if not begins then
    local clock, passed, now = read_clock()
    if not clock then
      clock = 0
      set_clock(clock, now)
    end
    begins = clock + passed
  end
  return whole(begins + ttl)
end

local function drop_lease(entry)
  redis.call('ZREM', LEASES, entry)
end

-- Makes way for the leases where another type of key is in the way.
local function mend_leases()
  local kind = redis.call('TYPE', LEASES).ok
  if kind ~= 'zset' and kind ~= 'none' then
    redis.call('DEL', LEASES)
  end
end
