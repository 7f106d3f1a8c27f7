// What is drawn on the canvas: the axis, lanes, arrows from wakers, and what is selected.

const AXIS = 22, WIDE = 3; // CSS pixels; an interval this wide gets a colour of its own
const ARROWS = 30, FAR = 16; // limits: number of arrows, and number of lanes that an arrow's line crosses

/** Draws with the pen, colours and view that `scene` has at the time of the call. */
function painter(scene) {
  const hatches = new Map();
  function hatch() {
    const { colour, ratio, screen } = scene;
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

  /** Shortens a text to the room there is; keeps the thread's number, which identifies it. */
  function clipped(text, x, y, width, numbered = false) {
    const { paint, ratio } = scene;
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
      if (low < least) return; // too short to be readable
      cut = `${text.slice(0, low)}…${end}`;
    }
    paint.fillText(cut, x, y);
  }

  /** Draws the selection, the range and the notes, and the axis at the top of the window. */
  function marks(left, high, down) {
    const { paint, ratio, colour, view, canvas, sketch, picture, notes, origin, lanes, height } = scene;
    const x = (at) => left + at / view.scale - view.first;
    if (down) {
      paint.fillStyle = colour.back;
      paint.fillRect(0, down * ratio, canvas.width, AXIS * ratio);
      axis(left, down * ratio, AXIS * ratio);
    }
    // Requests are drawn along the lower edge of the axis.
    paint.fillStyle = colour.arrow;
    paint.globalAlpha = 0.7;
    for (const [begin, length] of scene.requests) {
      const a = Math.max(left, x(begin)), b = Math.min(canvas.width, x(begin + length));
      if (b >= left && a <= canvas.width) paint.fillRect(a, (down + AXIS - 5) * ratio, Math.max(2 * ratio, b - a), 4 * ratio);
    }
    paint.globalAlpha = 1;
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

  function axis(left, down = 0, tall = scene.canvas.height) {
    const { paint, ratio, colour, view, canvas, total, origin } = scene;
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

  /** One lane: stacked shares per pixel, then intervals wide enough for a colour of their own. */
  function body(lane, piece, left, top, tall) {
    const { paint, view, total, until } = scene;
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
        if (from < piece.begin || from >= piece.end) continue; // not loaded yet
        const there = Math.max(0, Math.min(view.scale, total - from));
        const rest = there - (ran ? ran[x] : 0) - (idle ? idle[x] : 0);
        unknown[x] = rest < 0.5 ? 0 : rest; // interpolating a coarser bin leaves rounding errors
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

  /** Sleeping is the ordinary state, so it is drawn as a thin line. */
  function quiet(spent, dashed, left, top, tall) {
    const { paint, ratio, colour, view } = scene;
    const line = Math.max(1, Math.round(2 * ratio)), y = top + Math.round(tall / 2) - line / 2;
    const step = Math.round((DASH + GAP) * ratio), dash = Math.round(DASH * ratio);
    paint.fillStyle = colour[SLEEPING];
    for (let x = 0; x < view.bins;) {
      if (spent[x] < view.scale) { x++; continue; }
      let end = x + 1;
      while (end < view.bins && spent[end] >= view.scale) end++;
      if (!dashed) paint.fillRect(left + x, y, end - x, line);
      // The dashes scroll with the time axis.
      else for (let at = x - ((((view.first + x) % step) + step) % step); at < end; at += step) {
        const from = Math.max(x, at), to = Math.min(end, at + dash);
        if (to > from) paint.fillRect(left + from, y, to - from, line);
      }
      x = end;
    }
  }

  /** A lane with a height: the mean as an area, the maximum as a line, and the scale. */
  function area(lane, piece, left, top, tall) {
    const { paint, ratio, colour, view, total, until } = scene;
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

  /** Draws the shares as pixels; rectangles take three times as long with software rendering. */
  function stacked(sums, order, floor, tall, until) {
    const { paint, ratio, colour, view } = scene;
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
        // The lowest and the highest pixel may be partly covered; those between are full.
        let row = Math.floor(low), at = (tall - 1 - row) * bins + x;
        // The pattern scrolls with the time axis.
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
    const { paint, ratio, colour, view, thread } = scene;
    const begin = view.first * view.scale, end = begin + view.bins * view.scale, least = WIDE * ratio * view.scale;
    for (let i = after(piece.ends, begin); i < piece.starts.length && piece.starts[i] < end; i++) {
      if (piece.ends[i] - piece.starts[i] < least || piece.codes[i] !== RUNNING) continue;
      // Full pixels only: those at the ends are drawn as shares.
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

  /** An arrow from the waker's CPU to the wait that it started, if both are visible. */
  function arrows(left, high) {
    const { paint, ratio, colour, view, lanes, height, best, wait, about } = scene;
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
    // More arrows would hide the picture.
    found.sort((a, b) => b.width - a.width);
    for (const { x, from, row } of found.slice(0, ARROWS)) {
      const down = from < row ? 1 : -1;
      const y1 = (AXIS + row * height) * ratio + (down > 0 ? 2 * ratio : high);
      // For a distant CPU only the arrow's end is drawn: lines across all lanes would hide them.
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

  return { clipped, marks, axis, body, area, arrows };
}
