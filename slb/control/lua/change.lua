-- Changes routes, settings and attributes: whatever slb writes of the table, in one step and under one number.
-- Begins with lua/revisions.lua, lua/leases.lua and lua/discovered.lua. KEYS[1]: slb:changes; then one key for each row; then slb:leases.
-- ARGV: for each row an operation, how many arguments it has, and these.
-- Reply: the number; then for each row 1 where something came or went, else 0.
mend()
mend_leases()
local number = next_number()
local replies = {}

-- Whether a route names the upstream of this hash that the caller, who knows no route that does, has not read: its table
-- shows the log up to `number`.
local joined
local function is_used(key, number)
  if logged(FLOOR) > tonumber(number) then
    return true
  end
  if not joined then
    joined = {}
    for _, entry in ipairs(redis.call('ZRANGE', CHANGES, '(' .. number, '+inf', 'BYSCORE')) do
      local route, member = string.match(entry, '^(slb_%S*) (.+)$')
      if route then
        joined[member] = joined[member] or {}
        table.insert(joined[member], route)
      end
    end
  end
  local member = string.match(key, '^slb:upstream:(.+)$')
  for _, route in ipairs(joined[member] or {}) do
    if redis.pcall('SISMEMBER', route, member) == 1 then
      return true
    end
  end
  return false
end

local function remove_unused(key, first)
  if is_used(key, ARGV[first]) or redis.call('DEL', key) == 0 then
    return 0
  end
  note(key)
  return 1
end

local function set_fields(key, first, last)
  for index = first, last, 2 do
    redis.call('HSET', key, ARGV[index], ARGV[index + 1])
    note(key .. ' ' .. ARGV[index])
  end
  return 1
end

local operations = {
  -- One member, for good.
  join = function(key, first)
    note(key .. ' ' .. ARGV[first])
    local came = redis.call('SADD', key, ARGV[first])
    redis.call('ZREM', LEASES, key .. ' ' .. ARGV[first])
    return came
  end,
  -- For so many milliseconds, unless that is renewed: behind its `join`.
  lease = function(key, first)
    return redis.call('ZADD', LEASES, end_after(tonumber(ARGV[first + 1])), key .. ' ' .. ARGV[first])
  end,
  leave = function(key, first)
    note(key .. ' ' .. ARGV[first])
    redis.call('ZREM', LEASES, key .. ' ' .. ARGV[first])
    return redis.call('SREM', key, ARGV[first])
  end,
  -- The same, where its lease has ended and was not renewed meanwhile.
  expire = function(key, first)
    local entry = key .. ' ' .. ARGV[first]
    local ends, clock = redis.call('ZSCORE', LEASES, entry), read_clock()
    if not ends or not clock or tonumber(ends) > clock then
      return 0
    end
    redis.call('ZREM', LEASES, entry)
    if redis.pcall('SREM', key, ARGV[first]) ~= 1 then
      return 0
    end
    note(entry)
    return 1
  end,
  -- Attributes of one that registers: fields and values in turn. 1 where any had another value.
  describe = function(key, first, last)
    local is_other = 0
    for index = first, last, 2 do
      if redis.call('HGET', key, ARGV[index]) ~= ARGV[index + 1] then
        is_other = 1
      end
    end
    set_fields(key, first, last)
    local time = redis.call('TIME')
    if redis.call('HSETNX', key, 'joined', string.format('%d.%06d', time[1], time[2])) == 1 then
      note(key .. ' joined')
    end
    return is_other
  end,
  set = set_fields,
  unset = function(key, first, last)
    for index = first, last do
      note(key .. ' ' .. ARGV[index])
    end
    return redis.call('HDEL', key, unpack(ARGV, first, last))
  end,
  replace = function(key, first, last)
    redis.call('DEL', key)
    note(key)
    return redis.call('HSET', key, unpack(ARGV, first, last))
  end,
  -- A hash whole.
  remove = function(key)
    note(key)
    return redis.call('DEL', key)
  end,
  -- The hash of an upstream that no route names, as far as the log shows it up to a number, and none that has come since.
  remove_unused = remove_unused,
  -- The same, where the row before this one took something away.
  remove_after = function(key, first)
    return replies[#replies] == 0 and 0 or remove_unused(key, first)
  end,
  -- A set whole, whatever is there; its members as far as they are known. Of others no trace could be left one by
  -- one: then all counts as changed.
  clear = function(key, first, last)
    local there = redis.call('EXISTS', key)
    for index = first, last do
      redis.pcall('SREM', key, ARGV[index])
      redis.call('ZREM', LEASES, key .. ' ' .. ARGV[index])
      note(key .. ' ' .. ARGV[index])
    end
    if redis.call('DEL', key) == 1 then
      note(FLOOR)
    end
    return there
  end,
  -- All that may be known of the table.
  all = function()
    note(FLOOR)
    return 1
  end,
}

local at = 1
for row = 2, #KEYS - 1 do
  local first = at + 2
  at = first + tonumber(ARGV[at + 1])
  local operation = operations[ARGV[first - 2]] or discovered[ARGV[first - 2]]
  local reply = operation(KEYS[row], first, at - 1)
  if type(reply) == 'table' then  -- of a fence, before anything was written
    return reply
  end
  replies[#replies + 1] = reply
end
keep(number)
table.insert(replies, 1, number)
return replies
