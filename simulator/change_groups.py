"""What `whatif` changes of control groups: weights, and quotas of CPU time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches

import polars as pl

from schedscope.errors import UsageError
from schedscope.simulator.groups import GROUPS, PERIOD, WEIGHT
from schedscope.simulator.workload import Workload
from schedscope.units import duration, nanoseconds

Matching = Callable[[Workload, str], pl.Series]


def weighted(workload: Workload, asked: Mapping[str, float]) -> tuple[Workload, list[str]]:
    """The workload with these weights, and the change in words."""
    groups, words = workload.groups, []
    for path, weight in asked.items():
        whole = not isinstance(weight, bool) and isinstance(weight, (int, float))
        if not whole or not math.isfinite(weight) or not 1 <= weight <= 10_000:
            raise UsageError(f"weight {weight!r} of {path}", "a number from 1 to 10000")
        name = _group(groups, path)
        if name is None:
            raise _unknown(groups, path)
        here = pl.col("path") == name
        groups = groups.with_columns(
            weight=pl.when(here).then(pl.lit(float(weight))).otherwise(pl.col("weight"))
        )
        words.append(f"{name} at weight {weight:g}")
    return replace(workload, groups=groups), words


def limited(
    workload: Workload, asked: Mapping[str, str], matching: Matching
) -> tuple[Workload, list[str]]:
    """The workload with these quotas, and the change in words.

    A name that is no group's is one of threads (`matching` finds them), for which a group is made
    inside the one that they are in.
    """
    words = []
    for who, text in asked.items():
        path = _group(workload.groups, who)
        if path is None:
            if "/" in who:
                raise _unknown(workload.groups, who)
            workload, path = _in_own_group(workload, who, matching(workload, who))
        here = pl.col("path") == path
        (period,) = workload.groups.filter(here)["period"]
        quota, period = parse_quota(who, str(text), period or PERIOD)
        workload = replace(
            workload,
            groups=workload.groups.with_columns(
                quota=pl.when(here).then(pl.lit(quota, pl.Int64)).otherwise(pl.col("quota")),
                period=pl.when(here).then(pl.lit(period, pl.Int64)).otherwise(pl.col("period")),
            ),
        )
        limit = f"{duration(quota)} in each {duration(period)}" if quota else "no quota"
        words.append(f"{path} with {limit}")
    return workload, words


def parse_quota(who: str, text: str, period: int) -> tuple[int | None, int]:
    """Time and period of a quota, ns; of a part of a CPU in the period that there is.

    >>> parse_quota("web", "50%", 100_000_000), parse_quota("web", "20ms/50ms", 100_000_000)
    ((50000000, 100000000), (20000000, 50000000))
    """
    text = text.strip()
    if text in ("none", "max"):
        return None, period
    part = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)%", text)
    both = text.split("/")
    if part:
        quota = round(float(part[1]) / 100 * period)
    elif len(both) == 2 and all(re.match(r"[0-9]", one.strip()) for one in both):
        quota, period = nanoseconds(both[0].strip()), nanoseconds(both[1].strip())
    else:
        raise UsageError(
            f"quota {text!r} of {who!r}",
            "a part of a CPU, or a time in a period",
            "50% or 20ms/100ms",
        )
    if not 1_000_000 <= period <= 1_000_000_000:
        raise UsageError(f"quota {text} of {who!r}", "a period from 1 ms to 1 s")
    if not 1_000_000 <= quota < 2**52:
        raise UsageError(f"quota {text} of {who!r}", "1 ms or more in each period, or none")
    return quota, period


def _group(groups: pl.DataFrame, name: str) -> str | None:
    """The group that a path, or its last parts, names."""
    paths = groups["path"].to_list()
    if name in paths:
        return str(name)
    found = [path for path in paths if path.endswith("/" + name.strip("/"))]
    if len(found) > 1:
        raise UsageError(f"group {name!r}", "the path of one group", f"one of {', '.join(found)}")
    return found[0] if found else None


def _unknown(groups: pl.DataFrame, name: str) -> UsageError:
    paths = groups["path"].to_list()
    close = get_close_matches(name, paths, 3) or paths[:3]
    hint = f"there are {', '.join(close)}" if close else "the trace has none with a weight or quota"
    return UsageError(f"no control group {name!r}", "one that threads of the trace are in", hint)


def _in_own_group(workload: Workload, who: str, mine: pl.Series) -> tuple[Workload, str]:
    above = workload.threads.filter(mine)["group"].unique().to_list()
    if len(above) > 1:
        names = ", ".join(path or "none" for path in sorted(above, key=str))
        raise UsageError(
            f"a quota of {who!r}, which is in several groups", "threads of one group", f"in {names}"
        )
    path = f"{above[0] or ''}/{re.sub('[^A-Za-z0-9_.-]', '_', who)}"
    if path in workload.groups["path"]:
        raise UsageError(
            f"a quota of threads {who!r}", "another name", f"{path} is a group already"
        )
    row = {"path": path, "weight": WEIGHT, "period": PERIOD, "phase": 0}
    groups = pl.concat([workload.groups, pl.DataFrame([row], schema=GROUPS)])
    threads = workload.threads.with_columns(
        group=pl.when(mine).then(pl.lit(path)).otherwise(pl.col("group"))
    )
    # Moves of these threads would undo it.
    stay = ~pl.col("thread").is_in(mine.arg_true().implode())
    return replace(
        workload, threads=threads, groups=groups, moves=workload.moves.filter(stay)
    ), path


def without_sessions(workload: Workload) -> Workload:
    """As it would be with autogroup off: threads in the group of a session are in none."""
    session = r"^/autogroup-\d+$"
    return replace(
        workload,
        threads=workload.threads.with_columns(
            group=pl.when(~pl.col("group").str.contains(session)).then(pl.col("group"))
        ),
        groups=workload.groups.filter(~pl.col("path").str.contains(session)),
        moves=workload.moves.with_columns(
            group=pl.when(~pl.col("group").str.contains(session)).then(pl.col("group"))
        ),
    )
