"""Findings about weights, masks, interrupts, priority inversion and wake-ups on other cores."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from archives import unpack
from ledgers import played
from scenes import scene

import schedscope as ss
from schedscope.analysis.findings.facts import Facts
from schedscope.analysis.findings.finding import ADVICE
from schedscope.analysis.findings.inversion import inversions
from schedscope.analysis.findings.lower_weight import _whose
from schedscope.analysis.findings.outranked import outranked
from schedscope.analysis.recording.of_recorder import of_recorder
from schedscope.analysis.shares.group_weights import Deciding, GroupWeights

FIXTURES = Path(__file__).parents[2] / "fixtures"
MS = 1_000_000


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real recordings: `fixtures/findings.md`."""
    folder = tmp_path_factory.mktemp("findings")
    with tarfile.open(FIXTURES / "findings.tar.xz") as archive:
        unpack(archive, folder)
    return folder


def row(trace: ss.Trace, topic: str) -> dict[str, Any] | None:
    found = ss.findings(trace).filter(pl.col("topic") == topic)
    return found.row(0, named=True) if found.height else None


@pytest.mark.parametrize(
    ("name", "topic", "said", "whatif"),
    [
        ("weight-fault-1", "weight", "has weight 50, ", "--set-weight /scene-140/light=500"),
        ("weight1-fault-1", "weight", "its nice level is 10 (weight 110)", "--set-nice small=0"),
        ("mask-fault-3", "mask", "right (CPU 0), left and seldom.", "--pin right=0-1"),
    ],
)
def test_a_load_that_must_produce_it(
    recorded: Path, name: str, topic: str, said: str, whatif: str | None
) -> None:
    found = row(ss.open(recorded / f"{name}.capture"), topic)
    assert found is not None
    assert said in found["text"]
    assert found["advice"] == ADVICE[topic]
    assert found["whatif"] == (whatif and f"whatif {whatif}")


@pytest.mark.parametrize(
    ("name", "topic"),
    [("weight-alike-1", "weight"), ("weight1-alike-1", "weight"), ("mask-alike-3", "mask")],
)
def test_a_load_that_looks_alike(recorded: Path, name: str, topic: str) -> None:
    assert row(ss.open(recorded / f"{name}.capture"), topic) is None


@pytest.mark.parametrize("name", ["weight1-fault-1", "weight-fault-1"])
def test_suggested_command_of_a_finding_runs(recorded: Path, name: str) -> None:
    """The what-if command of the nice level, or of the group: it gets as much as the other then."""
    from schedscope.cli import main

    trace = recorded / f"{name}.capture"
    command = str(row(ss.open(trace), "weight")["whatif"]).split()  # type: ignore[index]
    code = main([command[0], str(trace), *command[1:], "--replays", "1", "--format", "json"])
    assert code == 0


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("/a", "/b", "its control group /a has weight 50, /b has 500"),
        ("session 7", "session 8", "its session has weight 50, the other's 500"),
        ("/a", "session 7", "weight 50, that of its control group /a, the other with 500"),
        ("session 7", "/a", "weight 50, the other with 500, that of its control group /a"),
    ],
)
def test_the_group_that_decides_is_named(one: str, other: str, said: str) -> None:
    """Beside a group a thread in none competes as its session."""
    # The threads' own groups lie below.
    pair = {"victim_cgroup": "/a/leaf", "cgroup": "/b/leaf"}
    assert _whose(pair, Deciding(50, 500, one, other)).endswith(said)


def test_children_of_the_recorder_belong_to_it_except_the_command() -> None:
    """capture (1) starts cat (2), which starts head (3), and the command (4), which starts 5."""
    parents = {1: None, 2: 1, 3: 2, 4: 1, 5: 4, 6: None}
    threads = pl.DataFrame(
        {
            "utid": list(parents),
            "parent_utid": list(parents.values()),
            "pid": [100 + utid for utid in parents],
            "recorder": [True, None, None, True, None, False],
        },
        {"utid": pl.UInt32, "parent_utid": pl.UInt32, "pid": pl.UInt32, "recorder": pl.Boolean},
    )
    about = {"ncpu": 1, "window": [0, 1], "workload": {"pid": 104}}
    trace = ss.Trace.from_tables({"threads": threads}, about)
    assert of_recorder(trace)["utid"].to_list() == [1, 2, 3]


RANKED = {
    "hog": {"prio": 89, "sched_class": "realtime"},
    "irq": {"prio": 49, "sched_class": "realtime"},
}


