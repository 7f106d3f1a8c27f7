"""The campaign's results as tables."""

from __future__ import annotations

import subprocess
from collections import defaultdict
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
    figures = len(result["wrong_figures"])
    return waits + bool(result["wrong_state_time"]) + figures


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

    right = total("measured_waits") - total("wrong_waits") - total("doubted_waits")
    wrong_figures = sum(len(r["wrong_figures"]) for r in read)
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
        f"{total('doubted_waits'):,} / {total('doubted_figures')}",
        f"{total('bound_figures')} / {total('flagged_figures')}",
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
    "figures bounded / flagged",
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
    tables = {"faults": by_damage(found), "faults-figures": common_failures(found)}
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
