-- The workload "lua": every table, closure and string of Lua is a block of malloc's. Fixed seed of its own; prints a checksum.
local state = 19930728
local function random(below)
  state = (state * 1103515245 + 12345) & 0x7fffffff
  return (state >> 8) % below
end

local sum = 0
local function add(value) sum = (sum * 31 + value) & 0xffffffff end

local kept = {}
for i = 1, 400000 do
  local node = { id = i, name = "node-" .. random(1000000), list = { random(9), random(99) } }
  node.call = function(x) return x + node.id end
  local at = random(8000) + 1
  if kept[at] then add(kept[at].call(#kept[at].name)) end
  kept[at] = node
end
local parts = {}
for i = 1, 60000 do parts[#parts + 1] = string.format("%d:%s;", i, string.rep("ab", random(20))) end
local text = table.concat(parts)
local count, length = 0, 0
for number, word in text:gmatch("(%d+):(%w*);") do
  count, length = count + 1, length + #(number .. word:upper())
end
add(count)
add(length)
local function build(depth) return depth == 0 and {} or { build(depth - 1), build(depth - 1) } end
local function walk(t) return t[1] and 1 + walk(t[1]) + walk(t[2]) or 1 end
for _ = 1, 8 do add(walk(build(14))) end
print(sum, #text)
