// Two traces below each other: what one shows, the other shows, too, aligned at an instant.

function couple(one, two, ask) {
  const said = h("span", { role: "status" }), extra = h("div", { class: "sst sst-between" });
  const button = (text, hint, act) => h("button", { type: "button", title: hint, click: act }, text);
  const bar = h("div", { class: "sst-bar", role: "toolbar", "aria-label": "comparison" },
    button("align at the selected intervals", "select one interval in each (key =)", () => together()),
    button("align at the starts", "as at first", () => shift(0)),
    button("differences", "who waited longer, in what is shown or in the range (key c)", () => compare()), said);
  const outer = h("div", { class: "sst" }, bar, extra);
  one.box.parentElement.after(outer);
  let leading = false;

  /** Both may show what either has. */
  function extend() {
    const by = one.shift || 0; // an instant of the first, and this much later in the second, are one
    const low = Math.min(0, -by), high = Math.max(one.total, two.total - by);
    one.extend(low, high);
    two.extend(low + by, high + by);
    said.textContent = by ? `the second is shown ${duration(Math.abs(by))} ${by > 0 ? "earlier" : "later"} than from its start` : "aligned at the starts";
    follow(one, two, 1);
  }
  function follow(from, to, sign) {
    if (leading) return;
    leading = true;
    const { first, scale } = from.view;
    to.place((first * scale + sign * (one.shift || 0)) / scale, scale);
    leading = false;
  }
  function shift(by) {
    one.shift = by;
    extend();
    one.place(one.view.first, one.view.scale);
  }
  function together() {
    const [a, b] = [one.selection, two.selection];
    if (!a || !b) {
      said.textContent = "Select an interval in each of the two first.";
      return;
    }
    shift((b.begin ?? b.at) - (a.begin ?? a.at));
    one.between(Math.min(a.begin ?? a.at, one.view.first * one.view.scale), Math.max(a.end ?? a.at + 1, (one.view.first + one.view.bins) * one.view.scale));
  }
  async function compare() {
    const by = one.shift || 0, range = one.range || (two.range && two.range.map((at) => at - by));
    const [begin, end] = range || [one.view.first * one.view.scale, (one.view.first + one.view.bins) * one.view.scale];
    extra.replaceChildren(h("p", { class: "sst-faint" }, "Looking …"));
    try {
      const { answer } = await ask({ kind: "difference", spans: [[begin, end], [begin + by, end + by]].map((span) => span.map(Math.round)) });
      const said = (picture, from, to) => [from, to].map((at) => picture.when(Math.min(picture.total, Math.max(0, at)))).join(" to ");
      extra.replaceChildren(h("p", {}, `${said(one, begin, end)} of the first, ${said(two, begin + by, end + by)} of the second`),
        ...answer.tables.map((data) => table(data, () => {})));
    } catch (error) {
      extra.replaceChildren(h("p", { role: "alert" }, String(error.message || error)));
    }
  }
  one.on("move", () => follow(one, two, 1));
  two.on("move", () => follow(two, one, -1));
  one.on("shift", extend);
  one.strokes["="] = two.strokes["="] = together;
  one.strokes.c = two.strokes.c = compare;
  extend();
  if (!location.hash.startsWith("#view=")) one.whole();
  else follow(one, two, 1);
}
