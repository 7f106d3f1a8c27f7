// The timeline's texts: below the picture, and beside the pointer.

export function duration(ns) {
  for (const [step, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
    const many = ns / step;
    if (Math.abs(many) >= 0.9995) return `${Number(many.toPrecision(3)).toLocaleString("en")} ${unit}`;
  }
  return `${Number(ns.toPrecision(3))} ns`;
}

/** Describes the view that `scene` has at the time of the call. */
function speaker(scene) {
  const share = (part) => (part > 0 && part < 0.001 ? "< 0.1 %" : `${(100 * part).toFixed(1)} %`);

  /** The line below the picture: what is shown, what is missing, and the chosen wait or finding. */
  function status(coarse) {
    const { about, view, total, origin, said, problem, shown, refining, asked, wait, told, thread, when, home } = scene;
    const begin = Math.max(0, view.first * view.scale), end = Math.min(total, (view.first + view.bins) * view.scale);
    const lines = said ? [said] : [];
    lines.push(begin < end ? `${when(begin)} to ${when(end)}, ${duration(view.scale)} per pixel` : "nothing of this trace");
    if (problem) lines.push(problem);
    else if (!shown && about.finest) {
      const more = begin <= 0 && end >= total ? "a larger --max-size"
        : `--since ${Math.floor((origin + begin) / 1000)}us --until ${Math.ceil((origin + end) / 1000)}us`;
      lines.push(`This page knows ${coarse ? `no more than sums over ${duration(coarse)}` : "not all of this"}: ` +
        `for every interval write another with schedscope timeline and ${more}`);
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
    return text;
  }

  /** Describes what is under the pointer; empty if there is nothing. */
  function words(spot) {
    const { view, canvas, ratio, height, lanes, total, best, title, when, about } = scene;
    const row = Math.floor((spot.y - AXIS) / height), column = Math.floor(spot.x * ratio) - (canvas.width - view.bins);
    const begin = (view.first + column) * view.scale;
    if (scene.onAxis(spot)) {
      const i = scene.requestAt(spot), one = scene.requests[i];
      return one ? `Request to ${one[3]}: ${duration(one[1])} from ${when(one[0], one[1])} on, number ${i + 1} of the slowest` : "";
    }
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

  function interval(piece, i, cpu, lane) {
    const { about, title, thread, when } = scene;
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

  return { status, words };
}
