"""Which threads of a replay an argument names: by name, by number, or as a selection.

`web*` and `4711` are the name and the number of a thread. `process:java`, `service:nginx.service`,
`cgroup:/web`, `cmdline:--port`, `tree:4711` and `pid:4711` are the options of that name of every
command (docs/selections.md), and `comm:` and `tid:` are the default.
"""

from __future__ import annotations

import re
from difflib import get_close_matches

import polars as pl

from schedscope.analysis.threads.of_threads import chosen_threads
from schedscope.errors import UsageError
from schedscope.processes import named, of_processes
from schedscope.simulator.runs.replay import Replay
from schedscope.simulator.workloads.workload import Workload

OF_PROCESSES = ("process", "service", "cgroup", "cmdline")
NUMBERS = ("pid", "tid", "tree")
KINDS = ("comm", *OF_PROCESSES, *NUMBERS)


def kind_of(text: str) -> tuple[str | None, str]:
    """The word before the colon, if it is one of these, and the rest.

    >>> kind_of("tree:4711"), kind_of("kworker/0:1")
    (('tree', '4711'), (None, 'kworker/0:1'))
    """
    word, colon, rest = text.partition(":")
    return (word, rest) if colon and word in KINDS else (None, text)


def matching(way: Replay, workload: Workload, text: str) -> pl.Series:
    """Which threads of `workload`, a change of what `way` replays, are named by this.

    Raises `UsageError` if none is.
    """
    kind, rest = kind_of(text)
    if kind is None or kind == "comm":
        return _by_name(workload, rest, number=kind is None)
    if kind in NUMBERS and not re.fullmatch("[0-9]{1,9}", rest):
        raise UsageError(f"{text!r}", "a number", f"as in {kind}:4711")
    if kind in OF_PROCESSES:
        chosen = of_processes(way.trace, **{kind: rest})  # type: ignore[arg-type]
    elif kind == "tree":
        chosen = of_processes(way.trace, tree=int(rest))
    else:
        chosen = pl.col(kind) == int(rest)
    mine = set(chosen_threads(way.trace, chosen).to_list())
    # Added load is not a thread of the recording.
    added = [None] * (workload.threads.height - len(way.origins))
    found = pl.Series([utid in mine for utid in [*way.origins, *added]], dtype=pl.Boolean)
    if not found.any():
        raise UsageError(
            f"no thread of {text!r}" + (" is replayed" if mine else ""),
            _expected(workload, "a thread"),
            "`latency --by process,pid,tid` lists them",
        )
    return found


def _by_name(workload: Workload, text: str, *, number: bool) -> pl.Series:
    threads = workload.threads
    found = threads.select(comm="name").select(named([text]))["comm"]
    if not found.any() and number and text.isdigit():
        found = (threads["tid"] == int(text)).fill_null(False)
    if not found.any():
        close = get_close_matches(text, threads["name"].unique().sort().to_list(), 3)
        hint = (
            f"did you mean {' or '.join(map(repr, close))}?"
            if close
            else "`latency --by comm` lists names"
        )
        raise UsageError(f"no thread {text!r}", _expected(workload, "the name of a thread"), hint)
    return found


def _expected(workload: Workload, what: str) -> str:
    info = workload.info
    if not info.get("threads_left_out"):
        return f"{what}, one of the trace"
    rest = "or of the others" if info["others"] == "replay" else "which are those replayed"
    return f"{what}, one of the selected threads, {rest}"
