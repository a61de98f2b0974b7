-- Reads many keys in one step, and of each no more than a bound: a program that can write here must not be able to hold
-- up, or to fill, every instance that reads. Changes nothing.
-- KEYS: what to read. ARGV[1]: one letter for each: s a set, z a sorted set, h a hash, g a string.
-- ARGV[2], [3]: the most bytes a set may take in this server, and the most members. [4], [5]: the most bytes and fields
-- of a hash that is read whole; [9] and on: the fields that are read of a larger one. [6]: the bytes of the longest text;
-- a name is cut to one byte more, a value replaced by [8]. [7]: after so many bytes no further key is read.
-- Reply: {replies, large}. A reply for each key from the first on, maybe not for all: a list (a hash as names and values
-- in turn), a text, or an error (WRONGTYPE). large: pairs of an index and bytes; such a set has an empty reply.
-- MEMORY may be forbidden, or unknown: then what is too large is found out by reading it here.
local SAMPLES = 100
local most_bytes, most_members = tonumber(ARGV[2]), tonumber(ARGV[3])
local whole_bytes, whole_fields = tonumber(ARGV[4]), tonumber(ARGV[5])
local longest, budget, too_long = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local spent, replies, large = 0, {}, {}

local function weigh(text)
  spent = spent + #text + 16
  return text
end

local function note_large(size)
  large[#large + 1] = #replies + 1
  large[#large + 1] = size
end

local function collection(key, size, kind, ...)
  if size > most_bytes and redis.call('TYPE', key).ok ~= kind then
    return redis.error_reply('WRONGTYPE it is no ' .. kind)
  end
  local found = size <= most_bytes and redis.pcall(...) or {}
  if found.err then
    return found
  end
  if size > most_bytes or #found > most_members then
    note_large(size)
    return {}
  end
  for index, member in ipairs(found) do
    found[index] = weigh(#member > longest and string.sub(member, 1, longest + 1) or member)
  end
  return found
end

local function known_fields(key, size)
  note_large(size)
  local found = {}
  for index = 9, #ARGV do
    local length = redis.pcall('HSTRLEN', key, ARGV[index])
    local value = type(length) == 'number' and length > longest and too_long or redis.call('HGET', key, ARGV[index])
    if value then
      found[#found + 1] = ARGV[index]
      found[#found + 1] = value
    end
  end
  return found
end

local function hash(key, size)
  local count = redis.pcall('HLEN', key)
  if type(count) ~= 'number' then
    return count
  end
  local whole = size <= whole_bytes and count <= whole_fields
  local found = whole and redis.call('HGETALL', key) or known_fields(key, size)
  for index = 1, #found, 2 do
    found[index] = weigh(string.sub(found[index], 1, longest + 1))
    found[index + 1] = weigh(#found[index + 1] > longest and too_long or found[index + 1])
  end
  return found
end

local function text(key, size)
  local found = size <= whole_bytes and redis.pcall('GET', key)
  if found and (found.err or #found <= longest) then
    return found
  end
  note_large(size)
  return too_long
end

local read = {
  s = function(key, size)
    return collection(key, size, 'set', 'SMEMBERS', key)
  end,
  z = function(key, size)
    return collection(key, size, 'zset', 'ZRANGE', key, 0, -1, 'WITHSCORES')
  end,
  h = hash,
  g = text,
}

for index, key in ipairs(KEYS) do
  local kind = string.sub(ARGV[1], index, index)
  local size = redis.pcall('MEMORY', 'USAGE', key, 'SAMPLES', SAMPLES)
  if not size then
    replies[index] = kind ~= 'g' and {}
  else
    replies[index] = read[kind](key, type(size) == 'number' and size or 0)
  end
  if spent > budget then
    break
  end
end
return {replies, large}
