-- One page of SCAN, its names cut: a name may be half a gigabyte long.
-- ARGV: the cursor, the pattern, COUNT, and the bytes of the longest name; what is longer is cut to one byte more.
-- Reply: as SCAN's. Changes nothing.
local page = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
local longest = tonumber(ARGV[4])
for index, name in ipairs(page[2]) do
  if #name > longest then
    page[2][index] = string.sub(name, 1, longest + 1)
  end
end
return page
