-- What health checks have found. A report counts while its claim does: later ones, of an instance that was frozen,
-- change nothing.
-- KEYS: one key a check, slb:{health}:...; a string "due state run".
-- ARGV[1]: the channel of changes. Then for each key four: the claim, the state, the run, the life of the
--   key in milliseconds.
-- Reply: how many reports counted. Where a state changed, "key state run" is published.
local counted = 0
for index, key in ipairs(KEYS) do
  local first = 4 * index - 2
  local claim, state, run, life = ARGV[first], ARGV[first + 1], ARGV[first + 2], ARGV[first + 3]
  local found = redis.pcall('GET', key)
  local due, before
  if type(found) == 'string' and #found < 64 then  -- any program may have written there
    due, before = string.match(found, '^(%d+) (%l+) %d+$')
  end
  if due == claim then
    redis.call('SET', key, claim .. ' ' .. state .. ' ' .. run, 'PX', life)
    counted = counted + 1
    if before ~= state then
      -- A hint: where an ACL forbids it, the others get it when the check is due again.
      redis.pcall('PUBLISH', ARGV[1], key .. ' ' .. state .. ' ' .. run)
    end
  end
end
return counted
