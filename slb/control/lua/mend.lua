-- What another program has done to the keys of a script is put right, once the script has failed by it. In front of
-- jobs_mend.lua and quota_mend.lua, which look further.
-- KEYS: as the script's own. ARGV[1]: for each of them what it is: h a hash, s a string, z a sorted set; - where it is the
-- beginning of one key each.
local TYPES = {h = 'hash', s = 'string', z = 'zset'}
local mended = 0  -- how many keys and fields were damaged: the reply

-- A key of another type makes way.
local function expect(key, wanted)
  local is = redis.call('TYPE', key).ok
  if is ~= 'none' and is ~= wanted then
    redis.call('DEL', key)
    mended = mended + 1
  end
end

for index, key in ipairs(KEYS) do
  local wanted = TYPES[string.sub(ARGV[1], index, index)]
  if wanted then
    expect(key, wanted)
  end
end
