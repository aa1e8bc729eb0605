-- What a stage has left to do: undelivered, pending and delayed, in one look; -1 while its group is not there.
local source, retry, delayed, group = KEYS[1], KEYS[2], KEYS[3], ARGV[1]

local function pending(stream)
  local summary = redis.pcall('XPENDING', stream, group)
  return summary.err and 0 or summary[1]
end

local groups = redis.pcall('XINFO', 'GROUPS', source)
if groups.err then return -1 end
for _, pairs in ipairs(groups) do
  local found = {}
  for at = 1, #pairs, 2 do found[pairs[at]] = pairs[at + 1] end
  if found['name'] == group then
    local next = redis.call('XRANGE', source, '(' .. found['last-delivered-id'], '+', 'COUNT', 1)
    -- What is acknowledged in the retry stream is deleted there.
    local waiting = math.max(redis.call('XLEN', retry), pending(retry))
    return #next + pending(source) + waiting + redis.call('ZCARD', delayed)
  end
end
return -1
