-- The keys of a model's jobs. KEYS: as jobs_state.lua lists them. ARGV[2]: the classes that there are by what is set, as
-- weights. What is to be a number is one afterwards. What is damaged of a single job is found where that job is read.
local QUEUE, CLASSES, NUMBER, HOLDERS, HELD, DROPPED = KEYS[4], KEYS[5], KEYS[6], KEYS[8], KEYS[9], KEYS[10]
local MOST = 1000  -- holders, and lines, that are looked at

local function is_number(text)
  local number = tonumber(text)
  return number and number == number and math.abs(number) < 2 ^ 53
end

for _, key in ipairs({CLASSES, KEYS[16], KEYS[17], KEYS[21]}) do
  local found = redis.call('HGETALL', key)
  for index = 1, #found, 2 do
    if not is_number(found[index + 1]) then
      if key == CLASSES then  -- jobs wait in it
        redis.call('HSET', key, found[index], '0')
      else
        redis.call('HDEL', key, found[index])
      end
      mended = mended + 1
    end
  end
end
for class in string.gmatch(ARGV[2], '([^=,]+)=%d+') do  -- these wait by what is left of their lines
  if redis.call('TYPE', QUEUE .. class).ok == 'zset' then
    redis.call('HSETNX', CLASSES, class, '0')
  end
end
local lines = redis.call('HKEYS', CLASSES)
for index = 1, math.min(#lines, MOST) do
  expect(QUEUE .. lines[index], 'zset')
end
for _, holder in ipairs(redis.call('ZRANGE', HOLDERS, 0, MOST - 1)) do
  expect(HELD .. holder, 'set')
  expect(DROPPED .. holder, 'list')
end
expect(DROPPED .. '*', 'list')
local number = redis.call('GET', NUMBER)
if number and not is_number(number) then  -- any that is above all that were given
  local time = redis.call('TIME')
  redis.call('SET', NUMBER, string.format('%.0f', time[1] * 1000))
  mended = mended + 1
end
return mended
