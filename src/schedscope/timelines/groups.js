// The order of the lanes, and the group headings above them.

/** Names of CPU topology levels in headings. */
const PLACES = { llc: "LLC", package: "package", node: "node" };

/** Groups the lanes as `scene` currently asks; by CPU topology only if the trace has it. */
function grouper(scene) {
  const { about, threads } = scene;
  const orders = [["none", "lanes as chosen"], ["process", "by process"], ["cgroup", "by cgroup"], ["cpu", "by CPU"],
    ...Object.entries(PLACES).filter(([name]) => about.places?.[name]).map(([name, word]) => [name, `by ${word}`])];
  /** Are CPUs grouped as well, or only threads? */
  const placed = () => scene.by === "cpu" || scene.by in PLACES;

  /** The group of a lane, and the text of its heading. */
  function groupOf(lane) {
    const { by } = scene;
    const own = isThread(lane) || lane.startsWith("lag:"), row = (own && threads.get(Number(lane.split(":")[1]))) || {};
    if (placed()) {
      const cpu = own ? row.cpu : cpuOf(lane), many = groupIn(lane);
      if (many && many[2] === by) return Object.values(about.places[by]).find((name) => name.startsWith(`${PLACES[by]} ${many[3]},`)) || "all CPUs";
      if (cpu === null || cpu === undefined) return own ? "CPU unknown" : "all CPUs";
      return by === "cpu" ? `CPU ${cpu}` : about.places[by][cpu] || `${PLACES[by]} unknown`;
    }
    if (by === "process") return row.process ? `${row.process} ${row.pid ?? ""}`.trim() : row.pid ? `process ${row.pid}` : "process unknown";
    return row.cgroup || "no control group known";
  }

  /** What is drawn: pinned lanes, the others in their order, and headings of groups. */
  function ordered() {
    const { chosen, pinned, folded, by } = scene;
    const rest = chosen.filter((lane) => !pinned.includes(lane));
    const heads = (groups) => [...groups].flatMap(([name, its]) => [`head:${name}`, ...(folded.includes(name) ? [] : its)]);
    const groups = new Map();
    const into = (name, lane) => groups.set(name, [...(groups.get(name) || []), lane]);
    if (placed()) {
      // A CPU's own lane comes before its threads.
      for (const lane of [...rest.filter((key) => !isThread(key)), ...rest.filter(isThread)]) into(groupOf(lane), lane);
      return [...pinned, ...heads(groups)];
    }
    if (by === "none") return [...pinned, ...rest];
    for (const lane of rest.filter(isThread)) into(groupOf(lane), lane);
    return [...pinned, ...rest.filter((key) => !isThread(key)), ...heads(groups)];
  }

  return { orders, placed, groupOf, ordered };
}
