"""FreeBSD's lines and their meaning: small traces whose answer fits on the screen."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from freebsd.reading import Decoded, decode
from freebsd.writer import Machine, ring

from schedscope.errors import FormatError

FIXTURES = Path(__file__).parents[2] / "fixtures"
END = 2_000_000
A, B = 100402, 100403


def machine(scheduler: str = "ULE", ncpu: int = 2) -> Machine:
    world = Machine(ncpu, scheduler)
    world.thread(A, "make")
    world.thread(B, "cc")
    return world


def test_a_wakeup_an_enqueue_and_a_load_are_one_wake_with_its_target(tmp_path: Path) -> None:
    world = machine()
    world.wake(1_000_100, 0, A, target=1)
    world.switch(1_000_200, 1, A, "preempt")
    world.switch(1_000_300, 1, None, "sleep", "piperd")
    got = decode(tmp_path, world.text(END))
    columns = ("ts", "cpu", "kind", "utid", "waker_utid", "target_cpu")
    assert got.rows("wakeups", *columns) == [
        (1_000_100, 0, "waking", A, -1, None),
        (1_000_101, 0, "enqueued", A, -1, 1),
    ]
    columns = ("utid", "cause", "ts_ready", "ts_enqueued", "ts_run", "queue_cpu", "wait")
    assert got.rows("waits", *columns) == [(A, "wake", 1_000_100, 1_000_101, 1_000_203, 1, 103)]
    assert got.rows("sleeps", "ts", "utid", "kind", "reason") == [(1_000_303, A, "sleep", "piperd")]
    assert got.rows("queue_load", "cpu", "load") == [(1, 1), (1, 0)]


def test_wakeups_of_4bsd_have_no_target_cpu(tmp_path: Path) -> None:
    world = machine("4BSD")
    world.wake(1_000_100, 0, A, target=1)
    world.switch(1_000_200, 1, A, "preempt")
    got = decode(tmp_path, world.text(END))
    assert got.rows("wakeups", "kind", "target_cpu") == [("waking", None), ("enqueued", None)]
    assert got.rows("queue_load", "cpu", "load") == [(None, 1)]


def test_wakeup_without_an_enqueue_is_dropped(tmp_path: Path) -> None:
    """The thread was on the sleep queue but still running, so it never slept."""
    world = machine()
    world.wake(1_000_100, 0, A, target=0)
    world.switch(1_000_200, 0, A, "preempt")
    world.wake_in_vain(1_000_300, 1, A)
    world.switch(1_000_400, 0, None, "sleep", "select")
    got = decode(tmp_path, world.text(END))
    assert got.rows("wakeups", "ts", "kind") == [(1_000_100, "waking"), (1_000_101, "enqueued")]
    assert got.about["reconstruction"]["spurious_wakeups"] == 0


def test_wakeup_before_the_switch_out_does_not_match_a_later_enqueue(tmp_path: Path) -> None:
    """Woken without an effect, then suspended instead, and resumed by the same thread without a
    probe.
    """
    world = Machine(2, noload=True)
    world.thread(A, "make")
    world.thread(B, "cc")
    world.wake(1_000_010, 0, A, target=0)
    world.wake(1_000_020, 0, B, target=1)
    world.switch(1_000_100, 0, A, "preempt")
    world.switch(1_000_110, 1, B, "preempt")
    world.wake_in_vain(1_000_200, 1, A)
    world.switch(1_000_300, 0, None, "suspend")
    world.wake(1_000_400, 1, A, target=0, probe=False)
    world.switch(1_000_500, 0, A, "preempt")
    got = decode(tmp_path, world.text(END))
    assert got.rows("wakeups", "ts", "kind")[-1] == (1_000_401, "enqueued")
    assert (A, "stopped", 1_000_303, 98) in got.rows("states", "utid", "state", "ts", "dur")
    assert got.about["reconstruction"]["wakes_before_switch_out"] == 0


@pytest.mark.parametrize("scheduler", ["ULE", "4BSD"])
def test_switch_reason_is_voluntary_or_involuntary(tmp_path: Path, scheduler: str) -> None:
    """The counter that changed decides; after a remain-cpu both did, and preempt decides."""
    world = machine(scheduler)
    world.wake(1_000_010, 0, A, target=0)
    world.wake(1_000_020, 0, B, target=0)
    world.switch(1_000_100, 0, A, "preempt")
    world.switch(1_000_200, 0, B, "yield")
    world.switch(1_000_300, 0, A, "preempt")
    world.remain(1_000_400, 0)
    world.switch(1_000_500, 0, B, "yield")
    world.remain(1_000_600, 0)
    world.switch(1_000_700, 0, A, "preempt")
    got = decode(tmp_path, world.text(END))
    assert got.rows("switches", "prev_utid", "prev_state", "preempted")[1:] == [
        (A, "runnable", False),
        (B, "runnable", True),
        (A, "runnable", False),
        (B, "runnable", True),
    ]
    causes = [cause for (cause,) in got.rows("waits", "cause")[2:]]
    assert causes == ["yield", "preempt", "yield", "preempt"]


def test_an_exit_is_a_switch_to_its_successor(tmp_path: Path) -> None:
    world = machine()
    world.wake(1_000_010, 0, A, target=0)
    world.switch(1_000_100, 0, A, "preempt")
    world.wake(1_000_150, 0, B, target=0)
    world.exit(1_000_200, 0, B)
    world.switch(1_000_300, 0, None, "sleep")
    got = decode(tmp_path, world.text(END))
    assert got.rows("switches", "ts", "prev_utid", "prev_state", "next_utid")[1] == (
        1_000_203, A, "dead", B,
    )  # fmt: skip
    assert got.rows("threads", "tid", "exit_ts")[2] == (A, 1_000_200)
    assert got.tables["losses"].is_empty()
    assert (A, "running", 1_000_103, 100) in got.rows("states", "utid", "state", "ts", "dur")


def test_exit_with_a_lost_successor_is_a_loss_without_running_time(tmp_path: Path) -> None:
    world = machine()
    world.wake(1_000_010, 0, A, target=0)
    world.switch(1_000_100, 0, A, "preempt")
    world.wake(1_000_150, 0, B, target=0)
    world.exit(1_000_200, 0, B)
    world.switch(1_000_300, 0, None, "sleep")
    text = "".join(line for line in world.text(END).splitlines(True) if line[0] != "R")
    got = decode(tmp_path, text)
    columns = ("cpu", "ts_begin", "ts_end", "reason")
    assert got.rows("losses", *columns) == [(0, 1_000_200, 1_000_303, "exit_hole")]
    states = got.rows("states", "utid", "state", "dur")
    assert [row for row in states if row[1] == "running" and row[0] >= 0] == [(A, "running", 97)]


def test_a_steal_is_a_migration_and_a_requeue_is_not_a_wakeup(tmp_path: Path) -> None:
    world = machine()
    world.wake(1_000_010, 0, A, target=0)
    world.steal(1_000_100, 1, A, to=1)
    world.requeue(1_000_200, 0, A, prio=120)
    world.requeue(1_000_300, 0, A, prio=120, to=0)
    world.switch(1_900_000, 0, A, "preempt")
    got = decode(tmp_path, world.text(END))
    assert got.rows("migrations", "ts", "cpu", "utid", "from_cpu", "to_cpu") == [
        (1_000_100, 1, A, 0, 1),
        (1_000_300, 0, A, 1, 0),
    ]
    assert len(got.rows("wakeups", "kind")) == 2
    assert got.rows("queue_load", "cpu", "load")[1:] == [
        (0, 0), (1, 1), (1, 0), (1, 1), (1, 0), (0, 1),
    ]  # fmt: skip


def test_requeues_of_4bsd_are_not_wakeups_or_migrations(tmp_path: Path) -> None:
    world = machine("4BSD")
    world.wake(1_000_010, 0, A, target=0)
    world.requeue(1_000_200, 0, A, prio=120)
    world.switch(1_900_000, 0, A, "preempt")
    got = decode(tmp_path, world.text(END))
    assert got.tables["migrations"].is_empty()
    assert len(got.rows("wakeups", "kind")) == 2


def test_thread_moved_as_it_leaves_is_a_migration(tmp_path: Path) -> None:
    """ULE's sched_switch_migrate: two load-changes and no dequeue before the switch."""
    world = machine()
    world.wake(1_000_010, 0, A, target=0)
    world.switch(1_000_100, 0, A, "preempt")
    world.switch(1_000_200, 0, None, "preempt", move=1)
    world.switch(1_000_300, 1, A, "preempt")
    got = decode(tmp_path, world.text(END))
    assert got.rows("migrations", "ts", "utid", "from_cpu", "to_cpu") == [(1_000_203, A, 0, 1)]
    assert got.rows("waits", "cause", "queue_cpu", "cpu", "wait")[1] == ("preempt", 1, 1, 100)


