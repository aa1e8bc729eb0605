-- Dead-letters a member that cannot be decoded, unless another worker has. KEYS: P:delayed, the dead letters.
-- ARGV: longest stream (0: any), member, then the values of the dead letter. Replies 1, or 0 where it was done before.
if not redis.call('ZSCORE', KEYS[1], ARGV[2]) then
  return 0
end
if redis.acl_check_cmd and not redis.acl_check_cmd('ZREM', KEYS[1], 'member') then
  return redis.error_reply('NOPERM no permission to run ZREM on the delayed set')
end
local add = { 'XADD', KEYS[2] }
if tonumber(ARGV[1]) > 0 then
  add[3], add[4], add[5] = 'MAXLEN', '~', ARGV[1]
end
add[#add + 1] = '*'
for position = 3, #ARGV do
  add[#add + 1] = ARGV[position]
end
redis.call(unpack(add))
redis.call('ZREM', KEYS[1], ARGV[2])
return 1