@pytest.mark.parametrize(("ran", "told"), [(6, True), (1, False)])
def test_a_thread_behind_one_that_always_runs_first(ran: int, told: bool) -> None:
    """In each 20 ms `hog`, real-time, has CPU 0 for `ran`, `clerk` for 2, `heavy`, fair, for the
    rest; on CPU 1 `irq` runs for as long beside `free`."""
    lines = []
    for at in range(0, 1000, 20):
        lines += [
            f"hog running@0 {at}..{at + ran}",
            f"clerk runnable@0 {at}..{at + ran}",
            f"clerk running@0 {at + ran}..{at + ran + 2}",
            f"heavy running@0 {at + ran + 2}..{at + 20}",
            f"clerk runnable@0 {at + ran + 2}..{at + 20}",
            f"irq running@1 {at}..{at + 12}",
            f"free running@1 {at + 12}..{at + 20}",
        ]
    trace = scene("\n".join(lines), RANKED, os="Linux")
    tid = dict(trace.threads.select("comm", "tid").collect().iter_rows())
    found = list(outranked(Facts(trace, "100ms")))
    assert bool(found) == told
    if found:
        assert found[0].cost == 300 * MS
        assert found[0].text.startswith(
            f"clerk ({tid['clerk']}) waited 300 ms behind real-time threads, which run before all"
            f" others whatever their weights. All of it was behind hog ({tid['hog']}), of priority"
            " 10, which took 30.0 % of the time of CPU 0."
        )
        assert found[0].whatif == f"--set-class {tid['hog']}=fair"
        nobody = Facts(trace, "100ms", affected=pl.Series([5], dtype=pl.UInt32))
        assert not list(outranked(nobody))


def test_a_thread_that_chrt_starts_is_real_time_from_then_on() -> None:
    """`hog` is a fair thread for its first millisecond: the program `chrt`."""
    lines = "hog running@0 0..1\nhog running@0 1..500\nclerk runnable@0 0..500\n"
    trace = scene(lines + "clerk running@0 500..600", RANKED, os="Linux")
    prio = pl.when((pl.col("ts") == 0) & (pl.col("state") == "running")).then(120)
    states = trace.states.with_columns(prio=prio.otherwise("prio").cast(pl.Int16)).collect()
    tables = {"states": states, "waits": trace.waits, "threads": trace.threads}
    found = list(outranked(Facts(ss.Trace.from_tables(tables, trace.info), "100ms")))
    assert len(found) == 1
    assert "behind hog" in found[0].text
    assert "of priority 10, which took" in found[0].text


def test_a_thread_that_was_lent_a_priority_is_not_one_that_always_runs_first() -> None:
    lines = "hog running@0 0..500\nclerk runnable@0 0..500\nclerk running@0 500..600"
    for lent, told in ((89, True), (120, False)):
        trace = scene(f"{lines}\nhog running@1 900..1000", RANKED, os="Linux")
        prio = pl.when((pl.col("ts") == 900 * MS) & (pl.col("cpu") == 1)).then(lent)
        states = trace.states.with_columns(prio=prio.otherwise("prio").cast(pl.Int16)).collect()
        tables = {"states": states, "waits": trace.waits, "threads": trace.threads}
        found = list(outranked(Facts(ss.Trace.from_tables(tables, trace.info), "100ms")))
        assert bool(found) == told


HELD = """
    0              cpu0: idle -> low
    {0.5}          cpu0: waking high on 0 by low
    {0.5}          cpu0: enqueued high on 0 by low
    {0.6}          cpu0: low R -> high
    {1}            cpu0: high S -> low
    {2}            cpu0: low R -> mid
    {7}            cpu0: mid S -> low
    {8}            cpu0: waking high on 0 by low
    {8}            cpu0: enqueued high on 0 by low
    {8}            cpu0: low R -> high
    {9}            cpu0: high S -> low
"""


def inverted(high: int, mid: int, low: int, *, kernel: bool = False) -> ss.Trace:
    """`high` sleeps from 1 to 8 ms, until `low` wakes it, which waits from 2 to 7 behind `mid`."""
    text = HELD
    for part in ("0.5", "0.6", "1", "2", "7", "8", "9"):
        text = text.replace("{" + part + "}", str(int(float(part) * MS)))
    plain = played(text, ncpu=1, window=(0, 10 * MS), os="Linux")
    prios = {"high": high, "mid": mid, "low": low}
    threads = plain.threads.collect()
    utids = dict(threads.select("utid", "comm").iter_rows())
    prio = pl.col("utid").replace_strict(
        {utid: prios.get(name) for utid, name in utids.items()}, return_dtype=pl.Int16
    )
    tables = {
        "states": plain.states.with_columns(prio=prio).collect(),
        "waits": plain.waits.with_columns(prio=prio).collect(),
        "threads": threads.with_columns(
            prio=prio, sched_class=pl.lit("realtime"), kernel=pl.lit(kernel)
        ),
    }
    for name in ("switches", "wakeups", "migrations", "losses"):
        tables[name] = getattr(plain, name).collect()
    return ss.Trace.from_tables(tables, plain.info)


