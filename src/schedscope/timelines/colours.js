// Colours and patterns of the timeline, declared once.
//
// Thread states also differ in brightness, and all but running have a pattern, so they can be
// told apart in greyscale, with any kind of colour blindness, and in forced-colours mode with its
// two colours. tests/present/test_timeline_colours.py computes the distances.

const RUNNING = 0, IDLE = 1, RUNNABLE = 2, BLOCKED = 3, SLEEPING = 4, STOPPED = 5, UNKNOWN = 6, PARKED = 7;

const LIGHT = {
  dark: false, back: "#ffffff", text: "#1f2328", faint: "#596069", line: "#e3e5e8", lane: "#f5f6f8",
  [RUNNING]: "#256e49", [RUNNABLE]: "#ea5f0e", [BLOCKED]: "#5b2b91", [SLEEPING]: "#7b838e",
  [STOPPED]: "#3d2b00", hatch: "#868e99", arrow: "#1f2328", mark: "#0057c2", level: "#4b7bb5",
  second: { [RUNNABLE]: "#ffc49c", [BLOCKED]: "#c9aef0", [STOPPED]: "#c9b47a" },
};
const DARK = {
  dark: true, back: "#16181d", text: "#e6e8eb", faint: "#9aa2ad", line: "#2c3038", lane: "#1d2026",
  [RUNNING]: "#46a571", [RUNNABLE]: "#ffb27d", [BLOCKED]: "#8a63d6", [SLEEPING]: "#8b94a1",
  [STOPPED]: "#f7e9bd", hatch: "#7d8590", arrow: "#e6e8eb", mark: "#6db7ff", level: "#5f8fc9",
  second: { [RUNNABLE]: "#8a3c0c", [BLOCKED]: "#3b2170", [STOPPED]: "#6d5a1e" },
};

/** Is this pixel (in CSS pixels) drawn in the state's second colour? */
const PATTERNS = {
  [RUNNABLE]: (x, y) => (x + y) % 6 < 2, // diagonal stripes
  [BLOCKED]: (x, y) => x % 4 < 1, // upright stripes
  [STOPPED]: (x, y) => y % 4 < 1, // level stripes
};

/** Sleeping threads are drawn as a line; it is dashed for idle kernel threads. In CSS pixels. */
const DASH = 3, GAP = 5;

/** The same patterns as CSS backgrounds, for the legend. */
const SWATCHES = {
  [RUNNABLE]: (a, b) => `repeating-linear-gradient(135deg, ${b} 0 1.4px, ${a} 1.4px 4.2px)`,
  [BLOCKED]: (a, b) => `repeating-linear-gradient(90deg, ${b} 0 1px, ${a} 1px 4px)`,
  [STOPPED]: (a, b) => `repeating-linear-gradient(0deg, ${b} 0 1px, ${a} 1px 4px)`,
  [SLEEPING]: (a) => `linear-gradient(${a}, ${a}) center / 100% 2px no-repeat`,
  [PARKED]: (a) => `repeating-linear-gradient(90deg, ${a} 0 ${DASH}px, transparent ${DASH}px ${DASH + GAP}px) center / 100% 2px no-repeat`,
};

/** The two colours of forced-colours mode, with patterns to tell the states apart. */
function forced(box) {
  const probe = document.createElement("span");
  box.append(probe);
  const of = (name) => {
    probe.style.color = name;
    const [r, g, b] = getComputedStyle(probe).color.match(/\d+/g).map(Number);
    return `#${[r, g, b].map((part) => part.toString(16).padStart(2, "0")).join("")}`;
  };
  const text = of("CanvasText"), back = of("Canvas"), faint = of("GrayText"), mark = of("Highlight");
  probe.remove();
  return {
    dark: parseInt(back.slice(1, 3), 16) < 128, forced: true, back, text, faint: text, line: faint, lane: back,
    [RUNNING]: text, [RUNNABLE]: text, [BLOCKED]: text, [SLEEPING]: text, [STOPPED]: text,
    hatch: faint, arrow: mark, mark, level: text,
    second: { [RUNNABLE]: back, [BLOCKED]: back, [STOPPED]: back },
  };
}

/** A colour as ImageData stores it, alpha in the highest byte (browsers run on little-endian platforms). */
function packed(hex) {
  const rgb = parseInt(hex.slice(1), 16);
  return (0xff000000 | ((rgb & 0xff) << 16) | (rgb & 0xff00) | (rgb >> 16)) >>> 0;
}

/** `ink` with opacity `part`, drawn over `ground`. */
function blend(ground, ink, part) {
  let mixed = 0xff000000;
  for (const shift of [0, 8, 16]) {
    const below = (ground >> shift) & 0xff;
    mixed |= Math.round(below + (((ink >> shift) & 0xff) - below) * part) << shift;
  }
  return mixed >>> 0;
}

/** The colour of a thread on a CPU's lane; threads with adjacent numbers get distant hues. */
function hue(utid, colour) {
  if (colour.forced) return colour.text;
  const angle = 140 + Math.round(utid * 0.618034 * 100) % 100, step = utid % 3;
  return `hsl(${angle} ${colour.dark ? `40% ${60 + 6 * step}%` : `45% ${24 + 5 * step}%`})`;
}
