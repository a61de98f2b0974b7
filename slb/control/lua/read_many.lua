-- One reading command for many keys; costs the caller a fraction of as many single commands.
-- KEYS: what to read.  ARGV[1]: SMEMBERS or HGETALL.
-- Reply: an array with the reply for each key, an error (WRONGTYPE) standing in its place. Changes nothing.
local replies = {}
for index, key in ipairs(KEYS) do
  replies[index] = redis.pcall(ARGV[1], key)
end
return replies
