"""How the command line asks a question and shows its answer, declared beside `@needs`.

`COMMAND = Command(...)` in the file of a question is read as text for help, which must not load
Polars: a declaration may use only the names of this file, which loads nothing either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

THREAD_ROWS = ("thread", "comm", "process", "cgroup", "service")
"""What a row about threads may be about, where a question has no other groups."""

THREAD_GROUPS = (
    *("comm", "pid", "tid", "utid", "process_name", "cgroup", "service", "cmdline", "ppid"),
    *("sched_class", "kernel", "affinity", "recorder"),
)
"""Columns of threads that rows may be grouped by."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command's description, and how it calls its question, selects and prints.

    The command's name is that of the question's file, and the file's docstring its description.
    """

    heading: str
    """Under which it stands in the list of commands."""
    help: str
    """Its line there."""
    example: str
    page: str
    """Where the answer is defined."""

    by: Sequence[str] = ()
    """What a row may be about; nothing for a question that leaves no choice."""
    by_default: str = ""
    by_help: str = ""
    """If it is one word of these; without it, it is a list of columns."""
    each: str = ""
    """The word for rows that are no groups."""
    top: str = ""
    """Which rows `--top N` keeps; empty: there is no `--top`."""
    top_default: int | None = None
    """How many rows a table has without it; None for all."""
    selects: str = "rows about these threads and CPUs"
    """What a selection restricts."""
    no_cpu: str = ""
    """Why nothing can be selected by CPU."""

    columns: str = ""
    """Those of the table, as `present.columns.choose` takes them; `*by` are those of the groups.
    Empty: `cli/NAME.py` shows the answer."""
    narrow: str = ""
    """Those that a narrow terminal leaves out, the first one first."""
    rest: tuple[str, str] = ("more row", "")
    """What a row that is left out is called, and why it is."""
    nothing: str = ""
    """Said below a table without rows."""
