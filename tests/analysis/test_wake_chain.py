"""`wake_chain`: forwards through wakeups, in a trace worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from ledgers import played, utid

import schedscope as ss
from schedscope import cli
from schedscope.errors import UsageError

FIXTURES = Path(__file__).parents[2] / "fixtures"
WORLD = """
    0    cpu0: idle -> client
    0    cpu1: idle -> hog
    100  cpu0: waking server on 1 by client
    100  cpu0: enqueued server on 1 by client
    150  cpu0: client S -> idle
    200  cpu1: hog R -> server
    300  cpu1: waking db on 0 by server
    300  cpu1: enqueued db on 0 by server
    310  cpu0: idle -> db
    320  cpu1: waking client on 0 by server
    320  cpu1: enqueued client on 0 by server
    400  cpu1: server S -> hog
    420  cpu0: db S -> client
    500  cpu1: waking server on 1 by hog
    500  cpu1: enqueued server on 1 by hog
    600  cpu1: hog S -> server
    700  cpu1: waking db on 0 by server
    700  cpu1: enqueued db on 0 by server
    800  cpu0: client S -> db
"""


def rows(frame: pl.DataFrame) -> list[tuple[object, ...]]:
    return frame.select("ts_ready", "hops", "waker_comm", "comm", "wait", "chain_wait").rows()


def test_chain_equals_a_hand_computed_one() -> None:
    """`hog` wakes `server` at 500, so what it does then does not follow from `client`."""
    world = played(WORLD, ncpu=2, window=(0, 1000))
    assert rows(ss.wake_chain(world, utid=utid(world, "client"))) == [
        (100, 1, "client", "server", 100, 100),
        (300, 2, "server", "db", 10, 110),
        (320, 2, "server", "client", 100, 200),
    ]
    assert rows(ss.wake_chain(world, utid=utid(world, "hog"))) == [
        (500, 1, "hog", "server", 100, 100),
        (700, 2, "server", "db", 100, 200),
    ]


def test_chain_starts_and_ends_within_the_interval() -> None:
    """The first thread belongs to the chain whichever thread woke it; one woken at the end does
    not.
    """
    world = played(WORLD, ncpu=2, window=(0, 1000))
    server = utid(world, "server")
    for since in ("330ns", "500ns", "501ns"):
        found = ss.wake_chain(world, since, "1000ns", utid=server)
        assert rows(found) == [(700, 1, "server", "db", 100, 100)]
    assert rows(ss.wake_chain(world, "0ns", "1000ns", utid=server))[:2] == [
        (300, 1, "server", "db", 10, 10),
        (320, 1, "server", "client", 100, 100),
    ]
    assert len(ss.wake_chain(world, "0ns", "320ns", utid=utid(world, "client"))) == 2


def test_every_row_is_a_wait_whose_waker_belongs_to_the_chain(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    trace = ss.open(FIXTURES / "linux-ftrace-mixed.capture", cache=tmp_path_factory.mktemp("cache"))
    chains = 0
    for who in trace.waits.select("waker_utid").drop_nulls().unique().collect()["waker_utid"]:
        if who < trace.ncpu:
            continue
        frame = ss.wake_chain(trace, utid=who)
        direct = trace.waits.filter(
            pl.col("waker_utid") == who, pl.col("cause").cast(pl.String).is_in(["wake", "new"])
        ).collect()
        assert frame["hops"].min() == 1
        assert len(frame.filter(pl.col("waker_utid") == who)) == len(direct)
        known = {who: 0}
        for hops, waker, woken in frame.select("hops", "waker_utid", "utid").iter_rows():
            assert hops in (known[waker] + 1, 1 if waker == who else 0)
            known[woken] = hops
        chains += 1
    assert chains > 20


def test_command_prints_the_chain_of_the_function(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = ss.open(FIXTURES / "linux-ftrace-pool.capture", cache=tmp_path)
    assert trace.path is not None
    worst = ss.worst_waits(trace, 3, where=pl.col("censored") == "none").row(2, named=True)
    command = ["wake-chain", str(trace.path), "--worst", "3"]
    assert cli.main([*command, "--top", "5", "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    end = min(trace.window[1], worst["ts_run"] + max(50_000_000, 10 * worst["wait"]))
    span = (f"{ts - trace.origin}ns" for ts in (worst["ts_run"], end))
    frame = ss.wake_chain(trace, *span, utid=worst["utid"])
    assert said["rows"] == frame.head(5).to_dicts()
    assert (said["rows_in_all"], said["utid"]) == (len(frame), worst["utid"])
    assert cli.main(command) == 0
    assert f"{len(frame):,} wakeups of " in capsys.readouterr().out


@pytest.mark.parametrize(("since", "until"), [("2s", "1s"), ("0s", "99999s")])
def test_invalid_interval_or_thread_is_refused(since: str, until: str) -> None:
    world = played(WORLD, ncpu=2, window=(0, 1000))
    with pytest.raises(UsageError, match="times within"):
        ss.wake_chain(world, since, until, utid=utid(world, "client"))
    with pytest.raises(UsageError, match="not an idle one"):
        ss.wake_chain(world, utid=0)


def test_wait_that_was_not_over_has_no_upper_bound() -> None:
    """`db` waits to the end; what it delayed is at least that long."""
    world = played(WORLD.rsplit("    800", 1)[0], ncpu=2, window=(0, 750))
    last = ss.wake_chain(world, utid=utid(world, "hog"))
    bounds = last.select("comm", "wait", "wait_high", "chain_wait", "chain_wait_high").rows()
    assert bounds == [("server", 100, 100, 100, 100), ("db", 50, None, 150, None)]
    longest = ss.worst_waits(world).filter(pl.col("comm") == "db").select("wait", "wait_high")
    assert longest.rows() == [(50, None), (10, 10)]
