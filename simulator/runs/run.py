"""Run a workload under a policy; the result is a trace."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import polars as pl

from schedscope import units
from schedscope.analysis.asking.arguments import by_name
from schedscope.analysis.threads.of_threads import Where, where_in
from schedscope.errors import UsageError
from schedscope.parsers.files import read_parquet
from schedscope.parsers.schema import TABLES
from schedscope.simulator.policies import policy as _policy
from schedscope.simulator.policies.scx_object import SchedExt
from schedscope.simulator.policies.watched import Watched
from schedscope.simulator.recorded.scheduler import policy_asked
from schedscope.simulator.runs.background_choice import nearest
from schedscope.simulator.runs.first_cpus import begun_under
from schedscope.simulator.runs.fitted import fitted
from schedscope.simulator.runs.quotas import add_quotas
from schedscope.simulator.workloads.groups import (
    engine_groups,
    engine_moves,
    ignored_groups,
    trace_groups,
)
from schedscope.simulator.workloads.machine import Costs, Machine, machine as _machine
from schedscope.simulator.workloads.workload import Workload, engine_pipes, engine_tables
from schedscope.store import cache
from schedscope.store.trace import Trace

Progress = Callable[[int, int], object]
"""Called now and then with the simulated ns and the engine events so far."""

MAX_EVENTS = 10_000_000_000
"""Engine events after which a simulation into a folder stops if nothing else is said."""

MAX_EVENTS_IN_MEMORY = 50_000_000
"""The same of one whose trace stays in memory: it takes some 80 bytes an event."""

DEFAULT_POLICY = "eevdf-6.12"
"""Of a workload that was not extracted from a trace."""

_POLICY_SERIES = "policy_series.parquet"


def simulate(
    source: Workload | Trace,
    *,
    policy: str | _policy.Policy | None = None,
    where: Where = None,
    others: str | None = None,
    cpus: int | None = None,
    machine: Machine | str | None = None,
    set: Mapping[str, Any] | None = None,
    costs: Costs | Mapping[str, Any] | None = None,
    seed: int = 1,
    until: str | None = None,
    max_events: int | None = None,
    record: bool = False,
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Trace:
    """Run `source` under `policy` and return the run as a trace.

    * `source`: a workload, or a trace. A trace is replayed as `runs.replay` says: on its own
      machine, at the costs measured in it, for as long as it lasted, with the clock and slice of
      its kernel, unless something else is given;
    * `policy`: a name of `policies()` (a family's name means the recorded kernel's own, else its
      newest policy), an object of a class derived from `Policy`, "path/to/file.py:Class",
      or a compiled scheduler of sched_ext (`ss.scx`, "file.bpf.o"). None
      means the model of the scheduler that the trace was recorded under, or `eevdf-6.12` for a
      workload;
    * `where`, `others`: which threads of a trace are replayed, and what the rest do, as in
      `whatif`; `info["workload"]["others"]` of the result says which it was;
    * `set`: values of the policy's tunables;
    * `cpus`: the number of equal CPUs; `machine`: a shape ("2x8x2"). Without both it is the trace's
      own machine, or 1 CPU for a workload;
    * `costs`: those of `Costs`;
    * `until`, a text such as "10s", ends the run at that simulated time;
    * `record` keeps the policy's internal series: see `policy_series`;
    * `output`: the `.sched` folder to write the trace to, an existing one only with `force`.

    The same input and `seed` give the same trace, byte for byte.

    Raises `UsageError` for a workload that cannot end: a signal that no thread sends (naming the
    threads that wait), a thread without an allowed CPU, a loop that takes no time, an endless
    program without `until`. Also for a run of more steps than `max_events` (by default
    `MAX_EVENTS_IN_MEMORY`, with `output` `MAX_EVENTS`) unless `until` is given: then the run ends
    at whichever comes first, and `info["simulation"]["ended"]` says which.

    >>> from schedscope.simulator.workloads.generators import hogs
    >>> trace = simulate(hogs(3, time="10ms"), policy="rr", cpus=2)
    >>> trace.duration, trace.info["simulation"]["switches"]
    (20000000, 5)
    """
    if max_events is None:
        max_events = MAX_EVENTS_IN_MEMORY if output is None else MAX_EVENTS
    _check(source, policy, seed, max_events)
    by_name("set", set, '{"base_slice": "3ms"}')
    if until is not None and not isinstance(until, str):
        raise UsageError(f"until={until!r}", "a time with its unit", 'as in until="10s"')
    end = None if until is None else units.offset(until)
    if end is not None and end < 0:
        raise UsageError(f"until {until}", "a time after the start", 'as in "10s"')
    if isinstance(source, Workload):
        if where is not None or others is not None:
            raise UsageError(
                "a workload with where or others", "a trace", "they select its threads"
            )
        workload = source
        policy = policy_asked(None, policy or DEFAULT_POLICY)
    else:
        (way,) = nearest(simulate, [source], [where_in(source, where)], others)
        workload = way.workload
        policy = policy_asked(source, policy) if policy else way.policy
        set = way.settings(policy, set)
        costs = way.costs if costs is None else costs
        asked = cpus if machine is None else machine
        if asked is not None:
            workload = fitted(workload, way, _machine(asked).ncpu)
        end = units.offset(way.until) if end is None else end
    if end is None and (steps := workload.steps_executed) > max_events:
        raise UsageError(
            f"a workload of {steps:,} steps",
            f"at most {max_events:,} engine events"
            + (", because the trace stays in memory" if output is None else ""),
            'end it earlier (--stop-at 10s, until="10s"), use a larger max_events, or keep the '
            "trace in a folder (-o OUT.sched)",
        )
    if cpus is not None and machine is not None:
        raise UsageError(f"cpus={cpus} with machine={machine!r}", "one of them")
    if cpus is not None and not isinstance(cpus, int):
        raise UsageError(f"cpus={cpus!r}", "a number of CPUs", 'a shape is machine="2x8x2"')
    asked = cpus if machine is None else machine
    shape = workload.machine or _machine(1) if asked is None else _machine(asked)
    if workload.machine is not None and not isinstance(machine, Machine):
        # Another machine, but the workload's clock: events at ticks stay at ticks.
        shape = replace(shape, tick_phase=workload.machine.tick_phase)
    if costs is not None:
        shape = shape.with_costs(costs)
    options: dict[str, Any] = {
        "seed": seed,
        "until": end,
        "max_events": max_events,
        "record": record,
        "set": [(name, _text(value)) for name, value in (set or {}).items()],
        "shape": [(c.core, c.llc, c.package, c.numa_node, c.capacity) for c in shape.cpus],
        "costs": {name: float(value) for name, value in asdict(shape.costs).items()},
        "tick_phase": shape.tick_phase,
        "outages": [(one.cpu, one.since, one.until) for one in shape.outages],
        "pipes": engine_pipes(workload),
        "groups": engine_groups(workload.groups),
        "moves": engine_moves(workload.moves, workload.groups),
    }

    def run(folder: Path | None) -> tuple[dict[str, pl.DataFrame], dict[str, Any], pl.DataFrame]:
        return _run(workload, policy, shape.ncpu, {**options, "folder": folder}, progress)

    if output is None:
        tables, about, series = run(None)
        trace = Trace.from_tables(tables, about, sources=workload.sources)
        if record:
            _kept[trace] = series
        return trace

    def fill(folder: Path) -> str:
        _, about, series = run(folder)
        if record:
            series.write_parquet(folder / _POLICY_SERIES)
        return json.dumps(about)

    target = Path(output)
    cache.free_target(target, force)
    cache.write(target, fill, replace=force, sources=workload.sources)
    return Trace.read(target)


_kept: WeakKeyDictionary[Trace, pl.DataFrame] = WeakKeyDictionary()
"""The internals of simulations that were not written to a folder."""


def _check(source: object, policy: object, seed: object, max_events: object) -> None:
    """Checks the arguments of `simulate`, so that wrong types do not reach the engine."""
    if not isinstance(source, (Workload, Trace)):
        raise UsageError(
            f"a simulation of {source!r:.80}", "a workload or a trace", "see schedscope.workload"
        )
    if policy is not None:
        _policy.check_policy(policy)
    if not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise UsageError(f"seed {seed}", "a number from 0 to 2^64 - 1")
    if not isinstance(max_events, int) or not 1 <= max_events < 2**63:
        raise UsageError(f"max_events {max_events}", "a number from 1 to 2^63 - 1")


def policy_series(trace: Trace) -> pl.DataFrame:
    """One row per recorded value of a policy's internals: `ts, series, utid, cpu, value`.

    Needs a trace simulated with `record=True`. Only changes have rows: a value
    holds until the next row of its series and thread (or CPU).

    Raises `UsageError` if the trace has none.
    """
    if trace in _kept:
        return _kept[trace]
    if trace.path is not None and (trace.path / _POLICY_SERIES).is_file():
        return read_parquet(trace.path / _POLICY_SERIES)
    raise UsageError(
        f"{trace.name} holds no internal series",
        "a simulated trace with internal series",
        "simulate with record=True (--record) and a policy that has some",
    )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _run(
    workload: Workload,
    policy: str | _policy.Policy,
    ncpu: int,
    options: dict[str, Any],
    progress: Progress | None,
) -> tuple[dict[str, pl.DataFrame], dict[str, Any], pl.DataFrame]:
    from schedscope import _native

    workload = begun_under(workload, policy)
    threads, steps, masks, names = engine_tables(workload, ncpu)
    watched: Watched | None = None
    if isinstance(policy, str):
        series_names = _policy.series(policy)["name"].to_list()
    elif isinstance(policy, SchedExt):
        series_names = list(policy.series)
        options = {**options, "set": policy.settings() + options["set"]}
    else:
        series_names = list(policy.series)
        if options["set"]:
            raise UsageError(
                f"tunable {options['set'][0][0]!r} for a policy written in Python",
                "attributes of the policy object instead",
            )
        watched = Watched(policy)
    called = workload.threads["name"].to_list()
    asked = watched or policy
    try:
        tables, text, rows = _native.simulate(
            threads, steps, masks, names, asked, options, progress
        )
    except UsageError as error:
        if watched is None or " queued: " not in error.found:
            raise
        raise UsageError(error.found, error.expected, watched.forgotten(called)) from None
    about = json.loads(text)
    if watched is not None:
        watched.check(called, about["window"][1])
    about["generator"] = "schedscope simulate"
    about["source"] = {"name": _source_name(workload), "format": "simulation"}
    about["workload"] = workload.info
    about["warnings"] = _warnings(about["simulation"]) + _ended(about["scheduler"])
    if not workload.groups.is_empty():
        about["groups"] = trace_groups(workload.groups)
    about["warnings"] += ignored_groups(workload, about["scheduler"])
    if isinstance(policy, str) and _policy.moves_priorities(policy):
        about["priorities"] = _priorities(workload, ncpu)
    series = pl.DataFrame(
        rows,
        schema={
            "ts": pl.Int64,
            "series": pl.UInt16,
            "utid": pl.UInt32,
            "cpu": pl.UInt16,
            "value": pl.Float64,
        },
    )
    beyond = max(series["series"].to_list(), default=-1)
    labels = series_names + [f"series {i}" for i in range(len(series_names), beyond + 1)]
    # A category of its own for each series: the number is the position.
    series = series.with_columns(
        pl.col("series").replace_strict(
            dict(enumerate(labels)), return_dtype=pl.Enum(labels), default=None
        )
        if labels
        else pl.col("series").cast(pl.String)
    )
    frames = {name: pl.DataFrame(tables[name]) for name in TABLES if name in tables}
    add_quotas(workload, frames, about, options["folder"])
    return frames, about, series


def _priorities(workload: Workload, ncpu: int) -> dict[str, list[Any]]:
    """Class, nice and real-time priority by utid, of threads that are not plainly fair.

    For policies whose traces do not show them; `extract` reads them.
    """
    own = workload.threads.with_row_index("utid", offset=ncpu).filter(
        (pl.col("class") != "fair") | (pl.col("nice") != 0)
    )
    rows = own.select("utid", pl.col("class").cast(pl.String), "nice", "rt_prio").iter_rows()
    return {str(utid): list(values) for utid, *values in rows}


def _ended(scheduler: Mapping[str, Any]) -> list[str]:
    """How a sched_ext scheduler ended before the simulation did."""
    exit = scheduler.get("exit")
    if exit is None:
        return []
    message = f": {units.printable(exit['message'])}" if exit["message"] else ""
    return [
        f"the scheduler ended at {units.duration(exit['at'])} ({exit['reason']}{message}); after"
        " that threads ran in the order in which they came"
    ]


def _source_name(workload: Workload) -> str:
    source = workload.info.get("source") or workload.info.get("generator")
    return f"simulation of {source}" if source else "simulation"


def _warnings(simulation: Mapping[str, Any]) -> list[str]:
    found = []
    if simulation["ended"] != "finished":
        found.append(f"the simulation ended at its {simulation['ended']}, not with its workload")
    blocked = simulation["blocked"]
    if blocked:
        more = f" and {len(blocked) - 3} more" if len(blocked) > 3 else ""
        who = units.several(len(blocked), "thread still waits", "threads still wait")
        found.append(f"{who} for a signal: {'; '.join(blocked[:3])}{more}")
    if simulation["never_started"]:
        who = units.several(
            simulation["never_started"], "thread has not started", "threads have not started"
        )
        found.append(f"{who}: not forked, or later than the end")
    return found
