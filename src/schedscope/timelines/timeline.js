// A timeline of CPUs and threads on one canvas.
//
// Times are whole ns after the begin of the trace; `scale` is a whole number of ns per
// device pixel, and pixel k is [k * scale, (k + 1) * scale). So every sum here is exact,
// and Python's pixels are ours. What is shown comes from a `source(request)`, a promise
// of an answer as timelines/answer.py describes it: a kernel, a server, or the page's own data.
// script.py puts this file and its neighbours together into one module.

const NOBODY = 0xffffffff;
const AXIS = 22, NAMES = 168, NARROW = 96, WIDE = 3, ARROWS = 30, FAR = 16; // CSS pixels; an interval this wide gets a colour of its own
const ARRAYS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f8: Float64Array };

const STYLE = `
.sst { position: relative; font: 13px/1.4 system-ui, sans-serif; }
.sst [hidden] { display: none !important; }
.sst canvas { display: block; width: 100%; cursor: grab; touch-action: none; }
.sst :focus-visible { outline: 2px solid Highlight; outline-offset: 1px; }
.sst-picture { position: relative; }
.sst-bar, .sst-key { display: flex; gap: .4em; align-items: center; flex-wrap: wrap; margin-bottom: .4em; }
.sst button, .sst select, .sst input, .sst textarea { font: inherit; color: inherit; }
.sst-bar button, .sst-bar select, .sst-acts > button:not(.sst-link), .sst-tabs button { background: transparent; padding: .1em .6em;
  border: 1px solid currentColor; border-radius: 4px; cursor: pointer; }
.sst-bar select { background: Canvas; max-width: 11em; }
.sst-key { gap: .1em .9em; font-size: .92em; }
.sst-key i { display: inline-block; width: 1.4em; height: .9em; border-radius: 2px; margin-right: .35em; vertical-align: -.1em;
  print-color-adjust: exact; forced-color-adjust: none; }
.sst-few { margin: 0 0 .4em; }
.sst-quality { margin: 0 0 .4em; min-height: 1.4em; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.sst-lookup { display: flex; gap: .4em; flex-wrap: wrap; flex: 1 1 100%; }
.sst-search { position: relative; flex: 1 1 24em; max-width: 44em; }
.sst-find { width: 100%; box-sizing: border-box; padding: .2em .5em; border: 1px solid currentColor; border-radius: 4px; background: Canvas; }
.sst-find::placeholder { color: inherit; opacity: .75; }
.sst-found { position: absolute; z-index: 5; left: 0; right: 0; max-height: 22em; overflow: auto; background: Canvas; color: CanvasText;
  border: 1px solid currentColor; border-radius: 4px; box-shadow: 0 2px 8px #0004; }
.sst-option { padding: .2em .6em; cursor: pointer; overflow-wrap: anywhere; }
.sst-option span { opacity: .8; font-size: .9em; }
.sst-option[aria-selected=true] { background: Highlight; color: HighlightText; }
.sst-names { position: absolute; left: 0; top: 0; pointer-events: none; }
.sst-names div { position: absolute; left: 0; right: 0; text-align: right; pointer-events: auto; white-space: nowrap; overflow: hidden; }
.sst-names button { opacity: 0; padding: 0 .35em; border: 1px solid currentColor; border-radius: 3px; background: Canvas; color: CanvasText;
  cursor: pointer; font-size: 11px; line-height: 15px; margin: 3px 2px 0 0; }
.sst-names div:hover button, .sst-names button:focus-visible, .sst-names button[aria-pressed=true], .sst-low button { font-size: 9px; line-height: 10px; margin-top: 0; }
.sst-names .sst-fold { opacity: 1; }
.sst-names .sst-fold { float: left; border: 0; background: none; color: inherit; }
.sst-note { min-height: 2.8em; font-variant-numeric: tabular-nums; margin-top: .3em; overflow-wrap: anywhere; }
.sst-tip { position: absolute; pointer-events: none; z-index: 4; padding: .35em .6em; max-width: 40em; width: max-content;
  border-radius: 4px; white-space: pre-line; box-shadow: 0 1px 6px #0006; font-variant-numeric: tabular-nums; }
.sst-panel { position: sticky; bottom: 0; z-index: 3; max-height: 46vh; display: flex; flex-direction: column;
  background: Canvas; color: CanvasText; border: 1px solid currentColor; border-radius: 6px 6px 0 0; }
.sst-tabs, .sst-tablist { display: flex; gap: .4em; flex-wrap: wrap; }
.sst-tabs { flex-wrap: nowrap; align-items: flex-start; padding: .4em .6em; border-bottom: 1px solid; border-color: GrayText; }
.sst-tabs button[aria-selected=true] { background: CanvasText; color: Canvas; }
.sst-tabs .sst-close { margin-left: auto; }
.sst-body { overflow: auto; padding: 0 .8em .8em; }
.sst-body h2, .sst-body h3, .sst-help h2 { font-size: 1.05em; margin: .7em 0 .3em; overflow-wrap: anywhere; }
.sst-body p { margin: .3em 0; }
.sst-body dl { display: grid; grid-template-columns: max-content 1fr; gap: .1em 1em; margin: .4em 0; }
.sst-body dt { opacity: .8; } .sst-body dd { margin: 0; overflow-wrap: anywhere; }
.sst-body ul { margin: 0; padding-left: 1.1em; }
.sst-findings { padding-left: 2em !important; } .sst-findings li { padding-left: .4em; margin-bottom: .8em; border-left: 3px solid transparent; }
.sst-findings [aria-current] { border-left-color: Highlight; }
.sst-link { background: none; border: 0; padding: 0; color: LinkText !important; text-decoration: underline; cursor: pointer; text-align: left; }
.sst-faint { opacity: .8; }
.sst-code code { font: .92em ui-monospace, monospace; overflow-wrap: anywhere; }
.sst-copy { font-size: .85em !important; cursor: pointer; }
.sst-wide { overflow-x: auto; max-height: 26em; } .sst-two .sst-wide { max-height: none; }
.sst-two { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 0 2.5em; align-items: start; }
.sst-two > :only-child { grid-column: 1 / -1; }
.sst-table table { border-collapse: collapse; } .sst-table th, .sst-table td { padding: .1em .8em .1em 0; text-align: left; white-space: nowrap; }
.sst-table th { border-bottom: 1px solid; position: sticky; top: 0; background: Canvas; } .sst-n { text-align: right !important; font-variant-numeric: tabular-nums; }
.sst-ask { display: grid; grid-template-columns: minmax(0, 3fr) minmax(10em, 1fr); gap: 1em; padding-top: .6em; }
.sst-ask textarea { width: 100%; box-sizing: border-box; font-family: ui-monospace, monospace; background: Canvas; }
.sst-schema { min-height: 30em; } /* nothing moves under the pointer when the tables arrive */
.sst-schema ul { padding-left: 1em; list-style: none; } .sst-schema summary { cursor: pointer; }
.sst-notes input { width: min(40em, 90%); background: Canvas; border: 1px solid currentColor; border-radius: 3px; margin: .1em .5em .1em 0; }
.sst-help { position: absolute; z-index: 6; right: 0; top: 2.4em; background: Canvas; color: CanvasText; border: 1px solid; border-radius: 6px; padding: .4em 1em .8em; box-shadow: 0 2px 10px #0005; }
.sst-help table { border-collapse: collapse; } .sst-help td { padding: .1em 1em .1em 0; } .sst-help td:first-child { white-space: nowrap; }
.sst kbd { font: .9em ui-monospace, monospace; border: 1px solid; border-radius: 3px; padding: 0 .3em; }
@media (forced-colors: active) { .sst-tabs button[aria-selected=true], .sst-option[aria-selected=true] { forced-color-adjust: none; background: Highlight; color: HighlightText; } }
@media (max-height: 480px) { .sst-panel { position: static; max-height: none; } }
@media (max-width: 900px) { .sst-two { grid-template-columns: minmax(0, 1fr); } }
@media (max-width: 640px) { .sst-ask { grid-template-columns: minmax(0, 1fr); } .sst-schema { min-height: 0; } .sst-quality { white-space: normal; } .sst-body dl { grid-template-columns: 1fr; } .sst-help { left: 0; } }
@media print { .sst-panel, .sst-search, .sst-bar select, .sst-names, .sst-help { display: none !important; } }
`;

