"""An episode of starvation in one sentence."""

from __future__ import annotations

from typing import Any

import polars as pl

from schedscope.units import duration, printable

# Parts of a wait below this are in the columns, not in the sentence.
_WORTH = 0.01
# From this part on a quota is what it waited for.
_MOSTLY = 0.5


def starvation_sentences(
    episodes: pl.DataFrame, culprits: pl.DataFrame, quota_of: dict[int, str]
) -> list[str]:
    """A sentence for each row of `episodes`, which has the columns of `starvation`.

    `quota_of` has the control group whose quota held a thread (utid) back.
    """
    threads = culprits.filter(pl.col("kind") == "thread")
    second = (
        threads.group_by("episode", "comm")
        .agg(pl.col("time").sum())
        .sort("episode", "time", "comm", descending=[False, True, False])
        .group_by("episode", maintain_order=True)
        .agg(pl.col("comm").get(1, null_on_oob=True), pl.col("time").get(1, null_on_oob=True))
    )
    seconds = {episode: (comm, time) for episode, comm, time in second.iter_rows()}
    return [
        _story(row, seconds.get(row["episode"], (None, None)), quota_of.get(row["utid"]))
        for row in episodes.iter_rows(named=True)
    ]


def _story(row: dict[str, Any], second: tuple[str | None, int | None], quota: str | None) -> str:
    who = (
        printable(row["comm"]) or f"thread {row['tid'] if row['tid'] is not None else row['utid']}"
    )
    prio = "" if row["prio"] is None else f" (prio {row['prio']})"
    waited = duration(row["wait"])
    open_end = row["censored"] == "right"
    if row["criterion"] == "lag":
        verb = (
            f"got {duration(row['received'])} of {duration(row['due'])} due to it in"
            f" {duration(row['dur'])}: it waited {waited}"
        )
    else:
        verb = f"waited {'at least ' if open_end else ''}{waited}"
    throttled = row["throttled"] or 0
    if throttled >= _MOSTLY * (row["wait"] or 1):
        # Whoever ran meanwhile was not in the way.
        return f"{who}{prio} {verb}{_queue(row)}, {_throttled(row, quota)}"
    rest = f"{_behind(row, second)}{_elsewhere(row)}"
    if throttled >= _WORTH * (row["wait"] or 1):
        rest += f", {_throttled(row, quota)}"
    return f"{who}{prio} {verb}{_queue(row)}{rest}"


def _throttled(row: dict[str, Any], quota: str | None) -> str:
    how_much = "all" if row["throttled"] == row["wait"] else duration(row["throttled"])
    return f"{how_much} of it throttled by the CPU quota of {printable(quota or '?')}"


def _queue(row: dict[str, Any]) -> str:
    if row["cpu"] is None:
        return " on a shared queue"
    if "," in row["cpus"]:
        return f" on CPUs {row['cpus'].replace(',', ', ')}"
    return f" on CPU {row['cpu']}"


def _behind(row: dict[str, Any], second: tuple[str | None, int | None]) -> str:
    wait = row["wait"] or 1
    parts = []
    if row["culprit"] is not None:
        parts.append(_one(row["culprit"], row["culprit_threads"], row["culprit_frac"]))
    comm, time = second
    if comm is not None and time is not None and row["culprit_frac"] < 0.5:
        parts.append(_one(comm, 1, time / wait))
    text = f" behind {' and '.join(parts)}" if parts else ""
    if row["idle"] >= _WORTH * wait:
        text += f"{', ' if parts else ' while '}its own CPU idle for {duration(row['idle'])}"
    if row["unknown"] >= _WORTH * wait:
        text += f" ({duration(row['unknown'])} of it unknown)"
    return text


def _one(comm: str, threads: int, share: float) -> str:
    several = f"{threads} threads, " if threads > 1 else ""
    return f"{printable(comm) or 'a nameless thread'} ({several}{_percent(share)})"


def _elsewhere(row: dict[str, Any]) -> str:
    if row["idle_cpu_time"] < _WORTH * (row["wait"] or 1):
        return ""
    text = f", while CPU {row['idle_cpu']} idled {duration(row['idle_cpu_time'])}"
    return text if row["affinity"] else f"{text} (if it may run there)"


def _percent(share: float) -> str:
    """Whole per cent, for a sentence; never 100 for what is less, or 0 for what is more."""
    if share >= 1:
        return "100 %"
    if share > 0.99:
        return ">99 %"
    return "<1 %" if share < 0.01 else f"{100 * share:.0f} %"
