-- Commits a batch. KEYS[3] = the output stream (or S again, where there are no outputs), then the ledger keys.
-- ARGV after ours.lua's: window in ms, longest output stream, count; per entry: lane, id, unowned, force, index of its
-- ledger key (0: none), number of outputs (-1: they cannot be carried), and per output its width and values.
-- Replies per entry: 0 not ours, 1 applied, 2 known, 3 cannot be carried, or { key, error }.
local window, max_length, count = take(), tonumber(take()), tonumber(take())

local function commit(ledger, force, outputs)
  if ledger and not force then
    local known = redis.pcall('EXISTS', ledger)
    if is_error(known) then
      return { ledger, known.err }
    end
    if known == 1 then
      return 2
    end
  end
  if not outputs then
    return 3
  end
  local added = {}
  -- Removals work on a full server too, so a refused entry leaves nothing behind that a later try would add twice.
  local function undo(key, reply)
    for _, id in ipairs(added) do
      redis.call('XDEL', KEYS[3], id)
    end
    return { key, reply.err }
  end
  for _, values in ipairs(outputs) do
    local reply = append(KEYS[3], max_length, values)
    if is_error(reply) then
      return undo(KEYS[3], reply)
    end
    table.insert(added, reply)
  end
  if ledger then
    local reply = redis.pcall('SET', ledger, 1, 'PX', window)
    if is_error(reply) then
      return undo(ledger, reply)
    end
  end
  return 1
end

local function read()
  local entry = { force = take() == '1', ledger = KEYS[tonumber(take())] }
  local width = tonumber(take())
  entry.outputs = width >= 0 and {} or nil
  for output = 1, width do
    entry.outputs[output] = take_values()
  end
  return entry
end

return settle_each(count, read, function(entry)
  return commit(entry.ledger, entry.force, entry.outputs)
end)
