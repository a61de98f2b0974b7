-- What discovery found: which source names which member of a route. In front of lua/change.lua.
-- A `fence` row begins what one source writes of one route. Its key is slb:discovered:{<route's set>}, a hash in the
-- route's own slot:
--   "fence <source>": the number of the lease by which it was last written; a lower one writes nothing.
--   "sources": the names of all sources that ever wrote, one a line.
--   "is <member> <source>": the attributes that this source gave it.
--   "others <member>": it was there before any source named it, or has been registered since. It stays when they leave.
local OWNED, SOURCE = nil, nil

local function is_named(member)
  for source in string.gmatch(redis.call('HGET', OWNED, 'sources') or '', '[^\n]+') do
    if redis.call('HEXISTS', OWNED, 'is ' .. member .. ' ' .. source) == 1 then
      return true
    end
  end
  return false
end

local function open_fence(key, source, number, is_known)
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'hash' and kind ~= 'none' then
    redis.call('DEL', key)
  end
  local highest = redis.call('HGET', key, 'fence ' .. source)
  if highest and tonumber(highest) > tonumber(number) then
    return redis.error_reply('FENCED ' .. highest)
  end
  if not highest and is_known then
    return redis.error_reply('LOST')
  end
  if not highest then
    redis.call('HSET', key, 'sources', (redis.call('HGET', key, 'sources') or '') .. source .. '\n')
  end
  redis.call('HSET', key, 'fence ' .. source, number)
  OWNED, SOURCE = key, source
  return 1
end

local discovered = {
  -- The source, the number of its lease, and "1" where its writer has read what stands here: an error where that is
  -- gone, or where a higher number has been here.
  fence = function(key, first)
    return open_fence(key, ARGV[first], ARGV[first + 1], ARGV[first + 2] == '1')
  end,
  -- A member, its attributes, and "1" where this source has named it before: then it is not others'.
  found = function(key, first)
    local member = ARGV[first]
    local came = redis.call('SADD', key, member)
    if came == 1 then
      note(key .. ' ' .. member)
      drop_lease(key .. ' ' .. member)
      redis.call('HDEL', OWNED, 'others ' .. member)
    elseif ARGV[first + 2] == '0' and not is_named(member) then
      redis.call('HSET', OWNED, 'others ' .. member, '1')
    end
    redis.call('HSET', OWNED, 'is ' .. member .. ' ' .. SOURCE, ARGV[first + 1])
    return came
  end,
  -- A member that the source no longer names.
  lost = function(key, first)
    local member = ARGV[first]
    redis.call('HDEL', OWNED, 'is ' .. member .. ' ' .. SOURCE)
    if is_named(member) or redis.call('HDEL', OWNED, 'others ' .. member) == 1 then
      return 0
    end
    note(key .. ' ' .. member)
    return redis.call('SREM', key, member)
  end,
  -- A member that is registered, with slb:discovered:{<route's set>}: it is not discovery's alone.
  claim = function(key, first)
    if redis.pcall('HLEN', key) ~= 0 then
      redis.pcall('HSET', key, 'others ' .. ARGV[first], '1')
    end
    return 0
  end,
  -- All of it: the route was deleted.
  forget = function(key)
    return redis.call('DEL', key)
  end,
}
