"""Options that several commands share, and what they stand for."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from schedscope.analysis.cpus.many_cpus import FEW_CPUS, SHOWN_CPUS
from schedscope.cli._progress import Progress
from schedscope.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

    from schedscope.store.trace import Trace

_Found = TypeVar("_Found")

# More than Polars counts in a frame.
MOST_ROWS = (1 << 32) - 1
INPUT_HELP = "a capture folder, a .sched folder, or a trace file of another tool"


def add_input(parser: argparse.ArgumentParser, name: str = "input") -> None:
    """The trace to work on, which part of it, and how to cache it."""
    parser.add_argument(name, metavar=name.upper(), help=INPUT_HELP)
    add_window(parser)
    add_cache(parser)


def add_window(parser: argparse.ArgumentParser) -> None:
    """`--since` and `--until`: which part of the recording; `open_input` cuts it."""
    window = parser.add_argument_group("only this part of the recording")
    what = (
        "as in 2.5: seconds from its start, as printed; with a unit; or a time of day, as in 12:03"
    )
    window.add_argument("--since", metavar="TIME", help=f"from this time on ({what})")
    window.add_argument("--until", metavar="TIME", help="up to this time")


_COMBINED = """\
An option can be repeated, which selects more; different options together select less.
In names * stands for any text and ? for one character."""


def add_selection(
    parser: argparse.ArgumentParser, *, what: str = "rows about these threads and CPUs"
) -> None:
    """Which threads and CPUs the result is about; `where` makes an expression of it."""
    select = parser.add_argument_group(f"only {what}", _COMBINED)
    select.add_argument(
        "--comm",
        metavar="NAME",
        action="append",
        help="threads of this name",
    )
    select.add_argument("--pid", type=int, action="append", help="threads of this process")
    select.add_argument("--tid", type=int, action="append", help="this thread")
    select.add_argument("--cpu", type=int, action="append", help="this CPU")
    _add_processes(select)


def _add_processes(select: argparse._ArgumentGroup) -> None:
    select.add_argument(
        "--process", metavar="NAME", action="append", help="threads of processes of this name"
    )
    select.add_argument(
        "--cgroup",
        metavar="PATH",
        action="append",
        help="threads of processes in this control group; /web/* selects the groups below /web",
    )
    select.add_argument(
        "--service",
        metavar="NAME",
        action="append",
        help="threads of processes of this unit or container, as in nginx.service",
    )
    select.add_argument(
        "--cmdline",
        metavar="TEXT",
        action="append",
        help="threads of processes with this text in their command line",
    )
    select.add_argument(
        "--tree",
        metavar="PID",
        type=int,
        action="append",
        help="threads of this process and its descendants",
    )
    select.add_argument(
        "--workload",
        action="store_true",
        help="threads of the processes that `capture -- COMMAND` started",
    )


def add_refused_selection(parser: argparse.ArgumentParser) -> None:
    """The options of `add_selection`, unlisted: `refuse_selection` says what to use instead."""
    for option in ("comm", "pid", "tid", "cpu", *_OF_PROCESSES):
        action = "store_true" if option == "workload" else "append"
        parser.add_argument(f"--{option}", action=action, help=argparse.SUPPRESS)


def refuse_selection(args: argparse.Namespace, answer: str, expected: str, hint: str) -> None:
    """Raises `UsageError` if anything was selected."""
    given = [f"--{option}" for option, _ in _given(args)] + ["--cpu"] * bool(args.cpu)
    if given:
        raise UsageError(f"{answer} with {' and '.join(given)}", expected, hint)


def selects_threads(args: argparse.Namespace) -> bool:
    """Was anything but CPUs selected?"""
    return any(getattr(args, name) for name in ("comm", "pid", "tid", *_OF_PROCESSES))


_OF_PROCESSES = ("process", "cgroup", "service", "cmdline", "tree", "workload")


def groups(text: str, known: Collection[str]) -> list[str]:
    """The columns of `--by NAME,...`, as `by=` in Python; none for `all`."""
    from schedscope.analysis.asking.by import keys_of

    return keys_of([name.strip() for name in text.split(",")], known)


def add_by(parser: argparse.ArgumentParser, known: Collection[str], default: str) -> None:
    """`--by`: what a row is about, columns of the result."""
    parser.add_argument(
        "--by",
        metavar="COLUMN,...",
        default=default,
        help=f"group by these columns: {', '.join(known)} (default: {default})",
    )


def add_cpu_or_all(parser: argparse.ArgumentParser) -> None:
    """`--by` of answers that are only about CPUs."""
    parser.add_argument(
        "--by",
        choices=("cpu", "all"),
        default="cpu",
        help="one row per CPU, or one for all CPUs together (default: cpu)",
    )


def add_top(parser: argparse.ArgumentParser, rows: int, *, what: str) -> None:
    """`--top` of a table that is usually long: `rows` for people, everything for programs."""
    parser.add_argument(
        "--top", type=int, metavar="N", help=f"only {what} (default: {rows} in a table, else all)"
    )


def top(args: argparse.Namespace, rows: int) -> int | None:
    """How many rows of such a table to show; None for all."""
    return args.top or (rows if args.format == "table" else None)


def add_top_cpus(parser: argparse.ArgumentParser, most: str) -> None:
    """`--top` of a table of CPUs; `most` says by what."""
    parser.add_argument(
        "--top",
        type=int,
        metavar="N",
        help=f"only the N CPUs with most {most} (default: all; of more than {FEW_CPUS} CPUs"
        f" {SHOWN_CPUS} in a table)",
    )


def top_cpus(args: argparse.Namespace, frame: pl.DataFrame, *most: str) -> pl.DataFrame:
    """The rows of `--top`, with the largest values of the columns `most` first."""
    rows = args.top
    if rows is None and args.format == "table" and frame.height > FEW_CPUS:
        rows = SHOWN_CPUS
    if rows is None:
        return frame
    return frame.sort(most, descending=True, nulls_last=True, maintain_order=True).head(rows)


def check_top(args: argparse.Namespace, what: str = "rows") -> None:
    """Raises `UsageError` for a `--top` below 1, or above what any table can hold."""
    if args.top is not None and not 1 <= args.top <= MOST_ROWS:
        limit = "1 or more" if args.top < 1 else f"at most {MOST_ROWS}"
        raise UsageError(f"--top {args.top}", f"a number of {what}, {limit}")


def where(args: argparse.Namespace, trace: Trace) -> pl.Expr | None:
    """What `add_selection` chose, over `comm`, `pid`, `tid` and `cpu`; None for everything.

    Raises `UsageError` if nothing in the trace matches: an empty table would look like good news.
    """
    import polars as pl

    threads = where_threads(args, trace)
    chosen = [] if threads is None else [threads]
    if args.cpu:
        chosen.append(pl.col("cpu").cast(pl.Int64).is_in(known_cpus(args, trace)))
    return pl.all_horizontal(chosen) if chosen else None


def where_threads(args: argparse.Namespace, trace: Trace) -> pl.Expr | None:
    """The part of it that is about threads: over `comm`, `pid` and `tid`, without `--cpu`."""
    import polars as pl

    chosen = []
    if args.comm:
        from schedscope.processes import named

        chosen.append(named(args.comm))
    chosen += [
        pl.col(name).is_in(values) for name in ("pid", "tid") if (values := getattr(args, name))
    ]
    if of := {name: value for name in _OF_PROCESSES if (value := getattr(args, name))}:
        from schedscope.processes import of_processes

        chosen.append(of_processes(trace, **of))
    if chosen and trace.threads.filter(*chosen).select(pl.len()).collect().item() == 0:
        raise UsageError(f"no thread of {trace.name} matches {_said(args)}", *_nearest(args, trace))
    return pl.all_horizontal(chosen) if chosen else None


def where_no_cpu(args: argparse.Namespace, trace: Trace, answer: str, why: str) -> pl.Expr | None:
    """The selected threads, for figures that no CPU has; raises `UsageError` for `--cpu`, and says
    why.
    """
    refuse_cpu(args, answer, why)
    return where_threads(args, trace)


def refuse_cpu(args: argparse.Namespace, answer: str, why: str) -> None:
    """Raises `UsageError` for `--cpu`, before a trace is opened."""
    if args.cpu:
        raise UsageError(f"{answer} with --cpu", "a selection of threads, or none", why)


def selected(args: argparse.Namespace, trace: Trace, where: pl.Expr | None) -> list[str]:
    """A line on which threads `where`, made of the options of `add_selection`, selects."""
    if where is None:
        return []
    import polars as pl

    from schedscope.analysis.threads.of_threads import threads_with
    from schedscope.units import printable, several

    known = threads_with(trace, (), where).filter(where, pl.col("utid") >= trace.ncpu)
    pids = pl.col("pid").drop_nulls().n_unique()
    threads, processes = known.select(pl.len(), pids).collect().row(0)
    of = f" of {several(processes, 'process', 'processes')}" if processes else ""
    return [f"selected: {printable(words(args))}: {several(threads, 'thread')}{of}"]


def where_of_each(
    args: argparse.Namespace,
    traces: Sequence[Trace],
    chosen: Callable[[argparse.Namespace, Trace], _Found],
) -> list[_Found | None]:
    """What `chosen` finds in each trace; None where one of several has no match."""
    found: list[_Found | None] = []
    refused: UsageError | None = None
    matched = False
    for trace in traces:
        try:
            found.append(chosen(args, trace))
            matched = True
        except UsageError as error:
            found.append(None)
            refused = refused or error
    if refused and not matched:
        raise refused
    return found


def words(args: argparse.Namespace, *, cpus: bool = False) -> str:
    """The options of `add_selection` that were given, to be given again to another command."""
    import shlex

    found = []
    for option, values in _given(args):
        found += [f"--{option} {shlex.quote(value)}" for value in values] or [f"--{option}"]
    if cpus:
        found += [f"--cpu {cpu}" for cpu in args.cpu or ()]
    return " ".join(found)


def check_replayed(args: argparse.Namespace, answer: str) -> None:
    """Raises `UsageError` for what cannot select the threads that are replayed."""
    refuse_cpu(
        args, answer, "a replay is of the whole machine; --pin keeps threads on CPUs in `whatif`"
    )
    if args.others and not selects_threads(args):
        raise UsageError(
            f"--others {args.others}",
            "a selection of threads as well, as in --comm NAME",
            "without one there are no others",
        )


def where_ran(args: argparse.Namespace, trace: Trace) -> pl.Expr | None:
    """The selected threads; with `--cpu` those that ever ran there: a score has no CPU."""
    import polars as pl

    where = where_threads(args, trace)
    if not args.cpu:
        return where
    there = trace.states.filter(
        pl.col("state") == "running", pl.col("cpu").is_in(known_cpus(args, trace))
    )
    ran = pl.col("utid").is_in(there.select("utid").unique().collect()["utid"].implode())
    return ran if where is None else where & ran


def known_cpus(args: argparse.Namespace, trace: Trace) -> list[int]:
    """The CPUs of `--cpu`; raises `UsageError` for one that the trace does not have."""
    known = set(trace.cpus.select("cpu").collect()["cpu"]) | set(range(trace.ncpu))
    for cpu in args.cpu or []:
        if cpu not in known:
            numbers = ", ".join(map(str, sorted(known)))
            raise UsageError(f"--cpu {cpu}", "a CPU of this trace", f"one of {numbers}")
    return list(args.cpu or [])


def _said(args: argparse.Namespace) -> str:
    from schedscope.processes import brief

    return " and ".join(
        " ".join([f"--{option}", *map(brief, values)]) for option, values in _given(args)
    )


def _given(args: argparse.Namespace) -> list[tuple[str, list[str]]]:
    """The options that select threads, and what was given for each; nothing for a flag."""
    return [
        (option, [] if values is True else [str(value) for value in values])
        for option in ("comm", "pid", "tid", *_OF_PROCESSES)
        if (values := getattr(args, option))
    ]


def _nearest(args: argparse.Namespace, trace: Trace) -> tuple[str, str]:
    from schedscope.processes import nearest

    names = trace.threads.select("comm").unique().collect()["comm"].drop_nulls().to_list()
    hint = "`schedscope latency --by tid` lists threads"
    if close := nearest(args.comm or [], names):
        hint = f"did you mean {close}?"
    elif len(_given(args)) > 1:
        hint = "a thread must match every option; an option given twice selects more"
    return "", hint


def add_cache(parser: argparse.ArgumentParser) -> None:
    """Where converted traces are kept."""
    parser.add_argument(
        "--cache",
        metavar="DIR",
        help="keep converted traces here (default: beside the source, else in the user's cache)",
    )
    parser.add_argument(
        "--refresh", action="store_true", help="convert again even if nothing has changed"
    )
    add_jobs(parser)
    add_decoder_options(parser)


def add_model(
    parser: argparse.ArgumentParser,
    models: str,
    *,
    default: str,
    sorts: Sequence[str],
    tunable: str,
) -> None:
    """The scheduler whose rule is applied, its tunables, and how to show the result."""
    parser.add_argument(
        "--model",
        default=default,
        metavar="NAME",
        help=f"the scheduler whose rule is applied: {models}",
    )
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help=f"a tunable of that scheduler, as in --set {tunable} (see `simulate --policies`)",
    )
    parser.add_argument("--series", action="store_true", help="show every change over time instead")
    parser.add_argument(
        "--sort",
        metavar="COLUMN",
        help=f"sort by this column, largest first: {', '.join(sorts)} (default: {sorts[0]})",
    )
    add_top(parser, MODEL_ROWS, what="the first N rows")


MODEL_ROWS = 100


def model_settings(args: argparse.Namespace, sorts: Sequence[str]) -> dict[str, str]:
    """The `--set NAME=VALUE` of `add_model`, whose options it checks."""
    check_top(args)
    if args.sort and args.sort not in sorts:
        raise UsageError(f"--sort {args.sort}", "one of " + ", ".join(sorts))
    if args.sort and args.series:
        raise UsageError(f"--sort {args.sort} with --series", "one of them: a series is over time")
    found = {}
    for text in args.set:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--set {text}", "NAME=VALUE", "`simulate --policies` lists tunables")
        found[name] = value
    return found


def add_external(parser: argparse.ArgumentParser) -> None:
    """When a replay raises the wakes that came from outside the workload."""
    parser.add_argument(
        "--external",
        choices=("relative", "absolute"),
        default="relative",
        help="external wakeups: after a sleep of the recorded length (relative, the default), or at"
        " the recorded time (absolute)",
    )


def add_others(parser: argparse.ArgumentParser) -> None:
    """`--others`: how the threads that a replay leaves out take their CPU time."""
    parser.add_argument(
        "--others",
        choices=("replay", "occupy", "compete", "drop"),
        help="with threads selected: the other threads are replayed, too (replay), or take the CPU"
        " time that they took, before all fair threads (occupy) or as one of them (compete), or"
        " take none (drop); default: whichever of the first three replays the recorded"
        " configuration most closely",
    )


_OTHERS = {
    "replay": "are replayed, too",
    "occupy": "take the CPU time that they took, before all fair threads",
    "compete": "take the CPU time that they took, as fair threads do",
    "drop": "take no CPU time",
}


def others_taken(args: argparse.Namespace, taken: str) -> list[str]:
    """A line on how a replay treats the threads that were not selected."""
    if not selects_threads(args):
        return []
    why = "as asked" if args.others else "closest to the recording"
    return [f"other threads: {_OTHERS[taken]} (--others {taken}, {why})"]


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """`--jobs`: how many threads convert a capture or a foreign file."""
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="convert with N threads (default: one for each CPU that may be used)",
    )


def add_decoder_options(parser: argparse.ArgumentParser) -> None:
    """`-O KEY=VALUE`, for formats with more than one way to read them."""
    parser.add_argument(
        "-O",
        "--option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="an option of the decoder, as in -O buffer=NAME for a trace.dat",
    )


def add_format(parser: argparse.ArgumentParser) -> None:
    """table, json or csv."""
    parser.add_argument(
        "--format",
        choices=("table", "json", "csv"),
        default="table",
        help="table for people; json and csv in ns for programs (default: table)",
    )


def open_input(args: argparse.Namespace, name: str = "input") -> Trace:
    """Open the trace an `add_input` option names, with a progress line."""
    return open_path(args, getattr(args, name))


def open_path(args: argparse.Namespace, path: str) -> Trace:
    """Open the trace at `path` with the options of `add_input`."""
    from schedscope.store.opening import open as open_trace

    with Progress(f"reading {path}") as progress:
        trace = open_trace(
            path,
            cache=args.cache,
            refresh=args.refresh,
            options=decoder_options(args),
            progress=progress,
            jobs=args.jobs,
        )
    if args.since is None and args.until is None:
        return trace
    return trace.between(args.since, args.until)


def decoder_options(args: argparse.Namespace) -> dict[str, str]:
    """`-O KEY=VALUE` options as a mapping."""
    options = {}
    for text in args.option:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"-O {text}", "KEY=VALUE", "write for example -O buffer=judge")
        options[key] = value
    return options


def add_one_thread(parser: argparse.ArgumentParser, *, at: str, worst: str) -> None:
    """Which thread the question is about: the one at place `at` of the answer, or that of a `worst`
    wait.
    """
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--tid", type=int, help=f"the thread at {at}")
    which.add_argument("--utid", type=int, help="the same, by its number in the trace (utid)")
    which.add_argument("--worst", type=int, metavar="N", help=worst)
    select = parser.add_argument_group("with --worst, only waits of these threads", _COMBINED)
    select.add_argument("--comm", metavar="NAME", action="append", help="threads of this name")
    select.add_argument("--pid", type=int, action="append", help="threads of this process")
    _add_processes(select)


def one_thread(args: argparse.Namespace, trace: Trace) -> int:
    """The utid that --utid or --tid names."""
    if selects_threads(_without_tid(args)):
        given = _said(_without_tid(args))
        raise UsageError(
            f"{given} with one thread", "--worst N", "they select whose waits --worst counts"
        )
    return args.utid if args.utid is not None else _utid_of(trace, args.tid)


def _without_tid(args: argparse.Namespace) -> argparse.Namespace:
    """The arguments without `--tid`, which here names the one thread and selects nothing."""
    return argparse.Namespace(**{**vars(args), "tid": None})


def _utid_of(trace: Trace, tid: int) -> int:
    """The one thread of that tid within the window."""
    import polars as pl

    found = trace.threads.filter((pl.col("tid") == tid) & (pl.col("utid") >= trace.ncpu)).select(
        "utid", "comm"
    )
    threads = found.join(
        trace.states.select("utid").unique(), on="utid", how="semi", maintain_order="left"
    ).collect()
    if not threads.height:
        raise UsageError(
            f"--tid {tid}", "a thread of this trace", "`schedscope latency --by tid` lists threads"
        )
    if threads.height > 1:
        which = ", ".join(f"{utid} ({comm})" for utid, comm in threads.iter_rows())
        raise UsageError(
            f"--tid {tid} was used by {threads.height} threads", "one of them", f"--utid {which}"
        )
    return int(threads["utid"][0])


def worst_wait(args: argparse.Namespace, trace: Trace) -> dict[str, Any]:
    """The row of the n-th longest of the waits that were measured, for `--worst N`."""
    import polars as pl

    from schedscope.analysis.worst_waits import worst_waits

    n = args.worst
    if n < 1:
        raise UsageError(f"--worst {n}", "1 for the longest wait, 2 for the next, ...")
    whose = where_threads(_without_tid(args), trace)
    measured = pl.col("censored") == "none"
    found = worst_waits(trace, n, where=measured if whose is None else measured & whose)
    if len(found) == 0:
        raise UsageError(
            "no wait was measured from start to end",
            "one for --worst",
            "`schedscope check` says what the trace shows of waits",
        )
    if len(found) < n:
        raise UsageError(f"--worst {n}", f"at most {len(found)}, the number of measured waits")
    return found.row(n - 1, named=True)