def test_a_waker_behind_a_priority_between_the_two() -> None:
    trace = inverted(high=79, mid=89, low=120)
    assert inversions(trace).select("time", "n", "longest", "ts").rows() == [
        (5 * MS, 1, 5 * MS, 2 * MS)
    ]
    found = row(trace, "priority inversion")
    assert found is not None
    assert found["cost"] == 5 * MS
    assert "high, a real-time thread, slept until low, of worse priority, woke it" in found["text"]
    assert "the waker was kept off its CPU by mid" in found["text"]
    # FIFO 20 is the kernel's priority 79.
    assert found["whatif"] == "whatif --set-class low=fifo:20"


def test_a_thread_outside_its_mask_is_tried_within() -> None:
    found = row(ss.open(FIXTURES / "linux-ftrace-placement.capture"), "affinity")
    assert found is not None
    mask = ss.runs_outside_affinity(ss.open(FIXTURES / "linux-ftrace-placement.capture"))
    assert found["whatif"] == f"whatif --pin {mask['comm'][0]}={mask['affinity'][0]}"


@pytest.mark.parametrize(
    ("high", "mid", "low", "kernel"),
    [
        (79, 69, 120, False),  # `mid` would have had the CPU before `high`, too
        (79, 89, 79, False),  # `low` has been lent the priority of `high`
        (110, 115, 120, False),  # nice levels share; none goes before another
        (79, 120, 120, False),  # `mid` is no better than `low`
        (79, 89, 120, True),  # a kernel thread waits for work, not for a lock
    ],
)
def test_other_waits_are_not_priority_inversions(
    high: int, mid: int, low: int, kernel: bool
) -> None:
    assert row(inverted(high, mid, low, kernel=kernel), "priority inversion") is None


BUSY = f"0 cpu0: idle -> a\n 0 cpu1: idle -> b\n {9 * MS} cpu0: a S -> idle"


