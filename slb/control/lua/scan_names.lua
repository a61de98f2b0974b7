-- One page of SCAN, its names cut: a name may be half a gigabyte long. Those of jobs, of the ledger and the like
-- ("slb:{...}") are left out: they are no part of the table, and there may be millions.
-- ARGV: the cursor, the pattern, COUNT, and the bytes of the longest name; what is longer is cut to one byte more.
-- Reply: as SCAN's. Changes nothing.
local page = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
local longest = tonumber(ARGV[4])
local names = {}
for _, name in ipairs(page[2]) do
  if string.sub(name, 1, 5) ~= 'slb:{' then
    names[#names + 1] = #name > longest and string.sub(name, 1, longest + 1) or name
  end
end
return {page[1], names}
