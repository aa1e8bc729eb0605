-- Claims what silent consumers hold, one page per stream. KEYS: S, P:retry, P:workers, P:cursor.
-- ARGV: group, consumer, visibility timeout in ms, most claims, entries a page, most bytes, last id looked at in S and
-- in P:retry (empty: from the start).
-- Replies { ms left of a grace }, or { 0, now, lost, of S, of P:retry }, each { at the end, last id, claimed }.
local group, consumer, idle_limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local room, page, bytes = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local lost = 0

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local grace = tonumber(redis.call('HGET', KEYS[4], 'grace') or '0') or 0
if grace > now then
  return { grace - now }
end

-- How long `owner` may be silent: in a roll-out an old worker may have been promised more than this one asks.
local patience = {}
local function patience_with(owner)
  if not patience[owner] then
    local read, report = pcall(cjson.decode, redis.call('HGET', KEYS[3], owner) or '')
    local own = read and type(report) == 'table' and tonumber(report.visibilityMs) or 0
    patience[owner] = math.max(own, idle_limit)
  end
  return patience[owner]
end

-- The entry, now ours at the count it had; nil if it was trimmed while pending (left out, or nil before 7.0).
local function claim(key, id, count)
  local entry = redis.call('XCLAIM', key, group, consumer, 0, id, 'RETRYCOUNT', count)[1]
  if entry then
    return entry
  end
  redis.call('XACK', key, group, id)
  redis.call('HINCRBY', KEYS[4], 'lost', 1)
  lost = lost + 1
end

local function look(key, cursor)
  local start = cursor == '' and '-' or '(' .. cursor
  local rows = redis.call('XPENDING', key, group, start, '+', page)
  local claimed, looked = {}, 0
  for _, row in ipairs(rows) do
    if room <= 0 or bytes <= 0 then
      break
    end
    local id, owner, idle, count = row[1], row[2], row[3], row[4]
    cursor, looked = id, looked + 1
    if idle >= patience_with(owner) then
      local entry = claim(key, id, count)
      if entry then
        room = room - 1
        for _, value in ipairs(entry[2]) do
          bytes = bytes - #value
        end
        table.insert(claimed, { id, count, entry[2] })
      end
    end
  end
  return { (looked == #rows and #rows < page) and 1 or 0, cursor, claimed }
end

local retry = look(KEYS[2], ARGV[8])
local source = look(KEYS[1], ARGV[7])
return { 0, now, lost, source, retry }
