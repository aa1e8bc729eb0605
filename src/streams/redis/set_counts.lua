-- Writes delivery counts: a start is charged, or its charge is taken back.
-- ARGV after ours.lua's: count; per entry: lane, id, delivery count. Replies per entry: 1, or 0 where it is not ours.
local replies = {}
for entry = 1, tonumber(take()) do
  local lane, id, deliveries = tonumber(take()), take(), take()
  replies[entry] = mine[lane][id] and 1 or 0
  -- XCLAIM drops a trimmed entry from the pending list (7.0). It stays ours until a renewal says that it is gone.
  if mine[lane][id] and #redis.call('XRANGE', KEYS[lane], id, id) > 0 then
    redis.call('XCLAIM', KEYS[lane], group, consumer, 0, id, 'RETRYCOUNT', deliveries, 'JUSTID')
  end
end
return replies