@pytest.mark.parametrize(
    ("how", "state", "kind"),
    [
        ("sleep", "sleeping", "sleep"),
        ("sleep hard", "blocked", "sleep"),
        ("lock", "blocked", "lock"),
        ("suspend", "stopped", "suspended"),
        ("iwait", "parked", "interrupt"),
    ],
)
def test_states_from_td_state_and_inhibitors(
    tmp_path: Path, how: str, state: str, kind: str
) -> None:
    world = machine()
    world.wake(1_000_010, 0, A, target=0)
    world.switch(1_000_100, 0, A, "preempt")
    world.switch(1_000_200, 0, None, how, "Giant")
    got = decode(tmp_path, world.text(END))
    assert got.rows("switches", "prev_state", "preempted")[1] == (state, False)
    assert got.rows("sleeps", "kind", "reason") == [(kind, "Giant")]


def test_a_new_thread_has_its_parent_and_waits_as_new(tmp_path: Path) -> None:
    world = machine()
    world.wake(1_000_010, 0, A, target=0)
    world.switch(1_000_100, 0, A, "preempt")
    world.thread(100500, "child", pid=77)
    world.wake(1_000_150, 0, 100500, target=1, new=True)
    world.switch(1_000_200, 1, 100500, "preempt")
    got = decode(tmp_path, world.text(END))
    assert got.rows("waits", "utid", "cause", "wait")[1] == (100500, "new", 52)
    (child,) = [row for row in got.rows("threads", "tid", "pid", "start_ts", "parent_utid")
                if row[0] == 100500]  # fmt: skip
    assert child == (100500, 77, 1_000_151, A)


