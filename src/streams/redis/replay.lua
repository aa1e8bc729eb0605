-- Gives one dead letter back to its stage, if it is still there.
-- KEYS: dead letters, P:retry. ARGV: the letter's id, name and value of the meta pair.
-- Answers 1 = moved, 0 = gone.
-- The add comes first: a full server refuses it, and then the letter stays where it is.
local found = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])
if #found == 0 then
  return 0
end
if redis.acl_check_cmd and not redis.acl_check_cmd('XDEL', KEYS[1], '0-0') then
  return redis.error_reply('NOPERM no permission to run XDEL on the dead letters')
end
local pairs_of_letter = found[1][2]
local at = 1
while pairs_of_letter[at] ~= 'fields' do
  at = at + 2
end
local values = { ARGV[2], ARGV[3] }
for i = at + 2, #pairs_of_letter do
  values[#values + 1] = pairs_of_letter[i]
end
redis.call('XADD', KEYS[2], '*', unpack(values))
redis.call('XDEL', KEYS[1], ARGV[1])
return 1
