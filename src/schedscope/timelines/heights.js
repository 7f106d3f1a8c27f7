// Lanes with a height: queue depth, interrupts, quotas, dispatch queues, switches per second, and those of groups of CPUs.

const isLevel = (lane) => /^(depth|irq|quota|dsq|rate|lag|busy|waiting):/.test(lane);
/** The parts of the key of a CPU group's lane, as [, "busy", "node", "3"], or null. */
const groupIn = (lane) => /^(busy|waiting):([a-z]+)([0-9]+)$/.exec(lane);
/** Lanes scaled to the maximum of the whole trace, which also show each pixel's maximum. */
const hasTop = (lane) => /^(depth|dsq|lag):/.test(lane);
const isThread = (lane) => lane.startsWith("utid:");
const isHead = (lane) => lane.startsWith("head:");
/** The CPU that a lane belongs to, or null. */
const cpuOf = (lane) => (/^(cpu|depth|irq|rate):\d+$/.test(lane) ? Number(lane.split(":")[1]) : null);

/** Area, known time and maximum of pixels first .. first + bins, from one piece's data. */
function heights(piece, first, bins, scale) {
  const summed = (name) => (piece[name] ? perPixel(piece, name, piece[name], first, bins, scale) : new Float64Array(bins));
  const max = new Float64Array(bins);
  for (let k = 0; piece.max && k < bins; k++) {
    const at = (first + k) * scale;
    const last = Math.min(piece.bins, Math.ceil((at + scale) / piece.scale) - piece.first);
    for (let j = Math.max(0, Math.floor(at / piece.scale) - piece.first); j < last; j++) max[k] = Math.max(max[k], piece.max[j]);
  }
  return { sum: summed("sum"), known: summed("known"), max };
}

/** The mean height of each pixel; null where unknown. `there` is the known time of each pixel. */
function means(lane, piece, view, total) {
  const { sum, known, max } = heights(piece, view.first, view.bins, view.scale), mean = new Array(view.bins);
  for (let x = 0; x < view.bins; x++) {
    const begin = (view.first + x) * view.scale, there = Math.min(view.scale, total - begin);
    if (there <= 0 || begin < piece.begin || begin >= piece.end) mean[x] = null;
    else if (lane.startsWith("rate:")) mean[x] = (sum[x] * 1e9) / there;
    else mean[x] = known[x] > 0 ? sum[x] / known[x] : null;
  }
  return { mean, max, sum, known };
}

/** The next larger round number. */
function ceiling(value) {
  if (value <= 0) return 1;
  const step = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((part) => part * step).find((round) => round >= value * 0.9999);
}

const amount = (value) => (value >= 1e6 ? `${Number((value / 1e6).toPrecision(3))} M` : value >= 1e4 ? `${Number((value / 1e3).toPrecision(3))} k` : `${Number(value.toPrecision(3))}`);

/** The value at a lane's full height: the trace's maximum for queue depth and lag, else the maximum shown. */
function full(lane, piece, mean) {
  if (hasTop(lane) || groupIn(lane)) return piece.top || 1;
  const most = ceiling(mean.reduce((a, b) => Math.max(a, b || 0), 0));
  return lane.startsWith("rate:") ? most : Math.min(1, Math.max(0.001, most));
}
const scaleText = (lane, top) => (lane.startsWith("lag:") ? duration(top * 1e3) : lane.startsWith("rate:") ? `${amount(top)}/s` : /^(depth|dsq|waiting):/.test(lane) ? String(top) : `${Number((100 * top).toPrecision(3))} %`);

/** One pixel's values as text. */
function heightWords(lane, { mean, max, sum }, x) {
  if (mean[x] === null) return "unknown";
  if (lane.startsWith("rate:")) return `${amount(sum[x])} switches, ${amount(mean[x])} per second`;
  if (lane.startsWith("lag:")) return `behind by ${duration(mean[x] * 1e3)} on average, at most by ${duration(max[x] * 1e3)}`;
  if (/^(depth|dsq):/.test(lane)) return `${Number(mean[x].toPrecision(3))} threads on average, at most ${max[x]}`;
  const part = mean[x] > 0 && mean[x] < 0.001 ? "< 0.1 %" : `${(100 * mean[x]).toFixed(1)} %`;
  if (lane.startsWith("waiting:")) return `${Number(mean[x].toPrecision(3))} threads wait on average`;
  if (lane.startsWith("busy:")) return `CPUs are busy for ${part} of the time`;
  return lane.startsWith("irq:") ? `interrupts take ${part} of the time` : `held back for ${part} of the time`;
}
