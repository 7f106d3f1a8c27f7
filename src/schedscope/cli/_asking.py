"""A command as its question declares it: options, the question, the table.

`cli/NAME.py` has what is special to one, each only if needed:

* `add_options(parser)`: more options;
* `refuse(args)`: raises `UsageError` for options that do not go together;
* `ask(args, trace, where=..., by=...) -> frame`: asks with them, in place of the question;
* `rows(args, frame) -> frame`: which of its rows belong into the table, before `--top` cuts it;
* `words(args, trace, frame, shown) -> Words`: sentences around the table, and words in it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from schedscope.cli import _options
from schedscope.present import headline
from schedscope.present.answer import Answer
from schedscope.present.columns import choose

if TYPE_CHECKING:
    import polars as pl

    from schedscope.analysis.asking.command import Command
    from schedscope.cli._commands import Entry


@dataclass(frozen=True)
class Words:
    """What a command adds to the table that its question declares, or shows in its place."""

    about: Mapping[str, Any] = field(default_factory=dict)
    head: Sequence[str] = ()
    notes: Sequence[str] = ()
    table: pl.DataFrame | None = None
    """The rows with words in place of some numbers."""
    columns: str | None = None
    narrow: str | None = None


def add_arguments(entry: Entry, parser: argparse.ArgumentParser) -> None:
    """The options that the declaration asks for."""
    command = entry.declared
    _options.add_input(parser)
    if command.by_help:
        parser.add_argument(
            "--by", choices=command.by, default=command.by_default, help=command.by_help
        )
    elif command.by:
        _options.add_by(parser, command.by, command.by_default)
    _own(entry, "add_options", parser)
    if command.top_default is not None:
        _options.add_top(parser, command.top_default, what=command.top)
    elif command.top:
        parser.add_argument("--top", type=int, metavar="N", help=f"only {command.top}")
    _options.add_selection(parser, what=command.selects)
    _options.add_format(parser)


def run(entry: Entry, args: argparse.Namespace) -> Answer:
    """The answer to the question, with the selected threads, as declared."""
    command = entry.declared
    if command.top:
        _options.check_top(args)
    _own(entry, "refuse", args)
    asked = {"by": _by(command, args)} if command.by else {}
    if command.no_cpu:
        _options.refuse_cpu(args, entry.name, command.no_cpu)
    trace = _options.open_input(args)
    where = (_options.where_threads if command.no_cpu else _options.where)(args, trace)
    frame: pl.DataFrame | None = _own(entry, "ask", args, trace, **asked, where=where)
    if frame is None:
        question = getattr(import_module(entry.question_module), _stem(entry))
        frame = question(trace, **asked, where=where)
    rows: pl.DataFrame | None = _own(entry, "rows", args, frame)
    if rows is None:
        rows = frame
    shown = rows[: _top(command, args)] if command.top else rows
    words = _own(entry, "words", args, trace, frame, shown) or Words()
    table = shown if words.table is None else words.table
    columns = command.columns if words.columns is None else words.columns
    nothing = [command.nothing] if command.nothing and frame.is_empty() else []
    return Answer(
        shown,
        choose(
            table,
            _named(columns, frame),
            question=_stem(entry),
            narrow=command.narrow if words.narrow is None else words.narrow,
            origin=trace.origin,
        ),
        about={**headline.about(trace), **words.about},
        head=[*headline.headline(trace), *words.head, ""],
        notes=[*nothing, *words.notes],
        rows_in_all=rows.height if command.top else None,
        rest=command.rest,
        shown=table,
    )


def _by(command: Command, args: argparse.Namespace) -> str | list[str]:
    if command.by_help or args.by == command.each:
        return str(args.by)
    return _options.groups(args.by, command.by)


def _top(command: Command, args: argparse.Namespace) -> int | None:
    if command.top_default is None:
        given: int | None = args.top
        return given
    return _options.top(args, command.top_default)


def _named(columns: str, frame: pl.DataFrame) -> list[str]:
    """The names, in place of `*by` the columns of the frame up to the next that is named."""
    names = columns.split()
    if "*by" not in names:
        return names
    at = names.index("*by")
    keys = frame.columns[: frame.columns.index(names[at + 1].rstrip("?"))]
    return [*names[:at], *keys, *names[at + 1 :]]


def _stem(entry: Entry) -> str:
    return entry.name.replace("-", "_")


def _own(entry: Entry, name: str, *args: Any, **named: Any) -> Any:
    """The result of a function of `cli/NAME.py`; None without that function."""
    found = getattr(entry.module, name, None) if entry.own else None
    return found(*args, **named) if found else None
