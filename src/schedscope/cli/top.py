"""Which threads wait most for a CPU right now? A table each second, until Ctrl-C.

This runs the flight recorder of `schedscope capture`, and asks it for what happened since
the last table: no time is missing between two tables. Needs Linux and root. Ctrl-C ends
the recorder and leaves nothing behind. The recorder's own threads are in the table, as
`sh`, `awk` and `cat`. --format json gives a line for each interval. Of an interval of which
more than half is unknown nothing is counted.

With --metrics 127.0.0.1:9184 there are no tables, but OpenMetrics for Prometheus, summed up
since the start: waits of each service as histograms, its time throttled, runnable and
running, what is unknown or lost, and the cost. Recorder and reader together then take at
most 1 % of a CPU (and what recording costs in the kernel): on a busy host by looking at a
part of the time, which `schedscope_unobserved_seconds` counts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from schedscope import units
from schedscope.cli import _options, _output, _quantities
from schedscope.errors import StorageError, UsageError
from schedscope.present.answer import Answer
from schedscope.present.text_table import sentence

if TYPE_CHECKING:
    import polars as pl

    from schedscope.live.recorder import Interval
    from schedscope.live.waiting import Waiting

GROUP = "record"
HELP = "which threads wait most for a CPU right now"
EXAMPLE = """\
  sudo schedscope top
  sudo schedscope top --by service --every 5s -d 1m
  sudo schedscope top --service nginx.service
  sudo schedscope top --once --format json
  sudo schedscope top --format json | jq '.rows[0]'
  sudo schedscope top --metrics 127.0.0.1:9184
"""
_ROWS = 20
_SHARE = 0.01
"""Of a CPU, for --metrics."""
_NOUNS = {
    "thread": ("thread", "threads"),
    "process": ("process", "processes"),
    "cgroup": ("control group", "control groups"),
    "service": ("service", "services"),
}
_NARROW = "n_wakeups running_frac waiting_frac threads n_waits p99"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope top`."""
    parser.add_argument(
        "--by",
        choices=tuple(_NOUNS),
        default="thread",
        help="one row for each of these (default: thread)",
    )
    parser.add_argument(
        "--every",
        type=_every,
        metavar="DURATION",
        help="length of an interval, each with its table (default: 1s; 5s with --metrics)",
    )
    _quantities.older(parser, "--interval", "--every", _seconds)
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--once", action="store_true", help="end after one table")
    end.add_argument(
        "--metrics",
        type=_address,
        metavar="ADDRESS:PORT",
        help="no tables, but OpenMetrics at http://ADDRESS:PORT/metrics, until Ctrl-C",
    )
    end.add_argument(
        "--grafana", action="store_true", help="print a Grafana board of these metrics, to import"
    )
    end.add_argument(
        "-d",
        "--duration",
        type=_seconds,
        metavar="DURATION",
        help="end after this time, as in 2m (a bare number: seconds)",
    )
    _quantities.older(end, "--seconds", "--duration")
    parser.add_argument(
        "--top",
        type=int,
        metavar="N",
        help=f"rows of a table (default: what fits the terminal, else {_ROWS};"
        " all with --format json or csv)",
    )
    _options.add_selection(parser, what="these threads")
    _options.add_format(parser)


def _every(text: str) -> float:
    return float(_quantities.seconds(_quantities.duration(text)))


def _seconds(text: str) -> float:
    return float(_quantities.seconds(text))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{text} is not an address and a port: 127.0.0.1:9184")
    return host.strip("[]"), int(port)


def run(args: argparse.Namespace) -> Answer | int:
    """Tables until Ctrl-C, or one; or metrics."""
    if args.grafana:
        from schedscope.live.metrics import grafana

        _output.say_json(grafana())
        return 0
    args.every = args.every or (5 if args.metrics else 1)
    _check(args)
    if args.metrics:
        return _serve(args)
    from schedscope.live import recorder
    from schedscope.live.silence import told
    from schedscope.live.waiting import Waiting

    waiting = Waiting()
    with (
        _ended_by_signals() as stopped,
        told(1.9 * args.every, partial(_silent, args.format)) as silence,
        recorder.folder() as place,
        recorder.recorder(place, 4 * args.every) as child,
    ):
        end = time.monotonic() + (args.duration or float("inf"))
        for interval in recorder.intervals(child, place, args.every):
            answer = _answer(interval, waiting, args)
            if args.once:
                return answer
            with silence.lock:
                _show(answer, args.format)
                silence.broken()
            # Stop here: the next interval would end later, and a signal's exception may have been
            # caught elsewhere.
            if stopped or time.monotonic() + args.every / 2 > end:
                break
    # Ctrl-C is how it is meant to end.
    return 128 + stopped[0] if stopped and stopped[0] != signal.SIGINT else 0


def _serve(args: argparse.Namespace) -> int:
    """Serves metrics, updated after each interval, to any client."""
    from prometheus_client import CollectorRegistry, start_http_server

    from schedscope.live import recorder
    from schedscope.live.metrics import Metrics

    metrics = Metrics()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    host, port = args.metrics
    with _ended_by_signals() as stopped, recorder.folder() as place:
        try:
            start_http_server(port, host, registry)
        except OSError as error:
            raise StorageError(f"cannot serve at {host}:{port}: {error.strerror}") from error
        with recorder.recorder(place, 1.5 * args.every) as child:
            _output.complain(f"serving http://{host}:{port}/metrics; Ctrl-C ends it")
            for interval in recorder.intervals(child, place, args.every, _SHARE):
                metrics.add(interval, recorder.costs(child), _selected(interval, args))
    return 128 + stopped[0] if stopped and stopped[0] != signal.SIGINT else 0


