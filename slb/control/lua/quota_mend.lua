-- The keys of the quota router. KEYS: as quota_state.lua lists them. Limits that are damaged stay: what a model may take
-- is for its operator to say.
local MODELS, LIMITS, RUNNING, PROMISES, MINUTES, FAR = KEYS[1], KEYS[2], KEYS[5], KEYS[6], KEYS[7], KEYS[13]

for _, id in ipairs(redis.call('HKEYS', LIMITS)) do
  mended = mended + redis.call('ZADD', MODELS, 0, id)
end
for _, id in ipairs(redis.call('ZRANGE', MODELS, 0, -1)) do
  if redis.call('HEXISTS', LIMITS, id) == 0 then
    mended = mended + redis.call('ZREM', MODELS, id)
  end
  expect(RUNNING .. id, 'zset')
  expect(PROMISES .. id, 'zset')
  expect(FAR .. id, 'zset')
  expect(MINUTES .. id, 'hash')
end
return mended
