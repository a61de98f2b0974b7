-- Renews the leases of registrations where nothing else is to change: without a number, for nothing that an instance
-- serves by is another. Begins with lua/leases.lua.
-- KEYS: for each registration its route's set and its upstream's hash; then slb:leases. ARGV: for each the member, its
-- ttl in milliseconds, how many texts follow, and fields and values in turn.
-- Reply: 1; or 0, and nothing was changed: one of them is no member, has no lease, or other attributes.
local function stands(index, first, last)
  local is_member = redis.pcall('SISMEMBER', KEYS[2 * index - 1], ARGV[first - 3])
  if is_member ~= 1 or not redis.call('ZSCORE', LEASES, KEYS[2 * index - 1] .. ' ' .. ARGV[first - 3]) then
    return false
  end
  for at = first, last, 2 do
    if redis.pcall('HGET', KEYS[2 * index], ARGV[at]) ~= ARGV[at + 1] then
      return false
    end
  end
  return true
end

mend_leases()
local rows, at = {}, 1
for index = 1, (#KEYS - 1) / 2 do
  local first = at + 3
  at = first + tonumber(ARGV[first - 1])
  if not stands(index, first, at - 1) then
    return 0
  end
  rows[index] = first - 3
end
for index, row in ipairs(rows) do
  redis.call('ZADD', LEASES, end_after(tonumber(ARGV[row + 1])), KEYS[2 * index - 1] .. ' ' .. ARGV[row])
end
return 1
