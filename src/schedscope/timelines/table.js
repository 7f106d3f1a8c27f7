// Tables, links and other elements. Text is only ever inserted as text, because a thread can choose its name.

/** An element with attributes (functions are listeners) and children (text or elements). */
function h(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

const link = (text, act, hint) => h("button", { type: "button", class: "sst-link", title: hint, click: act }, text);

/** A file name quoted for a shell. */
const quoted = (name) => (/^[\w@%+=:,./-]+$/.test(name) ? name : `'${name.replaceAll("'", `'"'"'`)}'`);

/** A line of Python or a command, with a button that copies it. */
function code(text) {
  const button = h("button", {
    type: "button", class: "sst-copy", title: "copy this line",
    click: async () => {
      button.textContent = (await copied(text)) ? "copied" : "select and copy it by hand";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    },
  }, "copy");
  return h("p", { class: "sst-code" }, h("code", {}, text), " ", button);
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", {}, text);
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** A table as timelines/tables.py makes it; `go(link)` moves to a row's instant. */
function table(data, go) {
  const numbers = data.heads.map(([, number]) => number);
  const cell = (text, i) => h("td", { class: numbers[i] ? "sst-n" : null }, text);
  const rows = data.rows.map((row, i) => {
    const to = data.links[i];
    const cells = row.map(cell);
    if (to && cells.length) {
      cells[0].replaceChildren(link(row[0] || "show", () => go(to), "show it in the timeline"));
    }
    return h("tr", {}, cells);
  });
  return h("section", { class: "sst-table" },
    h("h3", {}, data.title),
    data.rows.length
      ? h("div", { class: "sst-wide", tabindex: "0", role: "region", "aria-label": data.title },
        h("table", {},
          h("thead", {}, h("tr", {}, data.heads.map(([text, number]) =>
            h("th", { class: number ? "sst-n" : null, scope: "col" }, text)))),
          h("tbody", {}, rows)))
      : h("p", {}, "Nothing."),
    data.note && h("p", { class: "sst-faint" }, data.note),
    data.python && code(data.python));
}
