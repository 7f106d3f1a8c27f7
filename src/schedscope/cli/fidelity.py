"""How far to believe a simulation: a real trace against its replay.

The workload is extracted from TRACE, replayed on the same machine under each
policy for the same time, and compared with the original. Beside the models of
the host's own scheduler stand the baselines (fifo, rr), which know nothing of it,
and with --again a second capture of the same workload: no simulation can be
closer than two captures are to one another.
"""

from __future__ import annotations

import argparse

from schedscope import units
from schedscope.cli import _options, _output
from schedscope.cli._output import Column
from schedscope.cli._progress import Progress
from schedscope.errors import UsageError

NAME = "fidelity"
HELP = "a real trace against its own replay"
EXAMPLE = """\
  schedscope fidelity build.capture --again build-2.capture
  schedscope fidelity build.capture --policy eevdf-6.17,fifo --set eevdf-6.17:hz=1000
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope fidelity`."""
    _options.add_input(parser, "trace")
    parser.add_argument("--again", metavar="TRACE", help="a second capture of the same workload")
    parser.add_argument(
        "--policy", metavar="NAME,...", help="policies (default: every eevdf-*, fifo and rr)"
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
        help="costs as in `simulate`; none given: those measured in the trace",
    )
    parser.add_argument(
        "--comm", metavar="NAME", action="append", help="replay and compare only these threads"
    )
    parser.add_argument(
        "--others",
        choices=("occupy", "drop"),
        help="with --comm, the rest: they take the CPU time they took (default), or none",
    )
    parser.add_argument("--external", choices=("relative", "absolute"), default="relative")
    parser.add_argument("--seed", type=int, default=1)
    _options.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    from schedscope.simulator.fidelity import fidelity, measured_costs
    from schedscope.simulator.machine import Costs

    trace = _options.open_input(args, "trace")
    again = _options.open_input(args, "again") if args.again else None
    costs = measured_costs(trace)
    if args.cost:
        pairs = dict(_pair(text, "--cost") for text in args.cost)
        costs = Costs.of(pairs)
    tunables: dict[str, dict[str, str]] = {}
    for text in args.set:
        policy, colon, rest = text.partition(":")
        if not colon:
            raise UsageError(f"--set {text}", "POLICY:NAME=VALUE")
        name, value = _pair(rest, "--set")
        tunables.setdefault(policy, {})[name] = value
    policies = None if args.policy is None else [p.strip() for p in args.policy.split(",")]
    if args.others and not args.comm:
        raise UsageError(f"--others {args.others}", "it with --comm", "else there are no others")
    with Progress("replaying") as progress:
        frame = fidelity(
            trace,
            again=again,
            policies=policies,
            set=tunables,
            costs=costs,
            comm=args.comm,
            others=args.others or "occupy",
            external=args.external,
            seed=args.seed,
            progress=lambda now, events: progress.note(
                now, trace.duration, lambda: f"{units.count(events)} events"
            ),
        )
    _output.emit(
        frame,
        args.format,
        columns=COLUMNS,
        about={"trace": trace.name, "costs": vars(costs), "window": list(trace.window)},
        head=[f"{trace.name}: {trace.ncpu} CPUs, {trace.duration / 1e9:.2f} s", ""],
        foot=[
            "ratios are replay over real; order is Kendall's tau of matched blocks"
            + (" further apart than the captures are" if again is not None else "")
        ],
    )
    return 0


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{option} {text}", "NAME=VALUE")
    return name, value


COLUMNS = [
    Column("against"),
    Column("cpu_time_err", "CPU to others", kind="share"),
    Column("wait_p50", "wait p50", kind="time"),
    Column("wait_p50_ratio", "ratio", kind="number"),
    Column("wait_p99", "p99", kind="time"),
    Column("wait_p99_ratio", "ratio", kind="number"),
    Column("wait_distance", "distance", kind="time"),
    Column("waits_ratio", "waits", kind="number", rank=2),
    Column("switches_ratio", "switches", kind="number"),
    Column("preemptions_ratio", "preempted", kind="number", rank=1),
    Column("migrations_ratio", "migrations", kind="number"),
    Column("elapsed_ratio", "elapsed", kind="number", rank=1),
    Column("depth_ratio", "depth", kind="number", rank=1),
    Column("order", kind="number"),
    Column("shift", kind="time", rank=1),
]
