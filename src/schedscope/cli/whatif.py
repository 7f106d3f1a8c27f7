"""What if one setting were different?

The trace is replayed as it was configured, and with the change. Each service has three
rows: as recorded, as replayed, as changed. How far the replay of the recorded
configuration is from the recording shows how far the answer can be trusted, for each
figure: within a factor of 1.25 it is good, up to a factor of 2 it is doubtful (marked by
a question mark), and beyond that it is refused. So is the whole answer if waits have
other causes in the replay than in the recording. Ranges are those in which 9 of 10
recordings should lie while others take as much CPU time as here; a note, and columns
*_low and *_high, have those of any recording. They come from several replays, with other
seeds and with clock ticks at other instants, and are widened by the error of the replay
and by how far recordings of one workload usually lie apart.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from schedscope import units
from schedscope.cli import _change, _options
from schedscope.cli._progress import Progress
from schedscope.present.answer import Answer
from schedscope.present.headline import gaps, headline

if TYPE_CHECKING:
    from schedscope.simulator.runs.replay import Replay

GROUP = "simulate"
HELP = "effect of another nice value, mask, quota, CPUs or policy"
EXAMPLE = """\
  schedscope whatif web.capture --set-nice 'batch*=10'
  schedscope whatif web.capture --cpus 4 --by process
  schedscope whatif web.capture --pin web=0-1 --pin batch=2-3 --slice 1ms
  schedscope whatif web.capture --set-nice nginx=-5 --service nginx.service
  schedscope whatif web.capture --set-nice process:java=5 --by process
  schedscope whatif web.capture --quota /system.slice/web.service=50% --by cgroup
  schedscope whatif web-1.capture --again web-2.capture --again web-3.capture --cpus 4
  schedscope whatif web.capture --add-load 2 --set-class 'load-*=idle'
  schedscope whatif web.capture --policy bfs --format json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope whatif`."""
    _options.add_input(parser)
    parser.add_argument(
        "--again",
        metavar="TRACE",
        action="append",
        default=[],
        help="another capture of the same workload (repeat for more); with three captures or more"
        " in total, ranges come from how far they lie apart",
    )
    _change.add_change(
        parser,
        "the change (NAME is that of threads, which may have * and ?; a thread id; or as in the"
        " options below: process:java, service:nginx.service, cgroup:/web, cmdline:TEXT, tree:PID,"
        " pid:N)",
    )
    parser.add_argument(
        "--by",
        choices=("comm", "name", "process", "cgroup", "service"),
        type=lambda text: "process" if text == "process_name" else text,
        default="comm",
        help="what counts as a service; numbers in a name become * (default: comm)",
    )
    _options.add_selection(parser, what="of these threads only (--others: what the others do)")
    _options.add_others(parser)
    parser.add_argument(
        "--replays",
        type=int,
        default=5,
        metavar="N",
        help="replays of each configuration (default: 5)",
    )
    parser.add_argument("--seed", type=int, default=1, help="first random seed (default: 1)")
    _options.add_top(parser, 8, what="the first N services")
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Answer:
    """Three rows per service."""
    import polars as pl

    from schedscope.present.whatif_table import whatif_table
    from schedscope.simulator.changes.alternatives import alternatives
    from schedscope.simulator.changes.change import change
    from schedscope.simulator.changes.notes import whatif_notes
    from schedscope.simulator.changes.whatif import answers
    from schedscope.simulator.policies.policy import called
    from schedscope.simulator.runs.nearest_way import nearest_ways

    _options.check_top(args, "services")
    change_to = _change.asked(args)
    _options.check_replayed(args, "whatif")
    first = _options.open_input(args)
    traces = [first, *(_options.open_path(args, path) for path in args.again)]
    by = "process_name" if args.by == "process" else args.by
    ways = nearest_ways(traces, [_options.where_threads(args, one) for one in traces], args.others)
    wanted = [change(way, **change_to) for way in ways]
    other = [alternatives(way, change_to, args.others) for way in ways]
    with Progress("replaying") as progress:
        frame = answers(
            ways,
            wanted,
            other=other,
            by=by,
            replays=args.replays,
            seed=args.seed,
            progress=lambda now, events: progress.note(
                now, first.duration, lambda: f"{units.count(events)} events"
            ),
        )
    services = frame[by].unique(maintain_order=True)
    top = _options.top(args, 8)
    kept = services if top is None else services.head(top)
    rows = frame.filter(pl.col(by).is_in(kept.implode()))
    shown, columns = whatif_table(rows)
    return Answer(
        rows,
        columns,
        about={
            "trace": first.name,
            "again": [one.name for one in traces[1:]],
            "change": wanted[0].words,
            "recorded_policy": ways[0].policy,
            "policy": called(wanted[0].policy),
            "replays": args.replays,
            "others": ways[0].workload.info["others"] if _options.selects_threads(args) else None,
            "costs": vars(ways[0].costs),
            "window": list(first.window),
            "services_in_all": len(services),
            "notes": whatif_notes(traces, frame),
        },
        head=[
            *(line for way in ways for line in _about(way)),
            *_options.others_taken(args, ways[0].workload.info["others"]),
            f"changed: {', '.join(wanted[0].words)}",
            "",
        ],
        notes=whatif_notes(traces, frame),
        rows_in_all=len(frame),
        shown=shown,
        rest=units.several(len(services) - len(kept), "more service"),
    )


def _about(way: Replay) -> list[str]:
    trace = way.trace
    named = trace.info.get("release") or trace.metadata("scheduler", "name")
    under = (
        f"recorded under a scheduler modelled by {way.policy}"
        if named
        else f"the kernel was not recorded: {way.policy} is assumed"
    )
    cpus = units.several(trace.ncpu, "CPU")
    text = f"{trace.name}: {cpus}, {units.duration(trace.duration)}, {under}"
    return [text, *(headline(trace)[1:] if gaps(trace) else [])]
