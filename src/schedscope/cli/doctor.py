"""What can this host record and analyse with, what is missing, and how to get it?

Each line says what works (yes), what does not work and how to fix that (no), or what
influences a recording (note). This needs neither root nor Polars. The exit code is 0 if
any recorder works on this host, else 1.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from schedscope.cli import _output

GROUP = "record"
HELP = "what this host can record with, and what is missing"
EXAMPLE = "  schedscope doctor"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope doctor`."""
    parser.add_argument(
        "--clean",
        action="store_true",
        help="remove the trace instances and recorders that killed captures left behind (root)",
    )
    parser.add_argument(
        "--format",
        choices=("table", "json", "csv"),
        default="table",
        help="table for people; json and csv for programs (default: table)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the findings."""
    from schedscope.doctor import clean, findings

    if args.clean:
        return clean()
    found = findings()
    rows = [asdict(finding) for finding in found]
    if args.format == "json":
        _output.say_json({"rows": rows})
    elif args.format == "csv":
        head = ("area", "subject", "state", "text")
        _output.say_csv(head, [[row[name] for name in head] for row in rows])
    else:
        width = max(len(finding.subject) for finding in found)
        area = ""
        for finding in found:
            if finding.area != area:
                area = finding.area
                _output.say(f"{area}:")
            _output.say(f"  {finding.state:<4}  {finding.subject:<{width}}  {finding.text}")
    able = any(finding.area == "record" and finding.state == "yes" for finding in found)
    return 0 if able else 1
