"""Requests: two threads of a server, with all times worked out by hand."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from decoded import FIXTURES
from ledgers import played

import schedscope as ss
from schedscope import cli
from schedscope.analysis.requests.parts import PARTS
from schedscope.analysis.requests.requests import processes_and_slowest
from schedscope.errors import MissingEventsError, UsageError
from schedscope.parsers.schema import TABLES

S, W = 2, 3
WORLD = """
    0   cpu0: idle -> s
    0   cpu1: idle -> w
    1   cpu1: w S -> x
    10  cpu0: s S -> o
    20  cpu1: waking s on 0 by x
    20  cpu1: enqueued s on 0 by x
    25  cpu0: o R -> s
    30  cpu0: s S -> o
    40  cpu0: waking s on 0 by o
    40  cpu0: enqueued s on 0 by o
    43  cpu0: o R -> s
    50  cpu0: s S -> o
    60  cpu1: waking s on 0 by x
    60  cpu1: enqueued s on 0 by x
    62  cpu0: o R -> s
    65  cpu0: waking w on 1 by s
    65  cpu0: enqueued w on 1 by s
    70  cpu1: x R -> w
"""
READ, WRITE, SEND, RECV, POLL, SLEEP, CLOSE = 0, 1, 44, 45, 7, 35, 3
Call = tuple[int, int, int, int, int, int]
# utid, number, entered, returned, descriptor, value
CALLS: list[Call] = [
    (W, READ, 1, 71, 9, 1),
    (S, RECV, 9, 27, 5, 3),
    (S, SLEEP, 29, 44, 0, 0),
    (S, SEND, 46, 48, 5, 3),
    (S, RECV, 49, 63, 6, 1),
    (W, SEND, 72, 75, 6, 1),
    (S, RECV, 80, 81, 7, 1),
    (S, SEND, 82, 84, 7, 1),
    (S, RECV, 86, 87, 7, 1),
]
WORLD_PARTS = [
    # ts, fd, dur, running, waiting, timer, at_least
    (20, 5, 28, 10, 8, 10, False),
    (60, 6, 15, 8, 7, 0, False),
    (80, 7, 4, 4, 0, 0, True),
]


def traced(
    calls: list[Call] = CALLS,
    *,
    world: str = WORLD,
    irqs: list[tuple[int, int, int]] = [],  # noqa: B006
    losses: list[tuple[int, int]] = [],  # noqa: B006
) -> ss.Trace:
    made = played(world, ncpu=2, window=(0, 100))
    ends = [
        {"ts": ts, "cpu": 0 if utid == S else 1, "utid": utid, "step": step, "number": number,
         "value": given if step == "exit" else None, "arg0": fd if step == "enter" else None}
        for utid, number, entered, returned, fd, given in calls
        for ts, step in ((entered, "enter"), (returned, "exit"))
    ]  # fmt: skip
    rows = {
        "system_calls": [{"arg1": None, "arg2": None, **end} for end in ends],
        "irqs": [
            {"ts": ts, "cpu": cpu, "kind": "hard", "id": 1, "dur": dur} for ts, cpu, dur in irqs
        ],
        "losses": [
            {"cpu": 0, "ts_begin": begin, "ts_end": end, "count": 1, "reason": "overrun"}
            for begin, end in losses
        ],
    }
    tables = {name: pl.DataFrame(given, TABLES[name].schema) for name, given in rows.items()}
    tables["system_calls"] = tables["system_calls"].sort("ts", maintain_order=True)
    tables |= {
        name: getattr(made, name).collect() for name in ("switches", "wakeups", "states", "waits")
    }
    # `x` is no server: another process.
    pid = pl.when(pl.col("comm").is_in(["s", "w"])).then(77).otherwise(1).cast(pl.UInt32)
    threads = made.threads.with_columns(
        pid=pid, prio=pl.lit(120, pl.Int16), sched_class=pl.lit("fair", pl.Enum(
            TABLES["threads"].schema["sched_class"].categories  # type: ignore[attr-defined]
        )),
    )  # fmt: skip
    tables["threads"] = threads.collect()
    about = made.info | {"machine": "x86_64", "os": "Linux", "recorder": {"name": "ftrace"}}
    return ss.Trace.from_tables(tables, about)


def singles(trace: ss.Trace, **options: object) -> pl.DataFrame:
    frame: pl.DataFrame = ss.requests(trace, by="request", **options).sort("ts")  # type: ignore[arg-type]
    assert frame.select(pl.sum_horizontal(PARTS)).to_series().to_list() == frame["dur"].to_list()
    return frame


COLUMNS = ["ts", "fd", "dur", "running", "waiting", "timer", "at_least"]


def test_each_request_is_divided_into_its_parts() -> None:
    """The first sleeps 10 for a timer; the second is handed to `w`; the third's data was already
    there.
    """
    frame = singles(traced())
    assert frame.select(COLUMNS).rows() == WORLD_PARTS
    assert frame["by_comm"].to_list() == ["s", "w", "s"]
    assert frame.select(pl.col("unknown", "locks", "io", "other_sleep").sum()).row(0) == (0,) * 4
    assert frame["interrupted"].to_list() == [None] * 3


def test_requests_are_grouped_by_process_or_listed_slowest_first() -> None:
    frame = ss.requests(traced())
    assert frame.select("pid", "which", "n", "total", "p50", "p99", "max").rows() == [
        (77, "all", 3, 47, 15, 28, 28),
        (77, "slowest 1 %", 1, 28, 28, 28, 28),
    ]
    assert frame.select("running", "waiting", "timer").rows() == [(22, 15, 10), (10, 8, 10)]
    assert frame.select("n_at_least", "n_censored", "n_excluded").row(0) == (1, 1, 0)
    assert frame.select(pl.sum_horizontal(PARTS)).to_series().to_list() == [47, 28]


def test_interrupt_time_is_not_running_time() -> None:
    """One nested in another counts once; one across the end of a run is cut there."""
    frame = singles(traced(irqs=[(26, 0, 2), (27, 0, 1), (47, 0, 2), (21, 0, 1)]))
    assert frame.select("running", "waiting", "interrupted").row(0) == (7, 7, 4)


def test_request_across_a_loss_is_excluded() -> None:
    frame = ss.requests(traced(losses=[(46, 47)]))
    assert frame.select("n", "n_excluded").row(0) == (2, 1)


def test_unrecorded_hand_over_is_unknown_time() -> None:
    """`w` was woken by another thread, so the time between the read and the write is unknown."""
    world = WORLD.replace("cpu0: waking w on 1 by s", "cpu0: waking w on 1 by o").replace(
        "cpu0: enqueued w on 1 by s", "cpu0: enqueued w on 1 by o"
    )
    frame = singles(traced(world=world)).filter(pl.col("fd") == 6)
    assert frame.select("dur", "waiting", "running", "unknown").row(0) == (15, 2, 1 + 3, 9)


BUSY: list[Call] = [
    # `s` reads twice; `w`, which it woke for the first at 65, answers both.
    (S, RECV, 49, 63, 6, 1),
    (S, RECV, 63, 64, 7, 1),
    (W, SEND, 72, 75, 6, 1),
    (W, SEND, 78, 79, 7, 1),
]


def test_backlog_of_a_busy_thread_is_a_part_of_the_request() -> None:
    """One is handed over at 65, the other read at 64: `w` starts on it once it is free at 75."""
    frame = singles(traced(BUSY)).sort("fd")
    assert frame.select("fd", "dur", "backlog", "running", "waiting").rows() == [
        (6, 15, 0, 3 + 5, 2 + 5),
        (7, 79 - 63, 75 - 65, 2 + 4, 0),
    ]
    assert frame["unknown"].to_list() == [0, 0]


def test_reader_that_sleeps_for_more_data_ends_the_writers_request() -> None:
    """Read at 27, woken for something else at 60: waking `w` after that is not an answer."""
    calls: list[Call] = [
        (W, SEND, 1, 2, 9, 1),
        (S, RECV, 9, 27, 6, 1),
        (S, RECV, 49, 63, 7, 1),
        (W, SEND, 72, 75, 6, 1),
        (W, SEND, 76, 79, 7, 1),
    ]
    frame = singles(traced(calls)).sort("fd")
    assert frame.select("fd", "dur", "backlog", "unknown").rows() == [
        (6, 55, 0, 72 - 27),
        (7, 19, 75 - 65, 0),
    ]


def test_wakeup_in_poll_starts_a_request_unless_another_read_came_first() -> None:
    calls = [
        (S, POLL, 9, 26, 0, 2),
        (S, RECV, 27, 28, 5, 1),
        (S, SEND, 28, 29, 5, 1),
        (S, RECV, 45, 46, 6, 1),
        (S, SEND, 46, 48, 6, 1),
    ]
    frame = singles(traced(calls))
    assert frame.select("ts", "dur", "at_least").rows() == [(20, 9, False), (45, 3, True)]


def test_a_closed_descriptor_is_another_connection() -> None:
    """The descriptor's number is reused; a request read but not answered is dropped."""
    calls = [
        (S, RECV, 0, 1, 5, 1),
        (S, SEND, 1, 2, 5, 1),
        (S, RECV, 3, 4, 5, 1),
        (S, CLOSE, 5, 6, 5, 0),
        (S, SEND, 6, 7, 5, 1),
        (S, RECV, 9, 27, 5, 3),
        (S, SEND, 46, 48, 5, 3),
    ]
    frame = ss.requests(traced(calls), by="all")
    assert frame.select("n", "total", "n_censored").row(0) == (2, 2 + 28, 0)


