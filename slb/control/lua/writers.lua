-- Who may write what a source of discovery finds. KEYS[1]: slb:{discovery}:writers, a hash: "<path> <source>" =
-- "<number> <end, in ms of this server's clock> <instance> <its name>". Each term has a higher number than the one before,
-- by this server's clock in microseconds, so that it is higher too where the hash was lost.
-- Where the hash was lost, whoever wrote before is let in first: it knows what it has written.
-- ARGV[1], [2]: the caller's id and name; [3]: how long it is to be theirs, in ms, 0 gives it back; [4]: how long others let
-- in who wrote before; then "<path> <source>"s, with "+" in front where the caller writes it.
-- Reply: for each the number of the caller's term, "0" where it has none; and the name of who has.
local LONGEST, DAY = 60000, 86400000
local id, name, lease, first = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local NOBODY = '-'
local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
local now = math.floor(clock / 1000)
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'hash' and kind ~= 'none' then
  redis.call('DEL', KEYS[1])
end

local function read(field)
  local kept = redis.call('HGET', KEYS[1], field) or ''
  local number, ends, holder, called = string.match(kept, '^(%d+) (%d+) (%S+) (.*)$')
  ends = tonumber(ends or 0)
  local runs = ends > now and ends <= now + LONGEST  -- one that ends later was written by a clock that jumped
  return tonumber(number), runs, holder, called
end

local function write(field, number, ends, holder, called)
  redis.call('HSET', KEYS[1], field, string.format('%.0f %.0f %s %s', number, ends, holder, called))
end

-- The number of the caller's term, and who writes.
local function ask(field, wrote)
  local number, runs, holder, called = read(field)
  if runs and holder ~= id and not (holder == NOBODY and wrote) then
    return 0, called
  end
  if lease == 0 then
    if holder == id then
      write(field, number, 0, id, name)
    end
    return 0, ''
  end
  if not number and not wrote and first > 0 then
    write(field, 0, now + first, NOBODY, '')
    return 0, ''
  end
  if not runs or holder == NOBODY then
    number = math.max(clock, (number or 0) + 1)
  end
  write(field, number, now + lease, id, name)
  return number, name
end

local reply = {}
for index = 5, #ARGV do
  local number, called = ask(string.match(ARGV[index], '^+?(.*)$'), string.sub(ARGV[index], 1, 1) == '+')
  reply[#reply + 1] = string.format('%.0f', number)
  reply[#reply + 1] = called
end
redis.call('PEXPIRE', KEYS[1], DAY)
return reply
