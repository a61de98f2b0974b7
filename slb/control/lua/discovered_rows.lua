-- The rows of lua/discovered.lua in a cluster: those of one source of one route, whose keys are in one slot.
-- Begins with lua/discovered_alone.lua and lua/discovered.lua. KEYS: slb:discovered:{<route's set>}, the route's set.
-- ARGV[1] to [3]: of the fence; then for each row its operation and three arguments. Reply: of each row, in their order.
local fenced = open_fence(KEYS[1], ARGV[1], ARGV[2], ARGV[3] == '1')
if type(fenced) == 'table' then
  return fenced
end
local replies = {}
for at = 4, #ARGV, 4 do
  replies[#replies + 1] = discovered[ARGV[at]](KEYS[2], at + 1)
end
return replies
