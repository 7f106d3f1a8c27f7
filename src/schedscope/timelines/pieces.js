// The loaded data of a lane: arrays from an answer's buffers, and their sums per pixel.

const NOBODY = 0xffffffff;
const ARRAYS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f8: Float64Array };

/** A lane's part of an answer, with its numbers as typed arrays. */
function unpack(row, answer, buffers) {
  const array = ([index, dtype]) => {
    const view = buffers[(answer.buffer || 0) + index];
    // Copied, because a typed array needs aligned bytes.
    const bytes = view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
    return new ARRAYS[dtype](bytes);
  };
  const { first, bins, scale } = { ...answer, ...row };
  const piece = { kind: row.kind, first, bins, scale, begin: first * scale, end: (first + bins) * scale, refining: row.refining };
  if (row.kind === "bins") {
    piece.states = Object.entries(row.states).map(([code, at]) => [Number(code), array(at)]);
    return piece;
  }
  if (row.kind === "levels") {
    for (const name of ["sum", "known", "max"]) if (row[name]) piece[name] = array(row[name]);
    piece.finest = groupIn(row.key) !== null;
    piece.top = row.top;
    return piece;
  }
  const gaps = array(row.gaps), durs = array(row.durs);
  piece.starts = new Float64Array(gaps.length);
  piece.ends = new Float64Array(gaps.length);
  for (let i = 0, at = row.from; i < gaps.length; i++) {
    at += gaps[i];
    piece.starts[i] = at;
    piece.ends[i] = at + durs[i];
  }
  piece.codes = array(row.codes);
  piece.who = array(row.who);
  if (row.waker) {
    piece.waker = array(row.waker);
    piece.wakerCpu = array(row.waker_cpu);
  }
  return piece;
}

/** First index whose value is greater than `x`, in an ascending array. */
function after(values, x) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > x) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Running totals of ns in a state at each bin edge of a piece, computed once. */
function totalsOf(piece, code, values) {
  piece.totals ||= new Map();
  if (!piece.totals.has(code)) {
    const totals = new Float64Array(values.length + 1);
    for (let i = 0; i < values.length; i++) totals[i + 1] = totals[i] + values[i];
    piece.totals.set(code, totals);
  }
  return piece.totals.get(code);
}

/** A running total at an instant, interpolated within a bin. */
function upTo(piece, totals, values, at) {
  const slot = Math.floor(at / piece.scale), i = slot - piece.first;
  if (i >= piece.bins) return totals[piece.bins];
  return i < 0 ? 0 : totals[i] + (values[i] * (at - slot * piece.scale)) / piece.scale;
}

/** Sums for pixels first .. first + bins from running totals. */
function perPixel(piece, code, values, first, bins, scale) {
  const sums = new Float64Array(bins), totals = totalsOf(piece, code, values);
  let before = upTo(piece, totals, values, first * scale);
  for (let k = 0; k < bins; k++) {
    const now = upTo(piece, totals, values, (first + k + 1) * scale);
    sums[k] = now - before;
    before = now;
  }
  return sums;
}

/** ns in each state for pixels first .. first + bins, from one piece's data. */
export function coverage(piece, first, bins, scale) {
  const found = new Map();
  const of = (code) => {
    if (!found.has(code)) found.set(code, new Float64Array(bins));
    return found.get(code);
  };
  const begin = first * scale, end = (first + bins) * scale;
  // Adds the interval [from, until) to the pixels it covers.
  const add = (sums, from, until) => {
    from = Math.max(from, begin);
    until = Math.min(until, end);
    if (from >= until) return;
    const a = Math.floor(from / scale) - first, b = Math.floor(until / scale) - first;
    if (a === b) {
      sums[a] += until - from;
      return;
    }
    sums[a] += (a + 1 + first) * scale - from;
    for (let i = a + 1; i < b; i++) sums[i] += scale;
    if (b < bins) sums[b] += until - (b + first) * scale;
  };
  if (piece.kind === "intervals") {
    for (let i = after(piece.ends, begin); i < piece.starts.length && piece.starts[i] < end; i++) {
      add(of(piece.codes[i]), piece.starts[i], piece.ends[i]);
    }
    return found;
  }
  for (const [code, values] of piece.states) {
    if (piece.scale !== scale) {
      found.set(code, perPixel(piece, code, values, first, bins, scale));
      continue;
    }
    const sums = of(code), low = Math.max(first, piece.first), high = Math.min(first + bins, piece.first + piece.bins);
    for (let k = low; k < high; k++) sums[k - first] = values[k - piece.first];
  }
  return found;
}

/** ns in each state within [begin, end), from one piece's data. */
function within(piece, begin, end) {
  const found = new Map();
  const add = (code, ns) => { if (ns > 0) found.set(code, (found.get(code) || 0) + ns); };
  if (piece.kind === "intervals") {
    for (let i = after(piece.ends, begin); i < piece.starts.length && piece.starts[i] < end; i++) {
      add(piece.codes[i], Math.min(end, piece.ends[i]) - Math.max(begin, piece.starts[i]));
    }
    return found;
  }
  for (const [code, values] of piece.states) {
    const totals = totalsOf(piece, code, values);
    add(code, upTo(piece, totals, values, end) - upTo(piece, totals, values, begin));
  }
  return found;
}

/** How good this piece is for these pixels: exact, as exact as can be had, or approximate. */
function exact(piece, scale) {
  return piece.kind === "intervals" || piece.finest || scale % piece.scale === 0;
}
