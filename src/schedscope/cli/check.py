"""How far can a trace be trusted?

First what must hold for every trace: the running, idle and unknown time of each
CPU adds up to the window; the intervals of each thread adjoin; running time is
the same summed over CPUs and over threads; every switch-in has one wait row; the
parts of each wait (`wait-breakdown`) add up to it, and waits to the time runnable.
Then what is missing: lost events, prev/next mismatches, missing wakeups, clocks
that disagree; and the recorder's own share. The last line, `rests on`, says what
no check can see in this trace: what counted lost events, if anything did, and how
far clocks may differ unnoticed. Each line is

  ok        nothing found
  note      found, and excluded from results: at most 1 % of what it concerns
  warning   enough to move results (missing wakeups: above 0.03 %; the recorder: above 5 % of
            running time)
  violated  a sum does not add up: results are wrong

With a selection these lines stay as they are, since every result rests on the whole
recording. Lines about the selected threads follow: how much of the CPU time was theirs,
which of their waits are not measured, and for how long it is unknown what they did or why
they waited.

Exit code: 0 if no check is violated, else 1; with --strict also 1 for warnings,
for scripts that should stop at a poor trace.
"""

from __future__ import annotations

import argparse

from schedscope.cli import _options
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose

NAME = "check"
GROUP = "inspect the recording"
HELP = "how far a trace can be trusted, and a verdict"
EXAMPLE = """\
  schedscope check web.capture
  schedscope check web.capture --service nginx.service
  schedscope check --strict web.capture && schedscope latency web.capture
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope check`."""
    _options.add_input(parser)
    parser.add_argument("--strict", action="store_true", help="exit with code 1 for warnings, too")
    _options.add_selection(parser, what="these threads, in lines of their own")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """Print the findings and the verdict."""
    from schedscope.analysis.check.check import check, verdict

    _options.refuse_cpu(args, "check", "`schedscope info --cpu N` says what is known of a CPU")
    trace = _options.open_input(args)
    where = _options.where_threads(args, trace)
    findings = check(trace, where=where)
    levels = set(findings["level"])
    failing = {"violated", "warning"} if args.strict else {"violated"}
    return Answer(
        findings,
        choose(findings, ["level", "check", "text"]),
        about={**headline.about(trace), "verdict": verdict(findings)},
        head=[headline.headline(trace)[0], *_options.selected(args, trace, where), ""],
        notes=["", verdict(findings)],
        exit_code=1 if levels & failing else 0,
    )
