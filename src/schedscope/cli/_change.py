"""The options that say what `whatif` changes, on its own command and in a report."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from schedscope.cli import _quantities
from schedscope.errors import UsageError

_EXAMPLES = {
    "--set-nice": "nginx=-5",
    "--set-class": "web=rr:50",
    "--set-slice": "web=500us",
    "--pin": "web=0-1",
    "--set-weight": "/web=200",
    "--quota": "/web=50%",
    "--move": "worker=/batch",
    "--uclamp": "web=50%",
    "--set": "base_slice=3ms",
}


def add_change(parser: argparse.ArgumentParser, title: str) -> None:
    """Options for one change, under a heading of their own."""
    change = parser.add_argument_group(title)
    for option, name, text in (
        ("--set-nice", "NAME=N", "these threads have nice N"),
        (
            "--set-class",
            "NAME=CLASS",
            "these threads are of class fair, batch or idle, or real-time: fifo:N or rr:N, of"
            " priority N (99 is the highest)",
        ),
        (
            "--set-slice",
            "NAME=DURATION",
            "these threads have a slice of their own (EEVDF from 6.12 on)",
        ),
        ("--pin", "NAME=CPUS", "these threads may use only these CPUs, as in web=0-1,3"),
        (
            "--set-weight",
            "GROUP=N",
            "this control group, or these threads in a group of their own, has weight N, as in"
            " cpu.weight: 100 is usual",
        ),
        (
            "--quota",
            "GROUP=QUOTA",
            "CPU quota of this control group, or of these threads in a group of their own: 50%% of"
            " a CPU; 20ms/100ms, which is 20 ms in each 100 ms; or none, which is no limit",
        ),
        ("--move", "NAME=GROUP", "these threads are in this control group; / is none"),
    ):
        change.add_argument(option, metavar=name, action="append", default=[], help=text)
    change.add_argument("--uclamp", action="append", default=[], help=argparse.SUPPRESS)
    change.add_argument(
        "--autogroup", metavar="off", help="sessions have no share of the CPU time of their own"
    )
    change.add_argument("--cpus", type=int, metavar="N", help="the machine has N equal CPUs")
    change.add_argument(
        "--slice",
        type=_quantities.duration,
        metavar="DURATION",
        help="the policy's slice is this long",
    )
    change.add_argument(
        "--add-load",
        type=int,
        metavar="N",
        help="add N threads that want a CPU all the time: load-0, ...; other changes may name them",
    )
    change.add_argument(
        "--policy",
        metavar="NAME",
        help="another policy; a family's name means the recorded kernel's own, else its newest;"
        " file.py:Class is one of your own, x.bpf.o a compiled sched_ext scheduler",
    )
    change.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="set a tunable of the policy (`simulate --policies` lists them)",
    )


def asked(args: argparse.Namespace) -> dict[str, Any]:
    """The change, as `simulator.change.change` takes it."""
    nice = _pairs(args.set_nice, "--set-nice")
    weights = _pairs(args.set_weight, "--set-weight")
    return {
        "policy": args.policy,
        "cpus": args.cpus,
        "set_nice": {who: _whole(f"--set-nice {who}", n) for who, n in nice.items()},
        "set_class": _pairs(args.set_class, "--set-class"),
        "set_slice": _pairs(args.set_slice, "--set-slice"),
        "pin": _pairs(args.pin, "--pin"),
        "set_weight": {who: _number(f"--set-weight {who}", n) for who, n in weights.items()},
        "quota": _pairs(args.quota, "--quota"),
        "move": _pairs(args.move, "--move"),
        "autogroup": args.autogroup,
        "uclamp": _pairs(args.uclamp, "--uclamp"),
        "slice": args.slice,
        "add_load": args.add_load,
        "set": _pairs(args.set, "--set"),
    }


def is_asked(args: argparse.Namespace) -> bool:
    """Whether any of these options was given."""
    return bool(words(args))


def words(args: argparse.Namespace) -> str:
    """The options as they were given, to call `whatif` with them."""
    found = []
    for option in _EXAMPLES:
        for text in getattr(args, option[2:].replace("-", "_")):
            found += [option, text]
    for option in ("--cpus", "--slice", "--policy", "--add-load", "--autogroup"):
        value = getattr(args, option[2:].replace("-", "_"))
        found += [] if value is None else [option, str(value)]
    return shlex.join(found)


def _pairs(texts: list[str], option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.rpartition("=") if option != "--set" else text.partition("=")
        if not equals or not name or not value:
            raise UsageError(
                f"{option} {text}", "NAME=VALUE", f"as in {option} {_EXAMPLES[option]}"
            )
        if found.setdefault(name, value) != value:
            raise UsageError(f"{option} {name}={found[name]} and {text}", "one of them")
        found[name] = value
    return found


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