def test_an_interrupt_wakes_without_a_waker(tmp_path: Path) -> None:
    world = machine()
    world.wake(1_000_010, 0, A, target=0, interrupts=1)
    world.switch(1_900_000, 0, A, "preempt")
    got = decode(tmp_path, world.text(END))
    assert got.rows("wakeups", "waker_utid") == [(None,), (None,)]


@pytest.mark.parametrize(
    ("pri_class", "kind", "sched_class"),
    [(1, 2, "interrupt"), (2, 0, "realtime"), (3, 0, "timeshare"), (3, 2, "kernel"), (4, 0, "idle"),
     (10, 0, "realtime")],
)  # fmt: skip
def test_classes_follow_the_recorded_class(
    tmp_path: Path, pri_class: int, kind: int, sched_class: str
) -> None:
    world = machine()
    world.thread(100600, "t", pri_class=pri_class, kind=kind)
    world.wake(1_000_010, 0, 100600, target=0)
    world.switch(1_900_000, 0, 100600, "preempt")
    got = decode(tmp_path, world.text(END))
    found = got.rows("threads", "tid", "sched_class", "kernel")[2]
    assert found == (100600, sched_class, kind == 2)


@pytest.mark.parametrize(
    "name", ["two words", 'a"b', "tab\there", "line\nbreak", "grün", "S\t1\t0\n"]
)
def test_name_of_any_characters_keeps_its_line_intact(tmp_path: Path, name: str) -> None:
    world = machine()
    world.thread(100600, name)
    world.wake(1_000_010, 0, 100600, target=0)
    world.switch(1_000_100, 0, 100600, "preempt")
    world.switch(1_000_200, 0, None, "sleep")
    got = decode(tmp_path, world.text(END))
    assert got.rows("threads", "tid", "comm")[2] == (100600, name)
    assert len(got.tables["switches"]) == 2


