"""What differs between traces of FreeBSD 13, 14 and 15.

The probes and their arguments are the same (the scripts are compiled against each release's
structures in `test_dtrace_scripts.py`); priorities were renumbered twice, and threads were swapped
out before 15.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from freebsd.reading import decode
from freebsd.writer import Machine

END = 2_000_000
A, B = 100402, 100403
RELEASES = {13: 1_302_001, 14: 1_402_000, 15: 1_500_068}

# First priority of the real-time, kernel and timeshare bands (sys/sys/priority.h).
BANDS = {13: (48, 80, 120), 14: (16, 48, 88), 15: (8, 40, 56)}


def story(release: int) -> str:
    """A timeshare thread and one of real time, with the priorities of their release."""
    realtime, _, timeshare = BANDS[release]
    world = Machine(2, osreldate=RELEASES[release])
    world.thread(A, "make", prio=timeshare + 30)
    world.thread(B, "music", prio=realtime + 15, pri_class=10)
    world.wake(1_000_100, 0, A, target=0)
    world.switch(1_000_200, 0, A, "preempt")
    world.wake(1_000_300, 0, B, target=0)
    world.switch(1_000_320, 0, B, "preempt")
    world.switch(1_000_500, 0, A, "sleep", "pcmwr")
    world.remain(1_000_600, 0)
    world.exit(1_000_700, 0, None)
    return world.text(END)


@pytest.mark.parametrize("release", RELEASES)
def test_same_events_give_the_same_tables_in_every_release(release: int, tmp_path: Path) -> None:
    """Class, states and waits; only the priorities depend on the release."""
    got = decode(tmp_path, story(release))
    assert got.about["release"] == str(RELEASES[release])
    assert got.rows("threads", "tid", "sched_class")[2:] == [(A, "timeshare"), (B, "realtime")]
    assert got.rows("waits", "utid", "cause", "wait") == [
        (A, "wake", 103),
        (B, "wake", 23),
        (A, "preempt", 180),
    ]
    realtime, _, timeshare = BANDS[release]
    prios = set(got.rows("switches", "next_utid", "next_prio"))
    assert {(A, timeshare + 30), (B, realtime + 15)} <= prios


def ktr(prio: int) -> str:
    """One thread of this priority runs, as schedgraph.d prints it."""
    thread = (
        f'0 {{}} KTRGRAPH group:"thread", id:"a/a tid {A}", state:"{{}}", attributes: prio:{prio}'
    )
    idle = '0 2001 KTRGRAPH group:"thread", id:"idle/idle: cpu0 tid 100003", state:"running", '
    lines = [thread.format(1000, "running"), thread.format(2000, "swapped")]
    lines.append(idle + "attributes: prio:255")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("release", RELEASES)
def test_class_follows_the_priority_bands_of_the_release(release: int, tmp_path: Path) -> None:
    """Kernel priorities have no class: a user thread that slept in the kernel has one, too."""

    def of(prio: int) -> str | None:
        got = decode(tmp_path, ktr(prio), osreldate=str(RELEASES[release]))
        found: str | None = dict(got.rows("threads", "tid", "sched_class"))[A]
        return found

    realtime, kernel, timeshare = BANDS[release]
    edges = [0, realtime - 1, realtime, kernel - 1, kernel, timeshare - 1, timeshare, 223, 224]
    assert [of(prio) for prio in edges] == [
        "interrupt", "interrupt", "realtime", "realtime", None, None,
        "timeshare", "timeshare", "idle",
    ]  # fmt: skip


def test_class_of_a_priority_depends_on_the_release(tmp_path: Path) -> None:
    """40 is an interrupt thread's on 13, real time on 14, the kernel's on 15."""
    classes = [
        dict(decode(tmp_path, ktr(40), osreldate=str(r)).rows("threads", "tid", "sched_class"))[A]
        for r in RELEASES.values()
    ]
    assert classes == ["interrupt", "realtime", None]


def test_a_thread_that_is_swapped_out_is_blocked(tmp_path: Path) -> None:
    """Until 14: no signal ends it, and its wait has no name."""
    world = Machine(2, osreldate=RELEASES[13])
    world.thread(A, "make")
    world.wake(1_000_100, 0, A, target=0)
    world.switch(1_000_200, 0, A, "preempt")
    world.switch(1_000_300, 0, None, "swapped")
    for text in (world.text(END), ktr(150)):
        got = decode(tmp_path, text)
        assert ("blocked",) in got.rows("switches", "prev_state")
        assert got.tables["sleeps"].is_empty()
