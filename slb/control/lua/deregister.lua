-- Takes members from routes, and the attributes of those whose last use that was.
-- KEYS: n routes' sets, then n hashes of attributes. ARGV: n members, then n times "1" where no other route is known
-- to name the member. Returns for each whether it was there.
local n = #KEYS / 2
local removed = {}
for i = 1, n do
  removed[i] = redis.call('SREM', KEYS[i], ARGV[i])
  if removed[i] == 1 and ARGV[n + i] == '1' then
    redis.call('DEL', KEYS[n + i])
  end
end
return removed
