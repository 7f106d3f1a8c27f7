"""How far can a simulation be believed? Compares a real trace with its replay.

The workload is extracted from TRACE, replayed on the same machine under each policy for
the same time, and compared with the original. Besides the models of the host's own
scheduler there are baselines (fifo, rr), which know nothing of it. --again adds a second
capture of the same workload: no simulation can be expected to be closer than two captures
are to each other. If threads are selected, for example on a host on which others ran,
too, only these are replayed and compared.
"""

from __future__ import annotations

import argparse

from schedscope import units
from schedscope.cli import _options
from schedscope.cli._progress import Progress
from schedscope.errors import UsageError
from schedscope.present.answer import Answer
from schedscope.present.columns import choose
from schedscope.present.headline import headline

NAME = "fidelity"
GROUP = "simulate"
HELP = "compare a real trace with its own replay"
EXAMPLE = """\
  schedscope fidelity build.capture --again build-2.capture
  schedscope fidelity build.capture --policy eevdf-6.17,fifo --set eevdf-6.17:hz=1000
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope fidelity`."""
    _options.add_input(parser, "trace")
    parser.add_argument("--again", metavar="TRACE", help="a second capture of the same workload")
    parser.add_argument(
        "--policy",
        metavar="NAME,...",
        help="policies (default: the model of the recorded scheduler, its releases, fifo, rr)",
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
    parser.add_argument(
        "--others",
        choices=("occupy", "compete", "drop"),
        help="with threads selected: the other threads take the CPU time that they took, before all"
        " fair threads (occupy, the default) or as one of them (compete), or are left out (drop)",
    )
    _options.add_external(parser)
    parser.add_argument("--seed", type=int, default=1, help="random seed (default: 1)")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """A row per replay."""
    from schedscope.simulator.fidelity import fidelity
    from schedscope.simulator.machine import Costs
    from schedscope.simulator.replay import measured_costs

    _options.check_replayed(args, "fidelity")
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
    with Progress("replaying") as progress:
        frame = fidelity(
            trace,
            again=again,
            policies=policies,
            set=tunables,
            costs=costs,
            where=None
            if not _options.selects_threads(args)
            else lambda one: _options.where_threads(args, one),
            others=args.others or "occupy",
            external=args.external,
            seed=args.seed,
            progress=lambda now, events: progress.note(
                now, trace.duration, lambda: f"{units.count(events)} events"
            ),
        )
    return Answer(
        frame,
        choose(frame, COLUMNS, narrow=NARROW),
        about={"trace": trace.name, "costs": vars(costs), "window": list(trace.window)},
        head=[*headline(trace), ""],
        notes=[
            "ratios are replay divided by real; order is Kendall's tau over matched blocks"
            + (" further apart than the captures are" if again is not None else "")
        ],
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
