// State that is kept: the view in the page's address, the history of views, and the notes.

function keeper(picture, source, home) {
  const { about } = picture;
  const short = (key) => key.replace("cpu:", "c").replace("utid:", "u");
  const long = (key) => (/^c\d+$/.test(key) ? `cpu:${key.slice(1)}` : /^u\d+$/.test(key) ? `utid:${key.slice(1)}` : isLevel(key || "") ? key : null);
  const same = (a, b) => a.length === b.length && a.every((key, i) => key === b[i]);

  /** The view as text: instants are ns after the start of the recording. */
  function text() {
    const { first, scale, bins } = picture.view, parts = new URLSearchParams();
    const [low, high] = picture.reach(), begin = Math.max(low, first * scale), end = Math.min(high, (first + bins) * scale);
    parts.set("view", `${begin + about.origin}-${end + about.origin}`);
    if (!same(picture.chosen(), about.lanes)) parts.set("lanes", picture.chosen().map(short).join("."));
    if (picture.pinned().length) parts.set("pin", picture.pinned().map(short).join("."));
    if (picture.by() !== (about.by || "none")) parts.set("by", picture.by());
    if (picture.folded().length) parts.set("fold", JSON.stringify(picture.folded()));
    if (picture.match) parts.set("match", picture.match.map((span) => span.join("-")).join("_"));
    else if (picture.shift) parts.set("shift", String(picture.shift));
    if (picture.selection) parts.set("select", `${short(picture.selection.lane)}@${picture.selection.at + about.origin}`);
    if (picture.range) parts.set("range", picture.range.map((at) => at + about.origin).join("-"));
    if (home === "page" && rows.length) parts.set("notes", JSON.stringify(rows.map(({ at, lane, text }) => [at, lane && short(lane), text])));
    return parts.toString();
  }

  function numbers(text) {
    const found = /^(-?\d+)-(-?\d+)$/.exec(text || "");
    return found && [Number(found[1]) - about.origin, Number(found[2]) - about.origin];
  }

  async function apply(text, learn) {
    const parts = new URLSearchParams(text), lanes = (name) => (parts.get(name) || "").split(".").map(long).filter(Boolean);
    quiet = true;
    try {
      const chosen = parts.has("lanes") ? lanes("lanes") : [...about.lanes];
      const by = picture.orders.some(([name]) => name === parts.get("by")) ? parts.get("by") : about.by || "none";
      let folded = [];
      try { folded = JSON.parse(parts.get("fold") || "[]").map(String); } catch { /* not ours */ }
      await learn([...chosen, ...lanes("pin")].filter((key) => key.startsWith("utid:")).map((key) => Number(key.slice(5))));
      // A link to an interval brings its lane.
      const [lane, at] = (parts.get("select") || "").split("@"), selected = long(lane) && /^\d+$/.test(at || "");
      if (selected && !chosen.includes(long(lane))) chosen.push(long(lane));
      picture.arrange({ chosen, pinned: lanes("pin"), by, folded });
      const match = /^(\d+)-(\d+)_(\d+)-(\d+)$/.exec(parts.get("match") || "")?.slice(1).map(Number);
      picture.turn(/^-?\d+$/.test(parts.get("shift") || "") ? Number(parts.get("shift")) : 0,
        match && match[1] > match[0] && match[3] > match[2] ? [match.slice(0, 2), match.slice(2)] : null);
      const view = numbers(parts.get("view"));
      if (view && view[1] > view[0]) picture.between(...view);
      else picture.whole();
      const range = numbers(parts.get("range"));
      picture.setRange(range && range[1] > range[0] ? range : null);
      if (selected) picture.select(long(lane), Number(at) - about.origin);
      else picture.select(null);
      if (home === "page" && parts.has("notes") && !rows.length) {
        try {
          rows = JSON.parse(parts.get("notes")).map(([at, lane, text]) => ({ at: Number(at), lane: lane && long(lane), text: String(text) }));
          picture.setNotes(rows);
        } catch { /* not ours */ }
      }
    } finally {
      quiet = false;
    }
  }

  // ---- back and forward ----

  const past = [], future = [];
  let now = null, timer = null, quiet = false, started = false;
  function changed() {
    if (quiet) return;
    clearTimeout(timer);
    timer = setTimeout(settle, 300);
  }
  function settle() {
    clearTimeout(timer);
    timer = null;
    const next = text();
    if (next === now) return;
    if (now !== null) past.push(now);
    if (past.length > 200) past.shift();
    future.length = 0;
    now = next;
    write();
  }
  function write() {
    // A report's address has anchors of its own, so only views that the user changed are written to it.
    if (home === "notebook" || picture.second || !started) return;
    try { history.replaceState(null, "", `#${now}`); } catch { /* a page in a frame */ }
  }
  async function step(from, to) {
    if (timer) settle();
    if (!from.length) return;
    to.push(now);
    now = from.pop();
    await apply(now, picture.learn);
    write();
  }

  // ---- notes ----

  const shelf = `schedscope notes ${about.name} ${about.whole || about.duration} ${about.origin}`;
  const page = Math.random().toString(36).slice(2);
  let rows = about.notes || [], turn = 0, unsaved = null;
  if (home === "page") {
    try { rows = JSON.parse(localStorage.getItem(shelf) || "[]"); } catch { rows = []; }
  }
  async function keep(next) {
    rows = next;
    picture.setNotes(rows);
    if (home === "page") {
      try { localStorage.setItem(shelf, JSON.stringify(rows)); } catch { /* private windows forget */ }
      changed();
      return;
    }
    // Of two pending requests the later may be answered first; only the later answer counts.
    const request = unsaved = { kind: "notes", rows, from: page, turn: ++turn };
    try {
      await source(request);
      if (unsaved === request) unsaved = null;
    } catch (error) {
      picture.complain(String(error.message || error));
    }
  }
  // Saves a note that was just written even if the page is being closed.
  const leave = () => { if (unsaved && source.atTheEnd) source.atTheEnd(unsaved); };
  window.addEventListener("pagehide", leave);
  picture.setNotes(rows);

  // A report's findings link here; without scripts the links lead to the section.
  const follow = async (event) => {
    const to = event.target.closest?.("a[data-view]");
    if (!to || picture.second) return;
    await apply(to.dataset.view, picture.learn);
    changed();
  };
  document.addEventListener("click", follow);

  for (const event of ["move", "lanes", "select", "range"]) picture.on(event, changed);
  return {
    text: () => { if (timer) settle(); return now || text(); },
    notes: () => rows, write: keep, apply,
    place: home === "page" ? "Notes are kept in this browser, and in the address of this page while they are few."
      : "Notes are kept in a file beside the converted trace.",
    undo: () => step(past, future), redo: () => step(future, past),
    stop: () => {
      document.removeEventListener("click", follow);
      window.removeEventListener("pagehide", leave);
    },
    start: async () => {
      const hash = location.hash.slice(1);
      const asked = home !== "notebook" && !picture.second && hash.startsWith("view=");
      if (asked) await apply(hash, picture.learn);
      now = text();
      started = true;
      return asked;
    },
  };
}
