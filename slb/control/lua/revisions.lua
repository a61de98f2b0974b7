-- The number that every change of the table gets, so that a Redis that comes back with older data is detected.
-- KEYS[1]: slb:changes, a sorted set: entry = the number of its last change; control/keys.py has what entries are.
-- The next number is this server's clock in microseconds, or one more than the last where that clock is behind: so what is
-- written to a server that lost data has a higher number than what it lost.
-- Kept: MOST entries (SLACK more, so that they are cut rarely) of a day. What is cut raises the floor.
local MOST, SLACK, DAY = 5000, 500, 86400e6
local CHANGES, FLOOR = KEYS[1], 'floor'
local noted = {}

local function text(number)
  return string.format('%.0f', number)
end

local function logged(entry)
  return tonumber(redis.call('ZSCORE', CHANGES, entry) or 0)
end

-- The number at which an entry last changed, as far as it is known here; a field also with its hash as a whole.
local function stands(entry)
  local whole = string.match(entry, '^(slb:%S+) ')
  return math.max(logged(entry), whole and logged(whole) or 0, logged(FLOOR))
end

local function last_number()
  return tonumber(redis.call('ZRANGE', CHANGES, -1, -1, 'WITHSCORES')[2] or 0)
end

-- Whether it is a log, and not something else under its key: numbers are such as a score holds exactly.
local function is_log()
  return redis.call('TYPE', CHANGES).ok == 'zset' and last_number() < 2 ^ 53 - 1
end

local function note(entry)
  noted[#noted + 1] = entry
end

-- Makes way for the log. Where nothing is in the way nothing is written: a server without memory refuses a script by
-- its first write, and lets one that has written go on.
local function mend()
  if redis.call('EXISTS', CHANGES) == 1 and not is_log() then
    redis.call('DEL', CHANGES)
  end
end

local function next_number()
  local time = redis.call('TIME')
  return math.max(time[1] * 1000000 + time[2], last_number() + 1)
end

local function trim(number)
  local cut = tonumber(redis.call('ZSCORE', CHANGES, FLOOR) or 0)
  local excess = redis.call('ZCARD', CHANGES) - MOST
  if excess > SLACK then
    cut = math.max(cut, tonumber(redis.call('ZRANGE', CHANGES, excess - 1, excess - 1, 'WITHSCORES')[2]))
  end
  if redis.call('ZCOUNT', CHANGES, '-inf', text(number - DAY)) > 1 then
    cut = math.max(cut, number - DAY)
  end
  if redis.call('ZCOUNT', CHANGES, '-inf', text(cut)) > 1 then
    redis.call('ZREMRANGEBYSCORE', CHANGES, '-inf', text(cut))
    redis.call('ZADD', CHANGES, text(cut), FLOOR)
  end
end

-- Gives all that was noted one number.
local function keep(number)
  for _, entry in ipairs(noted) do
    redis.call('ZADD', CHANGES, text(number), entry)
  end
  trim(number)
end
