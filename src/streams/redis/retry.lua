-- Delays entries. KEYS[3] = P:delayed.
-- ARGV after ours.lua's: count; per entry: lane, id, unowned, delay in ms, member.
-- Replies per entry: 0 not ours, 1 applied, or { key, error }.
local count = tonumber(take())
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function read()
  return { delay = tonumber(take()), member = take() }
end

return settle_each(count, read, function(retry)
  local reply = redis.pcall('ZADD', KEYS[3], string.format('%.0f', now + retry.delay), retry.member)
  return is_error(reply) and { KEYS[3], reply.err } or 1
end)
