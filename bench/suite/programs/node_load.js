// The workload "node": what a server in JavaScript asks of malloc lies beside the engine's own heap: buffers, strings on the way in and out, compression,
// and the engine's tables. Fixed seed; prints a checksum.
'use strict';
const zlib = require('zlib');

let state = 20090527;
const random = (below) => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 4294967296) * below);
};

let sum = 0;
const add = (value) => { sum = (Math.imul(sum, 31) + value) >>> 0; };

const kept = new Array(400).fill(null);
for (let i = 0; i < 60000; i++) {
  const size = 1 << (4 + random(12));
  const buffer = Buffer.allocUnsafeSlow(size + random(size));
  buffer.fill(i & 255);
  const at = random(kept.length);
  if (kept[at]) add(kept[at][kept[at].length >> 1]);
  kept[at] = buffer;
}
for (let round = 0; round < 12; round++) {
  const rows = [];
  for (let i = 0; i < 3000; i++) rows.push({ id: i, name: 'n' + random(1e6), list: [random(9), random(99)], text: 'x'.repeat(random(300)) });
  const text = JSON.stringify(rows);
  const packed = zlib.deflateSync(Buffer.from(text), { level: 1 });
  const back = JSON.parse(zlib.inflateSync(packed).toString());
  add(back.length + text.length);
  const table = new Map();
  for (const row of back) table.set(row.name + row.id, row);
  add(table.size);
}
console.log(sum);
