-- Comes first in every script that asks whose an entry is. KEYS[1] = S, KEYS[2] = P:retry.
-- ARGV: group, consumer, then per stream the first and the last id asked for (empty: none there); the rest is read
-- with take().
local group, consumer = ARGV[1], ARGV[2]
local at = 7

local function take()
  at = at + 1
  return ARGV[at - 1]
end

-- The ids from `first` to `last` of `key` pending under this consumer, as a set: one command answers for a batch.
local function ours(key, first, last)
  local set = {}
  if first == '' then
    return set
  end
  for _, row in ipairs(redis.call('XPENDING', key, group, first, last, 1000000, consumer)) do
    set[row[1]] = true
  end
  return set
end

local mine = { ours(KEYS[1], ARGV[3], ARGV[4]), ours(KEYS[2], ARGV[5], ARGV[6]) }
