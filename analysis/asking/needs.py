"""What a question needs from a trace, declared once; a trace without it is refused in one sentence.

`@needs("wakeups")` above a public question is the declaration. From it come the error, which names
how to record what is missing, and the last line of the docstring. docs/opening-traces.md lists what
may be missing. An empty table would look like good news.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakKeyDictionary

import polars as pl

from schedscope.analysis.asking.arguments import check_trace, check_traces, selecting
from schedscope.errors import MissingEventsError, UsageError
from schedscope.parsers.schema import TABLES

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

Question = TypeVar("Question", bound=Callable[..., Any])


@dataclass(frozen=True)
class Need:
    """Something that a trace may lack."""

    what: str
    """In words, after "has no"."""
    record: str
    """What to do to have it the next time."""
    is_there: Callable[[Trace], bool]


def _any(table: pl.LazyFrame) -> bool:
    return table.head(1).collect().height > 0


# Tables made by hand say nothing of what was recorded: then nothing is known to be missing.


def _has_switches(trace: Trace) -> bool:
    if "events" not in trace.info:
        return True
    return any(map(_any, (trace.states, trace.switches, trace.waits)))


def _any_wait(trace: Trace, *causes: str) -> bool:
    return _any(trace.waits.filter(pl.col("cause").cast(pl.String).is_in(causes)))


def _declared_wakeups(trace: Trace) -> list[bool | None]:
    return [trace.info.get(name) for name in ("has_waking", "has_enqueued")]


def _has_wakeup_events(trace: Trace) -> bool:
    told = _declared_wakeups(trace)
    if None in told or _any(trace.wakeups):
        return True
    # A trace.dat declares all events of the kernel, whichever were recorded.
    return any(told) and not _any_wait(trace, "unknown")


def _has_wakeups(trace: Trace) -> bool:
    declared = any(_declared_wakeups(trace))
    return declared or _has_wakeup_events(trace) or _any_wait(trace, "wake", "new")


def _has_affinity(trace: Trace) -> bool:
    return _any(trace.threads.filter(pl.col("affinity").is_not_null()))


_RECORD_WAKEUPS = (
    "record sched_waking and sched_wakeup, too: `schedscope capture` does, as do"
    " `perf sched record` and `trace-cmd record -e sched`"
)

NEEDS = {
    "switches": Need(
        "context switches",
        "record sched_switch: `schedscope capture` does, as do `perf sched record` and"
        " `trace-cmd record -e sched`",
        _has_switches,
    ),
    "wakeups": Need("wakeups", _RECORD_WAKEUPS, _has_wakeups),
    # Without wakeups, threads still run again after they slept; only the waker and the time are
    # missing.
    "wakeup_events": Need("wakeups", _RECORD_WAKEUPS, _has_wakeup_events),
    "competitors": Need(
        "record of all threads",
        "record without a filter, and select threads afterwards",
        lambda trace: "filtered" not in trace.info,
    ),
    "affinity": Need(
        "CPU affinity of any thread",
        "record with `schedscope capture`, which records the CPUs that each thread may use",
        _has_affinity,
    ),
    "system_calls": Need(
        "system calls",
        "record them on Linux with `schedscope capture --with syscalls`",
        lambda trace: _any(trace.system_calls),
    ),
    "locks": Need(
        "locks of the kernel that threads waited for",
        "record them on Linux 5.19 or newer with `schedscope capture --with locks`",
        lambda trace: _any(trace.locks),
    ),
    "disk_requests": Need(
        "requests to disks",
        "record them on Linux with `schedscope capture --with block`",
        lambda trace: _any(trace.disk_requests),
    ),
    "sleep_reasons": Need(
        "the kernel's reasons for sleeps",
        "record them on Linux with `schedscope capture --with stacks`; or sched_blocked_reason"
        " (Android) or sched_stat_iowait (kernels with schedstats) with the scheduler's events, by"
        " perf, trace-cmd or Perfetto",
        lambda trace: _any(trace.sleep_reasons),
    ),
    "dispatch_queues": Need(
        "dispatch queues of sched_ext",
        "record them on Linux 6.12 or newer with `schedscope capture --with scx`, while a scheduler"
        " of sched_ext is loaded",
        lambda trace: _any(trace.dispatch_queues),
    ),
    "kicks": Need(
        "kicks of CPUs by a scheduler of sched_ext",
        "record them on Linux 6.12 or newer with `schedscope capture --with scx`, while a scheduler"
        " is loaded that calls scx_bpf_kick_cpu",
        lambda trace: _any(trace.kicks),
    ),
    "queue_load": Need(
        "queue lengths reported by the kernel",
        "FreeBSD reports them (`schedscope capture` there); Linux does not",
        lambda trace: _any(trace.queue_load),
    ),
}

QUESTIONS: dict[str, tuple[str, ...]] = {}
"""What each public question needs, by its name. Filled as the questions' modules are loaded."""

