// The difference between two traces: how many more or fewer threads run and wait in the second, per pixel.

const COLUMN = 3, TALL = 34; // CSS pixels: a bar's width and the height of a row

/** `asks` are the sources of the two pictures, whose pixels are aligned. */
function balance(one, two, asks) {
  const canvas = h("canvas", { role: "img", "aria-label": "difference" }), said = h("div", { class: "sst-faint", role: "status" });
  const box = h("div", { class: "sst-picture" }, canvas, said);
  const ROWS = [["running", RUNNING], ["waiting for a CPU", RUNNABLE]];
  let bars = null, asking = false, again = false, later = 0;
  // In a long trace these sums need a pass over all of it, so they are computed only when asked for.
  let off = Boolean(one.about.grain || two.about.grain);
  if (off) said.append(link("show what differs, pixel by pixel", () => { off = false; said.textContent = "Reading …"; renew(); }));

  /** Mean number of running and of waiting threads in each bar of one side; null where unknown. */
  async function sums(picture, ask, step) {
    const { first, scale, bins } = picture.view, begin = Math.floor(first), low = Math.max(0, begin), many = begin + bins - low;
    const found = { running: [], waiting: [], refining: false };
    if (many <= 0 || low * scale >= picture.total) return found;
    const lanes = [...picture.cpus.map((cpu) => `cpu:${cpu}`), "depth:all"];
    const { answer, buffers } = await ask({ kind: "lanes", lanes, first: low, bins: Math.min(16384, many), scale, intervals: 0 });
    found.refining = answer.lanes.some((row) => row.refining);
    const ran = new Float64Array(bins), wanted = new Float64Array(bins), known = new Float64Array(bins);
    for (const row of answer.lanes) {
      if (row.kind === "later") continue;
      const piece = unpack(row, answer, buffers);
      if (row.key === "depth:all") {
        const area = heights(piece, begin, bins, scale);
        wanted.set(area.sum);
        known.set(area.known);
      } else (coverage(piece, begin, bins, scale).get(RUNNING) || []).forEach((ns, x) => { ran[x] += ns; });
    }
    for (let x = 0; x < bins; x += step) {
      let time = 0, run = 0, want = 0;
      for (let k = x; k < Math.min(bins, x + step); k++) [time, run, want] = [time + known[k], run + ran[k], want + wanted[k]];
      found.running.push(time > 0 ? run / time : null);
      found.waiting.push(time > 0 ? Math.max(0, want - run) / time : null);
    }
    return found;
  }

  async function renew() {
    if (off) return;
    if (asking) {
      again = true;
      return;
    }
    asking = true;
    clearTimeout(later);
    const step = Math.max(1, Math.round(COLUMN * (window.devicePixelRatio || 1)));
    try {
      const [a, b] = await Promise.all([sums(one, asks[0], step), sums(two, asks[1], step)]);
      bars = [[a.running, b.running], [a.waiting, b.waiting]].map(([x, y]) =>
        Array.from({ length: Math.ceil(one.view.bins / step) }, (_, i) => [x[i] ?? null, y[i] ?? null]));
      bars.step = step;
      bars.refining = a.refining || b.refining;
      if (bars.refining) later = setTimeout(renew, 500);
      draw();
    } catch (error) {
      said.textContent = String(error.message || error);
    } finally {
      asking = false;
      if (again) {
        again = false;
        renew();
      }
    }
  }

  function draw() {
    if (!bars) return;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = one.canvas.width;
    canvas.height = 2 * Math.round(TALL * ratio) + ratio;
    canvas.style.height = `${canvas.height / ratio}px`;
    paint(canvas.getContext("2d"), ratio);
    tell(null);
  }

  function paint(pen, ratio) {
    const high = Math.round(TALL * ratio), left = one.canvas.width - one.view.bins, colour = one.colour();
    pen.fillStyle = colour.back;
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.textBaseline = "middle";
    bars.forEach((row, i) => {
      const most = ceiling(row.reduce((top, [a, b]) => (a === null || b === null ? top : Math.max(top, Math.abs(b - a))), 0));
      const middle = Math.round((i + 0.5) * high);
      pen.fillStyle = colour.lane;
      pen.fillRect(left, i * high + ratio, one.view.bins, high - 2 * ratio);
      row.forEach(([a, b], k) => {
        if (a === null || b === null) return;
        const size = (Math.abs(b - a) / most) * (high / 2 - 2 * ratio), at = left + k * bars.step;
        pen.fillStyle = colour[ROWS[i][1]];
        if (size >= 0.5) pen.fillRect(at, b > a ? middle - size : middle, bars.step, size);
      });
      pen.fillStyle = colour.text;
      pen.fillRect(left, middle, one.view.bins, Math.max(1, Math.round(ratio / 2)));
      pen.font = `${12 * ratio}px system-ui, sans-serif`;
      pen.fillText(left > 120 * ratio ? ROWS[i][0] : ROWS[i][0].split(" ")[0], 4 * ratio, middle);
      pen.font = `${9 * ratio}px system-ui, sans-serif`;
      pen.textAlign = "right";
      pen.fillText(`+${amount(most)}`, left - 2 * ratio, middle - high / 2 + 6 * ratio);
      pen.fillText(`−${amount(most)}`, left - 2 * ratio, middle + high / 2 - 6 * ratio);
      pen.textAlign = "left";
    });
    pen.fillStyle = colour.line;
    pen.fillRect(left - 1, 0, 1, canvas.height);
  }

  /** This chart as a block of an exported file, if anything is known. */
  function painted(kind) {
    if (!bars) return null;
    const pen = kind === "svg" ? svgPen(canvas.getContext("2d"), one.colour().hatch) : null;
    if (pen) paint(pen, window.devicePixelRatio || 1);
    return { title: overall(), width: canvas.width, height: canvas.height, drawn: pen ? pen.parts.join("") : copied2d(canvas) };
  }

  function words(x) {
    const [ran, waited] = bars.map((row) => row[x] || [null, null]);
    if ([...ran, ...waited].includes(null)) return "only one of the two is known here";
    const [a, b, c, d] = [...ran, ...waited].map((value) => value.toFixed(2));
    return `threads running: ${a} in the first, ${b} in the second; waiting: ${c} in the first, ${d} in the second`;
  }
  function mean(row) {
    const both = row.filter(([a, b]) => a !== null && b !== null);
    return both.length ? both.reduce((sum, [a, b]) => sum + b - a, 0) / both.length : null;
  }
  const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
  function overall() {
    const [ran, waited] = bars.map(mean);
    return bars.refining ? "Some of this is still being read." : ran === null || waited === null ? "The two have no time in common here." : `Above the line the second trace has more threads, below it fewer: on average ${signed(ran)} running, ${signed(waited)} waiting.`;
  }
  function tell(x) {
    const whole = overall();
    said.textContent = x === null ? whole : `Here: ${words(x)}.`;
    canvas.setAttribute("aria-label", `Differences of the two traces. ${whole}`);
  }
  canvas.addEventListener("pointermove", (event) => {
    if (!bars) return;
    const x = event.offsetX * (canvas.width / canvas.clientWidth) - (canvas.width - one.view.bins);
    tell(x >= 0 ? Math.floor(x / bars.step) : null);
  });
  canvas.addEventListener("pointerleave", () => bars && tell(null));
  const watch = new ResizeObserver(() => renew());
  watch.observe(box);
  one.on("theme", draw);
  one.canvas.balance = () => bars; // for tests and scripts that control the picture
  return { box, renew, painted };
}
