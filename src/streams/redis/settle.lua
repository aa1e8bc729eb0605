-- Comes between ours.lua and a settlement. Adds come before acks, and all acks come last: on a full server a script
-- whose first write is an ack would have its later adds let in.
local acked = { {}, {} }

-- A user who may add and not acknowledge would add again at every try: nothing is begun then (7.0 can tell).
local function forbidden(...)
  return redis.acl_check_cmd and not redis.acl_check_cmd(...)
end

for lane = 1, 2 do
  local asked = ARGV[1 + 2 * lane] ~= ''
  if asked and forbidden('XACK', KEYS[lane], group, '0-0') then
    return redis.error_reply('NOPERM no permission to run XACK on the stream of an entry')
  end
  if asked and lane == 2 and forbidden('XDEL', KEYS[2], '0-0') then
    return redis.error_reply('NOPERM no permission to run XDEL on the retry stream')
  end
end

-- Where the next values lie in ARGV, as { first, width }: values are never copied for an entry that is not ours.
local function take_values()
  local width = tonumber(take())
  at = at + width
  return { at - width, width }
end

local function append(key, max_length, values)
  local add = { 'XADD', key }
  if max_length > 0 then
    add[3], add[4], add[5] = 'MAXLEN', '~', max_length
  end
  add[#add + 1] = '*'
  for position = values[1], values[1] + values[2] - 1 do
    add[#add + 1] = ARGV[position]
  end
  return redis.pcall(unpack(add))
end

local function is_error(reply)
  return type(reply) == 'table' and reply.err ~= nil
end

-- Marks an entry for the acks; a second settlement of it in the same batch finds it gone.
local function acknowledge(lane, id)
  mine[lane][id] = nil
  table.insert(acked[lane], id)
end

local function acknowledge_all()
  for lane = 1, 2 do
    if #acked[lane] > 0 then
      redis.call('XACK', KEYS[lane], group, unpack(acked[lane]))
    end
  end
  -- P:retry is ours alone: an entry goes with its ack, so what waits there is XLEN - pending.
  if #acked[2] > 0 then
    redis.call('XDEL', KEYS[2], unpack(acked[2]))
  end
end

-- Settles `count` entries, each of which begins with lane, id, unowned: `read` takes the rest of its arguments, and
-- `settle` answers 1 or 2 for what is to be acknowledged, or anything else. Replies 0 for what is not ours.
local function settle_each(count, read, settle)
  local replies = {}
  for entry = 1, count do
    local lane, id, unowned = tonumber(take()), take(), take() == '1'
    local what = read()
    local reply = 0
    if unowned or mine[lane][id] then
      reply = settle(what)
      if reply == 1 or reply == 2 then
        acknowledge(lane, id)
      end
    end
    replies[entry] = reply
  end
  acknowledge_all()
  return replies
end
