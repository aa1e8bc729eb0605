-- Moves due entries. KEYS: P:delayed, P:retry. ARGV: most entries, most bytes, most values of one entry.
-- Replies { now, moved, stopped at a limit, due time of the next (empty: none), members that cannot be decoded }.
local room, bytes, widest = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local moved, odd = 0, {}

-- Who may add and not remove would add again at every try (7.0 can tell).
if redis.acl_check_cmd and not redis.acl_check_cmd('ZREM', KEYS[1], 'member') then
  return redis.error_reply('NOPERM no permission to run ZREM on the delayed set')
end

-- salt, meta, then names and values in turn, all of them strings; nil if it is anything else.
local function decode(member)
  local read, parts, more = pcall(cmsgpack.unpack, member)
  if not read or more ~= nil or type(parts) ~= 'table' then
    return nil
  end
  if #parts < 4 or #parts > widest or #parts % 2 == 1 then
    return nil
  end
  for part = 1, #parts do
    if type(parts[part]) ~= 'string' then
      return nil
    end
  end
  return parts
end

-- One member at a time, so that the largest are never all in memory; those that cannot be decoded are stepped over.
local function next_due(limit)
  return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', limit, 'WITHSCORES', 'LIMIT', #odd, 1)
end

local due = next_due(string.format('%.0f', now))
while due[1] and moved < room and #odd < room and bytes > 0 do
  local parts = decode(due[1])
  if parts then
    redis.call('XADD', KEYS[2], '*', 'streamstage.meta', parts[2], unpack(parts, 3))
    redis.call('ZREM', KEYS[1], due[1])
    moved, bytes = moved + 1, bytes - #due[1]
  else
    table.insert(odd, due[1])
  end
  due = next_due(string.format('%.0f', now))
end
local later = next_due('+inf')
return { now, moved, due[1] and 1 or 0, later[2] or '', odd }
