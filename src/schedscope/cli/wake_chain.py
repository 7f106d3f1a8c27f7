"""`schedscope wake-chain`: the options and words that its question does not declare."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.cli import _options
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose
from schedscope.present.who import who

if TYPE_CHECKING:
    import polars as pl

# The shortest time shown after a wait.
_LEAST = 50_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope wake-chain`."""
    _options.add_input(parser)
    _options.add_one_thread(
        parser,
        at="the start of the chain",
        worst="what followed from the end of the N-th longest wait",
    )
    _options.add_top(parser, 20, what="the first N wakeups")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """Print the wakeups."""
    from schedscope.analysis.wake_chain import wake_chain

    _options.check_top(args)
    trace = _options.open_input(args)
    since = until = None
    if args.worst is not None:
        row = _options.worst_wait(args, trace)
        utid = row["utid"]
        # As long after it as ten such waits, or 50 ms.
        end = min(trace.window[1], row["ts_run"] + max(_LEAST, 10 * row["wait"]))
        since, until = trace.seconds(row["ts_run"]), trace.seconds(end)
    else:
        utid = _options.one_thread(args, trace)
    frame = wake_chain(trace, since, until, utid=utid)
    shown = frame[: _options.top(args, 20)]
    waited = int(frame["wait"].sum())
    most = None if frame["wait_high"].has_nulls() else int(frame["wait_high"].sum())
    hops = int(frame["hops"].max() or 0)  # type: ignore[arg-type]
    worded = _worded(shown)
    return Answer(
        shown,
        choose(
            worded,
            ["ts_ready", "hops", "waker", "woken", "cpu", "wait", "chain_wait"],
            question="wake_chain",
            origin=trace.origin,
        ),
        about={**headline.about(trace), "utid": utid, "wait": waited, "wait_high": most},
        head=[
            *headline.headline(trace),
            "it woke nobody in this time"
            if not hops
            else f"{units.several(len(frame), 'wakeup')} of "
            f"{units.several(frame['utid'].n_unique(), 'thread')}, "
            f"up to {units.several(hops, 'hop')} away; "
            f"together they waited {units.interval(waited, most)} for a CPU",
            "",
        ],
        rows_in_all=len(frame),
        rest=("later wakeup", ""),
        shown=worded,
    )


def _worded(frame: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    rows = frame.to_dicts()
    return frame.with_columns(
        pl.Series("waker", [who(row, "waker_") for row in rows], dtype=pl.String),
        pl.Series("woken", [who(row, "") for row in rows], dtype=pl.String),
    )
