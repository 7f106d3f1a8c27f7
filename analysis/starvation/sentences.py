"""An episode of starvation in one sentence."""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl

from schedscope.analysis.threads.same_names import SameNames
from schedscope.units import duration, printable

# Parts of a wait below this are in the columns, not in the sentence.
_WORTH = 0.01
# From this share on the sentence names the quota as the cause.
_MOSTLY = 0.5


def starvation_sentences(
    episodes: pl.DataFrame,
    culprits: pl.DataFrame,
    quota_of: dict[int, str],
    names: SameNames,
) -> list[str]:
    """A sentence for each row of `episodes`, which has the columns of `starvation`.

    `quota_of` has the control group whose quota held a thread (utid) back; `names` says to which
    service threads belong where their name does not.
    """
    ran = (
        culprits.filter(pl.col("kind") == "thread")
        .sort("time", "utid", descending=[True, False])
        .group_by("episode", "comm", maintain_order=True)
        .agg(pl.col("time").sum(), pl.col("utid"))
        .sort("episode", "time", "comm", descending=[False, True, False])
        .group_by("episode", maintain_order=True)
        .agg(pl.col("comm", "time", "utid").head(2))
    )
    most: dict[int, list[_Ran]] = {
        episode: [_Ran(*one) for one in zip(*lists, strict=True)]
        for episode, *lists in ran.iter_rows()
    }
    return [
        _story(row, most.get(row["episode"], []), quota_of.get(row["utid"]), names)
        for row in episodes.iter_rows(named=True)
    ]


class _Ran(NamedTuple):
    """Threads of one name, in one episode."""

    comm: str
    time: int
    utids: list[int]


def _story(row: dict[str, Any], ran: list[_Ran], quota: str | None, names: SameNames) -> str:
    who = (
        printable(row["comm"]) or f"thread {row['tid'] if row['tid'] is not None else row['utid']}"
    ) + names.whose([row["utid"]])
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
    if (row["throttled"] or 0) >= _MOSTLY * (row["wait"] or 1):
        # The threads that ran meanwhile were not the cause.
        return f"{who}{prio} {verb}{_queue(row)}, {_throttled(row, quota)}"
    rest = f"{_behind(row, ran, names)}{_elsewhere(row)}"
    if (row["throttled_high"] or 0) >= _WORTH * (row["wait"] or 1):
        rest += f", {_throttled(row, quota)}"
    return f"{who}{prio} {verb}{_queue(row)}{rest}"


def _throttled(row: dict[str, Any], quota: str | None) -> str:
    least, most = (
        "all" if row[name] == row["wait"] else duration(row[name])
        for name in ("throttled", "throttled_high")
    )
    if not row["throttled"]:
        how_much = f"perhaps {most}"
    else:
        how_much = least if least == most else f"at least {least}"
    return f"{how_much} of it throttled by the CPU quota of {printable(quota or '?')}"


def _queue(row: dict[str, Any]) -> str:
    if row["cpu"] is None:
        return " on a shared queue"
    if "," in row["cpus"]:
        return f" on CPUs {row['cpus'].replace(',', ', ')}"
    return f" on CPU {row['cpu']}"


def _behind(row: dict[str, Any], ran: list[_Ran], names: SameNames) -> str:
    wait = row["wait"] or 1
    parts = []
    if row["culprit"] is not None:
        whose = names.whose(ran[0].utids)
        parts.append(_one(row["culprit"], whose, row["culprit_threads"], row["culprit_frac"]))
    if len(ran) > 1 and row["culprit_frac"] < 0.5:
        parts.append(_one(ran[1].comm, names.whose(ran[1].utids), 1, ran[1].time / wait))
    text = f" behind {' and '.join(parts)}" if parts else ""
    if row["idle"] >= _WORTH * wait:
        text += f"{', ' if parts else ' while '}its own CPU idle for {duration(row['idle'])}"
    if row["unknown"] >= _WORTH * wait:
        text += f" ({duration(row['unknown'])} of it unknown)"
    return text


def _one(comm: str, whose: str, threads: int, share: float) -> str:
    several = f"{threads} threads, " if threads > 1 else ""
    return f"{printable(comm) or 'a nameless thread'}{whose} ({several}{_percent(share)})"


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