CONNECT, ACCEPT = 42, 43
ASKED: list[Call] = [
    # It reads an answer and asks again; then the number belongs to a connection to it.
    (S, RECV, 9, 27, 5, 3),
    (S, SEND, 46, 48, 5, 3),
    (S, ACCEPT, 76, 79, 4, 5),
    (S, RECV, 80, 81, 5, 1),
    (S, SEND, 82, 84, 5, 1),
]


@pytest.mark.parametrize("value", [0, -4, -115])
def test_client_connection_carries_no_requests(value: int) -> None:
    opened: list[Call] = [(S, CONNECT, 2, 4, 5, value), *ASKED]
    # An accept that returns the number ends that, even without a recorded close.
    assert singles(traced(opened)).select("ts", "fd").rows() == [(80, 5)]
    assert singles(traced(ASKED)).select("ts", "fd").rows() == [(20, 5), (80, 5)]
    # Consumers of a queue read their work from a connection that they opened.
    assert singles(traced(opened), reply="any")["ts"].to_list() == [20, 80]


def test_failed_connect_does_not_mark_a_client() -> None:
    failed: list[Call] = [(S, CONNECT, 2, 4, 5, -111), *ASKED]
    assert singles(traced(failed)).select("ts", "fd").rows() == [(20, 5), (80, 5)]


