"""What if one setting were different: recorded, replayed as it was, and replayed changed.

The trace is replayed twice (`runs.replay`): as it was configured, which must come out as it was
recorded, and with the change. How far the first is from the recording shows how far
the second can be trusted, for each service.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from schedscope.analysis.asking.arguments import check_traces
from schedscope.analysis.threads.of_threads import Where, where_in
from schedscope.errors import UsageError
from schedscope.simulator.changes.alternatives import Alternative, alternatives
from schedscope.simulator.changes.change import Changed, change
from schedscope.simulator.changes.ranges import RANGES, extremes, of_change
from schedscope.simulator.changes.time_limited import is_time_limited, paces, throughput
from schedscope.simulator.changes.verdicts import (
    BOUND,
    BRIEF,
    FAMILY,
    FIGURES,
    MODELS,
    RATE,
    REFUSED,
    SAME,
    VERDICTS,
    factor,
    model_apart,
    of_cause,
    of_test,
    off,
    times,
    unsure,
    verdict,
    worst,
)
from schedscope.simulator.changes.wait_causes import (
    THREADS,
    Shares,
    lifted,
    shares,
    touched,
    without_quota,
)
from schedscope.simulator.closeness.spread import spreads
from schedscope.simulator.policies.policy import Policy
from schedscope.simulator.runs.background_choice import LITTLE
from schedscope.simulator.runs.nearest_way import nearest_ways
from schedscope.simulator.runs.repeated import REPLAYS, check_repeated, repeated
from schedscope.simulator.runs.replay import LONGER, Replay
from schedscope.simulator.runs.run import Progress
from schedscope.simulator.runs.services import (
    NOTHING,
    check_by,
    figures,
    median_of,
    replayed_services,
)
from schedscope.store.trace import Trace

FEW_REPLAYS = 2
"""Replays of the change under each other extraction: they widen a range, and are no median."""

AS_WELL = 1.1
"""Another extraction explains a recording as well if its replay is off by at most this many times
the factor by which the first one is, in the figure that is off most."""

ENDS = ("low", "high")

CONFIGURATIONS = ("recorded", "replayed", "changed")

SCHEMA = pl.Schema(
    {
        "configuration": pl.Enum(CONFIGURATIONS),
        "threads": pl.Int64(),
        "alive": pl.Int64(),
        "cpu_time": pl.Int64(),
        "cpu_time_low": pl.Int64(),
        "cpu_time_high": pl.Int64(),
        "n_waits": pl.Int64(),
        "waiting": pl.Int64(),
        "waiting_low": pl.Int64(),
        "waiting_high": pl.Int64(),
        "wait_mean": pl.Int64(),
        "wait_p50": pl.Int64(),
        "wait_p50_low": pl.Int64(),
        "wait_p50_high": pl.Int64(),
        "wait_p99": pl.Int64(),
        "wait_p99_low": pl.Int64(),
        "wait_p99_high": pl.Int64(),
        "completion": pl.Int64(),
        "throughput": pl.Float64(),
        "throughput_low": pl.Float64(),
        "throughput_high": pl.Float64(),
        **{f"{key}_alike_{end}": pl.Int64() for key in RANGES for end in ENDS},
        **{f"{RATE}_alike_{end}": pl.Float64() for end in ENDS},
        "replay_error": pl.Float64(),
        "p99_error": pl.Float64(),
        "verdict": pl.Enum(VERDICTS),
        **{f"{figure}_verdict": pl.Enum(VERDICTS) for figure in (*FIGURES, RATE)},
        "cause": pl.String(),
        "cause_recorded": pl.Float64(),
        "cause_replayed": pl.Float64(),
        "cause_error": pl.Float64(),
        "tested_on": pl.Int64(),
        "tested_mean": pl.Int64(),
        "tested_p99": pl.Int64(),
        "test_error": pl.Float64(),
        "test_p99_error": pl.Float64(),
        "unclear": pl.String(),
        "crowd": pl.Float64(),
        "model": pl.Enum(MODELS),
        "others_share": pl.Float64(),
    }
)


def whatif(
    trace: Trace | Sequence[Trace],
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
    by: str = "comm",
    where: Where = None,
    others: str | None = None,
    replays: int = REPLAYS,
    seed: int = 1,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """Three rows per service: as recorded, replayed as it was, and replayed with the change.

    `trace` may be several captures of the same workload, at best five.

    The change is one or more of these:

    * another `policy` (of a family, the recorded kernel's own, else its newest; an object of your
      own class; or "path/to/file.py:Class"), another number of `cpus`, another `slice`, other
      tunables (`set`);
    * other nice values of threads (`set_nice={"nginx": -5}`: `*` and `?` stand for any text and
      one character, and a number is a thread id; or with a word of the selections in front:
      "process:java", "service:nginx.service", "cgroup:/web", "tree:4711"), other scheduling classes
      (`set_class={"web": "rr:50"}`: fair, batch, idle, fifo:N or rr:N), slices of their own
      (`set_slice={"web": "500us"}`, EEVDF from 6.12 on), other masks (`pin={"web": "0-1"}`; of
      a "cgroup:" or "service:" this is its cpuset);
    * other weights of control groups (`set_weight={"/web": 200}`, as in `cpu.weight`) and quotas
      of CPU time (`quota={"/web": "50%"}` of one CPU, "20ms/100ms" in each period, "none"), where
      threads get a group of their own; threads in another group (`move={"nginx": "/batch"}`; "/" is
      none); sessions without a share of the CPU time of their own (`autogroup="off"`);
    * `add_load`: this many more threads that want a CPU all the time, load-0, load-1 and so on,
      which the other changes may name. Where threads are in control groups or sessions, these are
      in one of their own, `/load`, of the usual weight.

    With `where`, an expression over columns of `threads` or a function of a trace that makes one,
    the answer is about these threads. `others` says what the others do: "replay" as they did, or
    take the CPU time that they took, "occupy" before all fair threads or "compete" as one of them;
    None is whichever comes closest to the recording when the recorded configuration is replayed.
    `by` says what a service is: one of comm, name (worker-12 is worker-*), process_name, cgroup and
    service (the unit or container that the control group names).

    Each configuration is replayed `replays` times, with the seeds from `seed` on and with clock
    ticks at evenly spaced instants of their period, the first as in the recording.

    If all threads of a service ended in the recording, it is followed to its end, for up to four
    times the length of the recording. The figures of any other service are those of a window as
    long as the recording. Columns:

    * the service; `configuration`: recorded, replayed or changed; `threads`, and how many of them
      were `alive` at once;
    * `cpu_time`: CPU time;
    * `throughput`: of services that run for a time and not for an amount of work (closed-loop
      clients and their servers), rounds of their loop per second, which end where a thread of the
      recording slept; null of others. With the change these have no CPU time, which follows from
      how many rounds there are, and `throughput_verdict` in place of `cpu_time_verdict`;
    * `n_waits`, `waiting`, `wait_mean`, `wait_p50`, `wait_p99`: waits for a CPU that ended, all
      time spent waiting for one, the mean, the median and the 99th percentile of the waits;
    * `completion`: when the service's last thread ended; null if not all did;
    * `*_low`, `*_high`: the extremes over the replays. For `changed` they are the range in which
      90 % of recordings should lie, which is wider by two factors: the one by which the replay of
      the recorded configuration is off in that very figure (times below 20 us count as that), and
      the one by which recordings of one workload lie apart (`APART`). They are combined as the
      root of the sum of the squared logarithms. In a doubtful answer the ranges of waiting are
      wider by `replay_error`, if that is more;
    * `*_alike_low`, `*_alike_high`: the range of `changed` among recordings in which others take as
      much of the CPU time as in this one (the middle one of several), give or take `ALIKE`;
    * `replay_error`: replayed over recorded, or its inverse, for `cpu_time` or `waiting`, whichever
      factor is larger; quantities below 0.1 % of the machine's time count as that;
    * `p99_error`: the same of `wait_p99`, times below 20 us counting as that;
    * `cpu_time_verdict`, `n_waits_verdict`, `waiting_verdict`, `wait_p50_verdict`,
      `wait_p99_verdict`: of each figure by that factor in the same figure: `good` up to 1.25,
      `doubtful` up to 2, else `refused`, and then the figure of `changed` is null;
    * `cause`, `cause_recorded`, `cause_replayed`, `cause_error`: the cause of waits that the change
      is about ("throttled": a quota; "behind": other threads), its share of the waiting in the
      recording and in the replay of the recorded configuration, and the factor between them (for a
      quota also between what is left);
    * `tested_on`, `tested_mean`, `tested_p99`: where a quota is taken away, how many waits the
      recording has at times when it throttled no thread, and how long they were; `test_error`,
      `test_p99_error`: how many times as long as those predicted, at least 1;
    * `unclear`: what the recording does not show, and by which a figure of the answer differs more
      than twofold: the ranges span all extractions that replay the recording as well, and such a
      figure is not good;
    * `crowd`: how many times as many threads are alive at once as ever in the recording; 1 if no
      more are;
    * `model`: whether the change is under the `same` policy as recorded, another `version` of it or
      one of another `family`, about which the replay of the recorded configuration says nothing:
      then no figure is good;
    * `others_share`: the share of CPU time that was not the recorded command's, or not that of the
      selected threads, in the middle one of several captures: ranges from fewer than three are
      wider by it;
    * `verdict`: `good` if all figures are, `refused` if CPU time or waiting is, else `doubtful`.
      All figures are as bad as `cause_error` and `test_error` are by the same factors, and as the
      factor by which more threads are alive at once than ever in the recording: whatever limited
      them is not in the trace. In a refused answer all figures of `changed` are null.

    Figures of replays are medians. With several captures each figure is the median of theirs, and
    `replay_error` compares these medians. `*_low` and `*_high` of `recorded` are the captures'
    extremes. From three captures on, the range of `changed` is the one in which one more recording
    would lie in 90 % of cases (Student's t on the logarithms). Recordings with the change are
    taken to lie as far apart as those without it, or as the replays with it, whichever is more. If
    the error of the replays of the recorded configuration is there again, it is taken to be on the
    same side; in a doubtful answer waits may be off by `replay_error` in either direction.

    Services are in order of waiting and CPU time, the largest first. `whatif_notes` says what the
    recording does not show.

    Raises `UsageError` if nothing is changed, or for a thread, group or CPU that does not exist,
    and `MissingEventsError` for a trace without wakeups.
    """
    check_traces(trace, "whatif")
    traces = [trace] if isinstance(trace, Trace) else list(trace)
    ways = nearest_ways(traces, [where_in(one, where) for one in traces], others)
    asked: dict[str, Any] = {
        "policy": policy,
        "cpus": cpus,
        "set_nice": set_nice,
        "set_class": set_class,
        "set_slice": set_slice,
        "pin": pin,
        "set_weight": set_weight,
        "quota": quota,
        "move": move,
        "autogroup": autogroup,
        "uclamp": uclamp,
        "slice": slice,
        "add_load": add_load,
        "set": set,
    }
    wanted = [change(way, **asked) for way in ways]
    other = [alternatives(way, asked, others) for way in ways]
    return answers(ways, wanted, by=by, replays=replays, seed=seed, progress=progress, other=other)


def answer(
    way: Replay,
    wanted: Changed,
    *,
    other: Sequence[Alternative] = (),
    by: str = "comm",
    replays: int = REPLAYS,
    seed: int = 1,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """`whatif` of a change that has been checked already."""
    return answers(
        [way], [wanted], by=by, replays=replays, seed=seed, progress=progress, other=[other]
    )


def answers(
    ways: Sequence[Replay],
    wanted: Sequence[Changed],
    *,
    by: str = "comm",
    replays: int = REPLAYS,
    seed: int = 1,
    progress: Progress | None = None,
    were: Sequence[AsItWas] | None = None,
    other: Sequence[Sequence[Alternative]] = (),
) -> pl.DataFrame:
    """The same of several captures of one workload, each with its change.

    `were`: what `as_it_was` says of each, if it is known already from another change. `other`: of
    each, other extractions, under which the change is replayed, too.
    """
    if not ways:
        raise UsageError("no capture", "at least one")
    check_repeated(ways, replays, "whatif")
    check_by(by)
    if were is None:
        were = [as_it_was(way, by, replays, seed, progress) for way in ways]
    said = [
        gathered(way, change, was, extracted, by, replays, seed, progress)
        for way, was, change, extracted in zip(
            ways, were, wanted, other or [()] * len(ways), strict=True
        )
    ]
    return combine(said, by)


def gathered(
    way: Replay,
    wanted: Changed,
    was: AsItWas,
    other: Sequence[Alternative] = (),
    by: str = "comm",
    replays: int = REPLAYS,
    seed: int = 1,
    progress: Progress | None = None,
) -> Asked:
    """The result of one capture for the change."""
    rest = (by, replays, seed, progress)
    return Asked(
        was,
        _replayed(way, wanted, was.recorded, *rest),
        touched(way, wanted),
        without_quota(way.trace, _named(way, by), lifted(way, wanted)),
        [_other(one, was.recorded, *rest) for one in other],
        model_apart(way.policy, wanted.policy),
    )


@dataclass(frozen=True)
class AsItWas:
    """The result of one capture for each service: how many threads, as recorded, and each
    replay.
    """

    sizes: dict[str, int]
    recorded: dict[str, dict[str, Any]]
    replayed: list[dict[str, dict[str, Any]]]
    floor: float
    causes: tuple[Shares, Shares] = ({}, {})
    """Of what waits consisted in the recording, and in its first replay."""
    paces: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """How each service goes round its loop, in the recording."""
    spreads: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """How far other recordings lie from this one."""


@dataclass(frozen=True)
class Asked:
    """The same, and each replay with the change."""

    was: AsItWas
    changed: list[dict[str, dict[str, Any]]]
    cause: str = THREADS
    """What the change touches."""
    tested: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Waits at times of the recording without that cause."""
    other: Sequence[Other] = ()
    """What other extractions say."""
    model: str = SAME
    """How far the policy of the change is from the recorded one."""


@dataclass(frozen=True)
class Other:
    """The result of another extraction for each service: its replay as it was, and with the
    change.
    """

    unclear: str
    """What the recording does not show, and how it is recorded."""
    replayed: dict[str, dict[str, Any]]
    changed: list[dict[str, dict[str, Any]]]


def _other(
    one: Alternative,
    recorded: Mapping[str, Mapping[str, Any]],
    by: str,
    replays: int,
    seed: int,
    progress: Progress | None,
) -> Other:
    (replayed,) = _replayed(one.way, change_of_nothing(one.way), recorded, by, 1, seed, progress)
    few = min(replays, FEW_REPLAYS)
    changed = _replayed(one.way, one.wanted, recorded, by, few, seed, progress)
    return Other(f"{one.unclear} ({one.record})", replayed, changed)


def as_it_was(
    way: Replay,
    by: str = "comm",
    replays: int = REPLAYS,
    seed: int = 1,
    progress: Progress | None = None,
) -> AsItWas:
    """The recording, and replays of the recorded configuration."""
    named = replayed_services(way, by)
    recorded = figures(way.trace, _named(way, by))
    sizes = named.filter(pl.col("service").is_not_null()).group_by("service").len()
    causes = [shares(way.trace, _named(way, by))]
    replayed = _replayed(way, change_of_nothing(way), recorded, by, replays, seed, progress, causes)
    floor = LITTLE * way.trace.duration * way.trace.ncpu
    return AsItWas(
        dict(sizes.iter_rows()),
        recorded,
        replayed,
        floor,
        causes=(causes[0], causes[1]),
        paces=paces(way.trace, _named(way, by)),
        spreads=spreads(way, _named(way, by)),
    )


def _named(way: Replay, by: str) -> pl.DataFrame:
    """The service of each thread of the recording that is replayed."""
    return replayed_services(way, by).drop_nulls("utid").select("utid", "service")


def _replayed(
    way: Replay,
    config: Changed,
    recorded: Mapping[str, Mapping[str, Any]],
    by: str,
    replays: int,
    seed: int,
    progress: Progress | None,
    causes: list[Shares] | None = None,
) -> list[dict[str, dict[str, Any]]]:
    """Figures of each service in each replay; those that ended are followed to their end.

    Adds to `causes` what the waits of the first replay consisted of.
    """
    named = replayed_services(way, by)
    whole = [name for name, row in recorded.items() if row["completion"] is not None]
    found = []
    for i, run in enumerate(_runs(way, config, replays, seed, progress)):
        there = named.select(utid=(pl.col("row") + run.ncpu).cast(pl.UInt32), service="service")
        found.append(figures(run, there, whole, way.trace.duration))
        if i == 0 and causes is not None:
            longer = run.duration > way.trace.duration + 1
            window = run.between(until=f"{way.trace.duration}ns") if longer else run
            causes.append(shares(window, there))
    return found


def combine(captures: Sequence[Asked], by: str) -> pl.DataFrame:
    """The table of what several captures of one workload say: of each figure the median."""
    floor = sum(one.was.floor for one in captures) / len(captures)
    rows = []
    weight = {}
    for service in sorted({name for one in captures for name in one.was.sizes}):
        said = [_of(one, service) for one in captures]
        own = median_of([one["recorded"] for one in said])
        middle, then = (median_of([one[of] for one in said]) for of in ("replayed", "changed"))
        weight[service] = (own["waiting"] or 0, own["cpu_time"] or 0)
        apart = off(own, middle, floor)
        sums = max(apart["cpu_time"], apart["waiting"])
        # A figure may be far off although it is too small for the verdict, or although its sum is
        # not off.
        errors = {key: times(own[key], middle[key], BRIEF) for key in RANGES}
        errors[RATE] = times(own[RATE], middle[RATE], 1.0)
        sizes = sorted(one.was.sizes.get(service, 0) for one in captures)
        head = {by: service, "threads": sizes[len(sizes) // 2]}
        first = {**head, "configuration": "recorded", **own}
        if len(captures) > 1:
            first |= extremes([one["recorded"] for one in said])
        head |= {"replay_error": sums, "p99_error": factor(errors["wait_p99"])}
        second = {**head, "configuration": "replayed", **middle}
        second |= extremes([run for one in said for run in one["replays"]])
        recorded, replayed = ([one.was.causes[i] for one in captures] for i in (0, 1))
        last = {**head, "configuration": "changed"}
        last |= of_cause(recorded, replayed, service, captures[0].cause, floor)
        last |= of_test([one.tested for one in captures], service, then)
        doubt = sums if sums > BOUND else 1
        fitted = _mean_square([one.was.spreads.get(service, {}) for one in captures])
        shares_seen = [one["fitted"]["outside"] for one in said if one["fitted"]]
        last["others_share"] = statistics.median(shares_seen) if shares_seen else None
        crossed = captures[0].model != SAME
        widest = of_change(said, errors, doubt, fitted, crossed=crossed)
        unclear: dict[str, set[str]] = {}
        for text, same in _explained(captures, said, service, floor).items():
            widest = _spanning(widest, of_change(same, errors, doubt, fitted, crossed=crossed))
            there = off(then, median_of([one["changed"] for one in same]), floor)
            if apart_by := {key for key in FIGURES if there[key] > REFUSED}:
                unclear[text] = apart_by
        not_good = set().union(*unclear.values(), unsure(then, widest) if fitted else ())
        last["model"] = captures[0].model
        if last["model"] == FAMILY:
            not_good |= {*FIGURES, RATE}
        last["crowd"] = _crowd(own["alive"], then["alive"])
        last |= _verdicts(apart, last, not_good)
        last["unclear"] = " and ".join(unclear) or None
        if last["verdict"] != "refused":
            last |= {**then, **widest}
            for key in FIGURES:
                if last[f"{key}_verdict"] == "refused":
                    last |= dict.fromkeys(_of_figure(key))
                    if key == "waiting":
                        last["wait_mean"] = None
            last = {key: value for key, value in last.items() if key in {by, *SCHEMA}}
        known = [one.was.paces[service] for one in captures if service in one.was.paces]
        if is_time_limited(known, [one["recorded"]["cpu_time"] for one in said]):
            if last["verdict"] != "refused":
                last["throughput_verdict"] = worst(
                    [verdict(apart[RATE]), "doubtful" if RATE in not_good else "good"]
                )
                last |= dict.fromkeys(_OF_WORK)
                if last["throughput_verdict"] == "refused":
                    last |= dict.fromkeys(_OF_RATE)
        else:
            for row in (first, second, last):
                row |= dict.fromkeys(_OF_RATE)
        rows += [first, second, last]
    rows.sort(
        key=lambda row: (
            *(-x for x in weight[row[by]]),
            row[by],
            CONFIGURATIONS.index(row["configuration"]),
        )
    )
    return pl.DataFrame(rows, schema={by: pl.String(), **SCHEMA})


def _of_figure(key: str) -> tuple[str, ...]:
    """A figure and the ends of its ranges."""
    return (key, *(f"{key}{alike}_{end}" for alike in ("", "_alike") for end in ENDS))


_OF_WORK = (*_of_figure("cpu_time"), "cpu_time_verdict")
_OF_RATE = _of_figure(RATE)


def _of(capture: Asked, service: str) -> dict[str, Any]:
    replays = [_with_rate(capture, service, run) for run in capture.was.replayed]
    changes = [_with_rate(capture, service, run) for run in capture.changed]
    return {
        "recorded": _with_rate(capture, service, capture.was.recorded),
        "replays": replays,
        "changes": changes,
        "replayed": median_of(replays),
        "changed": median_of(changes),
        "fitted": capture.was.spreads.get(service, {}),
    }


def _explained(
    captures: Sequence[Asked], said: Sequence[Mapping[str, Any]], service: str, floor: float
) -> dict[str, list[dict[str, Any]]]:
    """Figures of a service from other extractions that replay its recording equally well, by what
    is unclear: of each capture, of which some may have no such extraction.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for i, (capture, one) in enumerate(zip(captures, said, strict=True)):
        base = max(off(one["recorded"], one["replayed"], floor).values())
        for other in capture.other:
            there = off(one["recorded"], _with_rate(capture, service, other.replayed), floor)
            if max(there.values()) > AS_WELL * base:
                continue
            changes = [_with_rate(capture, service, run) for run in other.changed]
            of_all = found.setdefault(other.unclear, [dict(each) for each in said])
            of_all[i] |= {"changes": changes, "changed": median_of(changes)}
    return found


def _mean_square(captures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The quadratic mean of each spread over captures."""
    keys = dict.fromkeys(key for one in captures for key in one)
    return {
        key: math.sqrt(sum(one.get(key, 0.0) ** 2 for one in captures) / len(captures))
        for key in keys
    }


def _spanning(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The ranges that include those of both."""
    found = {}
    for key, value in one.items():
        known = [each for each in (value, other[key]) if each is not None]
        pick = min if key.endswith("_low") else max
        found[key] = pick(known) if known else None
    return found


def _verdicts(
    apart: Mapping[str, float], row: Mapping[str, Any], not_good: Collection[str]
) -> dict[str, str]:
    """The verdict of each figure, and of all of them.

    The whole is refused if the sums, the cause or the test are off by too much; for a single figure
    only that one is.
    """
    of_all = max(row["crowd"], row.get("cause_error", 1), row.get("test_error", 1))
    unknown = "cause" in row and "cause_error" not in row
    base = worst([verdict(of_all), "doubtful" if unknown else "good"])
    found = {
        f"{key}_verdict": worst(
            [base, verdict(apart[key]), "doubtful" if key in not_good else "good"]
        )
        for key in FIGURES
    }
    tail = verdict(row.get("test_p99_error", 1))
    found["wait_p99_verdict"] = worst([found["wait_p99_verdict"], tail])
    whole = worst([base, *(found[f"{key}_verdict"] for key in ("cpu_time", "waiting"))])
    if whole == "refused":
        return {**dict.fromkeys(found, whole), "verdict": whole}
    return {**found, "verdict": "good" if set(found.values()) == {"good"} else "doubtful"}


def _with_rate(
    capture: Asked, service: str, run: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The figures of a service in a run, with its throughput."""
    found, pace = dict(run.get(service, NOTHING)), capture.was.paces.get(service)
    if pace:
        recorded = capture.was.recorded.get(service, NOTHING)
        found[RATE] = throughput(pace, recorded, found)
    return found


def _crowd(recorded: int, changed: int) -> float:
    """How many times as many threads were alive at once; a few more do not matter."""
    return changed / max(1, recorded) if changed > recorded + 2 else 1


def change_of_nothing(way: Replay) -> Changed:
    """The configuration that was recorded."""
    shape = way.workload.machine
    assert shape is not None  # a workload from a trace has one
    return Changed(way.workload, shape, way.policy, way.settings(way.policy), [])


def _runs(
    way: Replay, config: Changed, replays: int, seed: int, progress: Progress | None
) -> list[Trace]:
    return list(
        repeated(
            way,
            policy=config.policy,
            set=config.set,
            replays=replays,
            until=f"{LONGER * way.trace.duration}ns",
            workload=config.workload,
            machine=config.machine,
            seed=seed,
            progress=progress,
        )
    )
