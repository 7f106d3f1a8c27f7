"""Threads of different runs are matched by name pattern and role."""

from __future__ import annotations

import polars as pl
import pytest
from runs import run

import schedscope as ss
from schedscope.analysis.comparison.matching import name_pattern


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("kworker/3:1", "kworker/*"),
        ("kworker/u8:2-events_unbound", "kworker/*"),
        ("worker-12", "worker-*"),
        ("ksoftirqd/0", "ksoftirqd/*"),
        ("pool-3-thread-17", "pool-*-thread-*"),
        ("10.0.0.1:80", "*"),
        ("sshd", "sshd"),
        ("swi4: clock (0)", "swi*: clock (*)"),
    ],
)
def test_threads_match_by_pattern(name: str, pattern: str) -> None:
    assert name_pattern(name) == pattern


def parts(*traces: ss.Trace, match: str = "role") -> list[tuple[object, ...]]:
    frame = ss.match_threads(traces, match=match)  # type: ignore[arg-type]
    return frame.select("trace", "thread", "role").unique().sort(pl.all()).rows()


def test_threads_match_by_role_in_their_process() -> None:
    """main has pid = tid; others are threads; process 2 is the kernel. worker-1 and -2 form one
    group.
    """
    a = run("nginx|50/50 0 1 on 0; nginx|50/51 5 9 on 0; worker-1|60/61 5 9 on 0")
    b = run("nginx|70/70 0 1 on 0; worker-2|60/62 5 9 on 0; kworker/0:1|2/9 5 9 on 0")
    assert parts(a, b) == [
        (0, "nginx", "main"),
        (0, "nginx", "thread"),
        (0, "worker-*", "thread"),
        (1, "kworker/*", "kernel"),
        (1, "nginx", "main"),
        (1, "worker-*", "thread"),
    ]


def test_number_shared_by_all_names_is_kept() -> None:
    """The 3 of python3 is kept as long as there is no python2."""
    assert parts(run("python3 0 1 on 0"), run("python3 0 1 on 0"), match="name") == [
        (0, "python3", None),
        (1, "python3", None),
    ]
    assert parts(run("python3 0 1 on 0"), run("python2 0 1 on 0"), match="name") == [
        (0, "python*", None),
        (1, "python*", None),
    ]


def test_behaviour_match_ignores_waiting() -> None:
    """One thread runs for half of its time, one would if it got a CPU, one runs little."""
    trace = run("a 0 0 on 0 for 900; b 100 950 on 1 for 50; c 0 5 on 1 for 5")
    states = trace.states.collect()
    asleep = states.filter(pl.col("utid") == 4).with_columns(
        state=pl.lit("sleeping").cast(states.schema["state"]), dur=pl.lit(900, dtype=pl.Int64)
    )
    tables = {"states": pl.concat([states, asleep.head(1)]), "threads": trace.threads}
    world = ss.Trace.from_tables(tables, trace.info)
    assert parts(world, match="behaviour") == [
        (0, "a", "hog"),
        (0, "b", "hog"),
        (0, "c", "sleeper"),
    ]


def test_idle_threads_are_not_matched() -> None:
    assert ss.match_threads([run("a 0 1 on 0")])["utid"].to_list() == [2]


def test_unknown_match_is_refused() -> None:
    with pytest.raises(ss.UsageError, match="match='size'"):
        ss.match_threads([run("a 0 1 on 0")], match="size")  # type: ignore[arg-type]