def _check(args: argparse.Namespace) -> None:
    _options.check_top(args)
    if args.metrics and (args.by not in ("thread", "service") or args.format != "table"):
        raise UsageError("--metrics with --by or --format", "metrics of services")
    if not 0.5 <= args.every <= 60:
        raise UsageError(f"--every {args.every:g}", "0.5 to 60 seconds")
    if args.duration is not None and not args.duration >= args.every:
        raise UsageError(
            f"--duration {args.duration:g}", f"as long as one table at least: {args.every:g}"
        )
    for name in ("cpu", "workload"):
        if getattr(args, name):
            raise UsageError(
                f"top with --{name}", "threads or processes of this host", "as in --service NAME"
            )
    if args.format == "csv" and not args.once:
        hint = "--format json gives a line for each interval"
        raise UsageError("--format csv for several intervals", "--once with it", hint)
    if sys.platform != "linux":
        raise UsageError("top records this host", "Linux", "on FreeBSD use schedscope capture")
    if os.geteuid():
        raise UsageError("top records this host", "root", "try sudo schedscope top")


class _Stopped(Exception):
    """Whether a signal asked to stop."""


@contextmanager
def _ended_by_signals() -> Iterator[list[int]]:
    """Ctrl-C, a closed terminal and the like end everything in order, once."""
    came: list[int] = []

    def stop(number: int, _frame: Any) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        came.append(number)
        raise _Stopped

    before: dict[int, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        before[number] = signal.signal(number, stop)
    try:
        yield came
    except BaseException:
        # What the signal interrupted may raise something else instead.
        if not came:
            raise
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _answer(interval: Interval, waiting: Waiting, args: argparse.Namespace) -> Answer:
    from schedscope.live.waiting import KEYS, MOST_UNKNOWN, busy_and_unknown, lost
    from schedscope.present.columns import choose

    by = args.by
    # Fed also when nothing is shown: it keeps track of unfinished waits.
    frame = waiting.table(interval, by, _selected(interval, args))
    trace, length = interval.trace, max(1, interval.end - interval.begin)
    busy, unknown = busy_and_unknown(interval)
    unsure = f", {units.percent(unknown)} unknown" if unknown else ""
    missing = lost(interval)
    if interval.gap:
        missing.append(f"{units.duration(interval.gap)} before: the ring was too small for them")
    counted = unknown <= MOST_UNKNOWN
    cpus = units.several(trace.ncpu, "CPU")
    if counted:
        waited = int(frame["waiting"].sum())
        several = units.several(int((frame["waiting"] > 0).sum()), *_NOUNS[by])
        found = f"{cpus}, {units.percent(busy)} busy{unsure}"
        found += f" · {several} waited for a CPU, {waited / length:.1f} at a time"
    else:
        frame = frame.clear()
        found = f"{cpus}{unsure}: too much of this interval is missing to count anything"
    head = [f"{_end(interval)}{units.duration(length)} · {found}"]
    head += [*(f"missing: {word}" for word in missing), ""]
    rows = args.top or (_fitting(head) if args.format == "table" else None)
    about: dict[str, Any] = {"begin": interval.begin, "end": interval.end, "ncpu": trace.ncpu}
    about |= {"busy_frac": busy if counted else None, "unknown_frac": unknown}
    return Answer(
        frame.head(rows) if rows else frame,
        choose(frame, [*KEYS[by], *frame.columns[len(KEYS[by]) :]], narrow=_NARROW)
        if counted
        else [],
        about={**about, "missing": missing, "time_unit": "ns"},
        head=head,
        rows_in_all=len(frame),
    )


def _end(interval: Interval) -> str:
    """The time of day at which the interval ended, if the recorder knows it."""
    try:
        end = interval.trace.time_of_day(interval.end)
    except UsageError:  # the host's clock was set meanwhile
        end = None
    return "" if end is None else f"{end:%H:%M:%S} · "


def _silent(form: str, seconds: float, answered: bool) -> None:
    """A message for the user while no table comes."""
    text = f"{time.strftime('%H:%M:%S')} · the first table is being made, for {seconds:.0f} s now"
    if answered:
        text = f"{time.strftime('%H:%M:%S')} · no table for {seconds:.0f} s: this host is very busy"
    if form == "table":
        _output.say(text)
        _output.flush()
    else:
        _output.complain(text)


def _selected(interval: Interval, args: argparse.Namespace) -> pl.Expr | None:
    """The selected threads; there may be none at the moment."""
    import polars as pl

    try:
        return _options.where_threads(args, interval.trace)
    except UsageError:
        return pl.lit(value=False)


def _fitting(head: Iterable[str]) -> int:
    """Rows for which there is room below these lines.

    Beside the rows there are headings, what was left out (rows, and columns, in up to two lines),
    and the cursor's line.
    """
    if not _output.redraws():
        return _ROWS
    taken = sum(len(sentence(line, _output.width())) for line in head)
    return max(3, shutil.get_terminal_size().lines - taken - 5)


def _show(answer: Answer, form: str) -> None:
    """Replaces the previous table; in a file it follows below."""
    if form == "json":
        _output.say_json_line(answer.document())
        _output.flush()
        return
    _output.clear()
    _output.say(*answer.lines(_output.width()), *([] if _output.redraws() else [""]))
    _output.flush()
