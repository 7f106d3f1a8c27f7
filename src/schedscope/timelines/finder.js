// Finding threads, processes, control groups, CPUs and times, and the order of the lanes.

const SHOWN = 40;

function finder(picture, source) {
  const { about } = picture;
  const input = h("input", {
    type: "search", class: "sst-find", role: "combobox", "aria-expanded": "false", "aria-autocomplete": "list",
    "aria-label": "Find a thread, process, control group, CPU or time", placeholder: "find a thread, process, cgroup, CPU, time  ( / )",
    spellcheck: "false", autocomplete: "off",
  });
  const list = h("div", { class: "sst-found", role: "listbox", "aria-label": "found", hidden: true });
  list.id = `sst-found-${Math.random().toString(36).slice(2)}`;
  input.setAttribute("aria-controls", list.id);
  const order = h("select", { class: "sst-order", "aria-label": "order of the lanes", title: "order of the lanes", change: () => regroup(order.value) },
    picture.orders.map(([by, text]) => h("option", { value: by }, text)));
  const kinds = about.more || [];
  const more = h("select", { class: "sst-more", "aria-label": "add lanes", title: "add lanes", change: () => {
    const one = kinds[Number(more.value)];
    more.value = "";
    picture.canvas.focus({ preventScroll: true });
    if (one) add(one);
  } }, h("option", { value: "" }, "add lanes …"), kinds.map((each, i) => h("option", { value: String(i) }, each.name)));
  picture.bar.prepend(h("div", { class: "sst-lookup" }, h("span", { class: "sst-search" }, input, list), order, kinds.length ? more : ""));
  /** Adds lanes after those of the CPUs. */
  function add(one) {
    const chosen = picture.chosen(), at = chosen.findLastIndex((lane) => !isThread(lane)) + 1;
    const fresh = one.lanes.filter((lane) => !chosen.includes(lane));
    picture.arrange({ chosen: [...chosen.slice(0, at), ...fresh, ...chosen.slice(at)] });
    picture.show(one.lanes);
  }

  /** Groups of CPUs that a search can name: nodes, packages, caches, and all CPUs. */
  const places = new Map([["all CPUs", picture.cpus.map((cpu) => `cpu:${cpu}`)]]);
  for (const of of Object.values(about.places || {})) {
    for (const [cpu, name] of Object.entries(of)) places.set(name, [...(places.get(name) || []), `cpu:${cpu}`]);
  }

  /** A static page has only the CPUs that it was written with. */
  const absent = (its) => !about.can && its.some((lane) => !about.lanes.includes(lane));

  let entries = [], at = -1, last = 0;
  let asking = false, entered = false; // is a query pending, and was Enter pressed meanwhile?
  const known = picture.threads; // utid -> row

  async function ask(request) {
    const { answer } = await source({ kind: "threads", ...request });
    for (const row of answer.rows) known.set(row.utid, row);
    return answer;
  }

  /** The rows of these threads; those not yet loaded are requested. */
  async function learn(utids) {
    const missing = utids.filter((utid) => !known.has(utid));
    if (missing.length) await ask({ utids: missing });
  }

  async function regroup(by) {
    await learn(picture.chosen().filter((key) => key.startsWith("utid:")).map((key) => Number(key.slice(5))));
    picture.arrange({ by });
  }
  picture.on("lanes", () => { order.value = picture.by(); });

  const note = (row) => [row.process && row.process !== row.comm ? row.process : "", row.cgroup,
    row.wait ? `waited ${duration(row.wait)}` : "", row.run ? `ran ${duration(row.run)}` : ""].filter(Boolean).join(" · ");

  function instant(text) {
    const found = /^(\d+(?:\.\d+)?)\s*(s|ms|us|µs|ns)$/.exec(text.trim());
    if (!found) return null;
    const ns = Math.round(Number(found[1]) * { s: 1e9, ms: 1e6, us: 1e3, "µs": 1e3, ns: 1 }[found[2]]) - about.origin;
    return ns >= 0 && ns <= picture.total ? ns : null;
  }

  async function search() {
    const text = input.value.trim(), mine = ++last;
    entries = [];
    entered = false; // Enter belonged to the previous query
    if (!text) return close();
    asking = true;
    list.setAttribute("aria-busy", "true"); // the list still shows the results of the previous text
    let answer;
    try {
      answer = await ask({ text });
    } catch (error) {
      answer = { rows: [], more: 0, problem: String(error.message || error) };
    }
    if (mine !== last) return;
    asking = false;
    list.removeAttribute("aria-busy");
    entries = [];
    const when = instant(text);
    if (when !== null) entries.push({ text: `go to ${text}`, note: "a time, as tables print it", act: () => picture.go(when, 0) });
    for (const [, number] of [/^(?:cpu\s*)?(\d+)$/i.exec(text)].filter(Boolean)) {
      if (picture.cpus.includes(Number(number))) {
        entries.push({ text: `CPU ${Number(number)}`, note: "a CPU", missing: absent([`cpu:${Number(number)}`]), act: () => picture.show([`cpu:${Number(number)}`]) });
      }
    }
    const words = text.toLowerCase().split(/\s+/), rows = answer.rows;
    for (const [name, its] of places) {
      if (its.length > 1 && !absent(its) && name.split(",")[0].toLowerCase().startsWith(words.join(" "))) entries.push({ text: name, note: `${its.length} CPUs, add their lanes`, act: () => add({ lanes: its }) });
    }
    for (const each of kinds) {
      if (words.every((word) => each.name.includes(word))) entries.push({ text: each.name, note: "add lanes", act: () => add(each) });
    }
    const together = (of, word) => {
      const groups = new Map();
      for (const row of rows) {
        const [key, name] = of(row);
        if (name && words.every((each) => name.toLowerCase().includes(each))) groups.set(key, { name, rows: [...(groups.get(key)?.rows || []), row] });
      }
      for (const { name, rows: its } of [...groups.values()].filter((group) => group.rows.length > 1 || word === "cgroup").slice(0, 5)) {
        entries.push({ text: name, note: `${word}, ${its.length} threads`, act: () => put(its, word === "cgroup" ? "cgroup" : "process") });
      }
    };
    together((row) => [row.pid, row.process && `${row.process} ${row.pid}`], "process");
    together((row) => [row.cgroup, row.cgroup], "cgroup");
    if (rows.length > 1) {
      entries.push({ text: `all ${rows.length} threads found`, note: "add their lanes", act: () => put(rows) });
      entries.push({ text: `only these ${rows.length} threads`, note: "hide the other threads' lanes", act: () => only(rows) });
    }
    for (const row of rows.slice(0, SHOWN)) {
      entries.push({ text: row.name, note: note(row), missing: row.missing, act: () => jump(row) });
    }
    const rest = rows.length - SHOWN + answer.more;
    draw(answer.problem || (!entries.length ? `Nothing is called ${text}.` : rest > 0 ? `${rest} more threads: type more letters` : ""));
    if (entered) take(at);
  }

  function draw(foot) {
    at = entries.length ? 0 : -1;
    list.replaceChildren(...entries.map((entry, i) => h("div", {
      role: "option", id: `${list.id}-${i}`, class: "sst-option",
      pointerdown: (event) => { event.preventDefault(); take(i); },
    }, h("b", {}, entry.text), " ", h("span", {}, entry.missing ? `${entry.note} · not in this page` : entry.note))), foot ? h("div", { class: "sst-option" }, h("span", {}, foot)) : "");
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    mark();
  }

  function mark() {
    [...list.querySelectorAll("[role=option]")].forEach((option, i) => {
      option.setAttribute("aria-selected", String(i === at));
      if (i === at) option.scrollIntoView({ block: "nearest" });
    });
    if (at >= 0) input.setAttribute("aria-activedescendant", `${list.id}-${at}`);
  }

  /** Clears the results, so that the next search cannot pick one of them. */
  function close() {
    last++; // a pending answer no longer opens the list
    asking = entered = false;
    list.removeAttribute("aria-busy");
    entries = [];
    list.replaceChildren();
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function take(i) {
    const entry = entries[i];
    if (!entry) return;
    close();
    input.blur();
    picture.canvas.focus({ preventScroll: true });
    entry.act();
  }

  /** Adds all threads of a process. */
  async function expand(pid) {
    const { rows } = await ask({ text: String(pid) });
    put(rows.filter((row) => row.pid === pid), "process");
  }
  const keys = (rows) => rows.map((row) => `utid:${row.utid}`);
  function put(rows, by) {
    if (by && picture.by() === "none") picture.arrange({ by });
    picture.show(keys(rows));
  }
  function only(rows) {
    const cpus = picture.chosen().filter((key) => !isThread(key));
    picture.arrange({ chosen: [...cpus, ...keys(rows)] });
  }
  /** Shows the thread's lane and its longest wait. */
  async function jump(row) {
    const key = `utid:${row.utid}`;
    await picture.show([key]);
    if (row.longest) picture.go(row.longest[0], row.longest[1], key);
    if (row.longest && !row.missing) picture.select(key, row.longest[0] + Math.floor(row.longest[1] / 2));
  }

  input.addEventListener("input", search);
  input.addEventListener("focus", () => { if (input.value) search(); });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      at = Math.max(0, Math.min(entries.length - 1, at + (event.key === "ArrowDown" ? 1 : -1)));
      mark();
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (asking) entered = true;
      else take(at);
    } else if (event.key === "Escape") {
      close();
      picture.canvas.focus({ preventScroll: true });
    }
  });

  return { focus: () => { input.focus(); input.select(); }, learn, expand };
}
