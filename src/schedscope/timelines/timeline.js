// A timeline of CPUs and threads on one canvas.
//
// Times are whole ns after the start of the trace; `scale` is a whole number of ns per
// device pixel, and pixel k is [k * scale, (k + 1) * scale). So every sum here is exact and
// equals Python's. Data comes from `source(request)`, which returns a promise of an answer as
// described in timelines/answer.py: from a kernel, a server, or data stored in the page.
// script.py joins this file and its neighbours into one module.

const NAMES = 168, NARROW = 96; // CSS pixels

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
  let paint = screen, every = false; // the drawing target, and whether lanes outside the window are drawn
  // The first timeline of a page owns its address; a notebook may put each output in its own shadow tree.
  const second = root.getRootNode().querySelector(".sst-picture").parentElement !== box;
  const alone = !!root.closest("[data-alone]"); // no other part of the page uses the keys

  const total = Math.max(1, about.duration), origin = about.origin;
  const names = { ...about.names };
  const threads = new Map(((about.threads || {}).rows || []).map((row) => [row.utid, row]));
  const cpus = about.cpus || about.lanes.filter((lane) => lane.startsWith("cpu:")).map((lane) => Number(lane.slice(4)));
  let chosen = [...about.lanes], pinned = [], by = about.by || "none", folded = [];
  let lanes = [...chosen]; // the lanes in drawing order, with group headings
  const pieces = new Map(); // lane -> its loaded pieces, newest last
  const view = { first: 0, scale: 1, bins: 1 };
  let wait = -1, told = "", ratio = 1, height = 20, colour = LIGHT, pointer = null, drag = null;
  let until = 0, asked = null, again = false, shown = true, problem = "", frames = 0, busy = 0, gone = false, paper = false;
  let notes = [], sketch = null, grain = about.grain;
  let strangers = null; // in a comparison: names of threads that the other trace lacks
  let glance = null; // the overview strip
  let requests = about.marks || []; // the slowest requests, drawn on the axis
  let refining = false, later = 0; // in a long trace: whether lanes are still being computed, and when to ask again

  const ears = new Map();
  const on = (event, act) => ears.set(event, [...(ears.get(event) || []), act]);
  const tell = (event) => (ears.get(event) || []).forEach((act) => act());

  const thread = (utid) => names[utid] || (threads.get(utid) || {}).name || `thread ${utid}`;
  const titles = new Map((about.more || []).flatMap((each) => each.lanes.map((lane, i) => [lane, each.titles[i]])));
  const groupTitle = (lane) => {
    const [, kind, over, number] = groupIn(lane);
    return `${PLACES[over]} ${number}, ${kind === "busy" ? "busy" : "waiting"}`;
  };
  const title = (lane) => (isHead(lane) ? lane.slice(5) : lane.startsWith("lag:") ? `behind, ${thread(Number(lane.slice(4)))}` : groupIn(lane) ? groupTitle(lane) : isLevel(lane) ? titles.get(lane) || lane : lane.startsWith("cpu:") ? `CPU ${lane.slice(4)}` : thread(Number(lane.slice(5))));
  /** An instant as text, precise to a hundredth of `span`. */
  const when = (ns, span = view.scale * view.bins) => `${((origin + ns) / 1e9).toFixed(Math.min(9, Math.max(3, 11 - Math.ceil(Math.log10(span + 1)))))} s`;

  // The current state, for the other parts of the timeline.
  const scene = {
    about, canvas, screen, view, total, origin, threads, home, thread, title, when, best,
    get by() { return by; }, get chosen() { return chosen; }, get pinned() { return pinned; },
    get folded() { return folded; }, get lanes() { return lanes; }, get paint() { return paint; },
    get ratio() { return ratio; }, get height() { return height; }, get colour() { return colour; },
    get until() { return until; }, get wait() { return wait; }, get told() { return told; },
    get said() { return said; }, get problem() { return problem; }, get shown() { return shown; },
    get refining() { return refining; }, get asked() { return asked; }, get sketch() { return sketch; },
    get notes() { return notes; }, get picture() { return picture; }, get requests() { return requests; },
    onAxis: (spot) => spot.y - sticky() >= 0 && spot.y - sticky() < AXIS,
    requestAt: (spot) => requests.findIndex(([begin, length]) => begin <= timeAt(spot, 3) && begin + length >= timeAt(spot, -3)),
  };
  const { orders, placed, groupOf, ordered } = grouper(scene);
  const { clipped, marks, axis, body, area, arrows } = painter(scene);
  const { status, words } = speaker(scene);

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

  /** Changes the lanes or their order; arguments left out stay as they are. */
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
    // Their processes must be known first, or each would get a group of its own.
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
      // If its group is folded, the lane is not visible.
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

  /** Buttons beside the lanes' names, usable by pointer, keyboard and screen reader. */
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

  // Limits of the view: data stored in a page has an end and a finest scale.
  let low = 0, high = total; // the range that can be shown; for two traces, the union
  function fit() {
    const least = Math.max(1, Math.ceil((high - low) / view.bins)), step = about.finest || 1;
    const whole = Math.ceil(least / step) * step;
    // A pixel is a whole number of bins, unless that leaves much of the width empty.
    return even(4 * least < 3 * whole ? least : whole);
  }
  /** In a long trace, rounds the scale to whole bins of its overview, so that sums stay exact. */
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

  /** Zooms about device pixel `x`, whose time stays in place. */
  function zoom(factor, x) {
    const time = (view.first + x) * view.scale;
    let scale = Math.max(1, view.scale * factor);
    if (Math.round(scale) === view.scale) scale = view.scale + Math.sign(factor - 1);
    scale = Math.min(Math.max(1, Math.round(scale)), fit());
    // For binned data, pixels that are whole bins are exact.
    if (about.finest && scale > about.finest && scale < fit()) {
      const steps = factor > 1 ? Math.ceil(scale / about.finest) : Math.floor(scale / about.finest);
      scale = Math.min(fit(), Math.max(1, steps) * about.finest);
    }
    if (grain && scale > grain) {
      // A zoom step changes the scale by at least one bin, and stops where single rows begin.
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

  /** Shows a range in the middle of the picture, at half its width. */
  function near(begin, length) {
    const scale = even(Math.max(1, Math.ceil((2 * length) / view.bins)));
    settle((begin + length / 2) / scale - view.bins / 2, scale);
  }

  /** Shows a finding's text below the picture, in place of a wait's. */
  function stepped(text) {
    wait = -1;
    told = text;
    draw();
  }

  /** Shows an instant or a range; the scale changes only if it has to. */
  function go(begin, length) {
    const now = view.bins * view.scale;
    if (length * 1.2 > now || length * 40 < now) near(begin, Math.max(length, length ? 1 : now / 40));
    else settle((begin + length / 2) / view.scale - view.bins / 2, view.scale);
  }

  // ---- requests ----

  function request() {
    // One request at a time; while it is pending, only the latest wanted view is remembered.
    if (asked) {
      again = true;
      return;
    }
    const margin = Math.floor(view.bins / 2);
    const first = Math.max(0, view.first - margin), scale = view.scale;
    const bins = Math.min(16384, view.first + view.bins + margin - first);
    if (bins <= 0) return; // in a comparison, the view may lie before this trace's start
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
        // The coarsest piece is kept, to be shown while the next answer is pending.
        const all = wide && !fresh.includes(wide) ? [wide, ...fresh] : fresh;
        pieces.set(row.key, all);
        // All share one full height: the largest maximum known.
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

  /** The best loaded piece: one that covers the whole view if possible, and exact if possible. */
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

  /** The best loaded piece that covers a range, independent of the view. */
  const over = (lane, begin, end) => (pieces.get(lane) || []).filter((piece) => piece.begin <= begin && piece.end >= Math.min(total, end))
    .sort((a, b) => (a.kind === "intervals" ? 0 : a.scale) - (b.kind === "intervals" ? 0 : b.scale))[0];

  // ---- drawing ----

  function measure() {
    ratio = window.devicePixelRatio || 1;
    height = lanes.length > 48 ? 14 : 24;
    const width = Math.max(320, box.clientWidth || root.clientWidth || 800);
    const size = [Math.round(width * ratio), Math.round((AXIS + lanes.length * height) * ratio)];
    // Setting a canvas's size clears it, even if the size is unchanged.
    if (canvas.width !== size[0]) canvas.width = size[0];
    if (canvas.height !== size[1]) canvas.height = size[1];
    canvas.style.height = `${AXIS + lanes.length * height}px`;
    const all = view.scale >= fit(), gutter = width < 520 ? NARROW : NAMES, bins = Math.max(64, canvas.width - Math.round(gutter * ratio));
    beside.style.width = `${gutter}px`;
    beside.classList.toggle("sst-low", height < 20);
    if (bins === view.bins) return;
    view.bins = bins;
    // A view of the whole trace stays whole; any other keeps its start and its scale.
    if (all || view.scale > fit()) view.scale = fit();
    const least = Math.floor(low / view.scale);
    view.first = Math.max(least, Math.min(view.first, Math.max(least, Math.ceil(high / view.scale) - bins)));
  }

  const few = window.matchMedia("(forced-colors: active)");
  function theme() {
    // The page decides: light text means a dark background.
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
    // Lanes scrolled out of the window are not drawn, except for printing.
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
    const text = status(coarse);
    if (note.textContent !== text) note.textContent = text;
    glance?.draw();
    if (pointer) hover();
  }

  /** The current view with all its lanes, as a block of an exported file. */
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

  // ---- the pointer ----

  function place(event) {
    const frame = canvas.getBoundingClientRect();
    return { x: event.clientX - frame.left, y: event.clientY - frame.top, left: frame.left, top: frame.top };
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
  const timeAt = (spot, beside = 0) => Math.min(total, Math.max(0, Math.floor((view.first + column(spot) + beside) * view.scale)));
  const sticky = () => Math.max(0, -canvas.getBoundingClientRect().top); // the axis sticks to the top of the window
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const spot = place(event), top = spot.y - sticky();
    canvas.setPointerCapture(event.pointerId);
    // Dragging along the axis, or with Shift, selects a range; otherwise it moves the view.
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
    const spot = place(event), row = Math.floor((spot.y - AXIS) / height), lane = lanes[row];
    const request = !was.moved && scene.onAxis(spot) ? requests[scene.requestAt(spot)] : null;
    if (request) return answered(request);
    if (was.moved || was.from !== null) return undefined;
    if (spot.y < AXIS || !lane) return undefined;
    if (isHead(lane)) return fold(lane.slice(5));
    if (spot.x < (canvas.width - view.bins) / ratio) return undefined;
    return select(lane, widest(lane, spot));
  };
  canvas.addEventListener("pointerup", drop);
  canvas.addEventListener("pointercancel", drop);
  canvas.addEventListener("pointerleave", () => { pointer = null; tip.hidden = true; });

  /** Selects a request from the axis: its time as the range, with the thread that read it. */
  async function answered([begin, length, utid]) {
    await show([`utid:${utid}`]);
    go(begin, length);
    setRange([begin, begin + length]);
  }

  /** The instant under the pointer; if several intervals share the pixel, one within the longest. */
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

  /** Selects a lane's interval at an instant; with `behind` its tab is not brought to the front. */
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
  /** Sets the interval's exact edges once they are loaded. */
  function outline(lane, begin, end) {
    if (picture.selection && picture.selection.lane === lane) Object.assign(picture.selection, { begin, end });
    draw();
  }
  function setRange(range) {
    picture.range = range && [Math.max(0, Math.round(range[0])), Math.min(total, Math.round(range[1]))];
    draw();
    tell("range");
  }

  /** Selects the previous or the next interval in the lane. */
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

  const pan = (way) => settle(view.first + way * Math.round(view.bins / 8), view.scale); // moving there and back ends at the same place
  const middle = () => (pointer && pointer.x * ratio > canvas.width - view.bins ? column(pointer) : view.bins / 2);
  const strokes = {
    a: () => pan(-1), d: () => pan(1), w: () => zoom(0.5, middle()), s: () => zoom(2, middle()),
    n: () => jump(1), p: () => jump(-1), g: () => details.finding(1), G: () => details.finding(-1), 0: whole, "/": () => find.focus(), "?": () => { help.hidden = !help.hidden; },
    u: () => keep.undo(), U: () => keep.redo(), f: framed, b: () => details.note(), q: () => details.turn("sql"),
    e: () => save("png"), E: () => save("svg"),
    ".": () => beside1(1), ",": () => beside1(-1), Escape: escape, "+": () => zoom(0.5, view.bins / 2), "-": () => zoom(2, view.bins / 2),
    Delete: () => picture.selection && hide(picture.selection.lane),
  };
  // These keys scroll a page, so they are used only if the timeline is the whole page or has the focus.
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
    event.stopPropagation(); // a notebook uses the same keys for commands
    if (event.key.length > 1 || "adn0pgG".includes(event.key)) pointer = null; // the picture has moved under it
    tip.hidden = true;
    act();
  }
  // In a notebook other cells use keys as well, so the timeline needs the focus.
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
  glance = strip(scene, source);
  box.querySelector(".sst-picture").before(glance.canvas);
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
  // Printing takes what is drawn now, without another frame, so it is redrawn at once in light colours.
  const repaint = ({ type }) => { paper = type === "beforeprint"; render(); };
  for (const moment of ["beforeprint", "afterprint"]) window.addEventListener(moment, repaint);
  lanes = ordered();
  measure();
  label();
  if (about.show) between(...about.show);
  else whole();
  if (by !== "none") arrange(); // loads the threads' processes
  keep.start().then((asked) => {
    // A single trace opens on its first finding, unless the address names a view.
    // These are loaded after the first picture, so that nobody waits for them.
    if ((about.can || []).includes("marks")) source({ kind: "marks" }).then(({ answer }) => { requests = answer.rows; draw(); }).catch(() => {});
    if (!asked && home === "server" && document.querySelectorAll("[data-served]").length === 1) details.first();
  });

  const handle = {
    about, view, canvas, picture, keep,
    colours: () => ({ light: LIGHT, dark: DARK, states: { RUNNING, RUNNABLE, BLOCKED, STOPPED, SLEEPING, PARKED } }),
    lanes: () => [...lanes],
    requests: () => requests,
    state: () => ({ ...view, wait, exact: shown, asking: asked !== null, refining, frames, busy, tip: tip.hidden ? "" : tip.textContent,
      note: note.textContent, left: (canvas.width - view.bins) / ratio, height, axis: AXIS, ratio,
      kinds: lanes.map((lane) => (best(lane) || { kind: "none" }).kind), selection: picture.selection, range: picture.range }),
    heights: (lane) => {
      const found = means(lane, best(lane), view, total);
      return { ...found, full: full(lane, best(lane), found.mean) };
    },
    sums: (lane) => Object.fromEntries([...coverage(best(lane), view.first, view.bins, view.scale)].map(([k, v]) => [k, [...v]])),
  };
  canvas.timeline = handle; // for tests and scripts that control the picture
  return () => {
    gone = true;
    glance.stop();
    keep.stop();
    watch.disconnect();
    for (const moment of ["beforeprint", "afterprint"]) window.removeEventListener(moment, repaint);
    scheme.removeEventListener("change", draw);
    few.removeEventListener("change", draw);
    document.removeEventListener("scroll", draw, { capture: true });
    ear.removeEventListener("keydown", press);
  };
}
