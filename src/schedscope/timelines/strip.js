// The overview strip above the picture: CPU utilisation of the whole trace, the longest waits, and
// the part that the picture shows.

const STRIP = 30; // CSS pixels

/** Drawn whenever the picture is; a click or a drag moves the view. */
function strip(scene, source) {
  const { about, total, view } = scene;
  const canvas = h("canvas", { class: "sst-strip", role: "img", title: "the whole trace: click, drag the frame, or drag a new one",
    "aria-label": "The whole trace: how busy the CPUs were, the longest waits, and in a frame what is shown below" });
  const pen = canvas.getContext("2d"), cpus = about.lanes.filter((lane) => lane.startsWith("cpu:"));
  let busy = null, asked = 0, gone = false, drag = null;

  const left = () => scene.canvas.width - view.bins;
  const scale = () => Math.max(1, Math.ceil(total / view.bins));
  const x = (at) => left() + at / scale();
  const at = (event) => Math.min(total, Math.max(0, ((event.clientX - canvas.getBoundingClientRect().left) * scene.ratio - left()) * scale()));

  /** Computed once per width: shares of the CPUs' time in each bin. */
  async function learn() {
    const bins = view.bins, each = scale();
    if (asked === bins || !cpus.length) return;
    asked = bins;
    try {
      const { answer, buffers } = await source({ kind: "lanes", lanes: cpus, first: 0, bins, scale: each, intervals: 0 });
      const sums = new Float64Array(bins);
      for (const row of answer.lanes) {
        const known = row.pieces || (row.kind === "later" ? [] : [unpack(row, answer, buffers)]);
        const piece = known.find((one) => one.begin <= 0 && one.end >= total);
        const ran = piece && coverage(piece, 0, bins, each).get(RUNNING);
        for (let k = 0; ran && k < bins; k++) sums[k] += ran[k] / cpus.length;
      }
      if (gone || bins !== view.bins) return;
      busy = { sums, scale: each };
      draw();
    } catch { /* the picture says what is wrong */ }
  }

  function draw() {
    const { colour, ratio } = scene, tall = Math.round(STRIP * ratio), wide = view.bins;
    if (canvas.width !== scene.canvas.width) canvas.width = scene.canvas.width;
    if (canvas.height !== tall) canvas.height = tall;
    pen.fillStyle = colour.back;
    pen.fillRect(0, 0, canvas.width, tall);
    pen.font = `${11 * ratio}px system-ui, sans-serif`;
    pen.textBaseline = "middle";
    pen.fillStyle = colour.faint;
    pen.fillText(left() < 130 * ratio ? "whole" : "whole trace, CPUs busy", 4 * ratio, tall / 2);
    pen.fillStyle = colour.lane;
    pen.fillRect(left(), 0, Math.min(wide, total / scale()), tall);
    pen.fillStyle = colour[RUNNING];
    for (let k = 0; busy && k < busy.sums.length && k < wide; k++) {
      const size = (tall * busy.sums[k]) / busy.scale;
      pen.fillRect(left() + k, tall - size, 1, size);
    }
    const bar = (begin, length, y, high) => pen.fillRect(x(begin), y, Math.max(ratio, length / scale()), high);
    pen.fillStyle = colour[RUNNABLE];
    for (const wait of about.waits) bar(wait.ready, wait.wait, tall - 6 * ratio, 6 * ratio);
    const from = Math.max(left(), x(view.first * view.scale)), until = Math.min(x(total), x((view.first + wide) * view.scale));
    pen.globalAlpha = 0.6;
    pen.fillStyle = colour.back;
    if (from > left()) pen.fillRect(left(), 0, from - left(), tall);
    if (until < x(total)) pen.fillRect(until, 0, x(total) - until, tall);
    pen.globalAlpha = 1;
    pen.strokeStyle = colour.mark;
    pen.lineWidth = 2 * ratio;
    const middle = (from + until) / 2, half = Math.max(2 * ratio, (until - from) / 2 - ratio);
    pen.strokeRect(middle - half, ratio, 2 * half, tall - 2 * ratio);
    learn();
  }

  const { place, between } = scene.picture;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    canvas.setPointerCapture(event.pointerId);
    const from = at(event), begin = view.first * view.scale, end = (view.first + view.bins) * view.scale;
    const all = begin <= 0 && end >= total;
    drag = { from, moved: false, hold: !all && from >= begin && from <= end ? from - begin : null };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const now = at(event);
    if (Math.abs(now - drag.from) > 3 * scale()) drag.moved = true;
    if (!drag.moved) return;
    if (drag.hold !== null) place((now - drag.hold) / view.scale, view.scale);
    else if (now !== drag.from) between(Math.min(now, drag.from), Math.max(now, drag.from));
  });
  canvas.addEventListener("pointerup", () => {
    if (drag && !drag.moved) place(drag.from / view.scale - view.bins / 2, view.scale);
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  return { canvas, draw, stop: () => { gone = true; } };
}
