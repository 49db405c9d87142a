package valkey

import (
	"crypto/sha1"
	"encoding/hex"
)

// script is a Lua script of the server.
type script struct{ source, sha string }

func newScript(flags, source string) script {
	// With the first line, the server refuses the script as a whole if it could not carry out a
	// part of it, for example because its memory is full.
	source = "#!lua" + flags + "\n" + source
	sum := sha1.Sum([]byte(source)) // names the script, as the server does
	return script{source, hex.EncodeToString(sum[:])}
}

// statusLost begins the error of a script that has found another epoch.
const statusLost = "LOST"

// checkEpoch begins every script but begin. KEYS[1] is the epoch, ARGV[1] its id, ARGV[2] the
// largest generation that the replica has seen. next returns a new generation.
const checkEpoch = `
local epoch = redis.call('HMGET', KEYS[1], 'id', 'generation')
if epoch[1] ~= ARGV[1] or tonumber(epoch[2]) < tonumber(ARGV[2]) then
  return redis.error_reply('LOST the epoch is another one')
end
local function text(n) return string.format('%.0f', n) end
local function next() return redis.call('HINCRBY', KEYS[1], 'generation', 1) end
`

// clock has the time of the server, in microseconds and in milliseconds.
const clock = `
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local millis = math.floor(micros / 1000)
`

// scripts are all scripts of a Store.
type scripts struct {
	begin, get, swap, take, list, admit, renew, release, track script
}

func newScripts() scripts {
	// With allow-oom, a script also runs when the memory of the server is full. The scripts begin
	// and list write a few bytes at most. If they did not run, a full server would stop all
	// traffic, because the stops of other replicas would not be known, and no replica could start.
	// The script release only frees memory.
	return scripts{
		begin:   newScript(" flags=allow-oom", clock+beginScript),
		get:     newScript(" flags=no-writes", checkEpoch+getScript),
		swap:    newScript("", checkEpoch+clock+swapScript),
		take:    newScript("", checkEpoch+takeScript),
		list:    newScript(" flags=allow-oom", checkEpoch+clock+listScript),
		admit:   newScript("", checkEpoch+clock+admitScript),
		renew:   newScript("", checkEpoch+clock+renewScript),
		release: newScript(" flags=allow-oom", checkEpoch+releaseScript),
		track:   newScript("", checkEpoch+clock+trackScript),
	}
}

// beginScript returns the id, when something was lost (0: never), the time, and the generation.
// ARGV[1] is the id that the replica knows, or ” if it has just started and kept nothing. ARGV[2]
// is the largest generation that it has seen. ARGV[3] is a new id. A replica that knows another id
// has noticed a loss. If the present epoch does not say so, it was begun by a replica that has just
// started and knew nothing of it; then a new one begins.
const beginScript = `
local epoch = redis.call('HMGET', KEYS[1], 'id', 'lost', 'generation')
local known, seen = ARGV[1], tonumber(ARGV[2])
local generation = tonumber(epoch[3] or '0')
local noticed = false
if known ~= '' then
  noticed = not epoch[1] or (epoch[1] == known and generation < seen) or
    (epoch[1] ~= known and epoch[2] == '0')
end
if not epoch[1] or noticed then
  local lost = noticed and millis or 0
  generation = math.max(micros, generation + 1, seen + 1)
  epoch = {ARGV[3], string.format('%.0f', lost)}
  redis.call('HSET', KEYS[1], 'id', epoch[1], 'lost', epoch[2], 'generation',
    string.format('%.0f', generation))
end
return {epoch[1], epoch[2], string.format('%.0f', millis), string.format('%.0f', generation)}
`

// getScript returns the generation and the value, or nothing. KEYS[2] is the value.
const getScript = `
local value = redis.call('HMGET', KEYS[2], 'generation', 'value')
if not value[1] then return {} end
return value
`

// swapScript returns 'ok' and the new generation, which a removal has, too, or 'changed' or 'full'.
// KEYS[2] is the value; KEYS[3] and KEYS[4] are the index and the version of its kind if it is
// listed. ARGV[3] is the expected generation, ARGV[4] the hidden name, ARGV[5] the time to live in
// milliseconds, ARGV[6] the bound of listed values, and ARGV[7] the value, if it is not removed.
const swapScript = `
local old = redis.call('HGET', KEYS[2], 'generation')
if (old or '0') ~= ARGV[3] then return {'changed'} end
local listed, ttl, value = KEYS[3], tonumber(ARGV[5]), ARGV[7]
if not value and not old then return {'ok', '0'} end
if listed and value and not old then
  redis.call('ZREMRANGEBYSCORE', listed, '-inf', text(millis))
  if redis.call('ZCARD', listed) >= tonumber(ARGV[6]) then return {'full'} end
end
local generation = text(next())
redis.call('DEL', KEYS[2])
if value then
  redis.call('HSET', KEYS[2], 'generation', generation, 'value', value)
  if ttl > 0 then redis.call('PEXPIREAT', KEYS[2], text(millis + ttl)) end
end
if listed then
  redis.call('SET', KEYS[4], generation)
  if value then
    redis.call('ZADD', listed, ttl > 0 and text(millis + ttl) or '+inf', ARGV[4])
  else
    redis.call('ZREM', listed, ARGV[4])
  end
end
return {'ok', generation}
`