def test_lent_priority_in_two_lines_is_one_change(tmp_path: Path) -> None:
    world = machine()
    world.wake(1_000_010, 0, A, target=0)
    for ts, lent in ((1_000_100, 0), (1_000_101, 1)):
        world.lines.append((ts, 0, f"C\t{ts}\t0\t{B}\t{A}\t152\t120\t{lent}\n"))
    world.lines.append((1_000_200, 0, f"C\t1000200\t0\t{B}\t{A}\t120\t152\t0\n"))
    world.switch(1_900_000, 0, A, "preempt")
    got = decode(tmp_path, world.text(END))
    assert got.rows("priorities", "ts", "utid", "prio", "cause") == [
        (1_000_100, A, 120, "lend-pri"),
        (1_000_200, A, 152, "change-pri"),
    ]


def test_lend_line_of_4bsd_is_ignored(tmp_path: Path) -> None:
    """Its probe fires when the priority gets worse, which the plain line has reported already."""
    world = machine("4BSD")
    world.wake(1_000_010, 0, A, target=0)
    for ts, lent in ((1_000_100, 0), (1_000_101, 1)):
        world.lines.append((ts, 0, f"C\t{ts}\t0\t{B}\t{A}\t120\t152\t{lent}\n"))
    world.switch(1_900_000, 0, A, "preempt")
    got = decode(tmp_path, world.text(END))
    assert got.rows("priorities", "ts", "utid", "prio", "cause") == [
        (1_000_100, A, 152, "change-pri")
    ]


def test_additions_become_interrupts(tmp_path: Path) -> None:
    world = machine()
    world.lines.append((1_000_500, 1, "I\t1000500\t1\tirq\t28\t400\t6\tirq28:\n"))
    world.lines.append((1_000_900, 1, "I\t1000900\t1\tcallout\t0\t100\t0\tkernel`f\n"))
    world.wake(1_800_000, 0, A, target=0)
    world.switch(1_900_000, 0, A, "preempt")
    got = decode(tmp_path, world.text(END))
    assert got.rows("irqs", "ts", "cpu", "kind", "id", "dur") == [
        (1_000_100, 1, "hard", 28, 400),
        (1_000_800, 1, "soft", 0, 100),
    ]


def busy() -> Machine:
    world = machine()
    for n in range(100):
        ts = 1_000_100 + n * 1000
        world.wake(ts, n % 2, A, target=0)
        world.switch(ts + 100, 0, A, "preempt")
        world.switch(ts + 200, 0, None, "sleep")
        world.wake(ts + 300, 0, B, target=1)
        world.switch(ts + 400, 1, B, "preempt")
        world.switch(ts + 500, 1, None, "lock", "vm page")
    return world


def facts(got: Decoded) -> dict[str, list[tuple[object, ...]]]:
    return {name: got.rows(name, *frame.columns) for name, frame in got.tables.items()}


@pytest.mark.parametrize("chunk", [1_000, 7_777, 50_000, 10_000_000])
def test_buffers_printed_cpu_after_cpu_mean_the_same(tmp_path: Path, chunk: int) -> None:
    temporal = decode(tmp_path, busy().text(END))
    chunked = decode(tmp_path, busy().text(END, per_cpu=chunk))
    assert facts(chunked) == facts(temporal)


