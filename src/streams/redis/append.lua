-- Appends entries to KEYS[3] and acknowledges them: P:retry for a release, the dead letters for poison.
-- ARGV after ours.lua's: longest stream (0: any), count; per entry: lane, id, unowned, width, values.
-- Replies per entry: 0 not ours, 1 applied, or { key, error }.
local max_length, count = tonumber(take()), tonumber(take())
local replies = {}
for entry = 1, count do
  local lane, id, unowned, values = tonumber(take()), take(), take() == '1', take_values()
  if unowned or mine[lane][id] then
    local reply = append(KEYS[3], max_length, values)
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
