-- Moves the fleet's clock on, and finds the leases that have ended by it. Begins with lua/leases.lua.
-- KEYS[1]: slb:leases. ARGV[1]: "1" where the caller has been answered since it last asked; where not, renewals may
-- have failed as well, and the time since the last tick does not count. ARGV[2]: the characters of the longest entry;
-- what is longer is none, and removed. ARGV[3]: how many at most.
-- Reply: entries. The clock is written twice a second at most, however many instances ask.
local TICK = 500
if redis.call('EXISTS', LEASES) == 0 then
  return {}
end
mend_leases()
local clock, passed, now = read_clock()
if redis.call('ZCARD', LEASES) <= 2 and clock then  -- it is all that is there
  redis.call('DEL', LEASES)
  return {}
end
if ARGV[1] ~= '1' then
  passed = 0
end
local shown = (clock or 0) + passed
local found = redis.call('ZRANGEBYSCORE', LEASES, '-inf', whole(shown), 'LIMIT', 0, ARGV[3] + 2)
local due = {}
for _, entry in ipairs(found) do
  if #entry > tonumber(ARGV[2]) then
    redis.call('ZREM', LEASES, entry)
  elseif entry ~= CLOCK and entry ~= TICKED then
    due[#due + 1] = entry
  end
end
if #due > 0 or passed == 0 or passed >= TICK then
  set_clock(shown, now)
end
return due
