// The sources of answers: a notebook's kernel, data stored in the page, or a server.

/** In a notebook, the kernel answers. anywidget calls this. */
function render({ model, el }) {
  const open = new Map();
  let last = 0;
  const hear = (message, buffers) => {
    const wanted = open.get(message.id);
    if (!wanted) return;
    open.delete(message.id);
    if (message.kind === "error") wanted.reject(new Error(message.text));
    else wanted.resolve({ answer: message, buffers });
  };
  model.on("msg:custom", hear);
  const ask = (request) => new Promise((resolve, reject) => {
    const id = ++last;
    open.set(id, { resolve, reject });
    model.send({ ...request, id });
  });
  const stop = model.get("cards") ? dealt(el, model.get("cards"), ask) : mount(el, model.get("about"), ask, "notebook");
  return () => {
    model.off("msg:custom", hear);
    stop();
  };
}

/** Findings as cards; the first button pressed loads the timeline. */
function dealt(el, cards, ask) {
  const below = h("div", {});
  let stop = () => {}, made = null;
  el.innerHTML = cards; // our own markup; names in it are escaped
  el.append(below);
  const act = async (event) => {
    const to = event.target.closest?.("[data-at]")?.dataset.at;
    if (!to) return;
    try {
      made ||= ask({ kind: "about" }).then(({ answer }) => { stop = mount(below, answer, ask, "notebook"); });
      await made;
    } catch (error) {
      below.textContent = String(error.message || error);
      made = null;
      return;
    }
    const { keep, picture } = below.querySelector(".sst-picture canvas").timeline;
    await keep.apply(to, picture.learn);
    below.scrollIntoView({ block: "nearest" });
  };
  el.addEventListener("click", act);
  return () => {
    el.removeEventListener("click", act);
    stop();
  };
}

export default { render };

/** On a static page, the answers stored in it. */
export async function carried(data) {
  const bytes = Uint8Array.from(atob(data.data), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const blob = new Uint8Array(await new Response(stream).arrayBuffer());
  const buffers = [];
  let at = 0;
  for (const size of data.sizes) {
    buffers.push(blob.subarray(at, at + size));
    at += size;
  }
  const known = new Map();
  const names = {};
  for (const answer of data.answers) {
    Object.assign(names, answer.names);
    for (const row of answer.lanes) {
      if (!known.has(row.key)) known.set(row.key, []);
      known.get(row.key).push(unpack(row, answer, buffers));
    }
  }
  const threads = data.about.threads || { rows: [], more: 0 };
  for (const row of threads.rows) {
    row.missing = !known.has(`utid:${row.utid}`);
    names[row.utid] ||= row.name;
  }
  return (request) => {
    if (request.kind === "threads") return { answer: listed(threads, request) };
    return { answer: { names, lanes: request.lanes.map((key) => ({ key, pieces: known.get(key) || [] })) }, buffers };
  };
}

/** Finds threads among those stored in the page, as timelines/threads.py does. */
function listed(threads, { text, utids }) {
  const words = (text || "").toLowerCase().split(/\s+/);
  const rows = threads.rows.filter((row) => {
    if (utids) return utids.includes(row.utid);
    const names = [row.comm, row.tid, row.pid, row.process, row.cgroup].join("\n").toLowerCase();
    return words.every((word) => names.includes(word));
  });
  return { rows, more: utids ? 0 : threads.more };
}

/** From `schedscope view`: one HTTP request per question. */
export function served(side = 0) {
  const text = (request) => JSON.stringify({ ...request, side }), type = "application/json";
  async function ask(request, signal) {
    let answer;
    try {
      answer = await fetch("ask", { method: "POST", body: text(request), headers: { "Content-Type": type }, signal });
    } catch {
      if (signal?.aborted) throw new Error("cancelled");
      throw new Error("schedscope view does not answer: was it ended?");
    }
    if (!answer.ok) throw new Error((await answer.text()).trim());
    const bytes = await answer.arrayBuffer(), length = new DataView(bytes).getUint32(0, true);
    const content = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length)));
    if (content.kind === "error") throw new Error(content.text);
    const buffers = [];
    let at = 4 + length;
    for (const size of content.sizes) {
      buffers.push(new Uint8Array(bytes, at, size));
      at += size;
    }
    return { answer: content, buffers };
  }
  /** For a page that is closing and gets no answer; browsers still send up to 64 KiB. */
  ask.atTheEnd = (request) => navigator.sendBeacon("ask", new Blob([text(request)], { type }));
  return ask;
}

export async function mountAll(page) {
  for (const root of page.querySelectorAll(".schedscope-timeline:not([data-mounted])")) {
    root.dataset.mounted = "";
    const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
    try {
      if ("served" in root.dataset) mount(root, data, served(Number(root.dataset.served)), "server");
      else mount(root, data.about, await carried(data), "page");
    } catch (error) {
      root.append(`This browser cannot draw the timeline: ${error.message}`);
    }
  }
  const [one, two] = [...page.querySelectorAll(".schedscope-timeline[data-served] .sst-picture canvas")].map((canvas) => canvas.timeline.picture);
  if (two) couple(one, two, [served(0), served(1)]);
}
