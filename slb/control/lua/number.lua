-- Gives changes that were made by hand their number, once: the first instance that sees one does.
-- Begins with lua/revisions.lua. KEYS[1]: slb:changes. ARGV: entries ("floor" for all at once), each followed by the
-- number it has at the caller.
-- Reply: for each its new number; 0 where it has changed under a number that the caller has not read yet.
mend()
local number = next_number()
local replies = {}
for index = 1, #ARGV, 2 do
  local is_unknown = stands(ARGV[index]) <= tonumber(ARGV[index + 1])
  if is_unknown then
    note(ARGV[index])
  end
  replies[#replies + 1] = is_unknown and text(number) or '0'
end
keep(number)
return replies
