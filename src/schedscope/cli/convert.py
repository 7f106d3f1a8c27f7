"""Convert a capture or another tool's trace to the tables of the trace model.

Writes a .sched folder: trace.json and one Parquet file for each table, which
Polars, DuckDB, pandas and Spark read without schedscope. Every other command
converts its input when needed; use this one to choose where the tables are kept, or
to pass them on.
"""

from __future__ import annotations

import argparse

from schedscope import units
from schedscope.cli import _options
from schedscope.cli._progress import Progress
from schedscope.present import headline
from schedscope.present.answer import Facts

GROUP = "exchange tables and traces"
HELP = "write the tables of a trace as Parquet"
EXAMPLE = """\
  schedscope convert web.capture -o web.sched
  schedscope convert trace.dat -O buffer=judge -o judge.sched
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope convert`."""
    parser.add_argument(
        "input", metavar="INPUT", help="a capture folder, or a trace file of another tool"
    )
    parser.add_argument(
        "-o", "--output", metavar="NAME.sched", help="the folder to write (default: beside INPUT)"
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace an older .sched folder")
    _options.add_jobs(parser)
    _options.add_decoder_options(parser)
    _options.add_refused_selection(parser)
    _options.add_format(parser)


def run(args: argparse.Namespace) -> Facts:
    """Convert, then say what was written."""
    from schedscope.store.opening import convert

    _options.refuse_selection(
        args,
        "convert",
        "the whole recording, as CPUs without the other threads would look idle",
        "give the selection to the command that reads the tables, or to `export --to parquet`",
    )
    with Progress(f"converting {args.input}") as progress:
        trace = convert(
            args.input,
            args.output,
            force=args.force,
            options=_options.decoder_options(args),
            progress=progress,
            jobs=args.jobs,
        )
    assert trace.path is not None
    size = sum(file.stat().st_size for file in trace.path.iterdir())
    rows = {name: n for name, n in (trace.info.get("rows") or {}).items() if n}
    lines = [
        *headline.headline(trace),
        f"wrote {trace.path} ({units.size(size)}): "
        + ", ".join(f"{name} {n:,}" for name, n in rows.items()),
    ]
    about = {**headline.about(trace), "path": str(trace.path), "bytes": size, "rows": rows}
    return Facts(about, lines)
