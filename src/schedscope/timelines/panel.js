// The panel of details: an interval, a range, findings, data quality, requests, notes, and the box for SQL.

const CAUSES = { wake: "a wakeup", new: "the thread was created", preempt: "it was pushed off its CPU", yield: "it gave up its CPU", unknown: "the cause is unknown" };

function panel(picture, source, keep) {
  const { about } = picture, can = new Set(about.can || []);
  const body = h("div", { class: "sst-body", role: "tabpanel", "aria-live": "polite" });
  const strip = h("div", { class: "sst-tablist", role: "tablist", "aria-label": "details" }), tabs = h("div", { class: "sst-tabs" }, strip);
  const whole = h("div", { class: "sst-panel", hidden: true }, tabs, body);
  picture.box.append(whole);
  const words = { selection: "Selection", range: "Range", findings: "Findings", ...(can.has("requests") ? { requests: "Requests" } : {}), quality: "Data quality", notes: "Notes", sql: "SQL" };
  const shown = { selection: [], range: [], findings: [], requests: [], quality: [], notes: [], sql: [] };
  let open = null, last = 0;
  const buttons = Object.fromEntries(Object.entries(words).map(([name, word]) => [name, h("button", {
    type: "button", role: "tab", "aria-selected": "false", click: () => (open === name ? close() : turn(name)),
  }, word)]));
  strip.append(...Object.values(buttons));
  tabs.append(h("button", { type: "button", class: "sst-close", title: "close (Escape)", "aria-label": "close details", click: () => close() }, "×"));
  picture.bar.append(h("button", { type: "button", title: "key b", click: () => turn("notes") }, "notes"));
  picture.bar.append(h("button", { type: "button", title: "key q", click: () => turn("sql") }, "SQL"));

  function turn(name) {
    if (name === "notes") shown.notes = notes();
    if (name === "sql" && !shown.sql.length) shown.sql = sql();
    if (name === "findings" && !shown.findings.length) list();
    if (name === "requests" && !shown.requests.length) served();
    if (name === "quality" && !shown.quality.length) trusted();
    const fresh = open !== name;
    open = name;
    whole.hidden = false;
    for (const [key, button] of Object.entries(buttons)) button.setAttribute("aria-selected", String(key === name));
    buttons.notes.textContent = `Notes${keep.notes().length ? ` (${keep.notes().length})` : ""}`;
    body.replaceChildren(...(shown[name].length ? shown[name] : [h("p", { class: "sst-faint" },
      name === "range" ? "Drag along the time axis, or drag with Shift held, to select a range."
        : "Click an interval to select it.")]));
    body.scrollTop = 0;
    // In a low window (or at 400 % zoom) it is placed below the picture instead of over it.
    if (fresh && getComputedStyle(whole).position === "static") whole.scrollIntoView({ block: "nearest" });
  }
  function close() {
    open = null;
    whole.hidden = true;
  }

  const go = ([at, length, lane]) => {
    if (lane) picture.show([lane]);
    if (at === null) return;
    picture.go(at, length, lane);
    if (lane) picture.select(lane, at + Math.floor(length / 2));
  };
  /** Begin and end as text, with enough digits to differ at any zoom level. */
  const span = (begin, end) => [begin, end].map((at) => picture.when(at, (end - begin) / 10)).join(" to ");
  const toThread = (utid, at) => link(picture.thread(utid), () => go([at, 0, `utid:${utid}`]), "its lane at this instant");
  const row = (name, ...values) => (values.flat().some((value) => value !== null && value !== undefined && value !== "")
    ? [h("dt", {}, name), h("dd", {}, values)] : []);
  const missing = (what) => h("p", { class: "sst-faint" }, what, " ", h("code", {}, `schedscope view ${quoted(about.name)}`));

  // ---- an interval ----

  async function selected() {
    const chosen = picture.selection, mine = ++last, before = open;
    if (!chosen) {
      shown.selection = [];
      if (open === "selection") close();
      return;
    }
    // A lane that was just added may not be loaded yet.
    for (let i = 0; i < 60 && !can.has("slice") && !picture.best(chosen.lane); i++) await new Promise(requestAnimationFrame);
    if (mine !== last) return;
    let facts = local(chosen), mayTurn = !chosen.behind && open === before;
    if (can.has("slice")) {
      if (!mayTurn) shown.selection = [h("p", { class: "sst-faint" }, "Looking …")];
      else if (open !== "selection" || !shown.selection.length) {
        shown.selection = [h("p", { class: "sst-faint" }, "Looking …")];
        turn("selection");
      }
      mayTurn = false; // if the user chose another tab meanwhile, it stays
      try {
        facts = (await source({ kind: "slice", lane: chosen.lane, at: chosen.at })).answer;
        Object.assign(picture.names, facts.names);
      } catch (error) {
        facts = { ...facts, problem: String(error.message || error) };
      }
    }
    if (mine !== last) return;
    if (facts.begin !== undefined) picture.outline(chosen.lane, facts.begin, facts.end);
    shown.selection = describe(facts);
    if (mayTurn || open === "selection") turn("selection");
  }

  /** The facts about an interval that the picture itself has. */
  function local({ lane, at }) {
    const piece = picture.best(lane), found = { lane, at, state: null, tables: [] };
    const i = piece && piece.kind === "intervals" ? after(piece.ends, at) : -1;
    const interval = (from, i) => (i < 0 || i >= from.starts.length ? null : {
      state: about.states[from.codes[i]], begin: from.starts[i], end: from.ends[i],
      who: from.who[i] === NOBODY ? null : from.who[i],
      waker: from.waker && from.waker[i] !== NOBODY ? from.waker[i] : null,
      waker_cpu: from.waker && from.wakerCpu[i] !== NOBODY ? from.wakerCpu[i] : null,
    });
    const here = i >= 0 ? interval(piece, i) : null;
    if (!here || here.begin > at) return { ...found, coarse: !!piece && piece.kind !== "intervals" };
    const cpu = lane.startsWith("cpu:"), utid = cpu ? here.who : Number(lane.slice(5));
    if (here.state === "idle") return { ...found, ...here, utid: null };
    const own = cpu ? picture.best(`utid:${utid}`) : piece;
    const j = own && own.kind === "intervals" ? after(own.ends, at) : -1;
    const mine = j >= 0 ? interval(own, j) : null;
    const both = mine && mine.begin <= at ? { ...mine, before: interval(own, j - 1), after: interval(own, j + 1) } : here;
    const row = picture.threads.get(utid);
    return { ...found, ...both, utid, cpu: cpu ? Number(lane.slice(4)) : here.who,
      thread: row && { process_name: row.process, pid: row.pid, cgroup: row.cgroup } };
  }

  const neighbour = (part, utid) => part && link(`${part.state === "runnable" ? "waiting for a CPU" : part.state}${part.who === null ? "" : ` on CPU ${part.who}`} for ${duration(part.end - part.begin)}`,
    () => go([part.begin, part.end - part.begin, `utid:${utid}`]), "select it");

  function describe(facts) {
    if (facts.problem) return [h("p", { role: "alert" }, facts.problem)];
    if (facts.state === null) {
      return [h("h2", {}, `${picture.title(facts.lane)} at ${picture.when(facts.at)}`),
        h("p", {}, facts.coarse ? "This page has only sums here: zoom in, or look at the recording with " : "The trace does not show what happened here."),
        facts.coarse && missing("")].filter(Boolean);
    }
    if (facts.state === "level") {
      return [h("h2", {}, `${picture.title(facts.lane)}: ${facts.text}`),
        h("p", { class: "sst-acts" }, link("zoom to it", () => picture.between(facts.begin - (facts.end - facts.begin) / 10, facts.end + (facts.end - facts.begin) / 10), "key f"), " · ",
          link("range of it", () => picture.setRange([facts.begin, facts.end]), "totals of just this time")),
        h("dl", {}, row("when", span(facts.begin, facts.end)), row("how long", `${facts.least ? "at least " : ""}${duration(facts.end - facts.begin)}`))];
    }
    const length = facts.end - facts.begin, utid = facts.utid, known = facts.thread || {};
    const who = utid === null || utid === undefined ? picture.title(facts.lane) : picture.thread(utid);
    const state = facts.state === "runnable" ? "waiting for a CPU" : facts.state;
    const wait = facts.wait || {};
    const woken = (part) => part && part.waker !== null && part.waker !== undefined
      ? ["woken by ", toThread(part.waker, part.begin), part.waker_cpu === null ? "" : ` on CPU ${part.waker_cpu}`] : null;
    const list = h("dl", {},
      row("when", span(facts.begin, facts.end)),
      facts.cpu !== null && facts.cpu !== undefined ? row(facts.state === "runnable" ? "on the queue of" : "CPU", link(`CPU ${facts.cpu}`, () => picture.show([`cpu:${facts.cpu}`]), "its lane")) : [],
      utid !== null && utid !== undefined ? row("thread", link(who, () => picture.show([`utid:${utid}`]), "its lane")) : [],
      known.pid === undefined || known.pid === null ? row("process", known.process_name) : row("process",
        link(`${known.process_name || ""} ${known.pid}`.trim(), () => picture.expand(known.pid), "add the lanes of all its threads")),
      row("control group", known.cgroup), row("command line", known.cmdline),
      row("class and priority", known.sched_class ? `${known.sched_class}${known.prio === undefined ? "" : `, ${known.prio}`}${known.nice === undefined ? "" : ` (nice ${known.nice})`}` : null),
      facts.state === "runnable" ? [
        row("why it waited", [wait.cause ? CAUSES[wait.cause] || wait.cause : null, wait.cause && facts.waker !== null ? ", " : "", ...(woken(facts) || [])]),
        wait.queue_cpu !== undefined && wait.queue_cpu !== null && wait.queue_cpu !== facts.cpu ? row("last on the queue of", `CPU ${wait.queue_cpu}`) : [],
        wait.wait && wait.ready !== undefined ? row("the whole wait", link(`${wait.censored === "right" ? "at least " : ""}${duration(wait.wait)}`, () => picture.go(wait.ready, wait.wait), "show it")) : [],
        wait.parts && wait.parts.length ? row("meanwhile", h("ul", {}, wait.parts.map(([word, ns]) => h("li", {}, `${word}: ${duration(ns)} (${(100 * ns / length).toFixed(1)} %)`)))) : [],
        wait.queues && wait.queues.length ? row("in the dispatch queues", h("ul", {}, wait.queues.map(([word, ns]) => h("li", {}, `${word}: ${duration(ns)} (${(100 * ns / wait.wait).toFixed(1)} %)`)))) : [],
        wait.missing ? row("cause", wait.missing) : [],
      ] : row(facts.state === "running" ? "started it" : "ended by", facts.state === "running" ? null : woken(facts.after)),
      row("slept for", facts.reason),
      row("before", neighbour(facts.before, utid)), row("after", neighbour(facts.after, utid)));
    const extra = h("div", {}), asleep = !["running", "runnable"].includes(facts.state);
    const ask = async (question) => {
      extra.replaceChildren(h("p", { class: "sst-faint" }, "Looking …"));
      extra.replaceChildren(...(await tables(question)));
      // Scrolls to the answer if it is outside the window.
      const [top, end] = [body.getBoundingClientRect(), extra.getBoundingClientRect()].map((box) => box.top);
      if (end < top || end > top + body.clientHeight / 2) body.scrollTop += end - top - 8;
    };
    const acts = h("p", { class: "sst-acts" },
      link("zoom to it", () => picture.between(facts.begin - length / 10, facts.end + length / 10), "key f"), " · ",
      link("range of it", () => picture.setRange([facts.begin, facts.end]), "totals of just this time"), " · ",
      link("add a note", () => note({ at: facts.begin, lane: facts.lane }), "key b"),
      can.has("slice") && !about.grain && facts.thread && facts.thread.sched_class === "fair" ? [" · ", link("how far behind", () => picture.show([`lag:${utid}`]),
        "a lane of its virtual lag: the time that EEVDF would owe it")] : null,
      can.has("path") && utid !== null && utid !== undefined ? [" · ",
        link("critical path up to here", () => ask({ kind: "path", utid, begin: facts.begin, end: facts.end }),
          "what led to the end of this, back through the threads that woke it"), " · ",
        // A sleeping thread wakes nobody; the chain continues with its own wakeup.
        link("what followed", () => ask({ kind: "chain", utid, begin: asleep ? facts.end : facts.begin, end: facts.end }),
          "whom it woke, whom those woke, and how long each then waited for a CPU")] : null);
    const lines = [wait.python && code(wait.python), facts.python && code(facts.python)].filter(Boolean);
    const rest = [extra, ...(facts.tables || []).map((data) => table(data, go))];
    return [h("h2", {}, `${who}: ${state} for ${duration(length)}`), acts,
      h("div", { class: "sst-two" }, h("div", {}, list, lines), h("div", {}, rest)),
      !can.has("slice") && missing("What the wait consisted of, the critical path and more:")].filter(Boolean);
  }

  async function tables(request, signal) {
    try {
      const { answer } = await source(request, signal);
      return [...answer.tables.map((data) => table(data, go)), ...(answer.missing || []).map((text) => h("p", { role: "alert" }, text))];
    } catch (error) {
      return [h("p", { role: "alert" }, String(error.message || error))];
    }
  }

  // ---- a range ----

  async function ranged() {
    const range = picture.range, mine = ++last;
    if (!range) {
      shown.range = [];
      if (open === "range") close();
      return;
    }
    const [begin, end] = range;
    const head = [h("h2", {}, `${span(begin, end)}: ${duration(end - begin)}`),
      h("p", { class: "sst-acts" }, link("zoom to it", () => picture.between(begin, end), "key f"), " · ",
        link("add a note", () => note({ at: begin, lane: null }), "key b"), " · ", link("clear", () => picture.setRange(null), "Escape"))];
    let totals = table(sums(begin, end), go);
    shown.range = [...head, totals, can.has("range") ? h("p", { class: "sst-faint" }, "Looking …") : missing("Waits and interference in this range:")];
    turn("range");
    if (!can.has("range")) return;
    const rest = await tables({ kind: "range", begin, end });
    if (mine !== last) return;
    totals = table(sums(begin, end, await finer(begin, end)), go);
    if (mine !== last) return;
    shown.range = [...head, h("div", { class: "sst-two" }, totals, h("div", {}, rest))];
    if (open === "range") turn("range");
  }

  const counted = () => picture.lanes().filter((key) => !key.startsWith("head:") && !isLevel(key)).slice(0, 200);
  const fits = (piece, begin, end) => piece.kind === "intervals" || (begin % piece.scale === 0 && end % piece.scale === 0);

  /** Requests exact data for lanes whose range is not fully known. */
  async function finer(begin, end) {
    const lanes = counted().filter((lane) => !(picture.over(lane, begin, end) && fits(picture.over(lane, begin, end), begin, end)));
    const scale = Math.max(1, Math.ceil((end - begin) / 2000)), first = Math.floor(begin / scale), found = new Map();
    if (!lanes.length) return found;
    try {
      const { answer, buffers } = await source({ kind: "lanes", lanes, first, bins: Math.ceil(end / scale) - first, scale, now: true });
      for (const row of answer.lanes) if (row.kind !== "later") found.set(row.key, unpack(row, answer, buffers));
    } catch { /* what is known stays */ }
    return found;
  }

  /** Time in each state for the visible lanes, from the loaded pieces and `more`. */
  function sums(begin, end, more = new Map()) {
    const states = ["running", "idle", "runnable", "blocked", "sleeping", "stopped", "parked"];
    const rows = [], links = [];
    let coarse = 0, missed = 0, nothing = 0;
    for (const lane of counted()) {
      const piece = more.get(lane) || picture.over(lane, begin, end);
      if (!piece) {
        missed++;
        continue;
      }
      if (!fits(piece, begin, end)) coarse = Math.max(coarse, piece.scale);
      const spent = within(piece, begin, end);
      // The rest of a CPU's time is unknown; a thread may not exist for part of the range.
      const unknown = isThread(lane) ? spent.get(UNKNOWN) || 0 : end - begin - (spent.get(RUNNING) || 0) - (spent.get(IDLE) || 0);
      const known = states.some((state) => spent.get(about.states.indexOf(state))) || unknown > 0.5;
      if (!known) {
        nothing++;
        continue;
      }
      rows.push([picture.title(lane), ...states.map((state) => {
        const ns = spent.get(about.states.indexOf(state)) || 0;
        return ns ? duration(ns) : "";
      }), unknown > 0.5 ? duration(unknown) : ""]);
      links.push([null, 0, lane]);
    }
    const heads = [["lane", false], ...states.map((state) => [state === "runnable" ? "waiting" : state, true]), ["unknown", true]];
    // States that no lane was in are left out.
    const said = heads.map((_, i) => i === 0 || rows.some((row) => row[i])), some = (row) => row.filter((_, i) => said[i]);
    const notes = [coarse ? `Some are sums over ${duration(coarse)}, taken in proportion at both ends of the range.` : "",
      missed ? `Not known over all of the range: ${missed} lane${missed > 1 ? "s" : ""}.` : "",
      nothing ? `Nothing is known of ${nothing} thread${nothing > 1 ? "s" : ""} in this range.` : ""];
    return { title: "Totals of the lanes shown", heads: some(heads), rows: rows.map(some), links, note: notes.filter(Boolean).join(" "), python: "" };
  }

  // ---- findings ----

  let looking = null, current = -1;

  /** Rows as timelines/places.py lists them, requested once. */
  function learned() {
    looking ||= about.findings ? Promise.resolve(about.findings) : source({ kind: "findings" }).then(({ answer }) => answer.rows);
    return looking.catch((error) => {
      looking = null;
      picture.complain(String(error.message || error));
      return [];
    });
  }

  /** Fills the tab with what is loaded so far. */
  async function list() {
    shown.findings = [h("h2", {}, "Findings"), h("p", { class: "sst-faint" }, "Looking …")];
    const rows = await learned();
    describeAll(rows);
    if (open === "findings") turn("findings");
  }

  function describeAll(rows) {
    const lead = rows.length ? "The worst first, by the thread or CPU time that they concern."
      : "Nothing costs 1 % of the machine's time, or the trace does not say which thread ran.";
    shown.findings = [h("h2", {}, "Findings"), h("p", { class: "sst-faint" }, lead),
      h("ol", { class: "sst-findings" }, rows.map((row, i) => h("li", { value: row.n, "aria-current": i === current ? "true" : null },
        h("p", {}, link(`${row.topic} (${row.level})`, () => reach(i), "show where it is worst"), `: ${row.cost}`),
        h("p", {}, row.text), h("p", {}, "Try: ", row.advice),
        row.commands.map((command) => code(called(command))))))];
  }
  const called = (command) => {
    const [name, ...rest] = command.split(" ");
    return ["schedscope", name, quoted(about.name), ...rest].join(" ");
  };

  async function reach(i) {
    const rows = await learned(), row = rows[i];
    if (!row) {
      picture.stepped("");
      describeAll(rows);
      return turn("findings");
    }
    current = i;
    describeAll(rows);
    turn("findings"); // the panel covers part of the window, so the lane must be scrolled out from under it
    const lanes = [...(row.lane ? [row.lane] : []), ...lanesOf(row)];
    if (lanes.length) await picture.show(lanes);
    picture.between(...row.shown);
    picture.select(row.at === null ? null : row.lane, row.at, true);
    // In a part of the trace only some findings are listed, with their numbers in the whole list.
    const number = row.n === i + 1 ? `${row.n} of ${rows.length}` : `${row.n} (${i + 1} of ${rows.length})`;
    picture.stepped(`Finding ${number}: ${row.topic}, ${row.cost}`);
    body.querySelector(".sst-findings [aria-current]")?.scrollIntoView({ block: "nearest" });
    return undefined;
  }
  /** Further lanes that show a finding's cause, beside its thread's or CPU's own. */
  function lanesOf(row) {
    const offered = (about.more || []).flatMap((each) => each.lanes.map((lane, i) => [lane, each.titles[i]]));
    const wanted = {
      interrupts: (lane) => row.lane && lane === row.lane.replace("cpu:", "irq:"),
      quota: (lane, title) => lane.startsWith("quota:") && row.text.includes(title.replace(/^quota /, "")),
      "late dispatch": (lane, title) => lane.startsWith("dsq:") && new RegExp(`in queue ${title.replace(/^dispatch queue /, "")}\\b`).test(row.text),
      "avoidable idle time": (lane) => lane === "depth:all", overload: (lane) => lane === "depth:all",
    }[row.topic];
    return wanted ? offered.filter(([lane, title]) => wanted(lane, title)).map(([lane]) => lane) : [];
  }
  /** Opens the worst finding, unless the user has moved the view meanwhile. */
  async function first() {
    const before = keep.text(), rows = await learned();
    if (rows.length && keep.text() === before && open === null) await reach(0);
  }
  /** Goes to the next or the previous finding. */
  async function finding(step) {
    if (!looking) picture.stepped("Looking for findings …");
    const rows = await learned();
    if (rows.length) picture.stepped("");
    current = Math.min(Math.max(0, current + step), rows.length - 1);
    await reach(current);
  }

  // ---- data quality ----

  const line = h("p", { class: "sst-quality", role: "status" });
  picture.box.querySelector(".sst-key").after(line);
  const above = (text) => {
    line.title = `Data quality: ${text}`;
    line.replaceChildren(link("Data quality", () => turn("quality"), "all checks, and where events may be missing"), `: ${text}`);
  };

  /** Fills the line above the picture and the tab. */
  async function trusted() {
    shown.quality = [h("h2", {}, "Data quality"), h("p", { class: "sst-faint" }, "Looking …")];
    above("being checked …");
    let facts = about.quality;
    try {
      facts ||= (await source({ kind: "quality" })).answer;
    } catch (error) {
      facts = { line: `not checked: ${error.message || error}`, verdict: "", tables: [] };
    }
    above(facts.line);
    shown.quality = [h("h2", {}, "Data quality"), h("p", {}, facts.verdict || facts.line), ...facts.tables.map((data) => table(data, go))];
    if (open === "quality") turn("quality");
  }
  /** Only the gaps: a complete check of a long trace takes seconds and is run on request. */
  async function gaps() {
    above("being looked at …");
    try {
      const { answer } = await source({ kind: "quality", brief: true });
      if (!shown.quality.length) above(answer.line);
    } catch (error) {
      above(`not known: ${error.message || error}`);
    }
  }
  if (about.quality) trusted();
  else {
    above("to be looked at");
    let first = true;
    picture.on("still", () => {
      if (first && !shown.quality.length) about.grain ? gaps() : trusted();
      first = false;
    });
  }

  // ---- requests to a server ----

  /** The slowest requests of one process or of all, and a table of the processes. */
  async function served(process = null, reply = "same") {
    const lead = [h("h2", {}, "Requests"), h("p", { class: "sst-faint" }, "A request is what a thread reads from a socket or pipe until the answer is written. A click on a time leads there.")];
    const show = (parts) => {
      shown.requests = [...lead, ...parts];
      if (open === "requests") turn("requests");
    };
    show([h("p", { class: "sst-faint" }, "Looking …")]);
    let answer;
    try {
      ({ answer } = await source({ kind: "requests", process, reply }));
    } catch (error) {
      return show([h("p", { role: "alert" }, String(error.message || error))]);
    }
    const names = h("select", { change: () => served(names.value === "0" ? null : answer.processes[names.value - 1], reply) },
      h("option", { value: "0" }, "all processes"), answer.processes.map((name, i) => h("option", { value: String(i + 1) }, name)));
    names.value = String(answer.processes.indexOf(process) + 1);
    const answers = h("select", { change: () => served(process, answers.value) },
      h("option", { value: "same" }, "to what was read, as with sockets"), h("option", { value: "any" }, "anywhere, as with pipes"));
    answers.value = reply;
    return show([h("p", { class: "sst-acts" }, h("label", {}, "of ", names), " ", h("label", {}, "answers are written ", answers)),
      ...answer.tables.map((data) => table(data, go))]);
  }

  // ---- notes ----

  function notes() {
    const rows = keep.notes();
    const acts = h("p", { class: "sst-acts" }, link("add a note here", () => note(), "at the selection, else in the middle of the picture"));
    return [h("h2", {}, "Notes"), acts, rows.length ? h("ul", { class: "sst-notes" }, rows.map((each, i) => {
      const at = each.at - about.origin;
      return h("li", {}, link(picture.when(at), () => go([at, 0, each.lane]), "go there"), " ", each.lane ? `${picture.title(each.lane)} ` : "",
        h("input", { type: "text", value: each.text, maxlength: "2000", "aria-label": "text of the note", placeholder: "text",
          keydown: (event) => {
            event.stopPropagation();
            if (event.key !== "Enter" && event.key !== "Escape") return;
            // A window without the focus gets no change event.
            write(i, event.target.value);
            event.target.blur();
          },
          change: (event) => write(i, event.target.value) }),
        link("delete", () => { keep.write(rows.filter((_, k) => k !== i)); turn("notes"); }, "delete this note"));
    })) : h("p", { class: "sst-faint" }, "No notes yet."), h("p", { class: "sst-faint" }, keep.place)];
  }

  function write(i, text) {
    const rows = keep.notes();
    if (rows[i] && rows[i].text !== text) keep.write(rows.map((old, k) => (k === i ? { ...old, text } : old)));
  }

  function note(where) {
    const chosen = picture.selection, middle = Math.round((picture.view.first + picture.view.bins / 2) * picture.view.scale);
    const { at, lane } = where || (chosen ? { at: chosen.begin ?? chosen.at, lane: chosen.lane } : { at: Math.min(picture.total, middle), lane: null });
    keep.write([...keep.notes(), { at: at + about.origin, lane, text: "" }]);
    turn("notes");
    body.querySelector(".sst-notes li:last-child input").focus();
  }

  // ---- SQL ----

  function sql() {
    if (!can.has("sql")) return [h("h2", {}, "SQL"), missing("SQL over the tables:")];
    const text = h("textarea", { rows: "5", spellcheck: "false", "aria-label": "query", keydown: (event) => {
      event.stopPropagation();
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); }
      if (event.key === "Escape") text.blur();
    } });
    text.value = "SELECT ts_ready, utid, wait, cause\nFROM waits\nWHERE censored = 'none'\nORDER BY wait DESC\nLIMIT 20";
    const result = h("div", {});
    const tree = h("div", { class: "sst-schema" });
    let running = null;
    async function run() {
      running?.abort();
      const mine = running = new AbortController();
      result.replaceChildren(h("p", { class: "sst-faint" }, "Looking … ", h("button", { type: "button", click: () => mine.abort() }, "cancel")));
      const found = await tables({ kind: "sql", text: text.value }, mine.signal);
      if (running === mine) result.replaceChildren(...found);
    }
    source({ kind: "schema" }).then(({ answer }) => tree.replaceChildren(...answer.schema.map((each) =>
      h("details", {}, h("summary", { title: each.row }, each.name),
        h("ul", {}, h("li", { class: "sst-faint" }, each.row), each.columns.map(([name, type, doc]) => h("li", { title: doc }, h("code", {}, name), ` ${type}`)))))));
    return [h("div", { class: "sst-ask" }, h("div", {}, text, h("p", { class: "sst-acts" }, h("button", { type: "button", click: run }, "run (Ctrl+Enter)")), result), tree)];
  }

  picture.on("select", selected);
  picture.on("range", ranged);
  return { turn, close, note, go, finding, first, opened: () => open };
}
