-- Writes a worker's report and the group's durable position. KEYS: S, P:workers, P:cursor.
-- ARGV: group, consumer, the report after its `{"at":<now>`, interval of reports and visibility timeout in ms.
-- Replies { now, whether an outage has just ended, entries newly counted as lost }.
local group, consumer, every, visibility = ARGV[1], ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function one_less(digits)
  local zeros = digits:match('0*$')
  local head = digits:sub(1, #digits - #zeros)
  local less_one = head:sub(1, -2) .. (tonumber(head:sub(-1)) - 1) .. ('9'):rep(#zeros)
  return (less_one:gsub('^0+(%d)', '%1'))
end

local function before(id)
  local ms, seq = parts(id)
  if seq ~= '0' then
    return ms .. '-' .. one_less(seq)
  end
  if ms ~= '0' then
    return one_less(ms) .. '-18446744073709551615'
  end
  return id
end

local stream, ours = named(redis.call('XINFO', 'STREAM', KEYS[1])), group_of(KEYS[1], group)
if not ours then
  return redis.error_reply('NOGROUP No such consumer group on the source stream')
end

local delivered, last = ours['last-delivered-id'], stream['last-generated-id']
local position = delivered
local oldest = redis.call('XPENDING', KEYS[1], group, '-', '+', 1)[1]
if oldest and earlier(before(oldest[1]), delivered) then
  position = before(oldest[1])
end

-- What was trimmed before delivery. entries-read may keep missing earlier gaps (7.0), or may be corrected when the
-- group reads on (later): `trimmed` is what it misses already, known exactly whenever the group has caught up.
local added, read, first = stream['entries-added'], ours['entries-read'], stream['first-entry']
local before = tonumber(redis.call('HGET', KEYS[3], 'trimmed') or '')
local trimmed, lost, unknown = before or 0, 0, false
if not earlier(delivered, last) then
  local gap = added and read and math.max(added - read, 0) or 0
  -- What it misses more than at the last report was trimmed and passed by in between.
  lost = before and math.max(gap - before, 0) or 0
  trimmed = gap
elseif not first or earlier(delivered, first[1]) then
  if added and read then
    local gap = math.max(added - read - stream.length, 0)
    lost = gap >= trimmed and gap - trimmed or gap
    trimmed = gap
  elseif not added then
    unknown = #redis.call('XRANGE', KEYS[1], delivered, delivered) == 0
  end
end

local seen = tonumber(redis.call('HGET', KEYS[3], 'seen') or '')
local outage = seen ~= nil and now - seen > math.max(2 * every, visibility / 2)

redis.call('HSET', KEYS[2], consumer, '{"at":' .. string.format('%.0f', now) .. ARGV[3])
redis.call('HSET', KEYS[3], 'position', position, 'lastId', last, 'seen', string.format('%.0f', now),
  'trimmed', string.format('%.0f', trimmed))
if added then
  redis.call('HSET', KEYS[3], 'added', string.format('%.0f', added))
end
if lost > 0 then
  redis.call('HINCRBY', KEYS[3], 'lost', string.format('%.0f', lost))
end
if unknown then
  redis.call('HSET', KEYS[3], 'lostUnknown', 1)
end
if outage then
  redis.call('HSET', KEYS[3], 'grace', string.format('%.0f', now + visibility))
end
return { now, outage and 1 or 0, lost }
