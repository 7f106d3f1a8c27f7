"""A trace in which every name is chosen to do harm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

import schedscope as ss

FIXTURE = Path(__file__).parent.parent / "fixtures" / "linux-ftrace-mixed.capture"

# Names that move the cursor, turn text around, hide, are formulas, markup, scripts or mathematics.
NAMES = [
    "\x1b[2J\x1b[31mred", "\x9b31mC1", "two\nlines", "over\rwritten", "\ttab", "\x07bell",
    "\u202etxt.exe", "\u2066isolate\u2069", "zero\u200bwidth", "\u2028line", "\ufeffmark",
    "=cmd|'/C calc'!A0", "+1+1", "-1+1", "@SUM(1)", "'=1", "\r=1",
    "<script>window.owned=1</script>",
    "</script><img src=x onerror=window.owned=1>", '"><svg onload=window.owned=1>', "&lt;b&gt;",
    "]]><b>", "--><b>", "$\\frac{1}{0}$", "$x_", "%s%n{0}", "\\u001b[2J", "\x00nul",
    "\U000e0041tag",
    "javascript:window.owned=1", "http://127.0.0.1:9/x.png", "\x7f\x7f\x7f", "é\u0301\u202c",
]  # fmt: skip
ALL = "".join(name for name in NAMES if "\x00" not in name)


def names(frame: pl.LazyFrame, column: str = "comm") -> pl.LazyFrame:
    """The table with a hostile name in each row."""
    made = frame.collect()
    texts = [NAMES[i % len(NAMES)] for i in range(made.height)]
    return made.with_columns(pl.Series(column, texts, dtype=pl.String)).lazy()


def trace() -> ss.Trace:
    """A recording of Linux, its threads and its host renamed."""
    sound = ss.open(FIXTURE, cache=None)
    tables = {name: sound.table(name) for name in ss.parsers.schema.TABLES}
    for column in ("comm", "comm_first", "process_name", "cgroup", "cmdline"):
        tables["threads"] = names(tables["threads"], column)
    tables["renames"] = names(tables["renames"])
    info: dict[str, Any] = dict(sound.info)
    info |= dict.fromkeys(("os", "release", "machine", "hostname", "generator"), ALL)
    info |= {"preempt": ALL, "warnings": NAMES, "notes": NAMES}
    info["source"] = {**info["source"], "name": ALL}
    info["clock"] = {**info["clock"], "name": ALL}
    info["recorder"] = {"name": ALL, "version": ALL, "why": ALL}
    info["workload"] = {"command": [ALL, ALL]}
    info["scheduler"] = {"name": ALL, "models": ALL, "tunables": {ALL: ALL}}
    info["events"] = {**info["events"], ALL: {"0": 1}}
    return ss.Trace.from_tables(tables, info)
