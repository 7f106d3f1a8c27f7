"""The campaign's results as tables."""

from __future__ import annotations

import subprocess
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from faults.words import length
from research import results

Result = dict[str, Any]


def wrong(result: Result) -> int:
    """Wrong facts and figures given as measured in one damaged input."""
    if result["refused"]:
        return 0
    if result["crashed"]:
        return 1
    waits = int(result["wrong_waits"]) + int(result["wrong_bounds"])
    figures: int = sum(result["wrong_figures"].values())
    return waits + int(bool(result["wrong_state_time"])) + figures


def by_kind(results: list[Result]) -> dict[str, list[Result]]:
    """The results of each kind, in the order of kinds."""
    found: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        found[result["kind"]].append(result)
    return dict(found)


def _share(part: int, whole: int, digits: int = 1) -> str:
    return f"{part / whole:.{digits}%}" if whole else "-"


def row(kind: str, results: list[Result]) -> list[str]:
    """One line of the table."""
    read = [r for r in results if not r["refused"] and not r["crashed"]]

    def total(name: str) -> int:
        return sum(int(r[name]) for r in read)

    def said(how: str) -> int:
        return sum(r["statuses"].get(how, 0) for r in read)

    right = total("measured_waits") - total("wrong_waits") - total("doubted_waits")
    wrong_figures = sum(sum(r["wrong_figures"].values()) for r in read)
    state_time = total("true_state_time")
    silent = sum(r["trusted"] and wrong(r) > 0 for r in read)
    longest = max((r["longest_wrong_wait"] for r in read), default=0)
    return [
        kind,
        str(len(results)),
        str(sum(bool(r["refused"]) for r in results)),
        str(sum(bool(r["crashed"]) for r in results)),
        f"**{sum(map(wrong, results)):,}**",
        f"{total('wrong_waits'):,}",
        length(longest) if longest else "-",
        f"{total('wrong_bounds'):,}",
        _share(total("wrong_state_time"), state_time, 3),
        str(wrong_figures),
        f"{total('doubted_waits'):,} / {said('doubted'):,}",
        " / ".join(f"{said(how):,}" for how in ("bound", "admitted", "headed", "flagged")),
        str(silent),
        _share(right, total("true_waits")),
        _share(total("right_wait_time"), total("true_wait_time")),
        _share(total("right_state_time"), state_time),
    ]


HEADINGS = (
    "damage",
    "inputs",
    "refused",
    "crashed",
    "wrong, given as measured",
    "wrong waits",
    "longest wrong wait",
    "wrong lower bounds",
    "state time wrong",
    "wrong figures",
    "waits / figures within the stated doubt of clocks",
    "figures bounded / admitted / headed / flagged",
    "inputs with something wrong and no new warning",
    "true waits still measured",
    "their time",
    "state time still known",
)


def table(headings: tuple[str, ...], rows: list[list[str]]) -> str:
    """A Markdown table; everything but the first column to the right."""
    lines = ["| " + " | ".join(headings) + " |", "|---|" + "--:|" * (len(headings) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in rows)])


def by_damage(results: list[Result]) -> str:
    """The table: a line for each kind, and one for all."""
    rows = [row(kind, found) for kind, found in by_kind(results).items()]
    return table(HEADINGS, [*rows, row("**all**", results)])


STATUSES = ("right", "bound", "admitted", "headed", "flagged", "doubted", "null", "wrong")
"""Of figures; `summaries.py` defines them."""

_SHOWN = ("100% of migrate", "100% of waking and", "100% of wakeup", "CPU absent", "one CPU only")
_MARKS = (", marked", "checksums")
_COUNTS = ("counted in stats", "in stats only")
_OF_KERNEL = ("capture", "trace.dat")


def marked(kind: str, form: str = "capture") -> bool:
    """Whether the file says that something is missing: the kernel, the recorder, or its contents.

    >>> [marked(kind) for kind in ("hole, marked", "hole, unmarked", "one CPU only")]
    [True, False, True]
    >>> [marked("hole, in stats only", form) for form in ("capture", "perf script")]
    [True, False]
    """
    if kind.endswith("events read only"):
        return form in _OF_KERNEL
    if kind.endswith(_COUNTS):
        return form in (*_OF_KERNEL, "ftrace text", "Perfetto", "dtrace")
    others = ("nothing", "trace.dat truncated", "stats that lie", "losses in capture.json")
    return kind.startswith((*_SHOWN, *others)) or kind.endswith(_MARKS)


