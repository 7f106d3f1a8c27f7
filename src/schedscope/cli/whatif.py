"""What if one setting were different?

The trace is replayed as it was configured and with the change: three rows for each service, as
recorded, as replayed, as changed. How far the replay of the recorded configuration is from the
recording says how far the answer can be trusted: within a factor of 1.25 it is good, up to a
factor of 2 doubtful, and beyond that it is refused. Ranges are those in which 9 of 10 recordings
should lie: over several replays, with other seeds and with clock ticks at other instants, widened
by the error of the replay and by how far recordings of one workload usually lie apart.
"""

from __future__ import annotations

import argparse
from typing import Any

from schedscope import units
from schedscope.cli import _options
from schedscope.cli._progress import Progress
from schedscope.errors import UsageError
from schedscope.present.answer import Answer, more
from schedscope.present.columns import choose
from schedscope.present.headline import gaps, headline

NAME = "whatif"
GROUP = "simulate"
HELP = "effect of another nice value, mask, quota, CPUs or policy"
EXAMPLE = """\
  schedscope whatif web.capture --set-nice 'batch*=10'
  schedscope whatif web.capture --cpus 4 --by process_name
  schedscope whatif web.capture --pin web=0-1 --pin batch=2-3 --slice 1ms
  schedscope whatif web.capture --quota /system.slice/web.service=50% --by cgroup
  schedscope whatif web.capture --policy bfs --format json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope whatif`."""
    _options.add_input(parser)
    change = parser.add_argument_group(
        "the change (names may have * and ?, and are those of threads; a number is a thread id)"
    )
    change.add_argument(
        "--set-nice",
        metavar="NAME=N",
        action="append",
        default=[],
        help="these threads have nice N",
    )
    change.add_argument(
        "--pin",
        metavar="NAME=CPUS",
        action="append",
        default=[],
        help="these threads may use only these CPUs, as in web=0-1,3",
    )
    change.add_argument(
        "--set-weight",
        metavar="GROUP=N",
        action="append",
        default=[],
        help="this control group has weight N, as in cpu.weight: 100 is usual",
    )
    change.add_argument(
        "--quota",
        metavar="GROUP=TIME",
        action="append",
        default=[],
        help="this control group, or these threads in one of their own, may use 50%% of a CPU, or"
        " 20ms/100ms: 20 ms in each 100 ms; none: all they get",
    )
    change.add_argument("--cpus", type=int, metavar="N", help="the machine has N equal CPUs")
    change.add_argument("--slice", metavar="TIME", help="the policy's slice is this long")
    change.add_argument(
        "--policy", metavar="NAME", help="another policy; a family's name means its newest one"
    )
    change.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="set a tunable of the policy (`simulate --policies` lists them)",
    )
    parser.add_argument(
        "--by",
        choices=("comm", "name", "process_name", "cgroup"),
        default="comm",
        help="what counts as a service; numbers in a name become * (default: comm)",
    )
    parser.add_argument(
        "--comm",
        metavar="NAME",
        action="append",
        help="replay only these threads; the others take the CPU time that they took",
    )
    parser.add_argument(
        "--others",
        choices=("occupy", "compete"),
        help="with --comm, the others take it before all fair threads, or as one of them (default:"
        " whichever replays the recorded configuration more closely)",
    )
    parser.add_argument(
        "--replays", type=int, default=5, metavar="N", help="replays of each (default: 5)"
    )
    parser.add_argument("--seed", type=int, default=1, help="first random seed (default: 1)")
    _options.add_top(parser, 8, what="the first N services")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """Three rows per service."""
    import polars as pl

    from schedscope.simulator.change import change
    from schedscope.simulator.whatif import answer, nearest_way, whatif_notes

    _options.check_top(args, "services")
    nice = {who: _whole(f"--set-nice {who}", n) for who, n in _pairs(args.set_nice, "--set-nice")}
    pins = dict(_pairs(args.pin, "--pin"))
    weights = {
        who: _number(f"--set-weight {who}", n) for who, n in _pairs(args.set_weight, "--set-weight")
    }
    trace = _options.open_input(args)
    where = _options.where_comm(args, trace)
    if args.others and not args.comm:
        raise UsageError(
            f"--others {args.others}", "--comm as well", "without it there are no others"
        )
    way = nearest_way(trace, where, args.others)
    wanted = change(
        way,
        policy=args.policy,
        cpus=args.cpus,
        set_nice=nice,
        pin=pins,
        set_weight=weights,
        quota=dict(_pairs(args.quota, "--quota")),
        slice=args.slice,
        set=dict(_pairs(args.set, "--set")),
    )
    with Progress("replaying") as progress:
        frame = answer(
            way,
            wanted,
            by=args.by,
            replays=args.replays,
            seed=args.seed,
            progress=lambda now, events: progress.note(
                now, trace.duration, lambda: f"{units.count(events)} events"
            ),
        )
    services = frame[args.by].unique(maintain_order=True)
    top = _options.top(args, 8)
    kept = services if top is None else services.head(top)
    rows = frame.filter(pl.col(args.by).is_in(kept.implode()))
    shown = rows.with_columns(
        pl.when(pl.col("configuration") == "recorded")
        .then(pl.col(args.by))
        .otherwise(pl.lit(""))
        .alias(args.by),
        configuration=pl.col("configuration").cast(pl.String),
        verdict=pl.col("verdict").cast(pl.String).fill_null(""),
        **{
            name: pl.Series(_ranges(rows, name), dtype=pl.String)
            for name in ("cpu_time", "waiting", "wait_p99")
        },
    )
    return Answer(
        rows,
        choose(shown, [args.by, *COLUMNS], question="whatif", narrow=NARROW),
        about={
            "trace": trace.name,
            "change": wanted.words,
            "recorded_policy": way.policy,
            "policy": wanted.policy,
            "replays": args.replays,
            "others": way.workload.info["others"] if args.comm else None,
            "costs": vars(way.costs),
            "window": list(trace.window),
            "services_in_all": len(services),
            "notes": whatif_notes(trace, frame),
        },
        head=[
            f"{trace.name}: {trace.ncpu} CPUs, {units.duration(trace.duration)},"
            f" recorded under a scheduler modelled by {way.policy}",
            *(headline(trace)[1:] if gaps(trace) else []),
            f"changed: {', '.join(wanted.words)}",
            "",
        ],
        notes=[*more(len(services) - len(kept), "more service"), *whatif_notes(trace, frame)],
        shown=shown,
    )


