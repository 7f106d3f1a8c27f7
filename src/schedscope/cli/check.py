"""How far can a trace be trusted?

First the sums that hold for every trace: each CPU's time is running, idle or
unknown and makes up the window; the intervals of each thread adjoin; running
time summed over CPUs is what it is over threads; every switch-in has its row
in the ledger of waits. Then what the trace does not tell: losses, broken
chains of switches, missing wakeups, clocks that disagree, the recorder's own
share. Each line is

  ok        nothing found
  note      found, and left out of results: at most 1 % of what it concerns
  warning   enough to move results (missing wakeups: above 0.1 %; the recorder: above 5 % of
            running time)
  violated  a sum is off: results are wrong

Exit code: 0 if every sum holds, 1 if one is violated; with --strict 1 for
warnings as well, for scripts that should not go on with a poor trace.
"""

from __future__ import annotations

import argparse

from schedscope.cli import _options
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose

NAME = "check"
HELP = "how far a trace can be trusted, and a verdict"
EXAMPLE = """\
  schedscope check web.capture
  schedscope check --strict web.capture && schedscope latency web.capture
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope check`."""
    _options.add_input(parser)
    parser.add_argument("--strict", action="store_true", help="exit code 1 for warnings, too")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """Print the findings and the verdict."""
    from schedscope.analysis.check import check, verdict

    trace = _options.open_input(args)
    findings = check(trace)
    levels = set(findings["level"])
    failing = {"violated", "warning"} if args.strict else {"violated"}
    return Answer(
        findings,
        choose(findings, ["level", "check", "text"]),
        about={**headline.about(trace), "verdict": verdict(findings)},
        head=[headline.headline(trace)[0], ""],
        notes=["", verdict(findings)],
        exit_code=1 if levels & failing else 0,
    )
