"""What `whatif` changes, of threads, groups, machine and policy; applied to a replay."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import polars as pl

from schedscope.analysis.asking.arguments import by_name
from schedscope.analysis.asking.policies import declaration
from schedscope.analysis.cpus import topology
from schedscope.errors import UsageError
from schedscope.simulator.changes.added_load import with_load
from schedscope.simulator.changes.groups import Matching, autogrouped, limited, moved, weighted
from schedscope.simulator.policies.policy import Policy, called, tunables
from schedscope.simulator.recorded.scheduler import policy_asked
from schedscope.simulator.runs.fitted import cpus_of, fitted
from schedscope.simulator.runs.named_threads import kind_of, matching
from schedscope.simulator.runs.replay import Replay
from schedscope.simulator.workloads.groups import keeps_quotas, knows_groups
from schedscope.simulator.workloads.machine import MOST_CPUS, Machine, machine as _machine
from schedscope.simulator.workloads.workload import LONGEST_SLICE, SHORTEST_SLICE, Workload
from schedscope.units import duration, nanoseconds

SLICES = ("base_slice", "quantum", "rr_interval", "slice")
"""What policies call the longest time that a thread runs while others of its kind wait."""


@dataclass(frozen=True)
class Changed:
    """The configuration asked for, ready to run; `words` says what it changes."""

    workload: Workload
    machine: Machine
    policy: str | Policy
    set: dict[str, Any]
    words: list[str]


def change(
    way: Replay,
    *,
    policy: str | Policy | None = None,
    cpus: int | None = None,
    set_nice: Mapping[str, int] | None = None,
    set_class: Mapping[str, str] | None = None,
    set_slice: Mapping[str, str | int] | None = None,
    pin: Mapping[str, str] | None = None,
    set_weight: Mapping[str, float] | None = None,
    quota: Mapping[str, str] | None = None,
    move: Mapping[str, str] | None = None,
    autogroup: str | None = None,
    uclamp: Mapping[str, str] | None = None,
    slice: str | int | None = None,
    add_load: int | None = None,
    set: Mapping[str, Any] | None = None,
) -> Changed:
    """`way` with these changes; threads are named as `named_threads` says.

    Raises `UsageError` if nothing is asked for, for a thread, group or CPU that is not there, for
    contradictory changes, and for what the policy cannot do.
    """
    for given, values, example in (
        ("set_nice", set_nice, '{"nginx": -5}'),
        ("set_class", set_class, '{"batch": "idle"}'),
        ("set_slice", set_slice, '{"nginx": "1ms"}'),
        ("pin", pin, '{"nginx": "0-1"}'),
        ("set_weight", set_weight, '{"/batch": 200}'),
        ("quota", quota, '{"/batch": "50%"}'),
        ("move", move, '{"nginx": "/batch"}'),
        ("uclamp", uclamp, '{"nginx": "50%"}'),
        ("set", set, '{"run_to_parity": False}'),
    ):
        by_name(given, values, example)
    mine: Matching = partial(matching, way)
    words: list[str] = []
    name = way.policy if policy is None else policy_asked(way.trace, policy)
    settings = way.settings(name)
    if policy is not None:
        words.append(f"policy {called(name)}")
    shape = way.workload.machine or _machine(way.trace.ncpu)
    if cpus is not None:
        if isinstance(cpus, bool) or not isinstance(cpus, int) or not 1 <= cpus <= MOST_CPUS:
            raise UsageError(f"cpus={cpus!r}", f"a number of CPUs from 1 to {MOST_CPUS}")
        phase = shape.tick_phase
        shape = replace(_machine(cpus), tick_phase=phase)
        online = (
            ", online all along" if way.workload.machine and way.workload.machine.outages else ""
        )
        words.append(f"{cpus} CPU{'s' if cpus > 1 else ''}{online}")
    workload = way.workload
    if add_load is not None:
        workload, more = with_load(workload, add_load)
        words += more
    if set_class:
        workload = _reclassed(workload, mine, set_class, name)
        words += [f"{who!r} in class {what}" for who, what in set_class.items()]
    if set_nice:
        workload = _reniced(workload, mine, set_nice)
        words += [f"{who!r} at nice {nice}" for who, nice in set_nice.items()]
    if set_slice:
        workload = _resliced(workload, mine, set_slice, name, {**settings, **(set or {})})
        words += [f"{who!r} with a slice of {text}" for who, text in set_slice.items()]
    if pin:
        workload = _pinned(workload, mine, pin, shape)
        words += [f"{who!r} on CPUs {where}{_away(where, shape)}" for who, where in pin.items()]
    if uclamp:
        raise UsageError(
            "uclamp",
            "a change that a model knows",
            "it asks for a speed of the CPU, or for a larger CPU, and replays have neither",
        )
    if (set_weight or quota or move or autogroup is not None) and not knows_groups(name):
        raise UsageError(
            f"control groups and sessions under {called(name)}",
            "a policy of the family eevdf or cfs",
            "it has no groups",
        )
    if quota and not keeps_quotas(name, {**settings, **(set or {})}):
        raise UsageError(
            f"a quota under {called(name)}",
            "a policy of the family eevdf or cfs",
            "it keeps no quotas",
        )
    if autogroup is not None:
        workload, more = autogrouped(workload, autogroup)
        words += more
    if move:
        workload, more = moved(workload, move, mine)
        words += more
    if set_weight:
        workload, more = weighted(workload, set_weight, mine)
        words += more
    if quota:
        workload, more = limited(workload, quota, mine)
        words += more
    if cpus is not None:
        workload = fitted(workload, way, shape.ncpu)
    if slice is not None:
        settings.update(_slice(name, slice, settings))
        words.append(f"a slice of {duration(nanoseconds(slice))}")
    for key, value in (set or {}).items():
        settings[key] = value
        words.append(f"{key}={value}")
    if not words:
        raise UsageError(
            "no change", "something to change", "as in --set-nice NAME=N, --cpus N or --policy NAME"
        )
    return Changed(workload, shape, name, settings, words)


def _each_once(
    workload: Workload, matching: Matching, asked: Mapping[str, Any], what: str
) -> list[tuple[str, Any, pl.Series]]:
    """The threads of each name; raises `UsageError` if two of different values name one thread."""
    found: list[tuple[str, Any, pl.Series]] = []
    for who, value in asked.items():
        mine = matching(workload, str(who))
        for other, its, theirs in found:
            if its != value and (mine & theirs).any():
                twice = workload.threads.filter(mine & theirs)["name"][0]
                raise UsageError(
                    f"{twice!r} is given {what} {its} by {other!r} and {value} by {who!r}",
                    "one of them",
                )
        found.append((str(who), value, mine))
    return found


def _reniced(workload: Workload, matching: Matching, asked: Mapping[str, int]) -> Workload:
    threads, steps = workload.threads, workload.steps
    for who, nice, mine in _each_once(workload, matching, asked, "nice"):
        if isinstance(nice, bool) or not isinstance(nice, int) or not -20 <= nice <= 19:
            raise UsageError(f"nice {nice!r} of {who!r}", "a whole number from -20 to 19")
        fair = mine & threads["class"].cast(pl.String).is_in(["fair", "batch"])
        if not fair.any():
            raise UsageError(f"nice of {who!r}", "a thread of the fair class", "it has none")
        threads = threads.with_columns(
            nice=pl.when(fair).then(pl.lit(nice, pl.Int8)).otherwise(pl.col("nice"))
        )
        # Settings changed during the recording would undo it.
        own = _own(threads, fair, "set_priority")
        own &= pl.col("class").cast(pl.String).is_in(["fair", "batch"])
        steps = steps.with_columns(
            nice=pl.when(own).then(pl.lit(nice, pl.Int8)).otherwise(pl.col("nice"))
        )
    return replace(workload, threads=threads, steps=steps)


def _reclassed(
    workload: Workload, matching: Matching, asked: Mapping[str, str], policy: str | Policy
) -> Workload:
    threads, steps = workload.threads, workload.steps
    for who, text, mine in _each_once(workload, matching, asked, "class"):
        name, level = _class(who, str(text))
        if level and isinstance(policy, str) and not declaration(policy)["strict_classes"]:
            raise UsageError(
                f"class {text} of {who!r}", "a policy with that class", f"not {policy}"
            )
        real_time = pl.lit(level, pl.UInt8)
        nice = pl.lit(0, pl.Int8) if level else pl.col("nice")
        new = {"class": pl.lit(name, threads["class"].dtype), "rt_prio": real_time, "nice": nice}
        threads = threads.with_columns(
            pl.when(mine).then(value).otherwise(pl.col(key)).alias(key)
            for key, value in new.items()
        )
        # Settings changed during the recording would undo it, except the nice value.
        own = _own(threads, mine, "set_priority")
        steps = steps.with_columns(
            pl.when(own).then(value).otherwise(pl.col(key)).alias(key) for key, value in new.items()
        )
    return replace(workload, threads=threads, steps=steps)


def _resliced(
    workload: Workload,
    matching: Matching,
    asked: Mapping[str, str | int],
    policy: str | Policy,
    settings: Mapping[str, Any],
) -> Workload:
    rows = tunables(policy).to_dicts() if isinstance(policy, str) else []
    own = {row["name"]: row["default"] for row in rows}.get("own_slices")
    if str(settings.get("own_slices", own)) not in ("on", "True"):
        raise UsageError(
            f"slices of threads under {called(policy)}",
            "eevdf of 6.12 or later",
            "--slice is for all",
        )
    threads = workload.threads
    for who, text, mine in _each_once(workload, matching, asked, "slice"):
        ns = nanoseconds(text)
        if not SHORTEST_SLICE <= ns <= LONGEST_SLICE:
            raise UsageError(f"slice {text} of {who!r}", "a time from 100us to 100ms")
        threads = threads.with_columns(
            slice=pl.when(mine).then(pl.lit(ns, pl.Int64)).otherwise(pl.col("slice"))
        )
    return replace(workload, threads=threads)


def _class(who: str, text: str) -> tuple[str, int]:
    """A scheduling class and its real-time priority, 0 for one that has none."""
    name, _, level = text.partition(":")
    if name in ("fifo", "rr") and re.fullmatch(r"[1-9][0-9]?", level):
        return name, int(level)
    if name in ("fair", "batch", "idle") and not _:
        return name, 0
    raise UsageError(
        f"class {text!r} of {who!r}",
        "fair, batch, idle, fifo:N or rr:N",
        "N is a priority from 1 to 99, as in rr:50",
    )


def _pinned(
    workload: Workload, matching: Matching, asked: Mapping[str, str], shape: Machine
) -> Workload:
    threads, steps = workload.threads, workload.steps
    for who, where, mine in _each_once(workload, matching, asked, "CPUs"):
        cpus = cpus_of(str(where))
        if not cpus or max(cpus) >= shape.ncpu:
            raise UsageError(
                f"CPUs {where!r} of {who!r}", f"CPUs from 0 to {shape.ncpu - 1}", "as in 0-1,3"
            )
        if set(cpus) <= set(shape.offline):
            online = set(range(shape.ncpu)) - set(shape.offline)
            raise UsageError(
                f"CPUs {where!r} of {who!r}, which were offline",
                f"one of CPUs {topology.cpu_text(online)}",
            )
        new = pl.lit(str(where))
        if kind_of(who)[0] in ("cgroup", "service"):
            new = _within(cpus, [*threads["cpus"], *steps["cpus"]])
        threads = threads.with_columns(cpus=pl.when(mine).then(new).otherwise(pl.col("cpus")))
        # Settings changed during the recording would undo it.
        own = _own(threads, mine, "set_affinity")
        steps = steps.with_columns(cpus=pl.when(own).then(new).otherwise(pl.col("cpus")))
    return replace(workload, threads=threads, steps=steps)


def _within(cpus: Sequence[int], masks: Sequence[str | None]) -> pl.Expr:
    """Masks of threads whose group has this cpuset: the part of it that they asked for, else all of
    it.
    """
    whole = topology.cpu_text(set(cpus))
    left = {mask: set(cpus_of(mask)) & set(cpus) for mask in masks if mask}
    texts = {mask: topology.cpu_text(one) if one else whole for mask, one in left.items()}
    if not texts:
        return pl.lit(whole)
    return pl.col("cpus").replace_strict(texts, default=whole, return_dtype=pl.String)


def _away(where: str, shape: Machine) -> str:
    """Which of these CPUs are offline for a part of the time, when threads run on the others."""
    gone = {one.cpu for one in shape.outages} & set(cpus_of(str(where)))
    return f" (CPU {topology.cpu_text(gone)} offline at times)" if gone else ""


def _own(threads: pl.DataFrame, mine: pl.Series, op: str) -> pl.Expr:
    """The steps of this kind with which these threads change themselves."""
    programs = threads.filter(mine)["program"].implode()
    return pl.col("program").is_in(programs) & (pl.col("op") == op) & pl.col("thread").is_null()


def _slice(policy: str | Policy, value: str | int, settings: Mapping[str, Any]) -> dict[str, Any]:
    ns = nanoseconds(value)
    if ns <= 0:
        raise UsageError(f"a slice of {value}", "a time above 0")
    if isinstance(policy, Policy):
        raise UsageError(
            f"a slice of {value} for {policy.name}", "an attribute of the policy object instead"
        )
    rows = tunables(policy).select("name", "default", "unit").iter_rows()
    known = {name: (default, unit) for name, default, unit in rows}
    for name in SLICES:
        if name in known:
            if known[name][1] == "stat ticks":
                hz = int(settings.get("stathz", known["stathz"][0]))
                ticks = round(ns * hz / 1e9)
                if not ticks:
                    tick = duration(round(1e9 / hz))
                    raise UsageError(
                        f"a slice of {value} for {policy}",
                        f"a multiple of {tick}, the ticks in which it counts slices",
                    )
                return {name: ticks}
            # An explicit mask applies whatever the number of CPUs.
            whole = {"scaling": "off"} if "scaling" in known else {}
            return {name: f"{ns}ns", **whole}
    raise UsageError(
        f"a slice of {value} for {policy}",
        "a policy with one slice",
        "`schedscope simulate --policies` lists what it has instead, for --set NAME=VALUE",
    )
