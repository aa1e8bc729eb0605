-- Delays entries. KEYS[3] = P:delayed.
-- ARGV after ours.lua's: count; per entry: lane, id, unowned, delay in ms, member.
-- Replies per entry: 0 not ours, 1 applied, or { key, error }.
local count = tonumber(take())
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local replies = {}
for entry = 1, count do
  local lane, id, unowned, delay, member = tonumber(take()), take(), take() == '1', tonumber(take()), take()
  if unowned or mine[lane][id] then
    local reply = redis.pcall('ZADD', KEYS[3], string.format('%.0f', now + delay), member)
    if is_error(reply) then
      replies[entry] = { KEYS[3], reply.err }
    else
      acknowledge(lane, id)
      replies[entry] = 1
    end
  else
    replies[entry] = 0
  end
end
acknowledge_all()
return replies