export function duration(ns) {
  for (const [step, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
    const many = ns / step;
    if (Math.abs(many) >= 0.9995) return `${Number(many.toPrecision(3)).toLocaleString("en")} ${unit}`;
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

/** ns in each state within [begin, end), from what a piece holds. */
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
    const upto = (at) => {
      const slot = Math.floor(at / piece.scale), i = slot - piece.first;
      if (i >= piece.bins) return totals[piece.bins];
      return i < 0 ? 0 : totals[i] + (values[i] * (at - slot * piece.scale)) / piece.scale;
    };
    add(code, upto(end) - upto(begin));
  }
  return found;
}

/** Does this piece tell the pixels as they are, or as well as anything does, or only about? */
function exact(piece, scale) {
  return piece.kind === "intervals" || piece.finest || scale % piece.scale === 0;
}

// ---- the picture ----

export function mount(root, about, source, home = "page") {
  const style = document.createElement("style");
  style.textContent = STYLE;
  const bar = h("div", { class: "sst-bar", role: "toolbar", "aria-label": "timeline" });
  const keys = h("div", { class: "sst-key", role: "note", "aria-label": "what colours and patterns mean" });
  const note = h("div", { class: "sst-note", role: "status" }), tip = h("div", { class: "sst-tip", hidden: true });
  const canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": `Timeline of ${about.name}: arrow keys pan, plus and minus zoom, ` +
    "n and p go to the worst waits, 0 shows everything, / finds threads, ? lists all keys" });
  const beside = h("div", { class: "sst-names" });
  const box = h("div", { class: "sst" }, bar, keys, about.few ? h("p", { class: "sst-few" }, about.few, about.can ? " Search for others: a CPU, a group of them, all CPUs." : " schedscope view shows others, too.") : "", h("div", { class: "sst-picture" }, canvas, beside, tip), note);
  root.append(style, box);
  const screen = canvas.getContext("2d");
  let paint = screen, every = false; // what is drawn on, and whether lanes out of the window are drawn, too
  // The address belongs to the first of a page; a notebook may keep each output in a tree of its own.
  const second = root.getRootNode().querySelector(".sst-picture").parentElement !== box;
  const alone = !!root.closest("[data-alone]"); // nothing else wants the keys

  const total = Math.max(1, about.duration), origin = about.origin;
  const names = { ...about.names };
  const threads = new Map(((about.threads || {}).rows || []).map((row) => [row.utid, row]));
  const cpus = about.cpus || about.lanes.filter((lane) => lane.startsWith("cpu:")).map((lane) => Number(lane.slice(4)));
  let chosen = [...about.lanes], pinned = [], by = about.by || "none", folded = [];
  let lanes = [...chosen]; // what is drawn: pinned lanes, the others in their order, and headings of groups
  const pieces = new Map(); // lane -> what is known of it, newest last
  const view = { first: 0, scale: 1, bins: 1 };
  let wait = -1, told = "", ratio = 1, height = 20, colour = LIGHT, pointer = null, drag = null;
  let until = 0, asked = null, again = false, shown = true, problem = "", frames = 0, busy = 0, gone = false, paper = false;
  let notes = [], sketch = null, grain = about.grain;
  let strangers = null; // beside another trace: names of threads that it has not
  let refining = false, later = 0; // of a long trace: whether lanes are still being read, and when to ask again

  const ears = new Map();
  const on = (event, act) => ears.set(event, [...(ears.get(event) || []), act]);
  const tell = (event) => (ears.get(event) || []).forEach((act) => act());

  const thread = (utid) => names[utid] || (threads.get(utid) || {}).name || `thread ${utid}`;
  const isHead = (lane) => lane.startsWith("head:");
  const titles = new Map((about.more || []).flatMap((each) => each.lanes.map((lane, i) => [lane, each.titles[i]])));
  const groupTitle = (lane) => {
    const [, kind, over, number] = groupIn(lane);
    return `${spots[over]} ${number}, ${kind === "busy" ? "busy" : "waiting"}`;
  };
  const title = (lane) => (isHead(lane) ? lane.slice(5) : lane.startsWith("lag:") ? `behind, ${thread(Number(lane.slice(4)))}` : groupIn(lane) ? groupTitle(lane) : isLevel(lane) ? titles.get(lane) || lane : lane.startsWith("cpu:") ? `CPU ${lane.slice(4)}` : thread(Number(lane.slice(5))));
  /** An instant, to a hundredth of a `span`: of what is shown, or of what it is about. */
  const when = (ns, span = view.scale * view.bins) => `${((origin + ns) / 1e9).toFixed(Math.min(9, Math.max(3, 11 - Math.ceil(Math.log10(span + 1)))))} s`;

  const strange = (lane) => isThread(lane) && !!strangers && strangers.has(threads.get(Number(lane.slice(5)))?.comm ?? thread(Number(lane.slice(5))).replace(/ \d+$/, ""));

  function button(text, hint, act) {
    bar.append(h("button", { type: "button", title: hint, click: () => { act(); canvas.focus({ preventScroll: true }); } }, text));
  }
  button("‹ longer wait", "key p", () => jump(-1));
  button("next longest wait ›", "key n", () => jump(1));
  button("‹ finding", "key G", () => details.finding(-1));
  button("next finding ›", "key g", () => details.finding(1));
  button("show all", "key 0", whole);
  button("undo", "key u", () => keep.undo());

  // ---- lanes ----

  /** Ways to group lanes: the places of CPUs only where the trace knows them. */
  const spots = { llc: "LLC", package: "package", node: "node" };
  const orders = [["none", "lanes as chosen"], ["process", "by process"], ["cgroup", "by cgroup"], ["cpu", "by CPU"],
    ...Object.entries(spots).filter(([name]) => about.places?.[name]).map(([name, word]) => [name, `by ${word}`])];
  const placed = () => by === "cpu" || by in spots;

  /** The group of a lane, and what its heading says. */
  function groupOf(lane) {
    const own = isThread(lane) || lane.startsWith("lag:"), row = (own && threads.get(Number(lane.split(":")[1]))) || {};
    if (placed()) {
      const cpu = own ? row.cpu : cpuOf(lane), many = groupIn(lane);
      if (many && many[2] === by) return Object.values(about.places[by]).find((name) => name.startsWith(`${spots[by]} ${many[3]},`)) || "all CPUs";
      if (cpu === null || cpu === undefined) return own ? "CPU unknown" : "all CPUs";
      return by === "cpu" ? `CPU ${cpu}` : about.places[by][cpu] || `${spots[by]} unknown`;
    }
    if (by === "process") return row.process ? `${row.process} ${row.pid ?? ""}`.trim() : row.pid ? `process ${row.pid}` : "process unknown";
    return row.cgroup || "no control group known";
  }

  function ordered() {
    const rest = chosen.filter((lane) => !pinned.includes(lane));
    const heads = (groups) => [...groups].flatMap(([name, its]) => [`head:${name}`, ...(folded.includes(name) ? [] : its)]);
    const groups = new Map();
    const into = (name, lane) => groups.set(name, [...(groups.get(name) || []), lane]);
    if (placed()) {
      // What a CPU does stands above its threads.
      for (const lane of [...rest.filter((key) => !isThread(key)), ...rest.filter(isThread)]) into(groupOf(lane), lane);
      return [...pinned, ...heads(groups)];
    }
    if (by === "none") return [...pinned, ...rest];
    for (const lane of rest.filter(isThread)) into(groupOf(lane), lane);
    return [...pinned, ...rest.filter((key) => !isThread(key)), ...heads(groups)];
  }

  /** Other lanes, or another order of them; what is not given stays. */
  function arrange(next = {}) {
    const most = 1000, distinct = (list) => [...new Set(list)].slice(0, most);
    if (next.chosen) {
      if (next.chosen.length > most) complain(`Only the first ${most} lanes are shown.`);
      chosen = distinct(next.chosen);
    }
    if (next.pinned) pinned = distinct(next.pinned);
    if (next.by) by = next.by;
    if (next.folded) folded = next.folded;
    pinned = pinned.filter((lane) => chosen.includes(lane));
    order();
    tell("lanes");
    // Whose threads they are has to be known, or they would stand in a group of their own.
    const strangers = by === "none" ? [] : chosen.filter((lane) => isThread(lane) && !threads.has(Number(lane.slice(5))));
    if (strangers.length) learn(strangers).then(order);
  }
  function order() {
    lanes = ordered();
    measure();
    label();
    request();
    draw();
  }

  async function show(keys) {
    const fresh = keys.filter((key) => !chosen.includes(key));
    if (fresh.length) {
      await learn(fresh);
      // Unless its group is folded, where it would not be seen.
      arrange({ chosen: [...chosen, ...fresh], folded: folded.filter((name) => !fresh.some((key) => by !== "none" && (placed() || isThread(key)) && groupOf(key) === name)) });
    }
    const row = lanes.indexOf(keys[0]);
    if (row < 0) return;
    const top = canvas.getBoundingClientRect().top + AXIS + row * height;
    const panel = box.querySelector(".sst-panel:not([hidden])"), low = Math.min(window.innerHeight * 0.9, panel ? panel.getBoundingClientRect().top : Infinity);
    if (top < AXIS || top + height > low) window.scrollBy({ top: top - window.innerHeight / 3 });
  }
  const learn = (keys) => (by === "none" ? Promise.resolve() : find.learn(keys.filter((key) => key.startsWith("utid:")).map((key) => Number(key.slice(5)))).catch(() => {}));
  const hide = (lane) => arrange({ chosen: chosen.filter((key) => key !== lane) });
  const pin = (lane) => arrange({ pinned: pinned.includes(lane) ? pinned.filter((key) => key !== lane) : [...pinned, lane] });
  const fold = (name) => arrange({ folded: folded.includes(name) ? folded.filter((each) => each !== name) : [...folded, name] });

  /** Buttons beside the lanes' names: for the pointer, the keyboard and screen readers. */
  function label() {
    beside.replaceChildren(...lanes.map((lane, i) => {
      const place = `top: ${AXIS + i * height}px; height: ${height}px`;
      if (isHead(lane)) {
        const name = lane.slice(5), closed = folded.includes(name);
        return h("div", { style: place }, h("button", { type: "button", class: "sst-fold", "aria-expanded": String(!closed), "aria-label": `threads of ${name}`, click: () => fold(name) }, closed ? "▸" : "▾"));
      }
      const fixed = pinned.includes(lane);
      return h("div", { style: place, title: title(lane) },
        h("button", { type: "button", "aria-pressed": String(fixed), "aria-label": `keep ${title(lane)} at the top`, title: "keep at the top", click: () => pin(lane) }, "pin"),
        h("button", { type: "button", "aria-label": `remove the lane of ${title(lane)}`, title: "remove this lane", click: () => hide(lane) }, "×"));
    }));
  }

  // ---- moving ----

  // What may be asked: the page's own data ends somewhere, and its pixels are that fine.
  let low = 0, high = total; // what can be shown: of two traces, what either has
  function fit() {
    const least = Math.max(1, Math.ceil((high - low) / view.bins)), step = about.finest || 1;
    return even(Math.ceil(least / step) * step);
  }
  /** Of a long trace: a scale of whole stretches of its overview, so that sums stay exact. */
  function even(scale) {
    return grain && scale > grain ? Math.ceil(scale / grain) * grain : scale;
  }
  function settle(first, scale) {
    scale = Math.min(even(Math.max(1, Math.round(scale))), fit());
    view.scale = scale;
    const least = Math.floor(low / scale), last = Math.max(least, Math.ceil(high / scale) - view.bins);
    view.first = Math.min(Math.max(least, Math.round(first)), last);
    request();
    draw();
    tell("move");
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
    if (grain && scale > grain) {
      // A step out or in moves by one stretch at least, and not past where single rows begin.
      const steps = factor > 1 ? Math.ceil(scale / grain) : Math.floor(scale / grain);
      scale = Math.min(fit(), steps * grain);
    }
    settle(time / scale - x, scale);
  }

  function whole() {
    wait = -1;
    told = "";
    settle(Math.floor(low / fit()), fit());
  }

  function between(begin, end) {
    const scale = even(Math.max(1, Math.ceil((end - begin) / view.bins)));
    settle(begin / scale, scale);
  }

  function jump(step) {
    if (!about.waits.length) return;
    told = "";
    wait = Math.min(Math.max(0, wait + step), about.waits.length - 1);
    const w = about.waits[wait], lane = `utid:${w.utid}`;
    if (!chosen.includes(lane)) arrange({ chosen: [...chosen, lane] });
    if (!lanes.includes(lane)) show([lane]);
    near(w.ready, w.wait);
  }

  /** A stretch in the middle of the picture, half as long as that. */
  function near(begin, length) {
    const scale = even(Math.max(1, Math.ceil((2 * length) / view.bins)));
    settle((begin + length / 2) / scale - view.bins / 2, scale);
  }

  /** A finding is shown: what stands below the picture, instead of a wait. */
  function stepped(text) {
    wait = -1;
    told = text;
    draw();
  }

  /** Show this instant or stretch; the scale changes only where it must. */
  function go(begin, length) {
    const now = view.bins * view.scale;
    if (length * 1.2 > now || length * 40 < now) near(begin, Math.max(length, length ? 1 : now / 40));
    else settle((begin + length / 2) / view.scale - view.bins / 2, view.scale);
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
    if (bins <= 0) return; // before all of this trace, beside another one
    const want = lanes.filter((lane) => {
      if (isHead(lane)) return false;
      const known = (pieces.get(lane) || []).at(-1);
      return !known || !holds(known) || !exact(known, scale) || known.refining;
    });
    if (!want.length) return;
    asked = { kind: "lanes", lanes: want, first, bins, scale };
    Promise.resolve(source(asked)).then(({ answer, buffers }) => {
      problem = "";
      Object.assign(names, answer.names);
      refining = answer.lanes.some((row) => row.refining);
      for (const row of answer.lanes) {
        if (row.kind === "later") continue;
        const old = pieces.get(row.key) || [];
        const wide = old.find((piece) => piece.begin <= 0 && piece.end >= total);
        const fresh = row.pieces || [unpack(row, answer, buffers)];
        // The coarsest stays: something to show while the next answer is under way.
        const all = wide && !fresh.includes(wide) ? [wide, ...fresh] : fresh;
        pieces.set(row.key, all);
        // Their full height is one, the most that is known of.
        if (row.top) for (const piece of all) piece.top = Math.max(row.top, ...old.map((each) => each.top || 0));
      }
    }).catch((error) => { problem = String(error.message || error); }).finally(() => {
      asked = null;
      if (gone) return;
      if (again) {
        again = false;
        request();
      } else if (refining) {
        clearTimeout(later);
        later = setTimeout(request, 250);
      }
      if (!asked && !refining) tell("still");
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

  /** The best of what is known of all of a stretch, wherever the view is. */
  const over = (lane, begin, end) => (pieces.get(lane) || []).filter((piece) => piece.begin <= begin && piece.end >= Math.min(total, end))
    .sort((a, b) => (a.kind === "intervals" ? 0 : a.scale) - (b.kind === "intervals" ? 0 : b.scale))[0];

  // ---- drawing ----

  function measure() {
    ratio = window.devicePixelRatio || 1;
    height = lanes.length > 48 ? 14 : 24;
    const width = Math.max(320, box.clientWidth || root.clientWidth || 800);
    const size = [Math.round(width * ratio), Math.round((AXIS + lanes.length * height) * ratio)];
    // To set a canvas' size empties it, even if it stays the same.
    if (canvas.width !== size[0]) canvas.width = size[0];
    if (canvas.height !== size[1]) canvas.height = size[1];
    canvas.style.height = `${AXIS + lanes.length * height}px`;
    const all = view.scale >= fit(), gutter = width < 520 ? NARROW : NAMES, bins = Math.max(64, canvas.width - Math.round(gutter * ratio));
    beside.style.width = `${gutter}px`;
    beside.classList.toggle("sst-low", height < 20);
    if (bins === view.bins) return;
    view.bins = bins;
    // The whole stays the whole; anything else keeps its begin and its scale.
    if (all || view.scale > fit()) view.scale = fit();
    const least = Math.floor(low / view.scale);
    view.first = Math.max(least, Math.min(view.first, Math.max(least, Math.ceil(high / view.scale) - bins)));
  }

  const few = window.matchMedia("(forced-colors: active)");
  function theme() {
    // The page decides: whoever writes light text has a dark ground.
    const [r, g, b] = (getComputedStyle(box).color.match(/[\d.]+/g) || [0, 0, 0]).map(Number);
    const next = few.matches && !paper ? (colour.forced ? colour : forced(box)) : 0.3 * r + 0.6 * g + 0.1 * b > 128 && !paper ? DARK : LIGHT;
    if (next === colour && keys.childElementCount) return;
    colour = next;
    tell("theme");
    tip.style.background = colour.text;
    tip.style.color = colour.back;
    const patch = (background, word) => h("span", {}, h("i", { style: `background: ${background}` }), word);
    keys.replaceChildren(
      patch(colour[RUNNING], "running"),
      ...[[RUNNABLE, "waiting for a CPU"], [BLOCKED, "blocked"], [STOPPED, "stopped"]].map(([code, word]) =>
        patch(SWATCHES[code](colour[code], colour.second[code]), word)),
      patch(SWATCHES[SLEEPING](colour[SLEEPING]), "sleeping"),
      patch(SWATCHES[PARKED](colour[SLEEPING]), "kernel thread at rest"),
      patch(`${colour.lane}; border: 1px solid ${colour.hatch}; box-sizing: border-box`, "idle, or no such thread"),
      patch(`repeating-linear-gradient(135deg, ${colour.hatch} 0 1px, transparent 1px 4px)`, "unknown"),
      ...(colour.forced ? [] : [patch(`linear-gradient(90deg, ${[1, 2, 3].map((utid, i) => `${hue(utid, colour)} ${33 * i}% ${33 * (i + 1)}%`).join(", ")})`, "on a CPU: a colour per thread")]),
      ...(about.more || about.lanes.some(groupIn) ? [patch(`linear-gradient(${colour.text} 0 12%, transparent 12% 45%, ${colour.level} 45%)`, "height: mean, line: most")] : []),
      h("span", {}, h("i", { style: `background: linear-gradient(90deg, transparent 45%, ${colour.arrow} 45% 55%, transparent 55%)` }), "arrow: wakeup"));
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
      hatches.set(key, screen.createPattern(tile, "repeat"));
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
    paint.fillStyle = colour.line;
    paint.fillRect(left - 1, 0, 1, canvas.height);
    shown = true;
    let coarse = 0;
    // What is scrolled out of the window costs nothing; a printer takes it all.
    const above = canvas.getBoundingClientRect().top, from = paper || every ? 0 : -above - height - AXIS, to = paper || every ? Infinity : window.innerHeight - above;
    until = Math.min(view.bins, Math.max(0, total / view.scale - view.first));
    lanes.forEach((lane, i) => {
      const top = Math.round((AXIS + i * height) * ratio) + gap, tall = high - gap;
      if (i * height < from || i * height > to) return;
      const there = Math.max(0, -view.first);
      paint.fillStyle = colour.lane;
      paint.fillRect(left + there, top, Math.max(0, until - there), tall);
      paint.fillStyle = colour.text;
      clipped(`${strange(lane) ? "◆ " : ""}${title(lane)}`, 4 * ratio, top + tall / 2, left - 8 * ratio, isThread(lane) || lane.startsWith("lag:"));
      if (isHead(lane)) {
        paint.font = `bold ${12 * ratio}px system-ui, sans-serif`;
        paint.fillStyle = colour.back;
        paint.fillRect(0, top - gap, canvas.width, high);
        paint.fillStyle = colour.text;
        clipped(title(lane), 18 * ratio, top + tall / 2, canvas.width - 30 * ratio);
        paint.font = `${12 * ratio}px system-ui, sans-serif`;
        return;
      }
      const piece = best(lane);
      if ((!piece || !holds(piece) || !exact(piece, view.scale)) && view.first * view.scale < total && (view.first + view.bins) * view.scale > 0) {
        shown = false;
        if (piece && piece.kind !== "intervals") coarse = Math.max(coarse, piece.scale);
      }
      if (piece && piece.kind === "levels") area(lane, piece, left, top, tall);
      else if (piece) body(lane, piece, left, top, tall);
    });
    arrows(left, high);
    marks(left, high, paper || every ? 0 : Math.max(0, Math.min(-above, canvas.clientHeight - AXIS)));
    say(coarse);
    if (pointer) hover();
  }

  /** The current view with all its lanes, as a block of a file. */
  function painted(kind) {
    const begin = Math.max(0, view.first * view.scale), end = Math.min(total, (view.first + view.bins) * view.scale);
    const block = { title: begin < end ? `${about.name}, ${when(begin)} to ${when(end)}` : `${about.name}: nothing of it`, width: canvas.width, height: canvas.height,
      name: `${about.name.replace(/[^\w.-]+/g, "-").replace(/\.(capture|sched)$/, "")}-${((origin + begin) / 1e9).toFixed(6)}s` };
    every = true;
    try {
      if (kind === "svg") paint = svgPen(screen, colour.hatch);
      render();
      return { ...block, drawn: kind === "svg" ? paint.parts.join("") : copied2d(canvas) };
    } finally {
      paint = screen;
      every = false;
      draw();
    }
  }
  const save = (kind) => filed(kind, picture.blocks(kind), colour, ratio);

  /** As much of a text as there is room for; a thread's number, which tells it from others, stays. */
  function clipped(text, x, y, width, numbered = false) {
    if (width < 12 * ratio) return;
    let cut = text;
    if (paint.measureText(cut).width > width) {
      const end = numbered ? /\s\d+$/.exec(text)?.[0] || "" : "", least = end ? 1 : 3;
      let low = 0, high = text.length - end.length;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (paint.measureText(`${text.slice(0, middle)}…${end}`).width <= width) low = middle;
        else high = middle - 1;
      }
      if (low < least) return; // fewer letters say nothing
      cut = `${text.slice(0, low)}…${end}`;
    }
    paint.fillText(cut, x, y);
  }

  /** What is selected, the range, the notes; and the axis where the window begins. */
  function marks(left, high, down) {
    const x = (at) => left + at / view.scale - view.first;
    if (down) {
      paint.fillStyle = colour.back;
      paint.fillRect(0, down * ratio, canvas.width, AXIS * ratio);
      axis(left, down * ratio, AXIS * ratio);
    }
    const range = sketch || picture.range;
    if (range) {
      const a = Math.max(left, x(range[0])), b = Math.min(canvas.width, x(range[1]));
      if (b >= left && a <= canvas.width) {
        paint.globalAlpha = 0.14;
        paint.fillStyle = colour.mark;
        paint.fillRect(a, 0, Math.max(1, b - a), canvas.height);
        paint.globalAlpha = 1;
        for (const at of range) if (x(at) >= left) paint.fillRect(Math.round(x(at)), 0, Math.max(1, ratio), canvas.height);
        const text = duration(range[1] - range[0]), size = paint.measureText(text).width + 8 * ratio;
        if (size < b - a) {
          const y = down * ratio;
          paint.fillStyle = colour.mark;
          paint.fillRect((a + b - size) / 2, y, size, AXIS * ratio - 2 * ratio);
          paint.fillStyle = colour.back;
          paint.fillText(text, (a + b - size) / 2 + 4 * ratio, y + (AXIS * ratio) / 2);
        }
      }
    }
    for (const each of notes) {
      const at = x(each.at - origin);
      if (at < left || at > canvas.width) continue;
      paint.fillStyle = colour.mark;
      paint.fillRect(Math.round(at), 0, Math.max(1, ratio), canvas.height);
      paint.beginPath();
      paint.moveTo(at, down * ratio);
      paint.lineTo(at + 9 * ratio, down * ratio + 4.5 * ratio);
      paint.lineTo(at, down * ratio + 9 * ratio);
      paint.fill();
    }
    const chosenOne = picture.selection, row = chosenOne ? lanes.indexOf(chosenOne.lane) : -1;
    if (row >= 0) {
      const begin = chosenOne.begin ?? chosenOne.at, end = chosenOne.end ?? chosenOne.at + view.scale;
      const a = Math.max(left - 2 * ratio, x(begin)), b = Math.min(canvas.width + 2 * ratio, x(end));
      if (b >= left && a <= canvas.width) {
        paint.strokeStyle = colour.mark;
        paint.lineWidth = 3 * ratio;
        paint.strokeRect(a, (AXIS + row * height) * ratio + ratio, Math.max(2 * ratio, b - a), high);
      }
    }
  }

  function axis(left, down = 0, tall = canvas.height) {
    const least = 90 * ratio * view.scale;
    let step = 10 ** Math.ceil(Math.log10(least));
    if (step / 5 >= least) step /= 5;
    else if (step / 2 >= least) step /= 2;
    paint.fillStyle = colour.faint;
    const begin = view.first * view.scale, digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / 1e9))));
    const stop = Math.min(total, begin + view.bins * view.scale) + origin;
    for (let tick = Math.ceil((Math.max(0, begin) + origin) / step) * step; tick <= stop; tick += step) {
      const x = left + Math.round((tick - origin) / view.scale - view.first);
      paint.fillStyle = colour.line;
      paint.fillRect(x, down, 1, tall);
      paint.fillStyle = colour.faint;
      const text = `${(tick / 1e9).toFixed(digits)} s`;
      if (x + paint.measureText(text).width + 6 * ratio < canvas.width) paint.fillText(text, x + 3 * ratio, down + (AXIS * ratio) / 2);
    }
  }

  /** One lane: each pixel's shares stacked from below, then what is wide enough by itself. */
  function body(lane, piece, left, top, tall) {
    const sums = coverage(piece, view.first, view.bins, view.scale), cpu = lane.startsWith("cpu:");
    const floor = new Float64Array(view.bins); // ns already stacked
    const tile = stacked(sums, cpu ? [RUNNING] : [RUNNING, RUNNABLE, BLOCKED, STOPPED], floor, tall, until);
    paint.putImageData(tile, left, top);
    for (const code of [SLEEPING, PARKED]) if (sums.has(code)) quiet(sums.get(code), code === PARKED, left, top, tall);
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

  /** Asleep and at rest are the ordinary: a thin line, as long as it lasts. */
  function quiet(spent, dashed, left, top, tall) {
    const line = Math.max(1, Math.round(2 * ratio)), y = top + Math.round(tall / 2) - line / 2;
    const step = Math.round((DASH + GAP) * ratio), dash = Math.round(DASH * ratio);
    paint.fillStyle = colour[SLEEPING];
    for (let x = 0; x < view.bins;) {
      if (spent[x] < view.scale) { x++; continue; }
      let end = x + 1;
      while (end < view.bins && spent[end] >= view.scale) end++;
      if (!dashed) paint.fillRect(left + x, y, end - x, line);
      // The dashes move with the time, not under it.
      else for (let at = x - ((((view.first + x) % step) + step) % step); at < end; at += step) {
        const from = Math.max(x, at), to = Math.min(end, at + dash);
        if (to > from) paint.fillRect(left + from, y, to - from, line);
      }
      x = end;
    }
  }

  /** A lane with a height: its mean as an area, its largest value as a line, and its scale. */
  function area(lane, piece, left, top, tall) {
    const shown = means(lane, piece, view, total), most = full(lane, piece, shown.mean), rows = tall / most;
    for (let x = 0; x < Math.min(until, view.bins); x++) {
      if (shown.mean[x] === null) {
        if ((view.first + x) * view.scale < piece.begin || (view.first + x) * view.scale >= piece.end) continue;
        paint.fillStyle = hatch();
        paint.fillRect(left + x, top, 1, tall);
        continue;
      }
      paint.fillStyle = colour.level;
      const size = Math.min(tall, shown.mean[x] * rows);
      paint.fillRect(left + x, top + tall - size, 1, size);
      if (hasTop(lane)) {
        paint.fillStyle = colour.text;
        paint.fillRect(left + x, top + tall - Math.max(ratio, Math.min(tall, shown.max[x] * rows)), 1, ratio);
      }
    }
    const text = scaleText(lane, most);
    paint.font = `${9 * ratio}px system-ui, sans-serif`;
    const wide = paint.measureText(text).width + 4 * ratio;
    paint.fillStyle = colour.back;
    paint.fillRect(left, top, wide, 11 * ratio);
    paint.fillStyle = colour.text;
    paint.fillText(text, left + 2 * ratio, top + 6 * ratio);
    paint.font = `${12 * ratio}px system-ui, sans-serif`;
  }

  /** The shares as pixels: in software a rectangle each would take three times as long. */
  function stacked(sums, order, floor, tall, until) {
    const bins = view.bins, tile = paint.createImageData(bins, tall), words = new Uint32Array(tile.data.buffer);
    const lane = packed(colour.lane);
    const rows = tall / view.scale;
    words.fill(packed(colour.back));
    const there = Math.min(Math.ceil(until), Math.max(0, -view.first));
    for (let y = 0; y < tall; y++) words.fill(lane, y * bins + there, y * bins + Math.ceil(until));
    for (const code of order) {
      const values = sums.get(code);
      if (!values) continue;
      const first = packed(colour[code]), second = packed((colour.second || {})[code] || colour[code]);
      const pattern = PATTERNS[code];
      for (let x = 0; x < bins; x++) {
        if (values[x] <= 0) continue;
        const low = floor[x] * rows, high = Math.min(tall, (floor[x] + values[x]) * rows);
        floor[x] += values[x];
        // A part of the lowest pixel, whole ones, and a part of the highest.
        let row = Math.floor(low), at = (tall - 1 - row) * bins + x;
        // The pattern moves with the time, not under it.
        const column = Math.floor((x + (((view.first % 1200) + 1200) % 1200)) / ratio);
        const ink = pattern ? (y) => (pattern(column, Math.floor(y / ratio)) ? second : first) : () => first;
        if (row < low) {
          words[at] = blend(words[at], ink(row), Math.min(high, row + 1) - low);
          row++;
          at -= bins;
        }
        for (const top = Math.floor(high); row < top; row++, at -= bins) words[at] = ink(row);
        if (row < high) words[at] = blend(words[at], ink(row), high - row);
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
        paint.fillStyle = hue(piece.who[i], colour);
        paint.fillRect(left + a, top, b - a, tall);
        if (b - a > 10 * ratio) {
          paint.fillStyle = colour.back;
          paint.fillRect(left + a, top, 1, tall);
        }
      }
      if (b - a > 26 * ratio) {
        paint.fillStyle = cpu && !colour.dark && !colour.forced ? "#ffffff" : colour.back;
        clipped(cpu ? thread(piece.who[i]) : `CPU ${piece.who[i]}`, left + a + 4 * ratio, top + tall / 2, b - a - 8 * ratio);
      }
    }
  }

  /** From the waker's CPU to the wait that it began, where both are to be seen. */
  function arrows(left, high) {
    const begin = view.first * view.scale, end = begin + view.bins * view.scale;
    paint.strokeStyle = paint.fillStyle = colour.arrow;
    paint.lineWidth = Math.max(1, ratio);
    const found = [];
    lanes.forEach((lane, row) => {
      const piece = best(lane);
      if (!isThread(lane) || !piece || !piece.wakerCpu) return;
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
      const y1 = (AXIS + row * height) * ratio + (down > 0 ? 2 * ratio : high);
      // From a CPU far away only the end is drawn: lines across all lanes would hide them.
      const far = Math.abs(from - row) > FAR, y0 = far ? y1 - down * high : (AXIS + from * height) * ratio + (down > 0 ? high : 0);
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
      if (!far) {
        paint.beginPath();
        paint.arc(x, y0, 2.5 * ratio, 0, 7);
        paint.fill();
      }
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
    const begin = Math.max(0, view.first * view.scale), end = Math.min(total, (view.first + view.bins) * view.scale);
    const lines = said ? [said] : [];
    lines.push(begin < end ? `${when(begin)} to ${when(end)}, ${duration(view.scale)} per pixel` : "nothing of this trace");
    if (problem) lines.push(problem);
    else if (!shown && about.finest) {
      lines.push(`This page knows ${coarse ? `no more than sums over ${duration(coarse)}` : "not all of this"}: for every interval ` +
        `write another with schedscope timeline --since ${Math.floor((origin + begin) / 1000)}us --until ${Math.ceil((origin + end) / 1000)}us`);
    } else if (!shown && home === "page") lines.push("this lane is not in the page");
    else if (!shown && refining) lines.push(`some lanes are being read${coarse ? `: until then they show sums over ${duration(coarse)}` : ""}`);
    else if (!shown && !asked && coarse > view.scale) lines.push(`some lanes show sums over ${duration(coarse)}: zoom in for more, or show fewer lanes`);
    else if (!shown) lines.push("waiting for Python");
    let text = lines.join(" · ");
    if (wait >= 0) {
      const w = about.waits[wait];
      text += `\nWait ${wait + 1} of the ${about.waits.length} longest: ${thread(w.utid)} waited ` +
        `${w.open ? "at least " : ""}${duration(w.wait)}${w.queue === null ? "" : ` for CPU ${w.queue}`} from ${when(w.ready)} on: ` +
        (w.waker === null ? CAUSES[w.cause] || w.cause : `woken by ${thread(w.waker)}${w.waker_cpu === null ? "" : ` on CPU ${w.waker_cpu}`}`);
    }
    if (told) text += `\n${told}`;
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
    if (spot.y < AXIS || row < 0 || row >= lanes.length || column < 0 || column >= view.bins || begin >= total) return "";
    if (isHead(lanes[row])) return "";
    const lane = lanes[row], piece = best(lane), end = begin + view.scale, cpu = lane.startsWith("cpu:");
    if (!piece || begin < piece.begin || begin >= piece.end) return "";
    if (piece.kind === "levels") {
      const one = { first: view.first + column, bins: 1, scale: view.scale };
      return `${title(lane)}: ${heightWords(lane, means(lane, piece, one, total), 0)}\n${duration(view.scale)} from ${when(begin)} on`;
    }
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
  const timeAt = (spot) => Math.min(total, Math.max(0, Math.floor((view.first + column(spot)) * view.scale)));
  const sticky = () => Math.max(0, -canvas.getBoundingClientRect().top); // where the axis is seen
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const spot = place(event), top = spot.y - sticky();
    canvas.setPointerCapture(event.pointerId);
    // Along the axis, or with Shift: a range; else the picture moves.
    const ranging = spot.x >= (canvas.width - view.bins) / ratio && (event.shiftKey || (top >= 0 && top < AXIS));
    drag = { x: event.clientX, first: view.first, moved: false, from: ranging ? timeAt(spot) : null };
    canvas.style.cursor = ranging ? "ew-resize" : "grabbing";
  });
  canvas.addEventListener("pointermove", (event) => {
    pointer = place(event);
    if (!drag) {
      canvas.style.cursor = pointer.y - sticky() < AXIS ? "ew-resize" : "";
      hover();
      return;
    }
    if (Math.abs(event.clientX - drag.x) > 2) drag.moved = true;
    if (!drag.moved) return;
    if (drag.from === null) settle(drag.first - (event.clientX - drag.x) * ratio, view.scale);
    else {
      const at = timeAt(pointer);
      sketch = [Math.min(at, drag.from), Math.max(at, drag.from)];
      draw();
    }
  });
  const drop = (event) => {
    const was = drag, range = sketch;
    drag = sketch = null;
    canvas.style.cursor = "";
    if (!was || event.type !== "pointerup") return draw();
    if (range && range[1] > range[0]) return setRange(range);
    if (was.moved || was.from !== null) return undefined;
    const spot = place(event), row = Math.floor((spot.y - AXIS) / height), lane = lanes[row];
    if (spot.y < AXIS || !lane) return undefined;
    if (isHead(lane)) return fold(lane.slice(5));
    if (spot.x < (canvas.width - view.bins) / ratio) return undefined;
    return select(lane, widest(lane, spot));
  };
  canvas.addEventListener("pointerup", drop);
  canvas.addEventListener("pointercancel", drop);
  canvas.addEventListener("pointerleave", () => { pointer = null; tip.hidden = true; });

  /** The instant under the pointer; where several intervals share its pixel, of the longest. */
  function widest(lane, spot) {
    const begin = (view.first + Math.floor(column(spot))) * view.scale, end = begin + view.scale, piece = best(lane);
    if (!piece || piece.kind !== "intervals") return Math.min(total - 1, Math.floor(begin + view.scale / 2));
    let longest = -1;
    for (let i = after(piece.ends, begin); i < piece.starts.length && piece.starts[i] < end; i++) {
      if (longest < 0 || piece.ends[i] - piece.starts[i] > piece.ends[longest] - piece.starts[longest]) longest = i;
    }
    return longest < 0 ? begin : Math.max(piece.starts[longest], Math.min(piece.ends[longest] - 1, begin));
  }

  // ---- selection ----

  /** The interval of a lane at an instant; with `behind` its facts do not come to the front. */
  function select(lane, at, behind = false) {
    picture.selection = lane === null ? null : { lane, at: Math.round(at), behind };
    const piece = lane && best(lane);
    if (piece && piece.kind === "intervals") {
      const i = after(piece.ends, at);
      if (i < piece.starts.length && piece.starts[i] <= at) Object.assign(picture.selection, { begin: piece.starts[i], end: piece.ends[i] });
    }
    tip.hidden = true;
    draw();
    tell("select");
  }
  /** Its true edges, once they are known. */
  function outline(lane, begin, end) {
    if (picture.selection && picture.selection.lane === lane) Object.assign(picture.selection, { begin, end });
    draw();
  }
  function setRange(range) {
    picture.range = range && [Math.max(0, Math.round(range[0])), Math.min(total, Math.round(range[1]))];
    draw();
    tell("range");
  }

  /** The interval before or after the selected one, in its lane. */
  function beside1(step) {
    const chosenOne = picture.selection;
    if (!chosenOne) return;
    const at = step > 0 ? (chosenOne.end ?? chosenOne.at + view.scale) : (chosenOne.begin ?? chosenOne.at) - 1;
    if (at < 0 || at >= total) return;
    select(chosenOne.lane, at);
    if (at < view.first * view.scale || at >= (view.first + view.bins) * view.scale) settle(at / view.scale - view.bins / 2, view.scale);
  }
  function framed() {
    const range = picture.range, one = picture.selection;
    if (one && one.end !== undefined) near(one.begin, one.end - one.begin);
    else if (range) between(...range);
  }
  function escape() {
    if (!help.hidden) help.hidden = true;
    else if (details.opened()) details.close();
    else {
      if (picture.range) setRange(null);
      if (picture.selection) select(null);
    }
  }

  let said = "";
  function complain(text) {
    said = text;
    draw();
    setTimeout(() => { said = ""; draw(); }, 8000);
  }

  // ---- keys ----

  const pan = (way) => settle(view.first + way * Math.round(view.bins / 8), view.scale); // there and back is here
  const middle = () => (pointer && pointer.x * ratio > canvas.width - view.bins ? column(pointer) : view.bins / 2);
  const strokes = {
    a: () => pan(-1), d: () => pan(1), w: () => zoom(0.5, middle()), s: () => zoom(2, middle()),
    n: () => jump(1), p: () => jump(-1), g: () => details.finding(1), G: () => details.finding(-1), 0: whole, "/": () => find.focus(), "?": () => { help.hidden = !help.hidden; },
    u: () => keep.undo(), U: () => keep.redo(), f: framed, b: () => details.note(), q: () => details.turn("sql"),
    e: () => save("png"), E: () => save("svg"),
    ".": () => beside1(1), ",": () => beside1(-1), Escape: escape, "+": () => zoom(0.5, view.bins / 2), "-": () => zoom(2, view.bins / 2),
    Delete: () => picture.selection && hide(picture.selection.lane),
  };
  // These scroll a page: here only where the timeline is all of it, or has the focus.
  const scrolling = {
    ArrowLeft: strokes.a, ArrowRight: strokes.d, ArrowUp: strokes["+"], ArrowDown: strokes["-"], Home: whole,
  };
  const KEYS = [["w s", "zoom in, out (at the pointer)"], ["a d", "pan"], ["← → ↑ ↓ + -", "pan and zoom"], ["0", "show everything"],
    ["/", "find threads, processes, control groups, CPUs, times"], ["n p", "next and previous of the longest waits"],
    ["g G", "next and previous finding"],
    [", .", "previous and next interval of the lane"], ["f", "zoom to the selection"], ["b", "add a note"], ["q", "SQL"],
    ["e E", "save the picture as PNG, as SVG"], ["u U", "undo, redo"], ["Delete", "remove the selected lane"], ["Escape", "close, then clear"], ["?", "this list"],
    ["click", "select an interval"], ["drag", "pan"], ["drag the axis, Shift and drag", "select a range"], ["wheel, Shift and wheel", "zoom, pan"]];
  const help = h("div", { class: "sst-help", role: "dialog", "aria-label": "keys", hidden: true }, h("h2", {}, "Keys"),
    h("table", {}));
  const explain = (rows) => help.lastChild.append(...rows.map(([key, text]) => h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, text))));
  explain(KEYS);

  function press(event) {
    if (event.altKey || gone || event.defaultPrevented) return;
    const inside = box.contains(event.target), typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (typing) return;
    if (!inside && (home === "notebook" || second || (event.target !== document.body && event.target !== document.documentElement))) return;
    const undoing = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z";
    if ((event.ctrlKey || event.metaKey) && !undoing) return;
    const on = event.target.closest?.("button, summary, [role=region]");
    const act = undoing ? (event.shiftKey ? strokes.U : strokes.u)
      : strokes[event.key] || ((alone || event.target === canvas) && !on ? scrolling[event.key] : null);
    if (!act) return;
    event.preventDefault();
    event.stopPropagation(); // a notebook has commands on the same keys
    if (event.key.length > 1 || "adn0pgG".includes(event.key)) pointer = null; // what it pointed at is elsewhere now
    tip.hidden = true;
    act();
  }
  // In a notebook other cells have keys, too: there only with the focus.
  const ear = home === "notebook" ? box : document;
  ear.addEventListener("keydown", press);

  const picture = {
    about, box, bar, canvas, view, names, threads, cpus, orders, total, second, selection: null, range: null,
    on, thread, title, when, best, over, show, arrange, go, between, whole, select, outline, setRange, complain, stepped,
    chosen: () => chosen, pinned: () => pinned, by: () => by, folded: () => folded, lanes: () => [...lanes],
    setNotes: (rows) => { notes = rows; draw(); }, learn: (utids) => find.learn(utids),
    expand: (pid) => find.expand(pid),
    strokes, explain, place: settle, reach: () => [low, high], shift: 0, match: null,
    extend: (from, to) => { [low, high] = [from, to]; settle(view.first, view.scale); },
    turn: (by, match = null) => { [picture.shift, picture.match] = [by, match]; tell("shift"); },
    colour: () => colour, painted, blocks: (kind) => [painted(kind)], apart: (comms) => { strangers = comms; draw(); }, freely: () => { grain = null; },
  };
  const find = finder(picture, source);
  const keep = keeper(picture, source, home);
  const details = panel(picture, source, keep);
  button("link", "copy the address of this view", async () => {
    const text = home === "server" ? `schedscope view ${quoted(about.name)} --at '${keep.text()}'` : `${location.href.split("#")[0]}#${keep.text()}`;
    complain((await copied(text)) ? `Copied: ${text}` : text);
  });
  button("PNG", "save this view as a picture (key e)", () => save("png"));
  button("SVG", "save this view as a drawing (key E)", () => save("svg"));
  button("keys", "key ?", () => { help.hidden = !help.hidden; });
  box.append(help);

  const watch = new ResizeObserver(() => { measure(); label(); request(); draw(); });
  watch.observe(box);
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", draw);
  few.addEventListener("change", draw);
  document.addEventListener("scroll", draw, { passive: true, capture: true });
  // A printer takes what is drawn now, and paper is white: no frame comes in between.
  const repaint = ({ type }) => { paper = type === "beforeprint"; render(); };
  for (const moment of ["beforeprint", "afterprint"]) window.addEventListener(moment, repaint);
  lanes = ordered();
  measure();
  label();
  if (about.show) between(...about.show);
  else whole();
  if (by !== "none") arrange(); // learns whose threads they are
  keep.start();

  const handle = {
    about, view, canvas, picture, keep,
    colours: () => ({ light: LIGHT, dark: DARK, states: { RUNNING, RUNNABLE, BLOCKED, STOPPED, SLEEPING, PARKED } }),
    lanes: () => [...lanes],
    state: () => ({ ...view, wait, exact: shown, asking: asked !== null, refining, frames, busy, tip: tip.hidden ? "" : tip.textContent,
      note: note.textContent, left: (canvas.width - view.bins) / ratio, height, axis: AXIS, ratio,
      kinds: lanes.map((lane) => (best(lane) || { kind: "none" }).kind), selection: picture.selection, range: picture.range }),
    heights: (lane) => {
      const found = means(lane, best(lane), view, total);
      return { ...found, full: full(lane, best(lane), found.mean) };
    },
    sums: (lane) => Object.fromEntries([...coverage(best(lane), view.first, view.bins, view.scale)].map(([k, v]) => [k, [...v]])),
  };
  canvas.timeline = handle; // for whoever drives the picture from outside
  return () => {
    gone = true;
    keep.stop();
    watch.disconnect();
    for (const moment of ["beforeprint", "afterprint"]) window.removeEventListener(moment, repaint);
    scheme.removeEventListener("change", draw);
    few.removeEventListener("change", draw);
    document.removeEventListener("scroll", draw, { capture: true });
    ear.removeEventListener("keydown", press);
  };
}
