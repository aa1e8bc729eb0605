-- Deletes a consumer with nothing pending, and its report. KEYS: S, P:retry, P:workers.
-- ARGV: group, consumer, 1 if it is this process's own, the report it was judged by (empty: none).
-- Replies 1 if it was deleted. Looking and deleting are one step: a read in between would lose what it was given.
local group, consumer = ARGV[1], ARGV[2]
if ARGV[3] ~= '1' and (redis.call('HGET', KEYS[3], consumer) or '') ~= ARGV[4] then
  return 0
end
for lane = 1, 2 do
  local held = redis.pcall('XPENDING', KEYS[lane], group, '-', '+', 1, consumer)
  -- A missing group holds nothing; after any other error nobody knows.
  if held.err and not held.err:find('NOGROUP', 1, true) then
    return held
  end
  if #held > 0 then
    return 0
  end
end
for lane = 1, 2 do
  redis.pcall('XGROUP', 'DELCONSUMER', KEYS[lane], group, consumer)
end
redis.call('HDEL', KEYS[3], consumer)
return 1
