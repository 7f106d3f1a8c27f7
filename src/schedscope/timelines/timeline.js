// A timeline of CPUs and threads on one canvas.
//
// Times are whole ns after the begin of the trace; `scale` is a whole number of ns per
// device pixel, and pixel k is [k * scale, (k + 1) * scale). So every sum here is exact,
// and Python's pixels are ours. What is shown comes from a `source(request)`, a promise
// of an answer as timelines/answer.py describes it: a kernel, or the page's own data.

const NOBODY = 0xffffffff;
const RUNNING = 0, IDLE = 1, RUNNABLE = 2, BLOCKED = 3, SLEEPING = 4, STOPPED = 5, UNKNOWN = 6;
const AXIS = 22, NAMES = 168, WIDE = 3, ARROWS = 30; // CSS pixels; an interval this wide gets a colour of its own
const ARRAYS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f8: Float64Array };

const LIGHT = {
  back: "#ffffff", text: "#1f2328", faint: "#6b7280", line: "#e3e5e8", lane: "#f5f6f8",
  [RUNNING]: "#2f7d4f", [RUNNABLE]: "#d1442f", [BLOCKED]: "#7a4fb5", [SLEEPING]: "#d5dae1",
  [STOPPED]: "#98844a", hatch: "#b9bfc8", arrow: "#1f2328",
};
const DARK = {
  back: "#16181d", text: "#e6e8eb", faint: "#9aa2ad", line: "#2c3038", lane: "#1d2026",
  [RUNNING]: "#4fae78", [RUNNABLE]: "#f0705a", [BLOCKED]: "#a98be0", [SLEEPING]: "#3a404b",
  [STOPPED]: "#c5ae6c", hatch: "#565d69", arrow: "#e6e8eb",
};

const STYLE = `
.sst { position: relative; font: 13px/1.4 system-ui, sans-serif; }
.sst canvas { display: block; width: 100%; cursor: grab; touch-action: none; }
.sst canvas:focus-visible { outline: 2px solid Highlight; outline-offset: 1px; }
.sst-bar { display: flex; gap: .4em; align-items: center; flex-wrap: wrap; margin-bottom: .4em; }
.sst-bar button { font: inherit; color: inherit; background: transparent; padding: .1em .6em;
  border: 1px solid currentColor; border-radius: 4px; cursor: pointer; opacity: .8; }
.sst-key i { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin: 0 .3em 0 .8em;
  print-color-adjust: exact; }
.sst-note { min-height: 2.8em; font-variant-numeric: tabular-nums; margin-top: .3em; }
.sst-tip { position: absolute; pointer-events: none; z-index: 2; padding: .35em .6em; max-width: 40em; width: max-content;
  border-radius: 4px; white-space: pre-line; box-shadow: 0 1px 6px #0006; font-variant-numeric: tabular-nums; }
`;

