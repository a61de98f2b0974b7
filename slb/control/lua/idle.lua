-- An upstream says that it serves nothing: what holders that have not called for a while have of it is free now, and
-- not only when their leases end. One that is alive calls more often, and what it was granted last may be on its way.
-- ARGV: the lease in ms; how long a holder has to have been silent in ms; the member; how old a grant may become in ms;
--   how long a key is kept in ms; the channel grants are announced on; the pool's name.
-- Reply: how many slots.
local lease, silence, member, patience = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
life = tonumber(ARGV[5])
local queue = open_queue(redis.call('HLEN', TICKETS))
local freed = 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', HOLDERS, '-inf', now + lease - silence)) do
  freed = freed - add(id, member, -held_by(id, member))
end
if freed > 0 then
  queue.serve()
  write()
  queue.announce(ARGV[6], ARGV[7], lease, patience)
end
return freed
