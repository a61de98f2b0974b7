-- What has changed since a number. Begins with lua/revisions.lua. KEYS[1]: slb:changes.
-- ARGV: the number; the most bytes the log may take in this server; the bytes of the longest entry.
-- Reply: {the last number, the floor, lines of "<entry> <number>"}; nothing where what stands there is no log, or is
-- too large for one. Changes nothing. A log of 5,500 entries takes about 3 ms; it is read whole after a reconnect.
local size = redis.pcall('MEMORY', 'USAGE', CHANGES, 'SAMPLES', 100)
if not size then
  return {'0', '0', ''}
elseif not is_log() or type(size) == 'number' and size > tonumber(ARGV[2]) then
  return {}
end
local found =
  redis.call('ZRANGE', CHANGES, '(' .. ARGV[1], '+inf', 'BYSCORE', 'LIMIT', 0, 3 * MOST, 'WITHSCORES')
local lines = {}
for index = 1, #found, 2 do
  if #found[index] <= tonumber(ARGV[3]) and found[index] ~= FLOOR then
    lines[#lines + 1] = found[index] .. ' ' .. text(tonumber(found[index + 1]))
  end
end
return {text(last_number()), text(stands(FLOOR)), table.concat(lines, '\n')}