export function duration(ns) {
  for (const [step, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
    if (Math.abs(ns) >= step * 0.9995) return `${Number((ns / step).toPrecision(3))} ${unit}`;
  }
  return `${Number(ns.toPrecision(3))} ns`;
}

// ---- answers: arrays from buffers, sums per pixel ----

/** A lane's part of an answer, with its numbers as typed arrays. */
function unpack(row, answer, buffers) {
  const array = ([index, dtype]) => {
    const view = buffers[(answer.buffer || 0) + index];
    // Copied: the bytes need not lie where a typed array may begin.
    const bytes = view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
    return new ARRAYS[dtype](bytes);
  };
  const piece = {
    kind: row.kind, first: answer.first, bins: answer.bins, scale: answer.scale,
    begin: answer.first * answer.scale, end: (answer.first + answer.bins) * answer.scale,
  };
  if (row.kind === "bins") {
    piece.states = Object.entries(row.states).map(([code, at]) => [Number(code), array(at)]);
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

/** ns in a state up to each edge of a piece's stretches, summed once. */
function totalsOf(piece, code, values) {
  piece.totals ||= new Map();
  if (!piece.totals.has(code)) {
    const totals = new Float64Array(values.length + 1);
    for (let i = 0; i < values.length; i++) totals[i + 1] = totals[i] + values[i];
    piece.totals.set(code, totals);
  }
  return piece.totals.get(code);
}

/** ns in each state for pixels first .. first + bins, from what a piece holds. */
export function coverage(piece, first, bins, scale) {
  const found = new Map();
  const of = (code) => {
    if (!found.has(code)) found.set(code, new Float64Array(bins));
    return found.get(code);
  };
  const begin = first * scale, end = (first + bins) * scale;
  // The interval [from, until) adds to its pixels.
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
    const sums = of(code);
    if (piece.scale === scale) {
      const low = Math.max(first, piece.first), high = Math.min(first + bins, piece.first + piece.bins);
      for (let k = low; k < high; k++) sums[k - first] = values[k - piece.first];
      continue;
    }
    // Differences of a running total; within a stretch, in proportion.
    const totals = totalsOf(piece, code, values);
    let before = 0;
    for (let k = 0; k <= bins; k++) {
      const at = (first + k) * scale, slot = Math.floor(at / piece.scale), i = slot - piece.first;
      let upto = 0;
      if (i >= piece.bins) upto = totals[piece.bins];
      else if (i >= 0) upto = totals[i] + (values[i] * (at - slot * piece.scale)) / piece.scale;
      if (k) sums[k - 1] = upto - before;
      before = upto;
    }
  }
  return found;
}

/** A colour as ImageData has it, alpha first (every platform with a browser is little-endian). */
function packed(hex) {
  const rgb = parseInt(hex.slice(1), 16);
  return (0xff000000 | ((rgb & 0xff) << 16) | (rgb & 0xff00) | (rgb >> 16)) >>> 0;
}

/** `part` of `ink` over what is there. */
function blend(ground, ink, part) {
  let mixed = 0xff000000;
  for (const shift of [0, 8, 16]) {
    const below = (ground >> shift) & 0xff;
    mixed |= Math.round(below + (((ink >> shift) & 0xff) - below) * part) << shift;
  }
  return mixed >>> 0;
}

/** Does this piece tell the pixels as they are, or only about? */
function exact(piece, scale) {
  return piece.kind === "intervals" || scale % piece.scale === 0;
}

// ---- the picture ----

export function mount(root, about, source) {
  const style = document.createElement("style");
  style.textContent = STYLE;
  const box = document.createElement("div");
  box.className = "sst";
  const bar = element("div", "sst-bar"), note = element("div", "sst-note"), tip = element("div", "sst-tip");
  const canvas = document.createElement("canvas");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `Timeline of ${about.name}: arrow keys pan, plus and minus zoom, ` +
    "n and p go to the worst waits, 0 shows everything");
  note.setAttribute("role", "status");
  tip.hidden = true;
  box.append(bar, canvas, tip, note);
  root.append(style, box);
  const paint = canvas.getContext("2d");

  const total = Math.max(1, about.duration), origin = about.origin;
  const names = { ...about.names };
  let lanes = [...about.lanes];
  const pieces = new Map(); // lane -> what is known of it, newest last
  const view = { first: 0, scale: 1, bins: 1 };
  let wait = -1, ratio = 1, height = 20, colour = LIGHT, pointer = null, drag = null;
  let until = 0, asked = null, again = false, shown = true, problem = "", frames = 0, busy = 0, gone = false, paper = false;

  const thread = (utid) => names[utid] || `thread ${utid}`;
  const title = (lane) => (lane.startsWith("cpu:") ? `CPU ${lane.slice(4)}` : thread(lane.slice(5)));
  const when = (ns) => `${((origin + ns) / 1e9).toFixed(Math.min(9, Math.max(3, 11 - Math.ceil(Math.log10(view.scale * view.bins + 1)))))} s`;

  function element(name, kind, text = "") {
    const made = document.createElement(name);
    made.className = kind;
    made.textContent = text;
    return made;
  }

  function button(text, hint, act) {
    const made = element("button", "", text);
    made.type = "button";
    made.title = hint;
    made.addEventListener("click", () => { act(); canvas.focus({ preventScroll: true }); });
    bar.append(made);
  }
  button("‹ longer wait", "key p", () => jump(-1));
  button("next longest wait ›", "key n", () => jump(1));
  button("show all", "key 0", whole);
  const keys = element("span", "sst-key");
  bar.append(keys);

  // What may be asked: the page's own data ends somewhere, and its pixels are that fine.
  function fit() {
    const least = Math.max(1, Math.ceil(total / view.bins)), step = about.finest || 1;
    return Math.ceil(least / step) * step;
  }
  function settle(first, scale) {
    scale = Math.min(Math.max(1, Math.round(scale)), fit());
    view.scale = scale;
    const last = Math.max(0, Math.ceil(total / scale) - view.bins);
    view.first = Math.min(Math.max(0, Math.round(first)), last);
    request();
    draw();
  }

  /** Zoom so that the time under device pixel `x` stays there. */
  function zoom(factor, x) {
    const time = (view.first + x) * view.scale;
    let scale = Math.max(1, view.scale * factor);
    if (Math.round(scale) === view.scale) scale = view.scale + Math.sign(factor - 1);
    scale = Math.min(Math.max(1, Math.round(scale)), fit());
    // Where the page's data is in bins, pixels made of whole ones are exact.
    if (about.finest && scale > about.finest && scale < fit()) {
      const steps = factor > 1 ? Math.ceil(scale / about.finest) : Math.floor(scale / about.finest);
      scale = Math.min(fit(), Math.max(1, steps) * about.finest);
    }
    settle(time / scale - x, scale);
  }

  function whole() {
    wait = -1;
    settle(0, fit());
  }

  function between(begin, end) {
    const scale = Math.max(1, Math.ceil((end - begin) / view.bins));
    settle(begin / scale, scale);
  }

  function jump(step) {
    if (!about.waits.length) return;
    wait = Math.min(Math.max(0, wait + step), about.waits.length - 1);
    const w = about.waits[wait], lane = `utid:${w.utid}`;
    if (!lanes.includes(lane)) {
      lanes.push(lane);
      measure();
    }
    const scale = Math.max(1, Math.ceil((2 * w.wait) / view.bins));
    settle((w.ready + w.wait / 2) / scale - view.bins / 2, scale);
  }

  // ---- asking ----

  function request() {
    // One question at a time; while it is under way only the latest wish counts.
    if (asked) {
      again = true;
      return;
    }
    const margin = Math.floor(view.bins / 2);
    const first = Math.max(0, view.first - margin), scale = view.scale;
    const bins = Math.min(16384, view.first + view.bins + margin - first);
    const want = lanes.filter((lane) => {
      const known = (pieces.get(lane) || []).at(-1);
      return !known || !holds(known) || !exact(known, scale);
    });
    if (!want.length) return;
    asked = { lanes: want, first, bins, scale };
    Promise.resolve(source(asked)).then(({ answer, buffers }) => {
      problem = "";
      Object.assign(names, answer.names);
      for (const row of answer.lanes) {
        const old = pieces.get(row.key) || [];
        const wide = old.find((piece) => piece.begin <= 0 && piece.end >= total);
        const fresh = row.pieces || [unpack(row, answer, buffers)];
        // The coarsest stays: something to show while the next answer is under way.
        pieces.set(row.key, wide && !fresh.includes(wide) ? [wide, ...fresh] : fresh);
      }
    }).catch((error) => { problem = String(error.message || error); }).finally(() => {
      asked = null;
      if (gone) return;
      if (again) {
        again = false;
        request();
      }
      draw();
    });
  }

  const holds = (piece) => piece.begin <= Math.max(0, view.first * view.scale) &&
    piece.end >= Math.min(total, (view.first + view.bins) * view.scale);

  /** The best of what is known: all of the view if possible, exact if possible. */
  function best(lane) {
    const known = pieces.get(lane) || [];
    let found = null, mark = -1;
    for (const piece of known) {
      if (piece.end <= view.first * view.scale || piece.begin >= (view.first + view.bins) * view.scale) continue;
      const score = (holds(piece) ? 4 : 0) + (exact(piece, view.scale) ? 2 : 0) + (piece.kind === "intervals" ? 1 : 0);
      if (score >= mark) [found, mark] = [piece, score];
    }
    return found;
  }

  // ---- drawing ----

  function measure() {
    ratio = window.devicePixelRatio || 1;
    height = lanes.length > 48 ? 14 : 24;
    const width = Math.max(320, box.clientWidth || root.clientWidth || 800);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round((AXIS + lanes.length * height) * ratio);
    canvas.style.height = `${AXIS + lanes.length * height}px`;
    const all = view.scale >= fit(), bins = Math.max(64, canvas.width - Math.round(NAMES * ratio));
    if (bins === view.bins) return;
    view.bins = bins;
    // The whole stays the whole; anything else keeps its begin and its scale.
    if (all || view.scale > fit()) view.scale = fit();
    view.first = Math.min(view.first, Math.max(0, Math.ceil(total / view.scale) - bins));
  }

  function theme() {
    // The page decides: whoever writes light text has a dark ground.
    const [r, g, b] = (getComputedStyle(box).color.match(/[\d.]+/g) || [0, 0, 0]).map(Number);
    const next = 0.3 * r + 0.6 * g + 0.1 * b > 128 && !paper ? DARK : LIGHT;
    if (next === colour && keys.childElementCount) return;
    colour = next;
    tip.style.background = colour.text;
    tip.style.color = colour.back;
    keys.replaceChildren();
    for (const [code, word] of [[RUNNING, "running"], [RUNNABLE, "waiting for a CPU"], [BLOCKED, "blocked"],
      [SLEEPING, "sleeping"], [UNKNOWN, "unknown"]]) {
      const patch = document.createElement("i");
      patch.style.background = code === UNKNOWN
        ? `repeating-linear-gradient(45deg, ${colour.hatch} 0 1px, transparent 1px 4px)` : colour[code];
      keys.append(patch, word);
    }
  }

  let queued = false;
  function draw() {
    if (queued || gone) return;
    queued = true;
    requestAnimationFrame(() => {
      queued = false;
      const begin = performance.now();
      render();
      busy += performance.now() - begin;
      frames++;
    });
  }

  const hatches = new Map();
  function hatch() {
    const key = `${colour.hatch} ${ratio}`;
    if (!hatches.has(key)) {
      const tile = document.createElement("canvas"), size = Math.round(5 * ratio);
      tile.width = tile.height = size;
      const pen = tile.getContext("2d");
      pen.strokeStyle = colour.hatch;
      pen.lineWidth = ratio;
      pen.beginPath();
      for (const shift of [-size, 0, size]) {
        pen.moveTo(shift, size);
        pen.lineTo(shift + size, 0);
      }
      pen.stroke();
      hatches.set(key, paint.createPattern(tile, "repeat"));
    }
    return hatches.get(key);
  }

  function render() {
    theme();
    const left = canvas.width - view.bins, high = Math.round(height * ratio), gap = Math.max(1, Math.round(2 * ratio));
    paint.setTransform(1, 0, 0, 1, 0, 0);
    paint.fillStyle = colour.back;
    paint.fillRect(0, 0, canvas.width, canvas.height);
    paint.font = `${12 * ratio}px system-ui, sans-serif`;
    paint.textBaseline = "middle";
    axis(left);
    shown = true;
    let coarse = 0;
    until = Math.min(view.bins, Math.max(0, total / view.scale - view.first));
    lanes.forEach((lane, i) => {
      const top = Math.round((AXIS + i * height) * ratio) + gap, tall = high - gap;
      paint.fillStyle = colour.lane;
      paint.fillRect(left, top, until, tall);
      paint.fillStyle = colour.text;
      clipped(title(lane), 4 * ratio, top + tall / 2, left - 8 * ratio);
      const piece = best(lane);
      if (!piece || !holds(piece) || !exact(piece, view.scale)) {
        shown = false;
        if (piece && piece.kind === "bins") coarse = Math.max(coarse, piece.scale);
      }
      if (piece) body(lane, piece, left, top, tall);
    });
    arrows(left, high);
    paint.fillStyle = colour.line;
    paint.fillRect(left - 1, 0, 1, canvas.height);
    say(coarse);
    if (pointer) hover();
  }

  function clipped(text, x, y, width) {
    if (width < 12 * ratio) return;
    let cut = text;
    if (paint.measureText(cut).width > width) {
      let low = 0, high = text.length;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (paint.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
        else high = middle - 1;
      }
      if (low < 3) return; // fewer letters say nothing
      cut = `${text.slice(0, low)}…`;
    }
    paint.fillText(cut, x, y);
  }

  function axis(left) {
    const least = 90 * ratio * view.scale;
    let step = 10 ** Math.ceil(Math.log10(least));
    if (step / 5 >= least) step /= 5;
    else if (step / 2 >= least) step /= 2;
    paint.fillStyle = colour.faint;
    const begin = view.first * view.scale, digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / 1e9))));
    const stop = Math.min(total, begin + view.bins * view.scale) + origin;
    for (let tick = Math.ceil((begin + origin) / step) * step; tick <= stop; tick += step) {
      const x = left + Math.round((tick - origin) / view.scale - view.first);
      paint.fillStyle = colour.line;
      paint.fillRect(x, 0, 1, canvas.height);
      paint.fillStyle = colour.faint;
      const text = `${(tick / 1e9).toFixed(digits)} s`;
      if (x + paint.measureText(text).width + 6 * ratio < canvas.width) paint.fillText(text, x + 3 * ratio, (AXIS * ratio) / 2);
    }
  }

  /** One lane: each pixel's shares stacked from below, then what is wide enough by itself. */
  function body(lane, piece, left, top, tall) {
    const sums = coverage(piece, view.first, view.bins, view.scale), cpu = lane.startsWith("cpu:");
    const floor = new Float64Array(view.bins); // ns already stacked
    const tile = stacked(sums, cpu ? [RUNNING] : [RUNNING, RUNNABLE, BLOCKED, STOPPED], floor, tall, until);
    paint.putImageData(tile, left, top);
    if (sums.has(SLEEPING)) {
      // Asleep is the ordinary: a thin line, as long as it lasts.
      const line = Math.max(1, Math.round(2 * ratio));
      paint.fillStyle = colour[SLEEPING];
      const asleep = sums.get(SLEEPING);
      for (let x = 0; x < view.bins;) {
        if (asleep[x] < view.scale) { x++; continue; }
        let end = x + 1;
        while (end < view.bins && asleep[end] >= view.scale) end++;
        paint.fillRect(left + x, top + Math.round(tall / 2) - line / 2, end - x, line);
        x = end;
      }
    }
    let unknown = sums.get(UNKNOWN);
    if (cpu) {
      unknown = new Float64Array(view.bins);
      const ran = sums.get(RUNNING), idle = sums.get(IDLE);
      for (let x = 0; x < view.bins; x++) {
        const from = (view.first + x) * view.scale;
        if (from < piece.begin || from >= piece.end) continue; // still being asked for
        const there = Math.max(0, Math.min(view.scale, total - from));
        const rest = there - (ran ? ran[x] : 0) - (idle ? idle[x] : 0);
        unknown[x] = rest < 0.5 ? 0 : rest; // shares of a coarser bin leave crumbs
      }
    }
    if (unknown) {
      paint.fillStyle = hatch();
      for (let x = 0; x < view.bins;) {
        if (unknown[x] <= 0) { x++; continue; }
        let end = x + 1;
        while (end < view.bins && unknown[end] === unknown[x] && floor[end] === floor[x]) end++;
        const size = (tall * unknown[x]) / view.scale;
        paint.fillRect(left + x, top + tall - (tall * floor[x]) / view.scale - size, end - x, size);
        x = end;
      }
    }
    if (piece.kind === "intervals") wide(piece, cpu, left, top, tall);
  }

  /** The shares as pixels: in software a rectangle each would take three times as long. */
  function stacked(sums, order, floor, tall, until) {
    const bins = view.bins, tile = paint.createImageData(bins, tall), words = new Uint32Array(tile.data.buffer);
    const lane = packed(colour.lane);
    const rows = tall / view.scale;
    words.fill(packed(colour.back));
    for (let y = 0; y < tall; y++) words.fill(lane, y * bins, y * bins + Math.ceil(until));
    for (const code of order) {
      const values = sums.get(code);
      if (!values) continue;
      const ink = packed(colour[code]);
      for (let x = 0; x < bins; x++) {
        if (values[x] <= 0) continue;
        const low = floor[x] * rows, high = Math.min(tall, (floor[x] + values[x]) * rows);
        floor[x] += values[x];
        // A part of the lowest pixel, whole ones, and a part of the highest.
        let row = Math.floor(low), at = (tall - 1 - row) * bins + x;
        if (row < low) {
          words[at] = blend(words[at], ink, Math.min(high, row + 1) - low);
          row++;
          at -= bins;
        }
        for (const top = Math.floor(high); row < top; row++, at -= bins) words[at] = ink;
        if (row < high) words[at] = blend(words[at], ink, high - row);
      }
    }
    return tile;
  }

  function wide(piece, cpu, left, top, tall) {
    const begin = view.first * view.scale, end = begin + view.bins * view.scale, least = WIDE * ratio * view.scale;
    for (let i = after(piece.ends, begin); i < piece.starts.length && piece.starts[i] < end; i++) {
      if (piece.ends[i] - piece.starts[i] < least || piece.codes[i] !== RUNNING) continue;
      // Whole pixels only: those at the ends show their share.
      const a = Math.max(0, Math.ceil(piece.starts[i] / view.scale) - view.first);
      const b = Math.min(view.bins, Math.floor(piece.ends[i] / view.scale) - view.first);
      if (b <= a) continue;
      if (cpu) {
        paint.fillStyle = hue(piece.who[i]);
        paint.fillRect(left + a, top, b - a, tall);
        if (b - a > 10 * ratio) {
          paint.fillStyle = colour.back;
          paint.fillRect(left + a, top, 1, tall);
        }
      }
      if (b - a > 26 * ratio) {
        paint.fillStyle = cpu && colour === LIGHT ? "#ffffff" : colour.back;
        clipped(cpu ? thread(piece.who[i]) : `CPU ${piece.who[i]}`, left + a + 4 * ratio, top + tall / 2, b - a - 8 * ratio);
      }
    }
  }

  // Neighbours in number are far apart in colour; red and violet mean states.
  const hue = (utid) => {
    const angle = 140 + Math.round(utid * 0.618034 * 100) % 100, step = utid % 3;
    return `hsl(${angle} ${colour === LIGHT ? `45% ${30 + 6 * step}%` : `40% ${58 + 6 * step}%`})`;
  };

  /** From the waker's CPU to the wait that it began, where both are to be seen. */
  function arrows(left, high) {
    const begin = view.first * view.scale, end = begin + view.bins * view.scale;
    paint.strokeStyle = paint.fillStyle = colour.arrow;
    paint.lineWidth = Math.max(1, ratio);
    const found = [];
    lanes.forEach((lane, row) => {
      const piece = best(lane);
      if (!lane.startsWith("utid:") || !piece || !piece.wakerCpu) return;
      for (let i = after(piece.ends, begin); i < piece.starts.length && piece.starts[i] < end; i++) {
        const width = (piece.ends[i] - piece.starts[i]) / view.scale;
        if (piece.wakerCpu[i] === NOBODY || piece.starts[i] < begin || width < 12 * ratio) continue;
        const from = lanes.indexOf(`cpu:${piece.wakerCpu[i]}`);
        if (from >= 0) found.push({ x: left + piece.starts[i] / view.scale - view.first, width, from, row });
      }
    });
    // More would be a curtain.
    found.sort((a, b) => b.width - a.width);
    for (const { x, from, row } of found.slice(0, ARROWS)) {
      const down = from < row ? 1 : -1;
      const y0 = (AXIS + from * height) * ratio + (down > 0 ? high : 0);
      const y1 = (AXIS + row * height) * ratio + (down > 0 ? 2 * ratio : high);
      paint.globalAlpha = 0.75;
      paint.beginPath();
      paint.moveTo(x, y0);
      paint.lineTo(x, y1 - down * 5 * ratio);
      paint.stroke();
      paint.beginPath();
      paint.moveTo(x, y1);
      paint.lineTo(x - 3 * ratio, y1 - down * 6 * ratio);
      paint.lineTo(x + 3 * ratio, y1 - down * 6 * ratio);
      paint.fill();
      paint.beginPath();
      paint.arc(x, y0, 2.5 * ratio, 0, 7);
      paint.fill();
      paint.globalAlpha = 1;
    }
    if (wait >= 0) {
      const w = about.waits[wait], row = lanes.indexOf(`utid:${w.utid}`);
      const a = w.ready / view.scale - view.first, b = (w.ready + w.wait) / view.scale - view.first;
      if (row >= 0 && b >= 0 && a <= view.bins) {
        const x = left + Math.max(0, a), width = Math.max(2, Math.min(view.bins, b) - Math.max(0, a));
        paint.strokeStyle = colour.arrow;
        paint.lineWidth = 2 * ratio;
        paint.strokeRect(x, (AXIS + row * height) * ratio + ratio, width, high);
      }
    }
  }

  function say(coarse) {
    const begin = view.first * view.scale, end = Math.min(total, begin + view.bins * view.scale);
    const lines = [`${when(begin)} to ${when(end)}, ${duration(view.scale)} per pixel`];
    if (problem) lines.push(problem);
    else if (!shown && about.finest) {
      lines.push(`This page knows ${coarse ? `no more than sums over ${duration(coarse)}` : "not all of this"}: for every interval ` +
        `write another with schedscope timeline --since ${Math.floor((origin + begin) / 1000)}us --until ${Math.ceil((origin + end) / 1000)}us`);
    } else if (!shown) lines.push("waiting for Python");
    let text = lines.join(" · ");
    if (wait >= 0) {
      const w = about.waits[wait];
      text += `\nWait ${wait + 1} of the ${about.waits.length} longest: ${thread(w.utid)} waited ` +
        `${w.open ? "at least " : ""}${duration(w.wait)}${w.queue === null ? "" : ` for CPU ${w.queue}`} from ${when(w.ready)} on (${w.cause}` +
        `${w.waker === null ? "" : `, woken by ${thread(w.waker)}`}${w.waker_cpu === null ? "" : ` on CPU ${w.waker_cpu}`})`;
    }
    if (note.textContent !== text) note.textContent = text;
    note.style.whiteSpace = "pre-line";
  }

  // ---- the pointer ----

  function place(event) {
    const frame = canvas.getBoundingClientRect();
    return { x: event.clientX - frame.left, y: event.clientY - frame.top, left: frame.left, top: frame.top };
  }

  /** What lies under the pointer, in words; empty if nothing does. */
  function words(spot) {
    const row = Math.floor((spot.y - AXIS) / height), column = Math.floor(spot.x * ratio) - (canvas.width - view.bins);
    const begin = (view.first + column) * view.scale;
    if (spot.y < AXIS || row >= lanes.length || column < 0 || column >= view.bins || begin >= total) return "";
    const lane = lanes[row], piece = best(lane), end = begin + view.scale, cpu = lane.startsWith("cpu:");
    if (!piece || begin < piece.begin || begin >= piece.end) return "";
    const lines = [];
    if (piece.kind === "intervals") {
      const from = after(piece.ends, begin);
      let until = from, longest = -1;
      for (; until < piece.starts.length && piece.starts[until] < end; until++) {
        if (longest < 0 || piece.ends[until] - piece.starts[until] > piece.ends[longest] - piece.starts[longest]) longest = until;
      }
      if (until - from > 1) lines.push(`${until - from} intervals in this pixel of ${duration(view.scale)}; the longest:`);
      if (longest >= 0) lines.push(...interval(piece, longest, cpu, lane));
      else lines.push(`${title(lane)}: unknown`);
      if (until - from <= 1) return lines.join("\n");
    } else {
      lines.push(`${title(lane)}, ${duration(view.scale)} from ${when(begin)} on`);
    }
    const sums = coverage(piece, view.first + column, 1, view.scale);
    const there = Math.min(end, total) - begin;
    let known = 0;
    for (const [code, values] of sums) {
      known += values[0];
      if (values[0] > 0) lines.push(`${about.states[code]} ${share(values[0] / there)}`);
    }
    if (cpu && there - known >= 0.5) lines.push(`unknown ${share((there - known) / there)}`);
    return lines.join("\n");
  }

  const share = (part) => (part > 0 && part < 0.001 ? "< 0.1 %" : `${(100 * part).toFixed(1)} %`);

  function interval(piece, i, cpu, lane) {
    const state = about.states[piece.codes[i]], length = duration(piece.ends[i] - piece.starts[i]);
    const who = cpu ? (piece.codes[i] === IDLE ? title(lane) : thread(piece.who[i])) : title(lane);
    const lines = [who, `${state === "runnable" ? "runnable, waiting for a CPU" : state} for ${length} from ${when(piece.starts[i])} on`];
    if (cpu && piece.codes[i] !== IDLE) lines.push(title(lane));
    if (!cpu && piece.who[i] !== NOBODY) lines.push(`CPU ${piece.who[i]}`);
    if (piece.waker && piece.codes[i] === RUNNABLE && piece.waker[i] !== NOBODY) {
      lines.push(`woken by ${thread(piece.waker[i])}${piece.wakerCpu[i] === NOBODY ? "" : ` on CPU ${piece.wakerCpu[i]}`}`);
    }
    return lines;
  }

  function hover() {
    const text = drag && drag.moved ? "" : words(pointer);
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const top = canvas.offsetTop + pointer.y, width = tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(pointer.x + 14, canvas.clientWidth - width))}px`;
    tip.style.top = `${top + 16}px`;
  }

  const column = (spot) => Math.min(view.bins, Math.max(0, spot.x * ratio - (canvas.width - view.bins)));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const pixels = event.deltaMode === 1 ? 30 * event.deltaY : event.deltaY;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      settle(view.first + (event.deltaX || pixels) * ratio, view.scale);
    } else zoom(2 ** (Math.max(-300, Math.min(300, pixels)) / 150), column(place(event)));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    drag = { x: event.clientX, first: view.first, moved: false };
    canvas.style.cursor = "grabbing";
  });
  canvas.addEventListener("pointermove", (event) => {
    pointer = place(event);
    if (drag) {
      if (Math.abs(event.clientX - drag.x) > 2) drag.moved = true;
      settle(drag.first - (event.clientX - drag.x) * ratio, view.scale);
    } else hover();
  });
  const drop = () => { drag = null; canvas.style.cursor = ""; };
  canvas.addEventListener("pointerup", drop);
  canvas.addEventListener("pointercancel", drop);
  canvas.addEventListener("pointerleave", () => { pointer = null; tip.hidden = true; });
  const strokes = {
    ArrowLeft: () => settle(view.first - view.bins / 8, view.scale),
    ArrowRight: () => settle(view.first + view.bins / 8, view.scale),
    ArrowUp: () => zoom(0.5, view.bins / 2), "+": () => zoom(0.5, view.bins / 2),
    ArrowDown: () => zoom(2, view.bins / 2), "-": () => zoom(2, view.bins / 2),
    n: () => jump(1), p: () => jump(-1), 0: whole, Home: whole,
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in strokes)) return;
    event.preventDefault();
    event.stopPropagation(); // a notebook has commands on the same keys
    pointer = null; // what it pointed at is elsewhere now
    tip.hidden = true;
    strokes[event.key]();
  });

  const watch = new ResizeObserver(() => { measure(); request(); draw(); });
  watch.observe(box);
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", draw);
  // A printer takes what is drawn now, and paper is white: no frame comes in between.
  const repaint = ({ type }) => { paper = type === "beforeprint"; render(); };
  for (const moment of ["beforeprint", "afterprint"]) window.addEventListener(moment, repaint);
  measure();
  if (about.show) between(...about.show);
  else whole();

  const handle = {
    about, view, canvas,
    lanes: () => [...lanes],
    state: () => ({ ...view, wait, exact: shown, asking: asked !== null, frames, busy, tip: tip.hidden ? "" : tip.textContent,
      note: note.textContent, left: (canvas.width - view.bins) / ratio, height, axis: AXIS, ratio,
      kinds: lanes.map((lane) => (best(lane) || { kind: "none" }).kind) }),
    sums: (lane) => Object.fromEntries([...coverage(best(lane), view.first, view.bins, view.scale)].map(([k, v]) => [k, [...v]])),
  };
  canvas.timeline = handle; // for whoever drives the picture from outside
  return () => {
    gone = true;
    watch.disconnect();
    for (const moment of ["beforeprint", "afterprint"]) window.removeEventListener(moment, repaint);
    scheme.removeEventListener("change", draw);
  };
}

// ---- where answers come from ----

/** In a notebook: the kernel. anywidget calls this. */
function render({ model, el }) {
  const open = new Map();
  let last = 0;
  const hear = (message, buffers) => {
    const wanted = open.get(message.id);
    if (!wanted) return;
    open.delete(message.id);
    if (message.kind === "error") wanted.reject(new Error(message.text));
    else wanted.resolve({ answer: message, buffers });
  };
  model.on("msg:custom", hear);
  const stop = mount(el, model.get("about"), (request) => new Promise((resolve, reject) => {
    const id = ++last;
    open.set(id, { resolve, reject });
    model.send({ ...request, id });
  }));
  return () => {
    model.off("msg:custom", hear);
    stop();
  };
}

export default { render };

/** On a page: the answers that it carries. */
export async function carried(data) {
  const bytes = Uint8Array.from(atob(data.data), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const blob = new Uint8Array(await new Response(stream).arrayBuffer());
  const buffers = [];
  let at = 0;
  for (const size of data.sizes) {
    buffers.push(blob.subarray(at, at + size));
    at += size;
  }
  const known = new Map();
  const names = {};
  for (const answer of data.answers) {
    Object.assign(names, answer.names);
    for (const row of answer.lanes) {
      if (!known.has(row.key)) known.set(row.key, []);
      known.get(row.key).push(unpack(row, answer, buffers));
    }
  }
  return (request) => ({
    answer: { names, lanes: request.lanes.map((key) => ({ key, pieces: known.get(key) || [] })) }, buffers,
  });
}

export async function mountAll(page) {
  for (const root of page.querySelectorAll(".schedscope-timeline:not([data-mounted])")) {
    root.dataset.mounted = "";
    const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
    try {
      mount(root, data.about, await carried(data));
    } catch (error) {
      root.append(`This browser cannot draw the timeline: ${error.message}`);
    }
  }
}