def test_missing_lines_are_detected_by_the_counts(tmp_path: Path) -> None:
    text = busy().text(END)
    lines = text.splitlines(True)
    del lines[300:310]
    got = decode(tmp_path, "".join(lines))
    assert [loss["reason"] for loss in got.about["unplaced_losses"]] == ["truncated"]
    assert any("lines are missing" in warning for warning in got.about["warnings"])
    assert not decode(tmp_path, text).about["warnings"]


def test_lines_that_are_in_the_file_twice_are_read_once(tmp_path: Path) -> None:
    """DTrace never writes a line twice: read again, each would be another switch or wakeup."""
    lines = busy().text(END).splitlines(True)
    whole = decode(tmp_path, "".join(lines))
    got = decode(tmp_path, "".join([*lines[:310], *lines[300:310], *lines[310:]]))
    assert facts(got) == facts(whole)
    (said,) = got.about["warnings"]
    assert "10 lines are in the file twice" in said


def test_each_cpu_of_a_ring_starts_at_its_own_first_line(tmp_path: Path) -> None:
    """A CPU is unknown before its first line, and nothing that depends on it is measured."""
    text = busy().text(END)
    whole = decode(tmp_path, text)
    got = decode(tmp_path, ring(text, [1_050_150, 1_020_450], END))
    assert got.about["window"] == [1_020_503, END]
    assert got.rows("losses", "cpu", "ts_begin", "ts_end", "reason") == [
        (0, 1_020_503, 1_050_203, "late_start")
    ]
    assert got.about["unplaced_losses"] == []
    (warning,) = got.about["warnings"]
    assert "468 earlier ones are gone" in warning
    columns = ("utid", "ts_run", "wait", "censored")
    true = {row for row in whole.rows("waits", *columns) if row[3] == "none"}
    measured = {row for row in got.rows("waits", *columns) if row[3] == "none"}
    assert measured <= true
    # A wakeup after the start of the last CPU is measured as in the whole recording.
    assert {row for row in true if row[1] > 1_051_000} <= measured
    running = [
        row for row in got.rows("states", "utid", "state", "ts", "cpu") if row[1] == "running"
    ]
    assert min(ts for _, _, ts, cpu in running if cpu == 0) >= 1_050_203


def test_ring_that_never_wrapped_is_complete(tmp_path: Path) -> None:
    """Then the line printed at the start is there, too, and nothing is missing."""
    text = busy().text(END)
    head = text.splitlines(True)[0]
    again = ring(text, [0, 0], END).splitlines(True)[0]
    got = decode(tmp_path, text.replace(head, head + again))
    whole = decode(tmp_path, text)
    assert (facts(got), got.about["warnings"]) == (facts(whole), [])
    assert got.about["window"] == whole.about["window"]


def test_killed_dtrace_and_truncated_file_are_reported(tmp_path: Path) -> None:
    text = busy().text(END)
    killed = decode(tmp_path, text[: text.index("#count")])
    cut = decode(tmp_path, text[: text.index("#count") - 9])
    assert "early_end" in [row[0] for row in killed.rows("losses", "reason")]
    assert [loss["reason"] for loss in cut.about["unplaced_losses"]] == ["truncated"]


def test_drops_are_placed_at_prev_next_mismatches(tmp_path: Path) -> None:
    """dtrace reports how many lines a CPU dropped; a prev/next mismatch shows when."""
    lines = busy().text(END).splitlines(True)
    gone = {n for n, line in enumerate(lines) if line[:2] == "S\t" and "\tcc\t" in line}
    gone = set(sorted(gone)[60:61])
    text = "".join(line for n, line in enumerate(lines) if n not in gone)
    got = decode(tmp_path, text + "dtrace: 1 drop on CPU 1\n")
    assert [row[0] for row in got.rows("losses", "reason")] == ["overrun"]
    per_cpu = got.about["per_cpu"][1]
    window = got.about["window"]
    assert per_cpu["running"] + per_cpu["idle"] + per_cpu["unknown"] == window[1] - window[0]
    assert {"cpu": 1, "count": 1, "reason": "overrun"} in got.about["unplaced_losses"]


