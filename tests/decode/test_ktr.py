"""KTR text as FreeBSD's own tools print it: newest first in cycles, or in order in ns."""

from __future__ import annotations

from pathlib import Path

import pytest
from freebsd.reading import Decoded, decode

import schedscope as ss
from schedscope.errors import FormatError, UsageError

HZ = 2_000_000_000
MAKE, CC, IDLE = "make tid 100402", "cc tid 100403", "idle: cpu0 tid 100003"

# (cycles, cpu, what), oldest first; 2 cycles are 1 ns.
ENTRIES = [
    (1_000, 0, f'thread", id:"{MAKE}", state:"runq add", attributes: prio:152, linkedto:"{IDLE}"'),
    (1_100, 0, 'load", id:"CPU 0 load", counter:1, attributes: none'),
    (2_000, 0, f'thread", id:"{IDLE}", state:"idle", attributes: prio:255'),
    (2_200, 0, f'thread", id:"{MAKE}", state:"running", attributes: prio:152'),
    (3_000, 0, f'thread", id:"{CC}", state:"runq add", attributes: prio:160, linkedto:"{MAKE}"'),
    (3_100, 0, 'load", id:"CPU 1 load", counter:1, attributes: none'),
    (3_400, 0, f'thread", id:"{MAKE}", point:"wokeup", attributes: linkedto:"{CC}"'),
    (3_600, 0, f'thread", id:"{CC}", state:"runq rem", attributes: prio:160, linkedto:"{MAKE}"'),
    (3_700, 0, f'thread", id:"{CC}", point:"lend prio", attributes: prio:160, new prio:120, '
               f'linkedto:"{MAKE}"'),
    (3_800, 0, f'thread", id:"{CC}", state:"runq add", attributes: prio:120, linkedto:"{MAKE}"'),
    (4_000, 0, f'thread", id:"{MAKE}", state:"sleep", attributes: prio:152, wmesg:"piperd", '
               'lockname:"(null)"'),
    (4_200, 0, f'thread", id:"{CC}", state:"running", attributes: prio:120'),
    (5_000, 0, f'thread", id:"{CC}", state:"yielding", attributes: prio:120, wmesg:"(null)", '
               'lockname:"(null)"'),
    (5_100, 0, f'thread", id:"{CC}", state:"running", attributes: prio:120'),
    (6_000, 0, f'thread", id:"{CC}", state:"thread exit", attributes: prio:120'),
    (6_400, 0, f'thread", id:"{IDLE}", state:"running", attributes: prio:255'),
]  # fmt: skip


def ktrdump(*, newest_first: bool = True, ticks: bool = False, base: int = 10**15) -> str:
    entries = list(ENTRIES)
    if ticks:
        step = HZ // 127
        entries += [
            (n * step, 1, 'thread", id:"x tid 100900", point:"statclock", attributes: prio:1, '
             "stathz:127")
            for n in range(10)
        ]  # fmt: skip
        entries.sort()
    if newest_first:
        entries.reverse()
    lines = [
        f'{index:6} {cpu:3} {base + time} KTRGRAPH group:"{what}\n'
        for index, (time, cpu, what) in enumerate(entries)
    ]
    return "index  cpu timestamp        trace\n------ --- ---------------- -----\n" + "".join(lines)


def check(got: Decoded, shift: int = 0) -> None:
    columns = ("ts", "prev_utid", "prev_state", "preempted", "next_utid")
    assert got.rows("switches", *columns) == [
        (500 + shift, -1, "runnable", False, 100402),
        (1_500 + shift, 100402, "sleeping", False, 100403),
        (2_700 + shift, 100403, "dead", False, -1),
    ]
    assert got.rows("wakeups", "ts", "kind", "utid", "waker_utid", "target_cpu") == [
        (0 + shift, "enqueued", 100402, -1, 0),
        (1_000 + shift, "enqueued", 100403, 100402, 1),
    ]
    assert got.rows("sleeps", "utid", "kind", "reason") == [(100402, "sleep", "piperd")]
    assert got.rows("priorities", "utid", "prio", "cause") == [(100403, 120, "lend-pri")]
    assert got.rows("queue_load", "cpu", "load") == [(0, 1), (1, 1)]
    names = dict(got.rows("threads", "tid", "comm"))
    assert names[100402] == "make"


@pytest.mark.parametrize("newest_first", [True, False])
def test_ktrdump_with_the_frequency_given(tmp_path: Path, newest_first: bool) -> None:
    check(decode(tmp_path, ktrdump(newest_first=newest_first), tsc_hz=str(HZ)))


def test_the_lines_that_are_read_are_counted(tmp_path: Path) -> None:
    """By event and CPU, without a point that records a wakeup from the other side."""
    path = tmp_path / "ktr.txt"
    path.write_text(ktrdump())
    trace = ss.open(path, options={"tsc_hz": str(HZ)}, cache=tmp_path / "cache")
    assert trace.events == len(ENTRIES) - 1
    assert trace.info["events"]["thread:running"] == {"0": 4}
    assert trace.info["events"]["thread:runq add"] == {"0": 3}


def test_the_frequency_follows_from_the_statclock(tmp_path: Path) -> None:
    got = decode(tmp_path, ktrdump(ticks=True))
    assert got.about["clock"]["hz"] == pytest.approx(HZ, rel=1e-4)
    assert got.about["clock"]["hz_from"] == "statclock"
    assert [row[0] for row in got.rows("wakeups", "utid")] == [100402, 100403]