// takeScript returns a new generation and the value, or nothing. The keys are those of swapScript.
// ARGV[3] is the hidden name.
const takeScript = `
local value = redis.call('HMGET', KEYS[2], 'generation', 'value')
if not value[1] then return {} end
redis.call('DEL', KEYS[2])
local generation = text(next())
if KEYS[3] then
  redis.call('ZREM', KEYS[3], ARGV[3])
  redis.call('SET', KEYS[4], generation)
end
return {generation, value[2]}
`

// listScript returns the version of a kind, and if it is not ARGV[3], a hidden name, a generation
// and a value for each listed value. KEYS[2] is the index, KEYS[3] the version. ARGV[4] is the part
// of the values' keys before the hidden names.
const listScript = `
if redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', text(millis)) > 0 then
  redis.call('SET', KEYS[3], text(next()))
end
local version = redis.call('GET', KEYS[3]) or '1'
local found = {version}
if version == ARGV[3] then return found end
for _, name in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  local value = redis.call('HMGET', ARGV[4] .. name, 'generation', 'value')
  if value[1] then
    found[#found + 1], found[#found + 2], found[#found + 3] = name, value[1], value[2]
  end
end
return found
`

// admitScript returns 'ok', or the number of the limit that refuses, whether it has too many
// leases, and how long it refuses in microseconds. Each limit has two keys from KEYS[2] on: when it
// admits a whole burst again, in microseconds, and its leases with the time at which each expires,
// in milliseconds. ARGV[3] is the lease, ARGV[4] its time to live in milliseconds. Each limit has
// three arguments from ARGV[5] on: the time of one event, the time of a burst less one, both in
// microseconds, and the largest number of leases.
const admitScript = `
local lease, ttl, limits = ARGV[3], tonumber(ARGV[4]), (#KEYS - 1) / 2
local full = {}
for i = 1, limits do
  local rate, leases, at = KEYS[2 * i], KEYS[2 * i + 1], 2 + 3 * i
  local interval, tolerance = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local concurrent = tonumber(ARGV[at + 2])
  if concurrent > 0 then
    local held = redis.call('ZSCORE', leases, lease)
    if not held or tonumber(held) <= millis then
      if redis.call('ZCOUNT', leases, '(' .. text(millis), '+inf') >= concurrent then
        return {text(i - 1), '1', '0'}
      end
    end
  end
  if interval > 0 then
    full[i] = math.max(micros, tonumber(redis.call('GET', rate) or '0'))
    local wait = full[i] - micros - tolerance
    if wait > 0 then return {text(i - 1), '0', text(wait)} end
  end
end
for i = 1, limits do
  local rate, leases, at = KEYS[2 * i], KEYS[2 * i + 1], 2 + 3 * i
  local interval, concurrent = tonumber(ARGV[at]), tonumber(ARGV[at + 2])
  if interval > 0 then
    local value = full[i] + interval
    redis.call('SET', rate, text(value), 'PX', text(math.ceil((value - micros) / 1000)))
  end
  if concurrent > 0 then
    redis.call('ZREMRANGEBYSCORE', leases, '-inf', text(millis))
    redis.call('ZADD', leases, text(millis + ttl), lease)
    if redis.call('PTTL', leases) < ttl then redis.call('PEXPIRE', leases, text(ttl)) end
  end
end
return {'ok'}
`

// renewScript renews a lease in all keys from KEYS[2] on. ARGV[3] is the lease, ARGV[4] the time to
// live in milliseconds.
const renewScript = `
local ttl = tonumber(ARGV[4])
for i = 2, #KEYS do
  local held = redis.call('ZSCORE', KEYS[i], ARGV[3])
  if held and tonumber(held) > millis then
    redis.call('ZADD', KEYS[i], text(millis + ttl), ARGV[3])
    if redis.call('PTTL', KEYS[i]) < ttl then redis.call('PEXPIRE', KEYS[i], text(ttl)) end
  end
end
return {'ok'}
`

// releaseScript ends a lease in all keys from KEYS[2] on. ARGV[3] is the lease.
const releaseScript = `
for i = 2, #KEYS do redis.call('ZREM', KEYS[i], ARGV[3]) end
return {'ok'}
`

