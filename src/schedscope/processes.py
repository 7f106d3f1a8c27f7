"""Which threads are yours: a selection by process, for `where=` of every question."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from numbers import Integral
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.threads.of_threads import threads_with
from schedscope.errors import UsageError
from schedscope.units import several

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


def of_processes(
    trace: Trace,
    *,
    process: str | Iterable[str] | None = None,
    cgroup: str | Iterable[str] | None = None,
    service: str | Iterable[str] | None = None,
    cmdline: str | Iterable[str] | None = None,
    tree: int | Iterable[int] | None = None,
    workload: bool = False,
) -> pl.Expr:
    """An expression for `where=`: the threads of the processes that match everything given.

    `process` (a name), `cgroup`, `service` (the units and containers that the path of the control
    group names, as in `nginx.service`, `docker-0123456789ab` or `user@7.service/nginx.service`) and
    `cmdline` are patterns (`*` any text, `?` any character); a pattern for `cmdline` may match any
    part of it. `tree`: these processes and all their descendants. `workload`: the processes that
    `capture -- COMMAND` started, and their descendants. Several values of one of these are
    alternatives.

    Raises `UsageError` if the trace lacks these columns, and its subclass `NoMatchError` if no
    process matches.

    >>> threads = pl.DataFrame({"utid": [1, 2, 3], "comm": ["nginx", "nginx", "sh"],
    ...     "pid": [7, 8, 9], "ppid": [9, 7, 1], "process_name": ["nginx", "nginx", "sh"]})
    >>> from schedscope import Trace
    >>> trace = Trace.from_tables({"threads": threads}, {"ncpu": 1, "window": [0, 1]})
    >>> threads.filter(of_processes(trace, tree=7))["pid"].to_list()
    [7, 8]
    """
    texts = {"process_name": process, "cgroup": cgroup, "service": service, "cmdline": cmdline}
    given_texts = {name: given for name, given in texts.items() if given is not None}
    known = threads_with(trace, given_texts).filter(pl.col("pid").is_not_null())
    rows = known.select("pid", "ppid", *given_texts).collect()
    chosen = [pl.lit(True)]
    asked = []
    for name, given in given_texts.items():
        patterns = _list(given)
        asked.append(f"{name.removesuffix('_name')} {' or '.join(map(brief, patterns))}")
        if rows[name].is_null().all():
            raise UsageError(
                f"{trace.name} has no {name} of any thread",
                f"a capture made by `schedscope capture`, which records each process's {name}",
                "record again, or select with --comm, --pid or --tid",
            )
        chosen.append(pl.col(name).str.contains(_regex(patterns, whole=name != "cmdline")))
    if workload:
        pid = trace.metadata("workload", "pid")
        if pid is None:
            raise UsageError(
                f"{trace.name} was not recorded around a command",
                "`schedscope capture -- COMMAND`",
                "select with --process or --tree",
            )
        asked.append("workload")
        mine = _descendants(rows, {int(pid)})
        if rows.filter(pl.col("pid").is_in(sorted(mine))).is_empty():
            raise NoMatchError(*_without_workload(trace, int(pid)))
        chosen.append(pl.col("pid").is_in(sorted(mine)))
    if tree is not None:
        given_pids = (
            list(tree) if isinstance(tree, Iterable) and not isinstance(tree, str) else [tree]
        )
        for pid in given_pids:
            if isinstance(pid, bool) or not isinstance(pid, Integral):
                raise UsageError(f"tree={pid!r}", "the number of a process, or several")
        asked.append(f"tree {' or '.join(map(str, given_pids))}")
        chosen.append(pl.col("pid").is_in(sorted(_descendants(rows, set(given_pids)))))
    pids = rows.filter(*chosen)["pid"].unique().sort()
    if pids.is_empty():
        hint = "`schedscope latency --by process,service,cgroup` lists them"
        known_texts = {name: rows[name].unique().drop_nulls().to_list() for name in given_texts}
        close = [nearest(_list(given), known_texts[name]) for name, given in given_texts.items()]
        if any(close):
            hint = f"did you mean {' or '.join(filter(None, close))}?"
        elif len(asked) > 1:
            hint = "a process must match everything given; an option given twice selects more"
        raise NoMatchError(f"no process of {trace.name} matches {' and '.join(asked)}", hint=hint)
    return pl.col("pid").is_in(pids.implode())


def _without_workload(trace: Trace, pid: int) -> tuple[str, str, str]:
    """Why none of the recorded command's processes is known: found, expected, hint."""
    command = trace.metadata("workload", "command")
    called = brief(shlex.join(command) if isinstance(command, list) else str(command or ""))
    gaps = trace.losses.select(pl.len()).collect().item()
    lost = f"; {several(gaps, 'gap')} in the trace may have held it" if gaps else ""
    return (
        f"{trace.name} has no event of the recorded command {called} (process {pid}), nor of a"
        f" child of it{lost}",
        "the command's start, from which its other processes are known",
        "select its threads by --comm, --process or --cmdline; a larger buffer (`capture"
        " -b`) keeps the start",
    )


def _list(given: str | Iterable[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def brief(text: str) -> str:
    """A pattern as it would be typed, at a length for a sentence."""
    return shlex.quote(text if len(text) <= _LONG else text[: _LONG - 3] + "...")


_LONG = 60


def nearest(patterns: Iterable[str], names: Sequence[str]) -> str:
    """Names that were probably meant by these patterns, none of which matches.

    A part of a name is taken for a pattern.

    >>> nearest(["worker"], ["kworker", "web"]), nearest(["wbe"], ["kworker", "web"])
    ("'*worker'", 'web')
    """
    close = []
    for text in patterns:
        if not text or text in names or len(text) > _LONG:
            continue
        if parts := [name for name in names if text in name]:
            close.append(shlex.quote(_pattern(text, parts)))
        else:
            close += get_close_matches(text, names, 3)
    return " or ".join(dict.fromkeys(close))


def _pattern(text: str, names: Iterable[str]) -> str:
    """The narrowest pattern for all names with this text in them."""
    before = "" if all(name.startswith(text) for name in names) else "*"
    after = "" if all(name.endswith(text) for name in names) else "*"
    return f"{before}{text}{after}"


class NoMatchError(UsageError):
    """Nothing in the trace matches, although it has the columns needed."""


def named(patterns: Iterable[str]) -> pl.Expr:
    """The threads whose names match one of these patterns."""
    return pl.col("comm").str.contains(_regex(list(patterns), whole=True))


def _regex(patterns: list[str], *, whole: bool) -> str:
    # Not fnmatch: names have brackets.
    parts = [re.escape(text).replace(r"\*", ".*").replace(r"\?", ".") for text in patterns]
    text = "|".join(f"(?:{part})" for part in parts)
    # Any text: names may have line breaks.
    return f"(?s)^(?:{text})$" if whole else f"(?s){text}"


def _descendants(rows: pl.DataFrame, roots: set[int]) -> set[int]:
    children: dict[int, set[int]] = {}
    for pid, ppid in rows.select("pid", "ppid").drop_nulls().unique().iter_rows():
        children.setdefault(ppid, set()).add(pid)
    found, open_ = set(roots), list(roots)
    while open_:
        new = children.get(open_.pop(), set()) - found
        found |= new
        open_ += new
    return found
