// Two traces, one above the other, that scroll and zoom together: aligned at an instant, or stretched to match.

function couple(one, two, asks) {
  const ask = asks[0];
  const said = h("span", { role: "status" }), extra = h("div", { class: "sst sst-between" });
  const button = (text, hint, act) => h("button", { type: "button", title: hint, click: act }, text);
  const bar = h("div", { class: "sst-bar", role: "toolbar", "aria-label": "comparison" },
    button("align at the selected intervals", "select one interval in each (key =)", () => together()),
    button("align at the starts", "as at first", () => turn(0)),
    button("stretch to the same length", "the range of each, or all of it (key x)", () => stretch()),
    button("differences", "who waited longer, in what is shown or in the range (key c)", () => compare()), said);
  const between = balance(one, two, asks);
  const outer = h("div", { class: "sst" }, between.box, bar, extra);
  one.box.parentElement.after(outer);
  let leading = false;
  // If the step sizes of their overviews differ, any scale is allowed and sums are interpolated.
  if (one.about.grain !== two.about.grain) [one, two].forEach((side) => side.freely());

  /** How the first trace's time maps to the second's: the ratio of lengths and a pair of matching instants. */
  const pace = () => (one.match ? (one.match[1][1] - one.match[1][0]) / (one.match[0][1] - one.match[0][0]) : 1);
  const there = (at) => (one.match ? one.match[1][0] + (at - one.match[0][0]) * pace() : at + (one.shift || 0));
  const back = (at) => (one.match ? one.match[0][0] + (at - one.match[1][0]) / pace() : at - (one.shift || 0));

  /** Both can show the time range that either of them has. */
  function extend() {
    const low = Math.min(0, back(0)), high = Math.max(one.total, back(two.total)), by = one.shift || 0;
    one.extend(low, high);
    two.extend(there(low), there(high));
    if (one.match) said.textContent = `stretched: ${one.match.map(([a, b]) => duration(b - a)).join(" of the first above ")} of the second`;
    else said.textContent = by ? `the second is shown ${duration(Math.abs(by))} ${by > 0 ? "earlier" : "later"} than from its start` : "aligned at the starts";
    follow(one, two, there, pace());
  }
  function follow(from, to, where, factor) {
    if (leading) return;
    leading = true;
    const { first, scale, bins } = from.view;
    if (factor === 1) to.place(where(first * scale) / scale, scale);
    else {
      // A pixel is a whole number of ns, so the traces are aligned at the middle of the picture.
      const own = Math.max(1, Math.round(scale * factor)), middle = where((first + bins / 2) * scale);
      to.place(middle / own - bins / 2, own);
    }
    leading = false;
    between.renew();
  }
  function turn(by, match = null) {
    [one.shift, one.match] = [by, match];
    extend();
    one.place(one.view.first, one.view.scale);
  }
  function together() {
    const [a, b] = [one.selection, two.selection];
    if (!a || !b) {
      said.textContent = "Select an interval in each of the two first.";
      return;
    }
    turn((b.begin ?? b.at) - (a.begin ?? a.at));
    one.between(Math.min(a.begin ?? a.at, one.view.first * one.view.scale), Math.max(a.end ?? a.at + 1, (one.view.first + one.view.bins) * one.view.scale));
  }
  function stretch() {
    const spans = [one, two].map((side) => side.range || [0, side.total]);
    turn(0, spans);
    one.between(...spans[0]);
  }
  async function compare() {
    // When stretched, each trace has its own selected range; otherwise they share one.
    const range = one.range || (two.range && two.range.map(back));
    const [begin, end] = range || [one.view.first * one.view.scale, (one.view.first + one.view.bins) * one.view.scale];
    const other = one.match && one.range && two.range ? two.range : [there(begin), there(end)];
    extra.replaceChildren(h("p", { class: "sst-faint" }, "Looking …"));
    try {
      const { answer } = await ask({ kind: "difference", spans: [[begin, end], other].map((span) => span.map(Math.round)) });
      const said = (picture, from, to) => [from, to].map((at) => picture.when(Math.min(picture.total, Math.max(0, at)))).join(" to ");
      extra.replaceChildren(h("p", {}, `${said(one, begin, end)} of the first, ${said(two, ...other)} of the second`),
        ...answer.tables.map((data) => table(data, () => {})));
    } catch (error) {
      extra.replaceChildren(h("p", { role: "alert" }, String(error.message || error)));
    }
  }
  one.on("move", () => follow(one, two, there, pace()));
  two.on("move", () => follow(two, one, back, 1 / pace()));
  one.on("shift", extend);
  // Exporting either writes both traces and the difference between them.
  one.blocks = two.blocks = (kind) => [one.painted(kind), between.painted(kind), two.painted(kind)].filter(Boolean);
  one.strokes["="] = two.strokes["="] = together;
  one.strokes.c = two.strokes.c = compare;
  one.strokes.x = two.strokes.x = stretch;
  for (const side of [one, two]) side.explain([["=", "align at the selected intervals"], ["x", "stretch to the same length"], ["c", "list the differences"]]);
  ask({ kind: "absent" }).then(({ answer }) => {
    [one, two].forEach((side, i) => side.apart(new Set(answer.names[i])));
    if (answer.names.flat().length) said.after(h("span", { class: "sst-faint" }, "◆ a name that the other trace does not have"));
  }).catch(() => {});
  extend();
  if (!location.hash.startsWith("#view=")) one.whole();
  else follow(one, two, there, pace());
}
