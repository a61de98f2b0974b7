-- A batch that has only the grants its holder uses by now. Where they all stand as they were granted, and nothing else is
-- to be done, that is noted in these few commands, and none of what follows is made; else it is run as any other.
-- ARGV[4]: the holder, absent in all other batches; ARGV[5]: the batch's number; then a ticket and its member each.
if ARGV[4] then
  local id, tickets = ARGV[4], {}
  local known = redis.pcall('HMGET', HELD .. id, SEQUENCE, SILENT)
  local stands = not known.err and not known[2] and tonumber(known[1] or ARGV[5]) or math.huge
  local epoch = redis.call('GET', EPOCH) or ''
  stands = stands < tonumber(ARGV[5]) and string.match(epoch, '^%w* %d+$')
    and redis.call('ZSCORE', HOLDERS, id) and redis.call('HEXISTS', CLASSES, OWED) == 0
    and redis.pcall('ZCARD', GRANTED_OF .. id) == (#ARGV - 5) / 2
  for index = 6, stands and #ARGV or 0, 2 do
    local fine, record = pcall(cjson.decode, redis.call('HGET', GRANTS, ARGV[index]))
    stands = stands and fine and type(record) == 'table' and record[2] == ARGV[index + 1]
    tickets[#tickets + 1] = ARGV[index]
  end
  if stands then
    redis.call('HSET', HELD .. id, SEQUENCE, ARGV[5])
    redis.call('HDEL', GRANTS, unpack(tickets))
    redis.call('ZREM', GRANTED, unpack(tickets))
    redis.call('ZREM', GRANTED_OF .. id, unpack(tickets))
    local time = redis.call('TIME')
    return string.format('{"granted":[],"late":0,"answers":[],"holders":%d,"pushed":0,"queued":%d,"jobs":false,'
      .. '"number":false,"differs":false,"last":%s,"epoch":"%s","now":%s%03d}', redis.call('ZCARD', HOLDERS),
      redis.call('HLEN', TICKETS), known[1], epoch, time[1], math.floor(time[2] / 1000))
  end
end