def _ranges(rows: Any, name: str) -> list[str]:
    """A figure, and behind it the range in which 9 of 10 recordings should lie."""
    found = []
    for row in rows.iter_rows(named=True):
        low, high = row[f"{name}_low"], row[f"{name}_high"]
        text = units.duration(row[name])
        if low is not None and row["configuration"] == "changed":
            text += f" [{units.duration(low)}, {units.duration(high)}]"
        found.append(text)
    return found


def _pairs(texts: list[str], option: str) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.rpartition("=") if option != "--set" else text.partition("=")
        if not equals or not name or not value:
            raise UsageError(f"{option} {text}", "NAME=VALUE", f"as in {option} {EXAMPLES[option]}")
        if found.setdefault(name, value) != value:
            raise UsageError(f"{option} {name}={found[name]} and {text}", "one of them")
        found[name] = value
    return list(found.items())


EXAMPLES = {
    "--set-nice": "nginx=-5",
    "--pin": "web=0-1",
    "--set-weight": "/web=200",
    "--quota": "/web=50%",
    "--set": "base_slice=3ms",
}


def _whole(what: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{what}={text}", "a whole number from -20 to 19") from None


def _number(what: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{what}={text}", "a number from 1 to 10000") from None


COLUMNS = (
    *("configuration", "threads", "cpu_time", "n_waits", "waiting", "wait_mean", "wait_p99"),
    *("completion?", "replay_error", "verdict"),
)
NARROW = "threads n_waits completion wait_mean"