def _marked(result: Result) -> bool:
    return marked(result["kind"], result["format"])


def sums(results: list[Result]) -> str:
    """The table of figures: a line for each kind of damage, for marked, unmarked and all."""
    parts = by_kind(results)
    for name, which in (("marked", True), ("unmarked", False)):
        parts[f"**{name}**"] = [r for r in results if _marked(r) == which]
    parts["**all**"] = results
    headings = (
        *("damage", "inputs", "figures", *STATUSES, "wrong of 1,000"),
        *("median width, all threads in one", "median width, each thread"),
    )
    return table(headings, [_sums(name, found) for name, found in parts.items()])


def sums_by(results: list[Result], *names: str) -> str:
    """The same by format, or by release and number of CPUs: marked and unmarked damage."""
    parts: dict[tuple[str, ...], list[Result]] = defaultdict(list)
    for result in results:
        parts[tuple(str(result[name]) for name in names)].append(result)
    rows = []
    for key, found in sorted(parts.items()):
        row = [" ".join(key)]
        for which in (True, False):
            some = [r for r in found if _marked(r) == which]
            _, inputs, figures, *_, wrong, share, one, each = _sums("", some)
            row += [inputs, figures, wrong, share, one, each]
        rows.append(row)
    shown = ("inputs", "figures", "wrong", "of 1,000", "width, all", "width, each")
    heads = [f"{which}: {name}" for which in ("marked", "unmarked") for name in shown]
    return table((" and ".join(names), *heads), rows)


def _sums(name: str, results: list[Result]) -> list[str]:
    read = [r for r in results if not r["refused"] and not r["crashed"]]
    said = sum((Counter(r["statuses"]) for r in read), Counter[str]())
    n = said.total()
    widths = [_median_width(read, way) for way in ("all", "each")]
    counts = [f"{said[status]:,}" for status in STATUSES]
    return [name, str(len(results)), f"{n:,}", *counts,
            f"{1000 * said['wrong'] / n:.2f}" if n else "-", *widths]  # fmt: skip


def _median_width(results: list[Result], way: str) -> str:
    """Of the figures that have two bounds; as a share of the true figure."""
    wide: Counter[float] = Counter()
    for result in results:
        for width, n in result["widths"].get(way, {}).items():
            if float(width) > 0:
                wide[float(width)] += n
    half = 0
    for width, n in sorted(wide.items()):
        half += n
        if 2 * half >= wide.total():
            return f"{width:g}"
    return "-"


def common_failures(results: list[Result]) -> str:
    """Per kind: which figures were wrong, how often."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for result in results:
        for name in result.get("wrong_figures") or []:
            counts[result["kind"]][name] += 1
    rows = [
        [kind, ", ".join(f"{name} ({n})" for name, n in sorted(names.items(), key=lambda i: -i[1]))]
        for kind, names in counts.items()
    ]
    return table(("damage", "wrong figures (inputs)"), rows) if rows else "None."


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def keep(
    found: list[Result], laboratory: list[Result], peers: dict[str, str], date: str, host: str
) -> list[Path]:
    """Write the tables into research/data; `laboratory`: results of the other captures."""
    tables = {
        "faults": by_damage(found),
        "faults-sums": sums([*found, *laboratory]),
        "faults-formats": sums_by([*found, *laboratory], "format"),
        "faults-kernels": sums_by([*found, *laboratory], "release", "cpus"),
        "faults-figures": common_failures([*found, *laboratory]),
    }
    if laboratory:
        tables["faults-laboratory"] = by_damage(laboratory)
    commit = _commit()
    return [
        results.keep(
            name, results.parse(text.splitlines()), measured_on=date, commit=commit, machine=host
        )
        for name, text in {**tables, **peers}.items()
        if text.startswith("|")
    ]
