-- Gives changes that were made by hand their number, once: whoever sees one first does.
-- Begins with lua/revisions.lua. KEYS[1]: slb:changes. ARGV: entries ("floor" for all at once), each followed by the
-- number under which the caller knows it.
-- Reply: for each the number it has now.
mend()
local number = next_number()
local replies = {}
for index = 1, #ARGV, 2 do
  local known = stands(ARGV[index])
  if known <= tonumber(ARGV[index + 1]) then
    note(ARGV[index])
    known = number
  end
  replies[#replies + 1] = text(known)
end
keep(number)
return replies
