-- Which instance runs which health check now. A check that is due goes to the first that asks, and is due again
-- after its hold.
-- KEYS: one key a check, slb:{health}:...; a string "due state run", due in milliseconds of this server's clock.
-- ARGV[1]: how many checks the caller can run at most. Then for each key four: the caller's state and run, the
--   hold and the life of the key in milliseconds.
-- Reply for each key: {claim (0 where it is not the caller's), milliseconds until it is due, state, run}.
-- The stored state is used, unless it was not renewed for more than a hold (this server was away): then
-- the caller's is newer. A caller without a result ("unknown") leaves it as it is.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local room = tonumber(ARGV[1])
local replies = {}
for index, key in ipairs(KEYS) do
  local first = 4 * index - 2
  local hold, life = tonumber(ARGV[first + 2]), tonumber(ARGV[first + 3])
  local found = redis.pcall('GET', key)
  local due, state, run
  if type(found) == 'string' and #found < 64 then  -- any program may have written there
    due, state, run = string.match(found, '^(%d+) (%l+) (%d+)$')
  end
  due = tonumber(due or 0)
  if due > now or room <= 0 then
    replies[index] = {0, math.max(due - now, 0), state or '', tonumber(run or 0)}
  else
    room = room - 1
    local lapsed = due + hold < now or state == 'unknown'
    if not state or (lapsed and ARGV[first] ~= 'unknown') then
      state, run = ARGV[first], ARGV[first + 1]
    end
    due = now + hold
    redis.call('SET', key, string.format('%d %s %s', due, state, run), 'PX', life)
    replies[index] = {due, hold, state, tonumber(run)}
  end
end
return replies
