"""How far can a simulation be believed? Compares a real trace with its replay.

The workload is extracted from TRACE, replayed on the same machine under each policy for
the same time, and compared with the original. Besides the models of the host's own
scheduler there are baselines (fifo, rr), which know nothing of it. --again adds a second
capture of the same workload: no simulation can be expected to be closer than two captures
are to each other. With three captures or more (--again twice or more, at best four times)
the table says which figures of the replays lie within the range of the captures. If
threads are selected, for example on a host on which others ran, too, only these are
replayed and compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from schedscope import units
from schedscope.cli import _options
from schedscope.cli._progress import Progress
from schedscope.errors import UsageError
from schedscope.present.answer import Answer
from schedscope.present.columns import choose
from schedscope.present.headline import COMPLETE, gaps, headline

if TYPE_CHECKING:
    import polars as pl

    from schedscope.simulator.runs.replay import Replay

GROUP = "simulate"
HELP = "compare a real trace with its own replay"
EXAMPLE = """\
  schedscope fidelity build.capture --again build-2.capture
  schedscope fidelity b1.capture --again b2.capture --again b3.capture --again b4.capture
  schedscope fidelity build.capture --policy eevdf-6.17,fifo --set eevdf-6.17:hz=1000
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope fidelity`."""
    _options.add_input(parser, "trace")
    parser.add_argument(
        "--again",
        metavar="TRACE",
        action="append",
        default=[],
        help="another capture of the same workload (repeat for more)",
    )
    parser.add_argument(
        "--policy",
        metavar="NAME,...",
        help="policies (default: the model of the recorded scheduler, its releases, fifo, rr; with"
        " three captures or more that model, the ideal policies, bfs, and cfs or eevdf)",
    )
    parser.add_argument(
        "--set",
        metavar="POLICY:NAME=VALUE",
        action="append",
        default=[],
        help="a tunable of one policy",
    )
    parser.add_argument(
        "--cost",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="costs as in `simulate` (default: those measured in the trace)",
    )
    _options.add_selection(parser, what="these threads replayed and compared")
    _options.add_others(parser)
    _options.add_external(parser)
    parser.add_argument(
        "--replays",
        type=int,
        metavar="N",
        help="with three captures or more: replays of each under each policy (default: 5)",
    )
    parser.add_argument("--seed", type=int, default=1, help="random seed (default: 1)")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """A row per replay; of three captures or more one per policy and measure."""
    from schedscope.simulator.closeness.fidelity import fidelity
    from schedscope.simulator.closeness.of_runs import of_ways
    from schedscope.simulator.runs.nearest_way import nearest_way, nearest_ways
    from schedscope.simulator.runs.repeated import REPLAYS
    from schedscope.simulator.runs.replay import measured_costs
    from schedscope.simulator.workloads.machine import Costs

    _options.check_replayed(args, "fidelity")
    trace = _options.open_input(args, "trace")
    again = [_options.open_path(args, path) for path in args.again]
    several = len(again) > 1
    if args.replays is not None and not several:
        raise UsageError(
            f"--replays {args.replays}", "three captures or more", "name them with --again"
        )
    costs = Costs.of(dict(_pair(text, "--cost") for text in args.cost)) if args.cost else None
    tunables: dict[str, dict[str, str]] = {}
    for text in args.set:
        policy, colon, rest = text.partition(":")
        if not colon:
            raise UsageError(f"--set {text}", "POLICY:NAME=VALUE")
        name, value = _pair(rest, "--set")
        tunables.setdefault(policy, {})[name] = value
    asked: dict[str, Any] = {
        "policies": None
        if args.policy is None
        else [name.strip() for name in args.policy.split(",")],
        "set": tunables,
        "seed": args.seed,
    }
    selected = _options.selects_threads(args)
    with Progress("replaying") as progress:
        asked["progress"] = lambda now, events: progress.note(
            now, trace.duration, lambda: f"{units.count(events)} events"
        )
        if several:
            replays = REPLAYS if args.replays is None else args.replays
            traces = [trace, *again]
            ways = nearest_ways(
                traces,
                [_options.where_threads(args, one) for one in traces],
                args.others,
                external=args.external,
                costs=costs,
            )
            frame = of_ways(ways, replays=replays, **asked)
            return _of_runs(args, frame, ways)
        charged = measured_costs(trace) if costs is None else costs
        taken = nearest_way(
            trace,
            _options.where_threads(args, trace),
            args.others,
            external=args.external,
            costs=charged,
        ).workload.info["others"]
        frame = fidelity(
            trace,
            again=again[0] if again else None,
            costs=charged,
            others=taken if selected else None,
            where=None if not selected else lambda one: _options.where_threads(args, one),
            external=args.external,
            **asked,
        )
    return Answer(
        frame,
        choose(frame, COLUMNS, narrow=NARROW),
        about={
            "trace": trace.name,
            "costs": vars(charged),
            "window": list(trace.window),
            "others": taken if selected else None,
        },
        head=[*headline(trace), *_options.others_taken(args, taken), ""],
        notes=[
            "ratios are replay divided by real; order is Kendall's tau over matched blocks"
            + (" further apart than the captures are" if again else "")
        ],
    )


def _of_runs(args: argparse.Namespace, frame: pl.DataFrame, ways: Sequence[Replay]) -> Answer:
    """The table of several captures, and in how many measures each policy is within their range."""
    from schedscope.present.fidelity_table import fidelity_table, in_words

    shown, columns = fidelity_table(frame)
    head = []
    for way in ways:
        trace = way.trace
        lacks = "; ".join(gaps(trace)) or COMPLETE
        name, length = units.printable(trace.name), units.duration(trace.duration)
        head.append(f"{name} · {length} · {trace.events:,} events · {lacks}")
        head += _options.others_taken(args, way.workload.info["others"])
    return Answer(
        frame,
        columns,
        about={"traces": [way.trace.name for way in ways]},
        head=[*head, ""],
        notes=["", *in_words(frame)],
        shown=shown,
    )


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{option} {text}", "NAME=VALUE")
    return name, value


COLUMNS = (
    *("against", "cpu_time_err", "wait_p50", "wait_p50_ratio", "wait_p99", "wait_p99_ratio"),
    *("wait_distance", "waits_ratio", "switches_ratio", "preemptions_ratio"),
    *("migrations_ratio", "elapsed_ratio", "depth_ratio", "order", "shift"),
)
NARROW = (
    "waits_ratio preemptions_ratio elapsed_ratio depth_ratio shift"
    " switches_ratio migrations_ratio wait_p50 wait_p99"
)
