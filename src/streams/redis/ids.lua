-- Comes first in scripts that compare ids or read XINFO.
local function named(flat)
  local map = {}
  for position = 1, #flat, 2 do
    map[flat[position]] = flat[position + 1]
  end
  return map
end

-- Ids go beyond what a Lua number holds exactly, so they are compared and counted down as digits.
local function parts(id)
  return id:match('^(%d+)-(%d+)$')
end

local function less(a, b)
  if #a ~= #b then
    return #a < #b
  end
  return a < b
end

local function earlier(a, b)
  local a_ms, a_seq = parts(a)
  local b_ms, b_seq = parts(b)
  if a_ms ~= b_ms then
    return less(a_ms, b_ms)
  end
  return less(a_seq, b_seq)
end

-- What XINFO says of a group; nil where it is missing.
local function group_of(key, name)
  for _, flat in ipairs(redis.call('XINFO', 'GROUPS', key)) do
    local info = named(flat)
    if info.name == name then
      return info
    end
  end
end
