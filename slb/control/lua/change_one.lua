-- One row of lua/change.lua, in a cluster: what it does to its own key. Log and leases are in other slots.
-- KEYS[1]: the row's key. ARGV[1]: its operation; then its arguments.
-- Reply: 1 where something came or went, else 0; 2 where a set held more than was named.
local key = KEYS[1]

local function set_fields()
  for index = 2, #ARGV, 2 do
    redis.call('HSET', key, ARGV[index], ARGV[index + 1])
  end
  return 1
end

local function remove()
  return redis.call('DEL', key)
end

local operations = {
  join = function()
    return redis.call('SADD', key, ARGV[2])
  end,
  leave = function()
    return redis.call('SREM', key, ARGV[2])
  end,
  expire = function()
    return redis.pcall('SREM', key, ARGV[2]) == 1 and 1 or 0
  end,
  describe = function()
    local is_other = 0
    for index = 2, #ARGV, 2 do
      if redis.call('HGET', key, ARGV[index]) ~= ARGV[index + 1] then
        is_other = 1
      end
    end
    set_fields()
    local time = redis.call('TIME')
    redis.call('HSETNX', key, 'joined', string.format('%d.%06d', time[1], time[2]))
    return is_other
  end,
  set = set_fields,
  unset = function()
    return redis.call('HDEL', key, unpack(ARGV, 2))
  end,
  replace = function()
    redis.call('DEL', key)
    return redis.call('HSET', key, unpack(ARGV, 2))
  end,
  remove = remove,
  remove_unused = remove,
  remove_after = remove,
  claim = function()
    if redis.pcall('HLEN', key) ~= 0 then
      redis.pcall('HSET', key, 'others ' .. ARGV[2], '1')
    end
    return 0
  end,
  forget = remove,
  clear = function()
    local there = redis.call('EXISTS', key)
    for index = 2, #ARGV do
      redis.pcall('SREM', key, ARGV[index])
    end
    return redis.call('DEL', key) == 1 and 2 or there
  end,
}

return operations[ARGV[1]]()