@pytest.mark.parametrize(("other", "told"), [(0, True), (MS, False)])
def test_one_cpu_that_handles_most_interrupts(other: int, told: bool) -> None:
    """2 ms of 10 on CPU 1, a nested one within, beside none or 1 ms on CPU 0."""
    plain = played(BUSY, ncpu=2, window=(0, 10 * MS))
    rows = [
        {"ts": MS, "cpu": 1, "kind": "soft", "id": 3, "dur": 2 * MS},
        {"ts": 2 * MS, "cpu": 1, "kind": "hard", "id": 36, "dur": MS // 2},
    ]
    rows += [{"ts": MS, "cpu": 0, "kind": "soft", "id": 3, "dur": other}] if other else []
    names = ("switches", "wakeups", "states", "waits", "migrations", "losses", "threads")
    tables = {name: getattr(plain, name).collect() for name in names}
    irqs = pl.DataFrame(rows, schema=ss.parsers.schema.TABLES["irqs"].schema)
    found = row(ss.Trace.from_tables({**tables, "irqs": irqs}, plain.info), "interrupts")
    assert (found is not None) == told
    if found:
        assert found["cost"] == 2 * MS
        assert "Interrupts took 2.00 ms of CPU 1 (20.0 %)" in found["text"]
        assert "softirq NET_RX" in found["text"]


def test_a_thread_that_each_wakeup_moves() -> None:
    """30 wake-ups in 300 ms, each onto the other CPU, where it runs 1 ms; and every tenth one."""
    for moves, told in ((1, True), (10, False)):
        lines, cpu = [], 0
        for n in range(30):
            at = (10 * n + 5) * MS
            cpu = 1 - cpu if n % moves == 0 else cpu
            lines += [
                f"{at} cpu{cpu}: waking w on {cpu} by idle",
                f"{at} cpu{cpu}: enqueued w on {cpu} by idle",
                f"{at + 1000} cpu{cpu}: idle -> w",
                f"{at + MS} cpu{cpu}: w S -> idle",
            ]
        trace = played("\n".join(lines), ncpu=2, window=(0, 300 * MS))
        found = row(trace, "wakeup migration")
        assert (found is not None) == told
        if found:
            assert "often woken on another core" in found["text"]
            assert found["whatif"].startswith("whatif --pin w=")


@pytest.mark.parametrize(("turn", "told"), [(300, True), (150, False)])
def test_a_thread_that_gets_less_than_an_equal_one(turn: int, told: bool) -> None:
    """a and b want one CPU for 300 ms, of which half is due to b; a keeps it for `turn` ms."""
    lines = f"""
        0 cpu0: idle -> a
        0 cpu0: waking b on 0 by a
        0 cpu0: enqueued b on 0 by a
        {turn * MS} cpu0: a R -> b
        {300 * MS + 1} cpu0: b S -> a
    """
    plain = played(lines, ncpu=1, window=(0, 300 * MS + 2))
    names = ("switches", "wakeups", "states", "waits", "migrations", "losses", "threads")
    tables = {name: getattr(plain, name).collect() for name in names}
    tables["threads"] = tables["threads"].with_columns(
        prio=pl.lit(120, pl.Int16), sched_class=pl.lit("fair")
    )
    found = row(ss.Trace.from_tables(tables, {**plain.info, "os": "Linux"}), "fairness")
    assert (found is not None) == told
    if found:
        assert found["cost"] == 150 * MS
        assert "of the 150 ms of CPU time due to it by weight" in found["text"]


@pytest.mark.parametrize("busy", [True, False])
def test_a_move_to_a_cpu_that_idles_led_to_no_queue(busy: bool) -> None:
    """30 wake-ups, each onto the other CPU, where w waits 1 ms: for b, or until it is awake."""
    lines = []
    for n in range(30):
        at, cpu = (10 * n + 5) * MS, n % 2
        lines += [
            f"{at - MS} cpu{cpu}: idle -> b" if busy else "",
            f"{at} cpu{cpu}: waking w on {cpu} by {'b' if busy else 'idle'}",
            f"{at} cpu{cpu}: enqueued w on {cpu} by {'b' if busy else 'idle'}",
            f"{at + MS} cpu{cpu}: b S -> w" if busy else f"{at + MS} cpu{cpu}: idle -> w",
            f"{at + 2 * MS} cpu{cpu}: w S -> idle",
        ]
    trace = played("\n".join(lines), ncpu=2, window=(0, 300 * MS))
    found = row(trace, "migration")
    assert (found is not None) == busy
    if found:
        assert found["cost"] == 29 * MS
        assert "w 29.0 ms" in found["text"]


@pytest.mark.parametrize(("sched_class", "told"), [("fair", True), ("deadline", False)])
def test_deadline_thread_has_no_ping_pong_finding(sched_class: str, told: bool) -> None:
    """w is woken on CPU 0 and CPU 1 in turn, and waits 1 ms for b each time."""
    lines = []
    for n in range(30):
        at, cpu = (10 * n + 5) * MS, n % 2
        lines += [
            f"{at - MS} cpu{cpu}: idle -> b",
            f"{at} cpu{cpu}: waking w on {cpu} by b",
            f"{at} cpu{cpu}: enqueued w on {cpu} by b",
            f"{at + MS} cpu{cpu}: b S -> w",
            f"{at + 2 * MS} cpu{cpu}: w S -> idle",
        ]
    plain = played("\n".join(lines), ncpu=2, window=(0, 300 * MS))
    names = ("switches", "wakeups", "states", "waits", "migrations", "losses", "threads")
    tables = {name: getattr(plain, name).collect() for name in names}
    tables["threads"] = tables["threads"].with_columns(sched_class=pl.lit(sched_class))
    trace = ss.Trace.from_tables(tables, plain.info)
    for topic in ("ping-pong", "migration"):
        assert (row(trace, topic) is not None) == told


def test_weights_decide_where_paths_differ() -> None:
    """Groups /a (100), /a/x (200), /a/y (400), /b (300); / has no weight of its own."""
    trace = played(BUSY, ncpu=2, window=(0, 10 * MS))
    trace.info["groups"] = [
        {"cgroup": "/", "weight": None}, {"cgroup": "/a", "weight": 100},
        {"cgroup": "/a/x", "weight": 200}, {"cgroup": "/a/y", "weight": 400},
        {"cgroup": "/b", "weight": 300},
    ]  # fmt: skip
    groups = GroupWeights(trace)
    own = (1024, 335)
    assert groups.compare("/a/x", "/a/x", own) == (1024, 335, None, None)
    assert groups.compare("/a/x", "/a/y", own) == (200, 400, "/a/x", "/a/y")
    assert groups.compare("/a/x", "/b", own) == (100, 300, "/a", "/b")
    assert groups.compare("/a/x/leaf", "/a/y", own) == (200, 400, "/a/x", "/a/y")
    assert groups.compare("/a", "/a/x", own) is None
    assert groups.compare("/", "/", own) == (1024, 335, None, None)
    assert groups.compare(None, "/", own) is None


def test_sessions_are_not_known_where_autogroup_is_on() -> None:
    tunables = {"/proc/sys/kernel/sched_autogroup_enabled": "1"}
    trace = played(BUSY, ncpu=2, window=(0, MS), scheduler={"name": "eevdf", "tunables": tunables})
    trace.info["groups"] = [{"cgroup": "/", "weight": None}]
    assert GroupWeights(trace).compare("/", "/", (15, 1024)) is None
