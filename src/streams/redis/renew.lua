-- Renews leases. ARGV after ours.lua's: count; per entry: lane, id.
-- Replies per entry: 1 held, 2 gone, 3 stolen, 4 in its stream and pending nowhere: settled, or not delivered yet to a
-- group that was re-created before it.
local function state(lane, id)
  local key = KEYS[lane]
  if mine[lane][id] then
    -- A trimmed entry is left out of the reply, and out of the pending list from now on (7.0).
    local held = redis.call('XCLAIM', key, group, consumer, 0, id, 'JUSTID')
    return #held > 0 and 1 or 2
  end
  local is_there = #redis.call('XRANGE', key, id, id) > 0
  -- In P:retry an entry leaves the stream with its ack: there its absence means settled, not trimmed.
  if lane == 2 and not is_there then
    return 3
  end
  if #redis.call('XPENDING', key, group, id, id, 1) > 0 then
    return 3
  end
  return is_there and 4 or 2
end

local replies = {}
for entry = 1, tonumber(take()) do
  replies[entry] = state(tonumber(take()), take())
end
return replies