_found: WeakKeyDictionary[Trace, dict[str, bool]] = WeakKeyDictionary()


def needs(*names: str) -> Callable[[Question], Question]:
    """Declare what a question, a function of one or more traces, needs of each of them."""

    def declare(question: Question) -> Question:
        name = question.__name__
        QUESTIONS[name] = names
        first = next(iter(signature(question).parameters.values()))
        check = check_trace if first.annotation == "Trace" else check_traces
        # A function that makes an expression for each trace is asked for it by the question.
        makes = question.__annotations__.get("where") == "Where"

        @wraps(question)
        def asked(*args: Any, **options: Any) -> Any:
            for value in args[:1] if check is check_trace else args:
                check(value, name)
            if not args and first.name in options:
                check(options[first.name], name)
            for trace in _traces([*args, *options.values()]):
                require(trace, name)
            where = options.get("where")
            with nullcontext() if makes and callable(where) else selecting(where):
                try:
                    return question(*args, **options)
                except pl.exceptions.ColumnNotFoundError as missing:
                    for trace in _traces([*args, *options.values()]):
                        _check_columns(trace, str(missing), name)
                    raise

        if names:
            what = " and ".join(NEEDS[need].what for need in names)
            asked.__doc__ = f"{(question.__doc__ or '').rstrip()}\n\n    Needs {what}.\n    "
        return cast("Question", asked)

    return declare


def _check_columns(trace: Trace, missing: str, question: str) -> None:
    """Raise `UsageError` if a table from another program lacks the column that Polars misses."""
    column = re.search(r'"(\w+)"', missing)
    for table, declared in TABLES.items():
        if column and column[1] in declared.schema:
            frame: pl.LazyFrame = getattr(trace, table)
            if column[1] not in frame.collect_schema().names():
                raise UsageError(
                    f"table {table} has no column {column[1]}, which {question} needs",
                    "the columns of docs/trace-model.md",
                    "add it, of nulls if it is not known",
                ) from None


def require(trace: Trace, question: str) -> None:
    """Raise `MissingEventsError` if `trace` lacks what `question` needs."""
    for need in QUESTIONS[question]:
        require_also(trace, need, question)


def require_also(trace: Trace, need: str, what: str) -> None:
    """Raise `MissingEventsError` if `trace` lacks what `what`, a way of asking, needs besides."""
    if not has(trace, need):
        raise MissingEventsError(
            f"{trace.name} has no {NEEDS[need].what}",
            f"what {what} is computed from",
            NEEDS[need].record,
        )


def has(trace: Trace, need: str) -> bool:
    """Whether the trace has what is needed; looked up once per trace."""
    known = _found.setdefault(trace, {})
    if need not in known:
        known[need] = NEEDS[need].is_there(trace)
    return known[need]


def _traces(values: Sequence[Any]) -> list[Trace]:
    from schedscope.store.trace import Trace

    found: list[Trace] = []
    for value in values:
        if isinstance(value, Trace):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += [one for one in value if isinstance(one, Trace)]
    return found
