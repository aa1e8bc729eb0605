-- Acknowledges one entry whose dead letter was added before, because it is too wide for a script's arguments.
-- KEYS[3] = the dead letters. ARGV after ours.lua's: lane, id, unowned, id of the dead letter.
-- Replies 1, or 0 where the entry is not ours any more: then the dead letter goes again.
local lane, id, unowned, letter = tonumber(take()), take(), take() == '1', take()
if unowned or mine[lane][id] then
  acknowledge(lane, id)
  acknowledge_all()
  return 1
end
redis.call('XDEL', KEYS[3], letter)
return 0
