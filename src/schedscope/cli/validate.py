"""Check tables that another program wrote against the trace model.

FOLDER holds `switches.parquet` (or .csv, .arrow, .feather) and any other fact tables, and
optionally a `trace.json` with `ncpu`, `window`, `os`. Each problem is one line: the
table, what was found, and what was expected. If there are no problems, every other
command can open the folder like a capture.

--columns lists the columns that a table needs, with their types.
"""

from __future__ import annotations

import argparse

from schedscope.errors import UsageError
from schedscope.present.answer import Answer, Facts
from schedscope.present.columns import choose

GROUP = "exchange tables and traces"
HELP = "check tables from elsewhere against the trace model"
EXAMPLE = """\
  schedscope validate mysim-output/
  schedscope validate --columns switches
  schedscope latency mysim-output/
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `schedscope validate`."""
    parser.add_argument("folder", metavar="FOLDER", nargs="?", help="the folder with the tables")
    parser.add_argument("--columns", metavar="TABLE", help="list the columns of a table instead")
    parser.add_argument("--format", choices=("table", "json", "csv"), default="table")


def run(args: argparse.Namespace) -> Answer | Facts:
    """The problems; exit code 1 if there are any."""
    from pathlib import Path

    import polars as pl

    from schedscope.parsers import schema, tables

    if args.columns:
        if args.columns not in schema.TABLES:
            raise UsageError(
                f"no table {args.columns!r}", "a table", "one of " + ", ".join(schema.TABLES)
            )
        table = schema.TABLES[args.columns]
        rows = [
            (
                column.name,
                schema.kind_of(column.dtype),
                "may be null" if column.nullable else "",
                column.doc,
            )
            for column in table.columns
        ]
        frame = pl.DataFrame(rows, schema=["column", "type", "null", "says"], orient="row")
        columns = choose(frame, frame.columns, question="validate")
        return Answer(frame, columns, head=[f"{args.columns}: {table.row}", ""])
    if not args.folder:
        raise UsageError("no folder given", "FOLDER, or --columns TABLE")
    folder = Path(args.folder)
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", "a folder with a file for each table")
    found = tables.problems(folder)
    rows_in = {} if found else tables.read(folder)[1]["rows"]
    if not found and args.format == "table":
        sizes = ", ".join(f"{name} {n:,}" for name, n in rows_in.items())
        return Facts({}, [f"{folder}: valid; {sizes}"])
    frame = pl.DataFrame(
        [(p.table, p.found, p.expected, p.hint) for p in found],
        schema=dict.fromkeys(["table", "found", "expected", "hint"], pl.String),
        orient="row",
    )
    columns = choose(frame, frame.columns, question="validate")
    return Answer(frame, columns, exit_code=1 if found else 0)
