-- Appends entries to KEYS[3] and acknowledges them: P:retry for a release, the dead letters for poison.
-- ARGV after ours.lua's: longest stream (0: any), count; per entry: lane, id, unowned, width, values.
-- Replies per entry: 0 not ours, 1 applied, or { key, error }.
local max_length, count = tonumber(take()), tonumber(take())
return settle_each(count, take_values, function(values)
  local reply = append(KEYS[3], max_length, values)
  return is_error(reply) and { KEYS[3], reply.err } or 1
end)
