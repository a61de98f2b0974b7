-- What health checks have found. A report counts while its claim does: later ones, of an instance that was frozen,
-- change nothing.
-- KEYS: one key a check, slb:{health}:...; a string "due state run", due in milliseconds of this server's clock.
-- ARGV[1]: the channel of changes. Then for each key six: the claim, the state, the run, the life of the key in
--   milliseconds, how many milliseconds before the claim's end the check is due again, and the host that suspects
--   the upstream or ''.
-- Reply for each key: {1 where its report counted or 0, the state, the run} as they are now. Where a state changed,
-- "key state run" is published, and "host key suspect run" where one suspects.
local replies = {}
for index, key in ipairs(KEYS) do
  local first = 6 * index - 4
  local claim, state, run, life = ARGV[first], ARGV[first + 1], ARGV[first + 2], ARGV[first + 3]
  local found = redis.pcall('GET', key)
  local due, before, count
  if type(found) == 'string' and #found < 64 then  -- any program may have written there
    due, before, count = string.match(found, '^(%d+) (%l+) (%d+)$')
  end
  if due == claim then
    local again = string.format('%d', tonumber(claim) - tonumber(ARGV[first + 4]))
    redis.call('SET', key, again .. ' ' .. state .. ' ' .. run, 'PX', life)
    replies[index] = {1, state, tonumber(run)}
    if before ~= state then
      -- A hint: where an ACL forbids it, the others get it when the check is due again.
      redis.pcall('PUBLISH', ARGV[1], key .. ' ' .. state .. ' ' .. run)
    elseif ARGV[first + 5] ~= '' then
      redis.pcall('PUBLISH', ARGV[1], ARGV[first + 5] .. ' ' .. key .. ' suspect ' .. run)
    end
  else
    replies[index] = {0, before or '', tonumber(count or 0)}
  end
end
return replies
