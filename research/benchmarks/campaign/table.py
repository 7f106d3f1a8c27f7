"""The table of the campaign of `whatif`: its file, and what it comes to."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from research.lab import closeness

NULL_MODEL = "rr"
"""A policy that knows nothing of the kernel: what it predicts is no better than a guess."""

COLUMNS = (
    *("workload", "intervention", "half", "service", "figure", "verdict", "date", "kernel"),
    *("before", "before_low", "before_high", "after", "after_low", "after_high"),
    *("predicted", "low", "high", "inside", "runs", NULL_MODEL),
)


def read(table: Path) -> list[dict[str, Any]]:
    """The rows that are there."""
    if not table.exists():
        return []
    with table.open(newline="") as file:
        return [
            {k: _number(v) if k in COLUMNS[8:] else v for k, v in row.items()}
            for row in csv.DictReader(file)
        ]


def _number(text: str) -> int | None:
    return int(text) if text else None


def write(table: Path, rows: list[dict[str, Any]]) -> None:
    """All rows, in order of the cells."""
    with table.with_suffix(".new").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    table.with_suffix(".new").replace(table)


def factor(a: float, b: float, floor: float = 1e6) -> float:
    """The factor between two times; below a millisecond it is 1."""
    a, b = max(a, floor), max(b, floor)
    return max(a / b, b / a)


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Lines of a Markdown table: what the cells come to, for each figure and verdict."""
    lines = [
        "| half | figure | verdict | rows | direction right | off, median | two real runs"
        f" | no change | {NULL_MODEL} | runs inside the range (stated: 90 %) |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    figures = sorted({r["figure"] for r in rows if r["figure"]})
    for half in sorted({r["half"] for r in rows}):
        for figure in (*figures, "all"):
            for verdict in ("good", "doubtful", "refused"):
                mine = [
                    r
                    for r in rows
                    if (r["half"], r["verdict"]) == (half, verdict)
                    and (r["figure"] == figure or (figure == "all" and r["figure"]))
                ]
                if mine:
                    lines.append(f"| {half} | {figure} | {verdict} | {len(mine)} {_said(mine)}")
    return lines


def by_workload(rows: list[dict[str, Any]]) -> list[str]:
    """The same of the waiting in each workload, both halves and all verdicts that have figures."""
    lines = [
        "| workload | rows | direction right | off, median | two real runs | no change"
        f" | {NULL_MODEL} | runs inside the range | predicted / after, median |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for workload in dict.fromkeys(r["workload"] for r in rows):
        mine = [r for r in rows if r["workload"] == workload and r["figure"] == "waiting"]
        told = [r for r in mine if r["predicted"] is not None]
        if told:
            bias = statistics.median(max(1, r["predicted"]) / max(1, r["after"]) for r in told)
            lines.append(f"| {workload} | {len(told)} {_said(told)} {bias:.2f} |")
    return lines


def _said(rows: list[dict[str, Any]]) -> str:
    told = [r for r in rows if r["predicted"] is not None]
    if not told:
        return "| - | - | - | - | - | - |"
    apart = [r for r in told if _apart(r)]
    right = sum((r["predicted"] > r["before"]) == (r["after"] > r["before"]) for r in apart)
    off = statistics.median(factor(r["predicted"], r["after"]) for r in told)
    noise = statistics.median(math.sqrt(factor(r["after_low"], r["after_high"])) for r in told)
    still = statistics.median(factor(r["before"], r["after"]) for r in told)
    blunt = [factor(r[NULL_MODEL], r["after"]) for r in told if r[NULL_MODEL] is not None]
    null = f"{statistics.median(blunt):.2f}" if blunt else "-"
    inside, runs = sum(r["inside"] for r in told), sum(r["runs"] for r in told)
    return (
        f"| {right} of {len(apart)} | {off:.2f} | {noise:.2f} | {still:.2f} | {null} |"
        f" {inside} of {runs} ({inside / runs:.0%}) |"
    )


def _apart(row: Mapping[str, Any]) -> bool:
    return bool(row["before_high"] < row["after_low"] or row["after_high"] < row["before_low"])


def every_cell(rows: list[dict[str, Any]]) -> list[str]:
    """Lines of a Markdown table with the waiting in each cell, in ms."""
    lines = [
        "| workload | change | half | service | before | predicted | after | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        head = f"| {r['workload']} | {r['intervention']} | {r['half']} | {r['service']} |"
        if not r["figure"]:
            lines.append(f"{head} - | - | - | {r['verdict']} |")
        if r["figure"] != "waiting":
            continue
        ms = {k: _ms(r[k]) for k in COLUMNS[8:-3]}
        said = "-" if r["predicted"] is None else f"{ms['predicted']} [{ms['low']}, {ms['high']}]"
        real = f"{ms['after']} ({ms['after_low']} to {ms['after_high']})"
        lines.append(
            f"{head} {ms['before']} ({ms['before_low']} to {ms['before_high']}) | {said} |"
            f" {real} | {r['verdict']} |"
        )
    return lines


def _ms(ns: int | None) -> str:
    if ns is None:
        return "-"
    return f"{ns / 1e6:,.0f}" if ns >= 1e8 else f"{ns / 1e6:.3g}"


KEPT = Path(__file__).parent
"""Where the rows are kept: of the first campaign (`cells.csv`), of the second
(`again.csv`), and of replays of the recordings of the second (`fidelity.parquet`)."""


def kept_tables() -> dict[str, list[str]]:
    """The kept tables, as Markdown."""
    first, again = read(KEPT / "cells.csv"), read(KEPT / "again.csv")
    inside, apart = closeness.tables(closeness.read(KEPT / "fidelity.parquet"), "workload")
    return {
        "campaign": summary(first),
        "campaign-workloads": by_workload(first),
        "campaign-cells": every_cell(first),
        "campaign-again": summary(again),
        "campaign-again-workloads": by_workload(again),
        "campaign-fidelity": inside,
        "campaign-fidelity-distances": apart,
    }
