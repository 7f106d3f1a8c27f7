"""Write a trace in the format of another tool.

perfetto   one protobuf file: open it in https://ui.perfetto.dev, or query it
           with trace_processor. FreeBSD and simulated traces too.
trace.dat  for trace-cmd, KernelShark and other users of libtraceevent
chrome     trace-event JSON for chrome://tracing; small traces only
parquet    a folder with one Parquet file for each table, and trace.json
csv        the same as CSV

With a selection CPUs stay whole, since a CPU without the other threads would look idle.
perfetto and chrome get the waits of the selected threads only. parquet and csv get the
rows about these threads, for queries; such a folder cannot be opened as a trace.
trace.dat has nothing but the events of CPUs, and takes no selection.
"""

from __future__ import annotations

import argparse

from schedscope import units
from schedscope.cli import _options, _output

GROUP = "exchange tables and traces"
HELP = "write a trace for Perfetto, Chrome, DuckDB, ..."
EXAMPLE = """\
  schedscope export web.capture --to perfetto -o web.pftrace
  schedscope export freebsd.capture --to perfetto --no-waits
  schedscope export perf.data --to csv -o tables/
  schedscope export web.capture --to csv --service nginx.service -o nginx/
"""

_SUFFIX = {
    "perfetto": ".pftrace",
    "trace.dat": ".dat",
    "chrome": ".trace.json",
    "parquet": ".parquet",
    "csv": ".csv",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope export`."""
    _options.add_input(parser)
    parser.add_argument(
        "--to", required=True, choices=tuple(_SUFFIX), help="the format (see above)"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        help="the file or folder to write (default: INPUT's name, in the current folder)",
    )
    parser.add_argument(
        "--no-waits",
        action="store_true",
        help="perfetto: leave out the slice for every wait (a third of the size)",
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace PATH")
    _options.add_selection(parser, what="waits of these threads, or rows about them")


def run(args: argparse.Namespace) -> int:
    """Export, then say what was written."""
    from pathlib import Path

    from schedscope.exports.write import export

    _options.refuse_cpu(args, "export", "the CPUs are whole in every format")
    trace = _options.open_input(args)
    where = _options.where_threads(args, trace)
    output = args.output or Path(args.input).name.split(".")[0] + _SUFFIX[args.to]
    notes: list[str] = []
    path = export(
        trace,
        output,
        args.to,
        waits=not args.no_waits,
        where=where,
        force=args.force,
        notes=notes,
    )
    files = [path] if path.is_file() else sorted(path.iterdir())
    size = sum(file.stat().st_size for file in files)
    _output.say(f"wrote {path} ({units.size(size)})")
    for note in notes:
        _output.say(note)
    if args.to == "perfetto":
        _output.say("open it in https://ui.perfetto.dev (the file stays on this machine)")
    return 0
