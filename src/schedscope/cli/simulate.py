"""How would this workload have run under another scheduler, or on another machine?

INPUT is a trace (from which the workload is extracted), a .workload folder, an
rt-app .json file, or a generator such as `hogs:17,time=500ms`. The result
is a trace: keep it with -o OUT.sched and use every other command on it. With
`--policy all`, or several policies, one table compares them. A trace is replayed
as in `fidelity` and `whatif`, for as long as it lasted; the first row shows it as it
was recorded.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedscope import units
from schedscope.cli import _options, _output
from schedscope.cli._progress import Progress
from schedscope.errors import FormatError, StorageError, UsageError
from schedscope.outputs import whole
from schedscope.present.answer import Answer, Facts
from schedscope.present.columns import choose
from schedscope.present.headline import headline

if TYPE_CHECKING:
    import polars as pl

    from schedscope.simulator.policies.policy import Policy
    from schedscope.simulator.runs.replay import Replay
    from schedscope.simulator.workloads.workload import Workload

GROUP = "simulate"
HELP = "replay a workload under another scheduler or machine"
EXAMPLE = """\
  schedscope simulate web.capture --policy ule-14 --cpus 4 -o web-ule.sched
  schedscope latency web-ule.sched --by comm
  schedscope simulate web.capture --policy all --figure policies.svg
  schedscope simulate hogs:17,time=500ms --policy bfs --cpus 16 --set rr_interval=6ms
  schedscope simulate --policies                 every policy and its tunables
  schedscope simulate --generators               every synthetic workload
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope simulate`."""
    parser.add_argument(
        "input", nargs="?", metavar="INPUT", help="a trace, a workload, or a generator"
    )
    parser.add_argument(
        "--policy",
        metavar="NAME,...",
        help="a policy, several, or `all`; file.py:Class is one of your own, x.bpf.o a"
        " compiled sched_ext scheduler; a family's name means"
        " the recorded kernel's own, else its newest (default: for a trace the model of its own"
        " scheduler, else eevdf-6.12)",
    )
    machine = parser.add_mutually_exclusive_group()
    machine.add_argument("--cpus", type=int, metavar="N", help="simulate N equal CPUs")
    machine.add_argument(
        "--machine",
        metavar="PxCxT",
        help="packages x cores x threads, as in 2x8x2 (default: the trace's machine)",
    )
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a tunable of the policy, as in --set base_slice=3ms",
    )
    parser.add_argument(
        "--cost",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="cost of switch, migration_smt, migration_llc, migration_package, migration_numa,"
        " ipi, idle_exit, preempt, enqueue, tick (times) or smt_speed (a factor); by default the"
        " costs measured in the trace, and none without a trace",
    )
    parser.add_argument("--seed", type=int, default=1, help="random seed (default: 1)")
    parser.add_argument(
        "--stop-at",
        metavar="TIME",
        help="end the simulation at this time in it, as in 10s (default: a trace's own length)",
    )
    parser.add_argument(
        "--to-end",
        action="store_true",
        help="run the workload extracted from a trace to its end, however long that takes",
    )
    parser.add_argument("--max-events", type=int, metavar="N", help="end after N engine events")
    _options.add_external(parser)
    parser.add_argument(
        "--record", action="store_true", help="record the policy's internals over time"
    )
    parser.add_argument("-o", "--output", metavar="OUT.sched", help="keep the simulated trace")
    parser.add_argument("-f", "--force", action="store_true", help="replace existing output")
    parser.add_argument(
        "--figure",
        metavar="FILE",
        help="draw the waits under each policy; with --record, the policy internals over time",
    )
    parser.add_argument(
        "--save-workload", metavar="NAME.workload", help="keep the workload, for any simulator"
    )
    parser.add_argument("--save-rtapp", metavar="FILE", help="write the workload as rt-app JSON")
    parser.add_argument("--policies", action="store_true", help="list the policies and tunables")
    parser.add_argument("--generators", action="store_true", help="list the synthetic workloads")
    _options.add_selection(parser, what="of these threads only (--others: what the others do)")
    _options.add_others(parser)
    _options.add_window(parser)
    _options.add_cache(parser)
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer | Facts | int:
    """Simulate; a row per policy."""
    if args.policies:
        return _list_policies()
    if args.generators:
        return _list_generators()
    _options.check_replayed(args, "simulate")
    if args.input is None:
        raise UsageError("no INPUT", "a trace, a workload or a generator", "see --help")
    if args.figure:
        _check_figure(args.figure)
    if args.record and not args.output and not args.figure:
        raise UsageError(
            "--record without --output and --figure",
            "a place for what the policy records",
            "-o OUT.sched keeps it, --figure draws it",
        )
    source = load(args)
    if args.save_workload or args.save_rtapp:
        _save(args, source)
        if args.policy is None and args.output is None:
            return 0
    names = _policies(args.policy, source)
    if len(names) == 1:
        return _one(args, source, names[0])
    return _several(args, source, names)


def load(args: argparse.Namespace) -> Workload | Replay:
    """The workload that INPUT names; of a trace, how it is replayed."""
    from schedscope.simulator.runs.background_choice import APART
    from schedscope.simulator.runs.nearest_way import nearest_way
    from schedscope.simulator.runs.rtapp import from_rtapp
    from schedscope.simulator.workloads.generators import GENERATORS, generate
    from schedscope.simulator.workloads.workload import is_workload, read_workload

    path = Path(args.input)
    if not path.exists() and args.input.partition(":")[0] in GENERATORS:
        _refuse_options_of_traces(args, "a generator")
        return generate(args.input)
    if is_workload(path):
        _refuse_options_of_traces(args, "a workload")
        return read_workload(path)
    if path.suffix == ".json" and path.is_file():
        _refuse_options_of_traces(args, "an rt-app file")
        return replace(from_rtapp(_text_of(path)), sources=(path,))
    if args.to_end and args.stop_at:
        raise UsageError(f"--to-end with --stop-at {args.stop_at}", "one of them")
    trace = _options.open_input(args)
    # A workload that is saved, or runs to its end, has no burst made longer.
    whole = args.to_end or args.save_workload or args.save_rtapp
    cut = "park" if whole else "extend"
    where = _options.where_threads(args, trace)
    others = args.others
    if where is not None and others is None and (args.save_workload or args.save_rtapp):
        others = APART  # a saved workload has only the selected threads
    return nearest_way(trace, where, others, external=args.external, cut=cut)


def _refuse_options_of_traces(args: argparse.Namespace, what: str) -> None:
    """Options that select from or decode a trace do not apply to other inputs."""
    given = {
        "--since": args.since,
        "--until": args.until,
        "--external": args.external == "absolute",
        "--option": args.option,
        "--to-end": args.to_end,
        _options.words(args): _options.selects_threads(args),
    }
    for option, value in given.items():
        if value:
            hint = "--stop-at ends a simulation" if option == "--until" else "leave it out"
            raise UsageError(f"{option} with {what}", "a trace as INPUT", hint)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"cannot read {path}: {error.strerror}", hint="check the path"
        ) from error
    except UnicodeDecodeError as error:
        raise FormatError(f"{path} is not UTF-8 at byte {error.start}", "rt-app's JSON") from error


def _policies(text: str | None, source: Workload | Replay) -> list[str | Policy]:
    from schedscope.simulator.policies.policy import policies
    from schedscope.simulator.recorded.scheduler import policy_asked
    from schedscope.simulator.runs.replay import Replay
    from schedscope.simulator.runs.run import DEFAULT_POLICY

    if text is None:
        return [source.policy if isinstance(source, Replay) else DEFAULT_POLICY]
    if text == "all":
        return [str(name) for name in policies()["name"]]
    trace = source.trace if isinstance(source, Replay) else None
    found: list[str | Policy] = []
    for name in [name.strip() for name in text.split(",")]:
        try:
            found.append(policy_asked(trace, name))
        except UsageError as error:
            if ".py" in name or name.endswith(".o"):
                raise
            raise UsageError(
                f"--policy {name or repr(name)}", f"{error.expected}, or all"
            ) from None
    # A policy named twice would be the same row twice.
    return list(dict.fromkeys(found))


def _settings(pairs: list[str], option: str) -> dict[str, str]:
    found = {}
    for text in pairs:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {text}", "NAME=VALUE")
        found[name] = value
    return found


def _arguments(args: argparse.Namespace, source: Workload | Replay) -> dict[str, Any]:
    from schedscope.simulator.runs.replay import Replay
    from schedscope.simulator.workloads.machine import Costs

    costs = Costs.of(_settings(args.cost, "--cost")) if args.cost else None
    until = args.stop_at
    if isinstance(source, Replay):
        costs = source.costs if costs is None else costs
        until = source.until if until is None and not args.to_end else until
    options: dict[str, Any] = {
        "cpus": args.cpus,
        "machine": args.machine,
        "seed": args.seed,
        "until": until,
        "costs": costs,
    }
    if args.max_events is not None:
        if not 1 <= args.max_events < 2**63:
            raise UsageError(f"--max-events {args.max_events}", "a number from 1 to 2^63 - 1")
        options["max_events"] = args.max_events
    return options


def _parts(
    args: argparse.Namespace, source: Workload | Replay
) -> tuple[Workload, list[dict[str, Any]]]:
    """The workload, and the rows of the trace as it was recorded."""
    from schedscope.simulator.runs.fitted import fitted
    from schedscope.simulator.runs.replay import Replay
    from schedscope.simulator.runs.summary import rows_of
    from schedscope.simulator.workloads.machine import machine

    if not isinstance(source, Replay):
        return source, []
    workload = source.workload
    asked = args.machine if args.cpus is None else args.cpus
    if asked is not None:
        workload = fitted(workload, source, machine(asked).ncpu)
    return workload, rows_of(RECORDED, source.trace, by_class=True, utids=source.selected)


RECORDED = "as recorded"


def _replayed(source: Workload | Replay, ncpu: int) -> pl.Series | None:
    """The threads of a simulated trace that were selected; None for all."""
    from schedscope.simulator.runs.replay import Replay

    if not isinstance(source, Replay) or source.selected is None:
        return None
    # Threads of a workload are numbered after the idle ones; background load belongs to no recorded
    # thread.
    return source.utids.is_not_null().arg_true() + ncpu


def _one(args: argparse.Namespace, source: Workload | Replay, policy: str | Policy) -> Answer:
    import polars as pl

    from schedscope.simulator.policies.policy import called
    from schedscope.simulator.runs.replay import Replay
    from schedscope.simulator.runs.run import simulate
    from schedscope.simulator.runs.summary import SCHEMA, rows_of

    workload, recorded = _parts(args, source)
    given: dict[str, Any] = _settings(args.set, "--set")
    name = called(policy)
    with Progress(f"simulating {name}") as progress:
        trace = simulate(
            workload,
            policy=policy,
            set=source.settings(policy, given) if isinstance(source, Replay) else given,
            record=args.record,
            output=args.output,
            force=args.force,
            progress=_share(progress, args),
            **_arguments(args, source),
        )
    mine = _replayed(source, trace.ncpu)
    rows = [*recorded, *rows_of(name, trace, by_class=True, utids=mine)]
    frame = pl.DataFrame(rows, schema=SCHEMA)
    if args.figure:
        _figure(args.figure, {name: trace}, internals=args.record)
    foot = [
        f"warning: {text}"
        for text in trace.info.get("warnings") or []
        # A replay ends with its recording, when some threads may wait for others.
        if not recorded or args.stop_at or args.to_end
    ]
    if args.output:
        foot.append(f"trace: {args.output}")
    return _answer(args, source, workload, frame, foot)


def _several(
    args: argparse.Namespace, source: Workload | Replay, policies: list[str | Policy]
) -> Answer:
    import polars as pl

    from schedscope.simulator.policies.policy import called
    from schedscope.simulator.runs.replay import Replay
    from schedscope.simulator.runs.run import simulate
    from schedscope.simulator.runs.summary import SCHEMA, rows_of

    if args.set or args.output or args.record:
        raise UsageError(
            "--set, --record or --output with several policies", "one policy", "name one"
        )
    kept: dict[str, Any] = {}
    workload, rows = _parts(args, source)
    for policy in policies:
        name = called(policy)
        with Progress(f"simulating {name}") as progress:
            trace = simulate(
                workload,
                policy=policy,
                set=source.settings(policy) if isinstance(source, Replay) else None,
                progress=_share(progress, args),
                **_arguments(args, source),
            )
        rows += rows_of(name, trace, by_class=True, utids=_replayed(source, trace.ncpu))
        if args.figure:  # Otherwise each trace, which may be large, is released.
            kept[name] = trace
    if args.figure:
        _figure(args.figure, kept)
    return _answer(args, source, workload, pl.DataFrame(rows, schema=SCHEMA), [])


def _share(progress: Progress, args: argparse.Namespace) -> Any:
    until = units.offset(args.stop_at) if args.stop_at else 0

    def share(now: int, events: int) -> None:
        progress.note(now, until, lambda: f"{units.duration(now)}, {units.count(events)} events")

    return share


def _answer(
    args: argparse.Namespace,
    source: Workload | Replay,
    workload: Workload,
    frame: pl.DataFrame,
    notes: list[str],
) -> Answer:
    import polars as pl

    from schedscope.analysis.asking.memo import once
    from schedscope.analysis.latency import latency
    from schedscope.simulator.runs.replay import Replay
    from schedscope.simulator.runs.summary import QUANTILES

    recorded: list[str] = []
    if isinstance(source, Replay):
        recorded = [*headline(source.trace), *_options.others_taken(args, workload.info["others"])]
        (waits,) = once(latency, source.trace, quantiles=QUANTILES).to_dicts()
        if waits["max"] is not None and waits["max_high"] != waits["max"]:
            notes = [*notes, f"the longest wait {RECORDED} may have been longer (see latency)"]
    report = workload.info.get("extraction")
    several = frame["sched_class"].is_not_null().any()
    # A policy's name stands once, above its classes.
    shown = frame.with_columns(
        policy=pl.when(pl.col("sched_class").is_null()).then("policy").otherwise(pl.lit("")),
        sched_class=pl.col("sched_class").fill_null("all"),
    )
    names = [name for name in COLUMNS if several or name != "sched_class"]
    return Answer(
        frame,
        choose(shown, names, question="simulate", narrow=NARROW),
        about={"workload": workload.info, "n_threads": workload.n_threads},
        head=[*recorded, repr(workload), *(_extraction(report) if report else []), ""],
        notes=notes,
        shown=shown,
    )


def _extraction(report: dict[str, Any]) -> list[str]:
    """What the extraction kept, cut and guessed; the JSON output has all of it."""

    def n(key: str, what: str, which: str = "", plural: str = "") -> str | None:
        found = report[key]
        return f"{units.several(found, what, plural)} {which}".rstrip() if found else None

    def t(key: str, words: str) -> str | None:
        return f"{units.duration(report[key])} {words}" if report[key] else None

    hz = report["clock_hz"]
    lines = {
        "kept": [
            t("cpu_time", "of CPU time"),
            n("wakes_by_threads", "wakeup", "by threads"),
            n("meetings", "signal", "held for the reader"),
            n("waits_for_anyone", "wait", "for any waker"),
            n("messages", "message", "through pipes and sockets"),
            n("holds", "hold", "of mutexes that threads waited for"),
            n("wakes_external", "sleep", "ended by external wakeups"),
            n("periodic_threads", "thread", "with a periodic timer"),
            n("yields", "yield"),
            n("forks", "fork"),
            n("exits", "exit"),
            n("priority_changes", "priority change"),
            n("mask_changes", "mask change"),
            n("own_slices", "thread", "that chose a slice"),
        ],
        "cut": [
            n("involuntary_dropped", "involuntary switch", plural="involuntary switches"),
            n("wakes_spurious", "wakeup", "of a thread already awake"),
            n("running_at_begin", "thread", "running at the start"),
            n("cut_at_end", "thread", "alive at the end"),
            t("cpu_time_lost", "of running time at gaps in the trace"),
        ],
        "guessed": [
            n("wakes_missing", "wakeup", "missing from the trace"),
            n("wakes_unknown_waker", "wakeup", "by an unknown waker"),
            n("wakes_before_sleep", "sleep", "overtaken by a wakeup"),
            n("gaps", "gap", "treated as sleep"),
            n("wakes_in_vain", "job", "taken by a thread that was awake"),
            n("jobs_unnoticed", "job", "put into a queue while nobody slept there"),
            n("holds_unnoticed", "hold", "of mutexes that no thread waited for"),
            n("waits_to_signal", "wait", "of who signals for who was woken, left out"),
            n("signals_in_vain", "signal", "of who was woken in vain, left out"),
            n("bound_by_name", "kernel thread", "pinned by name"),
            n("bound_by_family", "thread", "pinned like its parent or siblings"),
            n("bound_by_waiting", "thread", "pinned to the CPU waited for"),
            t("sleep_cost", "of CPU time per sleep"),
            f"a tick of {hz} Hz" if hz else "no tick",
            n("deadlines_unknown", "thread", "of SCHED_DEADLINE without a limit"),
        ],
    }
    return [
        f"  {word:<8} {', '.join(part for part in parts if part) or 'nothing'}"
        for word, parts in lines.items()
    ]


COLUMNS = (
    *("policy", "sched_class", "completion", "wait_p50", "wait_p99", "wait_max", "n_starved"),
    *("n_switches", "n_preemptions", "n_migrations", "wasted", "fairness", "wait_mean"),
    *("n_waits", "ended"),
)
NARROW = "ended n_waits wait_mean n_preemptions n_migrations wasted fairness"

FIGURES = (".png", ".svg", ".pdf")


def _check_figure(path: str) -> None:
    """Refuse a figure that cannot be written before anything runs."""
    from schedscope.store import cache

    target = Path(path)
    if target.suffix not in FIGURES:
        raise UsageError(f"--figure {path}", f"a name that ends in {', '.join(FIGURES)}")
    cache.needs_folder(target)


def _figure(path: str, traces: dict[str, Any], *, internals: bool = False) -> None:
    from schedscope.simulator.runs import figures

    drawn = figures.policy_series(*traces.values()) if internals else figures.policies(traces)
    figure = drawn.get_figure(root=True)
    assert figure is not None
    target = Path(path)
    sources = {source for trace in traces.values() for source in trace.sources}
    try:
        with whole(target, sources) as made:
            figure.savefig(made)
    except OSError as error:
        raise StorageError(
            f"cannot write {target}: {error.strerror}", hint="choose another place"
        ) from error


def _save(args: argparse.Namespace, source: Workload | Replay) -> None:
    import json

    from schedscope.simulator.runs.replay import Replay
    from schedscope.simulator.runs.rtapp import exported, to_rtapp

    workload = source.workload if isinstance(source, Replay) else source
    if args.save_workload:
        workload.save(args.save_workload, force=args.force)
    if args.save_rtapp:
        target = Path(args.save_rtapp)
        if target.exists() and not args.force:
            raise UsageError(f"{target} exists", "a free name", "give --force to replace it")
        length = -1
        if isinstance(source, Replay):
            workload = exported(source)
            # A step that waits for a missing thread would wait forever.
            length = -(-source.trace.duration // 1_000_000_000)
        document, lost = to_rtapp(workload, duration=length)
        _output.write_whole(target, json.dumps(document, indent=1) + "\n", workload.sources)
        if lost:
            words = ", ".join(f"{n} {op}" for op, n in lost.items())
            _output.complain(f"rt-app cannot express: {words}")


def _list_policies() -> Facts:
    from schedscope.simulator.policies.policy import policies, tunables

    frame = policies()
    lines: list[str] = []
    for row in frame.to_dicts():
        lines.append(f"{row['name']}: {row['summary']}")
        lines.append(f"    models: {row['models']}")
        for t in tunables(row["name"]).to_dicts():
            choices = f" [{', '.join(t['choices'])}]" if t["choices"] else ""
            lines.append(f"    --set {t['name']}={t['default']}{choices}  {t['doc']}")
    about = {
        row["name"]: {**row, "tunables": tunables(row["name"]).to_dicts()}
        for row in frame.to_dicts()
    }
    return Facts(about, lines)


def _list_generators() -> Facts:
    import inspect

    from schedscope.simulator.workloads.generators import GENERATORS

    about: dict[str, Any] = {}
    lines = []
    for name, function in GENERATORS.items():
        parameters = ", ".join(
            p.name if p.default is inspect.Parameter.empty else f"{p.name}={p.default}"
            for p in inspect.signature(function).parameters.values()
        )
        first = (inspect.getdoc(function) or "").splitlines()[0]
        about[name] = {"parameters": parameters, "summary": first}
        lines += [f"{name}: {parameters}", f"    {first}"]
    return Facts(about, lines)
