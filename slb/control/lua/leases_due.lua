-- Moves the fleet's clock on, and finds the leases that have ended by it. Begins with lua/leases.lua.
-- KEYS[1]: slb:leases. ARGV[1]: "1" where Redis answered the caller's last look; where not, renewals may have failed as
-- well, and the caller counts no time. It leaves the clock to callers that do. ARGV[2]: the characters of the longest entry;
-- what is longer is none, and removed. ARGV[3]: how many at most.
-- Reply: "1" where there may be more, else "0"; then entries. The clock is written twice a second at most, however
-- many instances ask.
local TICK = 500
if redis.call('EXISTS', LEASES) == 0 then
  return {'0'}
end
mend_leases()
local clock, passed, now = read_clock()
if redis.call('ZCARD', LEASES) <= 2 and clock then  -- it is all that is there
  redis.call('DEL', LEASES)
  return {'0'}
end
local counted = ARGV[1] == '1' and passed or 0
local shown = (clock or 0) + counted
local most = ARGV[3] + 2
local found = redis.call('ZRANGEBYSCORE', LEASES, '-inf', whole(shown), 'LIMIT', 0, most)
local due = {#found == most and '1' or '0'}
for _, entry in ipairs(found) do
  if #entry > tonumber(ARGV[2]) then
    redis.call('ZREM', LEASES, entry)
  elseif entry ~= CLOCK and entry ~= TICKED then
    due[#due + 1] = entry
  end
end
if passed == 0 or counted >= TICK or counted > 0 and #due > 1 then
  set_clock(shown, now)
end
local latest = whole(shown + LONGEST_TTL + LONGEST_TICK)
for _, entry in ipairs(redis.call('ZRANGEBYSCORE', LEASES, latest, '+inf', 'LIMIT', 0, most)) do
  if entry ~= TICKED then
    redis.call('ZADD', LEASES, whole(shown + LONGEST_TTL), entry)
  end
end
return due
