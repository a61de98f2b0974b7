-- Gives entries one number, in a cluster, before what they name is changed in keys of other slots: where that never
-- happens, the number is one of what was there before. Begins with lua/revisions.lua. KEYS[1]: slb:changes. ARGV: entries.
-- Reply: the number.
mend()
local number = next_number()
for _, entry in ipairs(ARGV) do
  note(entry)
end
keep(number)
return text(number)
