"""A real server under load: the trace agrees with the server's own log of each request."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import polars as pl
import pytest
from collector_runs import ROOT, Run, meta

import schedscope as ss
from schedscope.analysis.requests.parts import PARTS

LOAD = ROOT / "fixtures" / "request_load.py"
KINDS = "cctclctccl"
TURNS = 60


def waits_of_clients(trace: ss.Trace, pid: int) -> list[list[tuple[int, int]]]:
    """When each client waited for a CPU, from and to."""
    threads = trace.threads.collect()
    server = threads.filter(pl.col("tid") == pid)["utid"].implode()
    clients = threads.filter(pl.col("parent_utid").is_in(server), pl.col("pid") != pid).sort("utid")
    waits = trace.states.filter(pl.col("state") == "runnable").collect()
    return [
        [(ts, ts + dur) for ts, dur in waits.filter(utid=utid).select("ts", "dur").iter_rows()]
        for utid in clients["utid"]
    ]


def during(spans: list[tuple[int, int]], begin: int, end: int) -> int:
    """How much of the time between two instants lies in these intervals."""
    return sum(max(0, min(b, end) - max(a, begin)) for a, b in spans)


@pytest.mark.needs("root", "tracefs")
@pytest.mark.parametrize("mode", ["own", "handed", "pool"])
def test_requests_are_those_of_the_log(tmp_path: Path, mode: str) -> None:
    run = Run(
        "--with", "syscalls", "-o", "x.capture", "--",
        "sh", "-c", f"echo | {sys.executable} -I -S {LOAD} {mode} {TURNS} >log", cwd=tmp_path,
    )  # fmt: skip
    assert run.wait() == 0, run.said
    assert meta(tmp_path / "x.capture")["lost"] == [], run.said
    trace = ss.open(tmp_path / "x.capture", cache=tmp_path / "cache")
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    pid = next(int(words[1]) for words in lines if words[0] == "pid")
    server = pl.col("pid") == pid
    found = ss.requests(trace, by="request", where=server, top=10 * TURNS).sort("ts")
    assert found.select(pl.sum_horizontal(PARTS)).to_series().to_list() == found["dur"].to_list()
    connections = 6 if mode == "pool" else 2
    assert found.height == connections * TURNS
    differences: list[int] = []
    timers: list[int] = []
    waited = 0
    waits = waits_of_clients(trace, pid)
    # Connections were made in the order of their descriptors and of the clients' numbers.
    for number, fd in enumerate(sorted(found["fd"].unique())):
        rows = found.filter(pl.col("fd") == fd).to_dicts()
        logs = {
            who: sorted(
                (int(begin), int(end), *map(int, taken))
                for name, which, begin, end, *taken in lines
                if name == who and int(which) == number
            )
            for who in ("server", "client")
        }
        assert len(rows) == len(logs["server"]) == len(logs["client"]) == TURNS
        for turn, row in enumerate(rows):
            (read, sent, taken), (asked, answered) = logs["server"][turn], logs["client"][turn]
            begin, end = row["ts"], row["ts"] + row["dur"]
            # The server's log starts after the read and ends after the write.
            assert begin < read < sent
            assert end <= sent
            # A poll may have been woken for the other connection.
            if mode == "own" and not row["at_least"]:
                assert asked < begin
            # A client that waits for a CPU reads its clock late.
            late = during(waits[number], asked, begin) + during(waits[number], end, answered)
            differences.append((answered - asked) - row["dur"] - late)
            waited += taken - read
            if KINDS[turn % 10] == "t" and not row["unknown"]:
                # It sleeps until a time, and may be preempted before.
                assert row["timer"] + row["waiting"] > 2_900_000
                timers.append(row["timer"])
    assert abs(statistics.median(differences)) < 300_000
    assert statistics.median(timers) > 2_900_000
    whole = ss.requests(trace, where=server).to_dicts()[0]
    counts = (connections * TURNS, 0, 0)
    assert (whole["n"], whole["n_censored"], whole["n_excluded"]) == counts
    clients = [int(end) - int(begin) for who, _, begin, end, *_ in lines if who == "client"]
    assert whole["p50"] < statistics.median(clients) + 300_000
    assert whole["unknown"] == found["unknown"].sum()
    if mode == "pool":
        # Two workers for six connections: much of the time passes before the read.
        assert waited > 0.3 * whole["total"]
        assert abs(whole["backlog"] - waited) < 0.15 * waited + 10_000_000
    # A thread that takes a request without being woken for it, or after answering another one, was
    # idle and woken by another thread: that time is unknown.
    assert whole["unknown"] < (0.5 if mode == "handed" else 0.15) * whole["total"]