def test_unreadable_lines_are_counted_and_skipped(tmp_path: Path) -> None:
    text = busy().text(END)
    head, rest = text.split("\n", 1)
    spoilt = f"{head}\nS\t1000001\t0\tx\nmake: warning\nE\t1000002\t99\t1\n\x00\xff\n{rest}"
    got = decode(tmp_path, spoilt.encode("latin-1", "replace"))
    assert facts(got) == facts(decode(tmp_path, text))
    assert any("2 lines begin like events" in warning for warning in got.about["warnings"])


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("#sched\t3\tfreebsd\t1\t2\t3\t4\n", "version 1 or 2"),
        ("#sched\t1\tplan9\t1\t2\t3\t4\n", "freebsd or linux"),
        ("#sched\t1\tfreebsd\tx\n", "version, system, time"),
    ],
)
def test_unknown_first_line_is_an_error_with_a_hint(
    tmp_path: Path, line: str, complaint: str
) -> None:
    with pytest.raises(FormatError, match=complaint):
        decode(tmp_path, line)


def test_a_thread_that_never_ran_has_the_class_that_was_recorded(tmp_path: Path) -> None:
    """Events take precedence; timeshare of a kernel process is its kernel class, as in events."""
    folder = tmp_path / "x.capture"
    shutil.copytree(FIXTURES / "freebsd-ule-synthetic.capture", folder)
    rows = [
        ("100700", "idle", "0", "sleeper"),
        ("100701", "realtime", "0", "player"),
        ("100702", "timeshare", "1", "pagedaemon"),
        ("100703", "timeshare", "0", "sh"),
        ("100704", "interrupt", "1", "irq9: acpi0"),
        ("100705", "", "0", "nobody"),
    ]
    with (folder / "threads.tsv").open("a") as table:
        for tid, policy, kernel, comm in rows:
            table.write(f"{tid}\t1\t1\t{policy}\t100\t0\t\t{kernel}\t{comm}\n")
    # A hog, timeshare in every event, was reported in another class.
    text = (folder / "threads.tsv").read_text().replace("timeshare\t200", "realtime\t200")
    (folder / "threads.tsv").write_text(text)
    classes = dict(Decoded(folder).rows("threads", "tid", "sched_class"))
    assert [classes[tid] for tid in range(100700, 100706)] == [
        "idle", "realtime", "kernel", "timeshare", "interrupt", None,
    ]  # fmt: skip
    assert classes[100500] == "timeshare"


def test_recorded_policy_distinguishes_batch_and_idle_on_linux(tmp_path: Path) -> None:
    """ftrace's events have priorities only; where they show another class, they take precedence."""
    folder = tmp_path / "x.capture"
    shutil.copytree(FIXTURES / "linux-ftrace-mixed.capture", folder)
    header = (folder / "threads.tsv").read_text().splitlines(keepends=True)[0]
    columns = header.rstrip("\n").split("\t")
    before = dict(Decoded(folder).rows("threads", "tid", "sched_class"))
    policies = {}
    out = [header]
    for line in (folder / "threads.tsv").read_text().splitlines(keepends=True)[1:]:
        row = dict(zip(columns, line.rstrip("\n").split("\t"), strict=True))
        if row["policy"] == "other":
            row["policy"] = ["batch", "idle"][int(row["tid"]) % 2]
            policies[int(row["tid"])] = row["policy"]
        out.append("\t".join(row.values()) + "\n")
    (folder / "threads.tsv").write_text("".join(out))
    after = dict(Decoded(folder).rows("threads", "tid", "sched_class"))
    assert policies
    for tid, policy in policies.items():
        assert after[tid] == (policy if before[tid] == "fair" else before[tid])