// trackScript returns 'ok', the second in which it counted, the generation, the fields of KEYS[2],
// and those of the last minute, or 'full'. KEYS[2] has a field l:NAME for each label, with its
// number and its sealed text, c:NAME for each count, and n:NAME for its sealed name. KEYS[3] has a
// field NAME:SECOND for each count of a second of the last minute. ARGV[3] is the time to live in
// milliseconds, ARGV[4] whether the minute counts ('1'), ARGV[5] its second or '0', ARGV[6] to
// ARGV[8] the bounds of labels, counts and counts of a second, and ARGV[9] the number of labels.
// Then follow a name and a sealed text for each label, and a name, a number and a sealed name for
// each count.
const trackScript = `
local main, minute = KEYS[2], KEYS[3]
local ttl, second, counted = tonumber(ARGV[3]), tonumber(ARGV[5]), ARGV[4] == '1'
local seconds = math.floor(millis / 1000)
if second == 0 then second = seconds end
local labels, first = tonumber(ARGV[9]), 10
local firstCount = first + 2 * labels
local size = redis.call('HMGET', main, '#labels', '#counts')
local labelCount, countCount = tonumber(size[1] or '0'), tonumber(size[2] or '0')
local before = {labelCount, countCount}

local added, changed = {}, {}
for i = first, firstCount - 1, 2 do
  local field = 'l:' .. ARGV[i]
  if not added[field] and redis.call('HEXISTS', main, field) == 0 then
    added[field] = true
    changed[#changed + 1], changed[#changed + 2] = field, labelCount .. ':' .. ARGV[i + 1]
    labelCount = labelCount + 1
  end
end
local removed = {}
for i = firstCount, #ARGV, 3 do
  local name, n = ARGV[i], tonumber(ARGV[i + 1])
  local old = redis.call('HGET', main, 'c:' .. name)
  local value = tonumber(old or '0') + n
  if value > 0 then
    changed[#changed + 1], changed[#changed + 2] = 'c:' .. name, text(value)
    if not old then
      changed[#changed + 1], changed[#changed + 2] = 'n:' .. name, ARGV[i + 2]
      countCount = countCount + 1
    end
  elseif old then
    removed[#removed + 1], removed[#removed + 2] = 'c:' .. name, 'n:' .. name
    countCount = countCount - 1
  end
end
local last, lastCount, old = {}, 0, {}
if counted then
  local fields = redis.call('HGETALL', minute)
  for i = 1, #fields, 2 do
    if tonumber(string.match(fields[i], ':(%d+)$')) < seconds - 60 then
      old[#old + 1] = fields[i]
    else
      last[fields[i]] = tonumber(fields[i + 1])
      lastCount = lastCount + 1
    end
  end
  for i = firstCount, second < seconds - 60 and 0 or #ARGV, 3 do
    local field = ARGV[i] .. ':' .. text(second)
    local was = last[field]
    local value = (was or 0) + tonumber(ARGV[i + 1])
    if value > 0 then
      last[field] = value
      if not was then lastCount = lastCount + 1 end
    elseif was then
      last[field] = nil
      old[#old + 1] = field
      lastCount = lastCount - 1
    end
  end
end
if labelCount > math.max(before[1], tonumber(ARGV[6])) or
    countCount > math.max(before[2], tonumber(ARGV[7])) or lastCount > tonumber(ARGV[8]) then
  return {'full'}
end

if #changed + #removed > 0 then
  changed[#changed + 1], changed[#changed + 2] = '#labels', text(labelCount)
  changed[#changed + 1], changed[#changed + 2] = '#counts', text(countCount)
  for i = 1, #changed, 200 do
    redis.call('HSET', main, unpack(changed, i, math.min(i + 199, #changed)))
  end
  for i = 1, #removed, 200 do
    redis.call('HDEL', main, unpack(removed, i, math.min(i + 199, #removed)))
  end
end
-- with a new generation, WAIT also waits for a label that another replica has added just before
local generation = labels > 0 and next() or epoch[2]
if ttl > 0 then redis.call('PEXPIRE', main, text(ttl)) end
for i = 1, #old, 200 do
  redis.call('HDEL', minute, unpack(old, i, math.min(i + 199, #old)))
end
local flat = {}
for field, n in pairs(last) do flat[#flat + 1], flat[#flat + 2] = field, text(n) end
if counted and #ARGV >= firstCount then
  for i = firstCount, #ARGV, 3 do
    local field = ARGV[i] .. ':' .. text(second)
    if last[field] then redis.call('HSET', minute, field, text(last[field])) end
  end
  redis.call('PEXPIRE', minute, '70000')
end
return {'ok', text(second), text(generation), redis.call('HGETALL', main), flat}
`
