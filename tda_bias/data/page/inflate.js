"use strict";
// The data of the page, unpacked at once: what a browser unpacks in the background may come after
// the page is printed, and the same file would give another number of pages. RFC 1951 and 1952.

/** Counts and symbols of a Huffman code, from the lengths of its words. */
function huffman(lengths) {
  const counts = new Uint16Array(16);
  for (const length of lengths) counts[length] += 1;
  counts[0] = 0;
  const places = new Uint16Array(16);
  for (let length = 1; length < 15; length += 1) {
    places[length + 1] = places[length] + counts[length];
  }
  const symbols = new Uint16Array(lengths.length);
  lengths.forEach((length, symbol) => { if (length) symbols[places[length]++] = symbol; });
  return { counts, symbols };
}

const FIXED = {
  letters: huffman(Array.from({ length: 288 }, (_, n) => (n < 144 ? 8 : n < 256 ? 9 : n < 280 ? 7 : 8))),
  distances: huffman(new Array(30).fill(5)),
};
const LENGTH_BITS = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
const ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
const starts = (bits, first) => bits.map((_, n) => bits.slice(0, n).reduce((sum, b) => sum + (1 << b), first));
const LENGTHS = starts(LENGTH_BITS, 3);
LENGTHS[28] = 258;
const DISTANCE_BITS = Array.from({ length: 30 }, (_, n) => Math.max(0, (n >> 1) - 1));
const DISTANCES = starts(DISTANCE_BITS, 1);

/** The bytes of a gzip file without optional fields, as Python writes it. */
function gunzipped(bytes) {
  const size = new DataView(bytes.buffer, bytes.byteOffset).getUint32(bytes.length - 4, true);
  const out = new Uint8Array(size);
  let from = 10, to = 0, held = 0, number = 0;

  function bits(count) {
    while (number < count) { held |= bytes[from++] << number; number += 8; }
    const value = held & ((1 << count) - 1);
    held >>>= count;
    number -= count;
    return value;
  }
  function symbol({ counts, symbols }) {
    let code = 0, first = 0, place = 0;
    for (let length = 1; length < 16; length += 1) {
      code |= bits(1);
      const count = counts[length];
      if (code - count < first) return symbols[place + code - first];
      place += count;
      first = (first + count) << 1;
      code <<= 1;
    }
    throw new Error("the data of this page is damaged");
  }
  function codes() {
    const letters = bits(5) + 257, distances = bits(5) + 1, count = bits(4) + 4;
    const lengths = new Array(19).fill(0);
    for (let n = 0; n < count; n += 1) lengths[ORDER[n]] = bits(3);
    const code = huffman(lengths), both = [];
    while (both.length < letters + distances) {
      const one = symbol(code);
      if (one < 16) both.push(one);
      else {
        const repeated = one === 16 ? both.at(-1) : 0;
        const times = one === 16 ? 3 + bits(2) : one === 17 ? 3 + bits(3) : 11 + bits(7);
        both.push(...new Array(times).fill(repeated));
      }
    }
    return { letters: huffman(both.slice(0, letters)), distances: huffman(both.slice(letters)) };
  }

  let last = 0;
  while (!last) {
    last = bits(1);
    const kind = bits(2);
    if (kind === 0) {
      held = number = 0;
      const length = bytes[from] | (bytes[from + 1] << 8);
      out.set(bytes.subarray(from + 4, from + 4 + length), to);
      from += 4 + length;
      to += length;
      continue;
    }
    const { letters, distances } = kind === 1 ? FIXED : codes();
    for (let one = symbol(letters); one !== 256; one = symbol(letters)) {
      if (one < 256) { out[to++] = one; continue; }
      const length = LENGTHS[one - 257] + bits(LENGTH_BITS[one - 257]);
      const far = symbol(distances), distance = DISTANCES[far] + bits(DISTANCE_BITS[far]);
      for (let n = 0; n < length; n += 1, to += 1) out[to] = out[to - distance];
    }
  }
  if (to !== size) throw new Error("the data of this page is damaged");
  return out;
}
