"""World -> lines -> reader -> reconstruction gives the world back, for random threads."""

from __future__ import annotations

import tempfile
from pathlib import Path

from freebsd.reading import Decoded, decode
from freebsd.world import worlds
from freebsd.writer import FIRST_IDLE_TID, Machine
from hypothesis import assume, given, reject, strategies as st

from schedscope.errors import FormatError

STATES = ("utid", "state", "ts", "dur", "cpu")
WAITS = (
    "utid", "cause", "ts_waking", "ts_ready", "ts_enqueued", "ts_run",
    "waker_utid", "waker_cpu", "queue_cpu", "cpu", "wait",
)  # fmt: skip


def read(text: str) -> Decoded:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return decode(Path(folder), text)
        except FormatError as refusal:
            # Without a switch the reader refuses the file.
            if "has no context switches" not in str(refusal) or "\nS\t" in text:
                raise
            reject()


def lives(got: Decoded) -> list[tuple[object, ...]]:
    return sorted((row for row in got.rows("states", *STATES) if row[0] >= 0), key=str)


def finished_waits(got: Decoded) -> list[tuple[object, ...]]:
    return sorted((row for row in got.rows("waits", *WAITS) if row[5] is not None), key=str)


def true_waits(machine: Machine) -> list[tuple[object, ...]]:
    def name(tid: object) -> object:
        """As named by `Decoded.tid`: idle threads by their CPU."""
        idle = isinstance(tid, int) and FIRST_IDLE_TID <= tid < FIRST_IDLE_TID + machine.ncpu
        return FIRST_IDLE_TID - 1 - tid if idle and isinstance(tid, int) else tid

    keys = ("tid", *WAITS[1:6], "waker", *WAITS[7:])
    return sorted((tuple(name(wait[key]) for key in keys) for wait in machine.waits), key=str)


@given(worlds())
def test_simulated_machine_is_read_back_from_its_lines(made: tuple[Machine, int]) -> None:
    machine, end = made
    got = read(machine.text(end))
    # A thread was queued on a CPU without any line: that is a loss, not an idle CPU.
    assume(not got.rows("losses", "reason"))
    assert lives(got) == sorted(machine.lives, key=str)
    assert finished_waits(got) == true_waits(machine)
    assert got.about["reconstruction"]["chain_breaks"] == 0
    assert got.about["reconstruction"]["contradictions"] == 0
    assert got.about["reconstruction"]["missing_wakeups"] == 0
    assert got.about["warnings"] == []


@given(worlds())
def test_loads_are_kept_as_recorded(made: tuple[Machine, int]) -> None:
    machine, end = made
    got = read(machine.text(end))
    printed = [line.split("\t") for _, _, line in sorted(machine.lines, key=lambda line: line[0])]
    loads = [
        (int(ts), None if queue == "-1" else int(queue), int(load))
        for letter, ts, _, *rest in printed
        if letter == "L"
        for queue, load in [rest]
    ]
    assert sorted(got.rows("queue_load", "ts", "cpu", "load"), key=str) == sorted(loads, key=str)


@given(worlds(), st.sampled_from([50, 333, 2_000]))
def test_the_order_of_the_buffers_does_not_matter(made: tuple[Machine, int], chunk: int) -> None:
    machine, end = made
    temporal, chunked = read(machine.text(end)), read(machine.text(end, per_cpu=chunk))
    assert lives(chunked) == lives(temporal)
    assert finished_waits(chunked) == finished_waits(temporal)


@given(worlds(), st.data())
def test_lost_lines_never_make_running_time(made: tuple[Machine, int], data: st.DataObject) -> None:
    """A CPU's running, idle and unknown time add up to its window, with any lines missing."""
    machine, end = made
    lines = machine.text(end).splitlines(True)
    events = [n for n, line in enumerate(lines) if line[0] != "#"]
    gone = set(data.draw(st.lists(st.sampled_from(events), max_size=10))) if events else set()
    text = "".join(line for n, line in enumerate(lines) if n not in gone)
    got = read(text + "".join(f"dtrace: 5 drops on CPU {cpu}\n" for cpu in range(machine.ncpu)))
    # No line left: there is no window either.
    assume(got.about["window"] is not None)
    begin, last = got.about["window"]
    for totals in got.about["per_cpu"]:
        assert totals["running"] + totals["idle"] + totals["unknown"] == last - begin
    running = sum(row[3] for row in lives(got) if row[1] == "running")
    assert running == sum(totals["running"] for totals in got.about["per_cpu"])
