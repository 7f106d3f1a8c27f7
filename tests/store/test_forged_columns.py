"""Every integer of every table, forged with right checksums, in every command.

A user who forges a table can forge its checksum, too. Impossible values are refused in one
sentence; possible ones give an answer that may be false, as the table is, but no crash, and no
negative time or count.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from archives import under_sched_ext, unpacked

import schedscope as ss
from schedscope import _native, cli
from schedscope.parsers import derived
from schedscope.parsers.schema import TABLES
from schedscope.store import stored

FIXTURES = Path(__file__).parents[2] / "fixtures"
SOURCES = [
    *("linux-syscalls.capture", "causes", "freebsd-ule-synthetic.capture", "perf-iowait.data"),
    "under sched_ext",
]
"""Between them they have a row of each table, but of these:"""
NOWHERE = {"quota_refills"}

# Commands that read a trace, with the arguments that they need.
COMMANDS = [
    "check", "latency", "latency --histogram", "events", "starvation",
    "queue-depth", "work-conservation", "wait-breakdown", "fairness", "migrations",
    "affinity", "interference", "wakers", "off-cpu", "run-lengths",
    "efficiency", "slowdown", "preemption-loss", "outliers", "virtual-lag",
    "interactivity", "definitions", "critical-path --worst 1", "findings",
    "requests", "wake-chain --worst 1", "dispatch-queues",
    "dispatch-queues --slices", "dispatch-queues --steps",
]  # fmt: skip
EXTREMES = [-1, 0, 2**31, 2**32 - 1, 2**61, 2**63 - 1, 2**64 - 1]
NEGATIVE = re.compile(r'"(?!lag|vlag|start|begin|end|first|last|ts|prio|nice)\w+": (-\d[\d.e+-]*)')


def columns() -> list[tuple[str, str]]:
    """Columns of the trace model, and those that files derive them from."""
    known = [
        (name, column)
        for name, table in TABLES.items()
        for column, kind in table.schema.items()
        if kind.is_integer()
    ]
    return known + [(table, stored) for table, _, stored, _ in _native.derived_columns()]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A stored trace for each table that has rows of it."""
    found: dict[str, Path] = {}
    for name in SOURCES:
        folder = tmp_path_factory.mktemp("forged")
        file = FIXTURES / name
        if name == "causes":
            file = unpacked(FIXTURES / "causes.tar.xz", folder, {"dat": "trace.dat"})["dat"]
        if name == "under sched_ext":
            file = under_sched_ext(folder, "kick")
        ss.convert(file, folder / "t.sched")
        for table in TABLES:
            path = folder / "t.sched" / f"{table}.parquet"
            if path.exists() and pl.read_parquet(path, glob=False).height:
                found.setdefault(table, folder / "t.sched")
    assert set(TABLES) - set(found) == NOWHERE
    return found


def forge(folder: Path, table: str, column: str, value: int) -> bool:
    """Sets the middle row; False if the column cannot hold the value."""
    path = folder / f"{table}.parquet"
    frame = pl.read_parquet(path, glob=False)
    if column not in frame.columns:
        frame = derived.plain(table, frame.lazy()).collect()
    if column not in frame.columns:
        return False
    values = frame[column].to_list()
    values[len(values) // 2] = value
    try:
        series = pl.Series(column, values, frame.schema[column], strict=True)
    except (OverflowError, TypeError):
        return False
    frame.with_columns(series).write_parquet(path)
    about = json.loads((folder / "trace.json").read_text())
    about["files"] = stored.record(folder)
    (folder / "trace.json").write_text(json.dumps(about))
    return True


def ask(words: list[str], folder: Path, capsys: Any) -> tuple[int, str, str]:
    command, *options = words
    code = cli.main([command, str(folder), *options, "--format", "json"])
    out, err = capsys.readouterr()
    return code, out, err


def wrong(words: list[str], folder: Path, usual: set[str], capsys: Any) -> str:
    """What is wrong; empty if nothing is."""
    code, out, err = ask(words, folder, capsys)
    if code not in (0, 1, 2) or "internal error" in err or "Traceback" in err:
        return f"exit {code}: {err[:300]}"
    said = [line for line in err.splitlines() if line.startswith("schedscope")]
    if code and len(said) != 1:
        return f"exit {code} with {len(said)} sentences: {err[:300]}"
    if code == 0 and (below := set(NEGATIVE.findall(out)) - usual):
        return f"exit 0 with {sorted(below)[:3]}"
    return ""


@pytest.mark.parametrize(
    "draws", [0, *(pytest.param(n, marks=pytest.mark.release) for n in (1, 2, 3, 4))]
)
@pytest.mark.parametrize("table", sorted({table for table, _ in columns()} - NOWHERE))
def test_forged_integers_cause_no_crash_or_negative_number(
    table: str,
    draws: int,
    sound: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    draw = random.Random(f"{table} {draws}")
    failures = []

    @cache
    def usual(command: str) -> set[str]:
        """What is negative before anything is forged."""
        return set(NEGATIVE.findall(ask(command.split(), sound[table], capsys)[1]))

    for _, column in (pair for pair in columns() if pair[0] == table):
        value = draw.choice(EXTREMES)
        copy = shutil.copytree(sound[table], tmp_path / f"{column}.{value}.sched")
        if forge(copy, table, column, value):
            for command in draw.sample(COMMANDS, 2):
                if found := wrong(command.split(), copy, usual(command), capsys):
                    failures.append(f"{table}.{column} = {value}: {command}: {found}")
        shutil.rmtree(copy)
    assert not failures, "\n".join(failures)
