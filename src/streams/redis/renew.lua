-- Renews leases. ARGV after ours.lua's: count; per entry: lane, id.
-- Replies per entry: 1 held, 2 gone, 3 stolen, 4 not delivered yet to a group that was re-created before it,
-- 5 trimmed while pending here, 6 settled.
local delivered = {}
local function last_delivered(lane)
  if not delivered[lane] then
    local info = group_of(KEYS[lane], group)
    delivered[lane] = info and info['last-delivered-id'] or '0-0'
  end
  return delivered[lane]
end

local function state(lane, id)
  local key = KEYS[lane]
  if mine[lane][id] then
    -- A trimmed entry is left out of the reply, and out of the pending list from now on (7.0).
    local held = redis.call('XCLAIM', key, group, consumer, 0, id, 'JUSTID')
    return #held > 0 and 1 or 5
  end
  if #redis.call('XPENDING', key, group, id, id, 1) > 0 then
    return 3
  end
  if #redis.call('XRANGE', key, id, id) > 0 then
    return earlier(last_delivered(lane), id) and 4 or 6
  end
  -- In P:retry an entry leaves the stream with its ack: there its absence means settled, not trimmed.
  return lane == 1 and 2 or 6
end

local replies = {}
for entry = 1, tonumber(take()) do
  replies[entry] = state(tonumber(take()), take())
end
return replies
