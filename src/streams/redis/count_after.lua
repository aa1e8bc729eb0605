-- How many entries of KEYS[1] come after the id ARGV[1], up to ARGV[2]; their payloads stay on the server.
local found, start, most = 0, '(' .. ARGV[1], tonumber(ARGV[2])
while found < most do
  local page = redis.call('XRANGE', KEYS[1], start, '+', 'COUNT', 100)
  found = found + #page
  if #page < 100 then
    return found
  end
  start = '(' .. page[#page][1]
end
return found