def test_schedgraph_d_prints_nanoseconds_and_process_names(tmp_path: Path) -> None:
    lines = [
        f'{cpu} {time // 2} KTRGRAPH group:"{what}\n'.replace('id:"make', 'id:"make/make')
        .replace('id:"cc', 'id:"cc/cc')
        .replace('id:"idle:', 'id:"idle/idle:')
        .replace('linkedto:"idle:', 'linkedto:"idle/idle:')
        .replace('linkedto:"make', 'linkedto:"make/make')
        for time, cpu, what in ENTRIES
    ]
    check(decode(tmp_path, "".join(lines)))


def decoded(tmp_path: Path, *entries: tuple[int, int, str]) -> Decoded:
    lines = [
        f'{n} {cpu} {time} KTRGRAPH group:"{what}\n' for n, (time, cpu, what) in enumerate(entries)
    ]
    return decode(tmp_path, "".join(lines), tsc_hz=str(10**9), osreldate="1302001")


def test_thread_leaves_at_its_own_running_line(tmp_path: Path) -> None:
    """Another CPU may queue it before `running` is logged, and the same for the next one."""
    got = decoded(
        tmp_path,
        (1_000, 0, f'thread", id:"{IDLE}", state:"idle", attributes: prio:255'),
        (1_010, 0, f'thread", id:"{MAKE}", state:"running", attributes: prio:152'),
        (2_000, 0, f'thread", id:"{MAKE}", state:"sleep", attributes: prio:152, wmesg:"nanslp"'),
        (
            2_020,
            1,
            f'thread", id:"{CC}", state:"runq add", attributes: prio:152, linkedto:"{IDLE}"',
        ),
        (
            2_030,
            1,
            f'thread", id:"{MAKE}", state:"runq add", attributes: prio:152, linkedto:"{IDLE}"',
        ),
        (2_100, 0, f'thread", id:"{CC}", state:"running", attributes: prio:152'),
        (3_000, 0, f'thread", id:"{CC}", state:"proc exit", attributes: prio:152'),
        (3_900, 0, f'thread", id:"{CC}", state:"exit", attributes: prio:152'),
        (4_000, 0, f'thread", id:"{MAKE}", state:"running", attributes: prio:152'),
    )
    # The next one was queued in between; one that exits runs to the end.
    assert got.rows("switches", "ts", "prev_utid", "next_utid") == [
        (0, -1, 100402), (1_020, 100402, 100403), (3_000, 100403, 100402),
    ]  # fmt: skip
    assert got.rows("wakeups", "ts", "utid") == [(1_020, 100403), (1_030, 100402)]
    waits = [row for row in got.rows("waits", "utid", "wait") if row[1] is not None]
    assert (100402, 1_970) in waits


def test_a_thread_that_spins_for_a_lock_runs(tmp_path: Path) -> None:
    """`running` without a priority means that it has the lock; a switch has the priority."""
    got = decoded(
        tmp_path,
        (1_000, 0, f'thread", id:"{IDLE}", state:"idle", attributes: prio:255'),
        (1_010, 0, f'thread", id:"{MAKE}", state:"running", attributes: prio:152'),
        (1_100, 0, f'thread", id:"{MAKE}", state:"spinning", attributes: lockname:"unp"'),
        (1_200, 0, f'thread", id:"{MAKE}", state:"yielding", attributes: prio:152'),
        (1_210, 0, f'thread", id:"{CC}", state:"running", attributes: prio:120'),
        (1_300, 0, f'thread", id:"{CC}", state:"sleep", attributes: prio:120, wmesg:"-"'),
        (1_310, 0, f'thread", id:"{MAKE}", state:"running", attributes: prio:152'),
        (1_400, 0, f'thread", id:"{MAKE}", state:"sleep", attributes: prio:152, wmesg:"-"'),
        (1_405, 0, f'thread", id:"{MAKE}", state:"spinning", attributes: lockname:"sched lock"'),
        (1_410, 0, f'thread", id:"{MAKE}", state:"running", attributes: none'),
        (1_420, 0, f'thread", id:"{IDLE}", state:"running", attributes: prio:255'),
    )
    assert got.rows("switches", "ts", "prev_utid", "next_utid") == [
        (0, -1, 100402), (200, 100402, 100403), (300, 100403, 100402), (400, 100402, -1),
    ]  # fmt: skip
    assert not any("KTRGRAPH lines" in warning for warning in got.about["warnings"])


def test_class_follows_priority_where_the_release_is_known(tmp_path: Path) -> None:
    got = decode(tmp_path, ktrdump(), tsc_hz=str(HZ), osreldate="1402000")
    classes = dict(got.rows("threads", "tid", "sched_class"))
    assert classes[100402] == "timeshare"
    unknown = dict(
        decode(tmp_path, ktrdump(), tsc_hz=str(HZ)).rows("threads", "tid", "sched_class")
    )
    assert unknown[100402] is None


def test_missing_frequency_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"tsc_hz.*machdep\.tsc_freq"):
        decode(tmp_path, ktrdump())
    with pytest.raises(UsageError, match="cycles per second"):
        decode(tmp_path, ktrdump(), tsc_hz="fast")


def test_unreadable_lines_are_counted(tmp_path: Path) -> None:
    text = ktrdump() + '7 0 5 KTRGRAPH group:"thread", id:"no number", state:"running"\n'
    got = decode(tmp_path, text, tsc_hz=str(HZ))
    assert any("1 KTRGRAPH lines" in warning for warning in got.about["warnings"])
