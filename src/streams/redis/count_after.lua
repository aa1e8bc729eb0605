-- How many entries of KEYS[1] come after the id ARGV[1], up to ARGV[2]; their payloads stay on the server.
-- ARGV[3]: most bytes to look at; beyond them the answer is ARGV[2], as beyond its number.
local found, start, most, bytes = 0, '(' .. ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
while found < most do
  local page = redis.call('XRANGE', KEYS[1], start, '+', 'COUNT', 10)
  found = found + #page
  if #page < 10 then
    return found
  end
  for _, entry in ipairs(page) do
    for _, value in ipairs(entry[2]) do
      bytes = bytes - #value
    end
  end
  if bytes < 0 then
    return most
  end
  start = '(' .. page[#page][1]
end
return most