def test_reply_to_another_descriptor_needs_reply_any() -> None:
    calls = [(S, READ, 9, 27, 0, 3), (S, WRITE, 46, 48, 1, 3)]
    assert ss.requests(traced(calls)).is_empty()
    assert singles(traced(calls), reply="any").select("ts", "fd", "dur").rows() == [(20, 0, 28)]
    # A call that failed or returned nothing is no request.
    failed = [(S, READ, 9, 27, 5, 0), (S, WRITE, 46, 48, 5, -11)]
    assert ss.requests(traced(failed)).is_empty()


def test_where_selects_the_threads_that_read() -> None:
    assert singles(traced(), where=pl.col("comm") == "s").height == 3
    assert singles(traced(), where=pl.col("comm") == "w").height == 0


@pytest.mark.parametrize("wrong", [{"by": "cpu"}, {"reply": "none"}, {"top": 0}])
def test_invalid_arguments_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        ss.requests(traced(), **wrong)  # type: ignore[arg-type]


def test_trace_without_system_calls_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingEventsError, match="capture --with syscalls"):
        ss.requests(ss.open(FIXTURES / "linux-dtrace.capture", cache=tmp_path))


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(FIXTURES / "linux-syscalls.capture")
    assert cli.main(["requests", path]) == 0
    capsys.readouterr()
    words = ["requests", path, "--by", "request", "--reply", "any", "--top", "3"]
    assert cli.main(words) == 0
    rows, _, views = capsys.readouterr().out.partition("\nin the viewer:\n")
    # The instant of each row, and the command that shows it.
    begins = re.findall(r"^ *(\d+\.\d+ s)  ", rows, re.MULTILINE)
    led = re.findall(
        r"^  (\S+ s)  schedscope view (\S+) --at 'view=(\d+)-(\d+)&select=u\d+@(\d+)'$",
        views,
        re.MULTILINE,
    )
    assert len(led) == 2
    assert [when for when, *_ in led] == begins
    for when, named, since, until, at in led:
        assert named == path
        assert int(since) <= float(when[:-2]) * 1e9 + 1000
        assert int(since) < int(at) < int(until)
    assert cli.main(["requests", path, "--cpu", "1"]) == 2


def test_command_reports_threads_whose_calls_were_not_recorded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["requests", str(FIXTURES / "linux-requests.capture"), "--tid", "15"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "no requests for this selection" in said
    assert "only the system calls of the command and of what it started were recorded" in said


def test_the_figure_divides_the_mean_request() -> None:
    """47 in three requests, of which 22 ran; the slowest is one of 28."""
    axes = ss.plot.requests(ss.requests(traced()))
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "77 all",
        "77 slowest 1 %",
    ]
    ends = [0.0, 0.0]
    for bar in axes.patches:
        y = round(bar.get_y() + 0.35)
        ends[y] = max(ends[y], bar.get_x() + bar.get_width())
    assert ends == pytest.approx([47 / 3, 28.0])
    assert axes.patches[0].get_width() == pytest.approx(22 / 3)
    singles_drawn = ss.plot.requests(ss.requests(traced(), by="request"))
    assert len(singles_drawn.get_yticklabels()) == 3
    empty = ss.plot.requests(ss.requests(traced(), where=pl.col("comm") == "nobody"))
    assert [text.get_text() for text in empty.texts] == ["no requests"]


@pytest.mark.parametrize("process", [None, "python3"])
def test_viewer_tables_equal_the_question(process: str | None) -> None:
    trace = ss.open(FIXTURES / "linux-requests.capture")
    groups, slowest = processes_and_slowest(trace, process, top=7)
    assert groups.equals(ss.requests(trace, by="process_name"))
    where = None if process is None else pl.col("process_name") == process
    assert slowest.equals(ss.requests(trace, by="request", where=where, top=7))
    assert slowest.height == 7


def test_a_wakeup_that_made_room_is_not_the_request() -> None:
    """`x` reads the last answer when it wakes `s` at 20, and asks before `s` runs at 25."""
    reading = (4, RECV, 18, 21, 8, 1)
    found = ss.requests(traced([*CALLS, reading]), by="request", where=pl.col("comm") == "s")
    first = found.sort("ts").row(0, named=True)
    assert (first["ts"], first["dur"], first["at_least"]) == (25, 23, True)
    assert (first["running"], first["waiting"], first["timer"]) == (10, 3, 10)
