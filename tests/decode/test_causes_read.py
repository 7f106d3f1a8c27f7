"""Causes in other tracers' files: every format agrees on one load.

perf, Perfetto and an instance of tracefs record it at once; a kind of event that a format has must
equal that of the others, row by row, for the threads of the load.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from archives import unpacked
from cause_recorders import FILES, PROGRAMS, hierarchy, record
from decoded import FIXTURES

import schedscope as ss
from schedscope import _native

DOCS = Path(__file__).parents[2] / "docs" / "opening-traces.md"
Row = tuple[object, ...]


def opened(path: Path, chosen: int) -> ss.Trace:
    """The trace, with moves of the `chosen` hierarchy."""
    tables, about = _native.decode(str(path), {"hierarchy": str(chosen)})
    frames = {name: pl.DataFrame(table) for name, table in tables.items()}
    return ss.Trace.from_tables(frames, json.loads(about))


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ss.Trace]:
    """The recording that is kept."""
    paths = unpacked(FIXTURES / "causes.tar.xz", tmp_path_factory.mktemp("causes"), FILES)
    return {name: opened(path, 1) for name, path in paths.items()}


def load(trace: ss.Trace) -> dict[int, str]:
    """utid -> name of the load's threads, in the order of their creation."""
    threads = trace.threads.select("utid", "tid", "comm", "comm_first").collect()
    first = threads.filter(pl.col("comm") == "cause_load")["tid"].item()
    names = {"maps", "reads", "holds", "wants", "cause_load"}
    own = threads.filter(pl.col("comm").is_in(names) & (pl.col("tid") >= first))
    return {row["utid"]: f"{row['comm']} {row['tid'] - first}" for row in own.to_dicts()}


def of_load(table: str, *columns: str) -> Callable[[ss.Trace], list[Row]]:
    """The load's rows of a table: thread and columns, in order of time, thread by thread."""

    def rows(trace: ss.Trace) -> list[Row]:
        own = load(trace)
        frame = getattr(trace, table).sort("ts", maintain_order=True)
        found = frame.filter(pl.col("utid").is_in(list(own))).collect()
        readable = found.select("utid", *(pl.col(name).cast(pl.String) for name in columns)).rows()
        return sorted(((own[utid], *rest) for utid, *rest in readable), key=lambda row: str(row[0]))

    return rows


def switches(trace: ss.Trace) -> list[Row]:
    own = load(trace)
    found = trace.switches.sort("ts").select("next_utid", "cpu", "next_prio").collect()
    return sorted((own[utid], *rest) for utid, *rest in found.rows() if utid in own)


def lives(trace: ss.Trace) -> list[Row]:
    """Starts, exits and names."""
    own = load(trace)
    known = pl.col("start_ts").is_not_null(), pl.col("exit_ts").is_not_null()
    found = trace.threads.select("utid", "comm", *known).collect()
    return sorted((own[utid], *rest) for utid, *rest in found.rows() if utid in own)


def interrupts(kind: str) -> Callable[[ss.Trace], list[Row]]:
    """Handlers during the load: CPU and handler."""

    def rows(trace: ss.Trace) -> list[Row]:
        own = trace.threads.filter(pl.col("utid").is_in(list(load(trace)))).collect()
        begin, end = own["start_ts"].min(), own["exit_ts"].max()
        within = pl.col("ts").is_between(begin, end) & (pl.col("kind").cast(pl.String) == kind)
        return sorted(trace.irqs.filter(within).select("cpu", "id").collect().rows())

    return rows


def moves(trace: ss.Trace) -> list[Row]:
    return [(one["cgroup"].rpartition("-")[0],) for one in trace.info.get("group_moves", [])]


def disk_requests(trace: ss.Trace) -> list[Row]:
    """Those that the load caused; to `perf script` text interrupts look like threads."""
    rows = of_load("disk_requests", "step", "device", "sector", "sectors")(trace)
    return [row for row in rows if row[1] == "start"]


def locks(trace: ss.Trace) -> list[Row]:
    """Waits for sleeping locks: perf's text does not distinguish interrupts."""
    rows = of_load("locks", "step", "kind", "value")(trace)
    return [row for row in rows if row[2] and row[2] != "spinlock"]


KINDS: dict[str, tuple[str, Callable[[ss.Trace], list[Row]]]] = {
    "`sched_switch`": ("switches", switches),
    "`sched_waking`, `sched_wakeup`, `sched_wakeup_new`": (
        "wakeups",
        of_load("wakeups", "kind", "target_cpu"),
    ),
    "`sched_migrate_task`": ("migrations", of_load("migrations", "from_cpu", "to_cpu")),
    "`task_newtask`, `sched_process_exit`, `task_rename`": ("threads", lives),
    "`sched_pi_setprio`": ("priorities", of_load("priorities", "prio")),
    "`irq_handler_entry`, `irq_handler_exit`": ("irqs", interrupts("hard")),
    "`softirq_entry`, `softirq_exit`": ("irqs", interrupts("soft")),
    "`raw_syscalls`: `sys_enter`, `sys_exit`": (
        "system_calls",
        of_load("system_calls", "step", "number", "value"),
    ),
    "`sys_enter_sched_yield`": ("yields", of_load("yields")),
    "`block_io_start`, `block_rq_issue`, `block_rq_complete`": ("disk_requests", disk_requests),
    "`contention_begin`, `contention_end`": ("locks", locks),
    "`cgroup_attach_task`": ("moves between groups", moves),
}
"""Kinds of events, what they become, and the load's rows of them."""


def cells(traces: dict[str, ss.Trace]) -> dict[tuple[str, str], bool]:
    """For each kind and format: is it read? Asserts that all that read it agree."""
    read = {}
    for kind, (_, rows) in KINDS.items():
        found = {name: rows(trace) for name, trace in traces.items()}
        readable = {name: of for name, of in found.items() if of}
        assert readable, kind
        reference = next(iter(readable.values()))
        for name, of in readable.items():
            assert of == reference, (kind, name)
        read |= {(kind, name): bool(of) for name, of in found.items()}
    return read


def test_every_format_gives_the_same_causes(packed: dict[str, ss.Trace]) -> None:
    assert all(cells(packed).values())


def test_the_page_lists_every_kind_and_every_format() -> None:
    """The test above checks that each format reads each kind."""
    lines = [f"| {kind} | {becomes} |" for kind, (becomes, _) in KINDS.items()]
    page = DOCS.read_text()
    assert "\n".join(("| event | becomes |", "|---|---|", *lines)) in page
    listed = page.partition("## What is read of other tracers' files")[2].partition("| event")[0]
    assert [name for name in FILES if name.strip("`") not in listed] == []


def test_lock_addresses_are_those_of_the_file(
    packed: dict[str, ss.Trace],
) -> None:
    """Four threads of one process wait for its one lock. Perfetto does not record which it is."""
    for name, trace in packed.items():
        waits = trace.locks.filter(
            pl.col("utid").is_in([utid for utid, who in load(trace).items() if "maps" in who])
            & (pl.col("kind").cast(pl.String) == "rwsem")
        ).collect()
        assert waits.height > 3, name
        assert waits["address"].n_unique() == 1, name
        assert (waits["address"].null_count() == waits.height) == (name == "Perfetto")


def test_a_lock_without_an_address_is_named_by_its_kind(packed: dict[str, ss.Trace]) -> None:
    for name, trace in packed.items():
        found = ss.off_cpu(trace, by="comm").filter(pl.col("comm") == "maps")
        locks = [lock for lock in found["lock"].to_list() if lock and "rwsem" in lock]
        assert locks, name
        known = re.fullmatch(r"rwsem 0x[0-9a-f]+", locks[0])
        assert locks[0] == "rwsem (unknown)" if name == "Perfetto" else known, locks


def test_group_moves_are_of_the_chosen_hierarchy(tmp_path: Path) -> None:
    paths = unpacked(FIXTURES / "causes.tar.xz", tmp_path, FILES)
    for name, path in paths.items():
        for number in (0, 1):
            trace = opened(path, number)
            found = [(one["ts"], one["cgroup"]) for one in trace.info["group_moves"]]
            assert len(found) == 1, name
            groups = trace.threads.filter(pl.col("utid").is_in(list(load(trace)))).collect()
            assert set(groups["cgroup"].to_list()) == {found[0][1]}, name
        trace = ss.open(path, cache=tmp_path / "cache")
        assert "group_moves" not in trace.info
        assert any("of hierarchy 0, 1" in text for text in trace.info["warnings"]), name
        with pytest.raises(ss.SchedscopeError, match='hierarchy="x"'):
            ss.open(path, cache=tmp_path / "cache", options={"hierarchy": "x"})


@pytest.fixture
def recorded() -> Iterator[dict[str, ss.Trace]]:
    found = hierarchy()
    if not found:
        pytest.skip("no hierarchy of control groups shares CPU time out here")
    # Below /tmp, where tools in another tree see it, too.
    with TemporaryDirectory(prefix="causes-", dir="/tmp") as name:
        folder = Path(name)
        yield {name: opened(path, found[0]) for name, path in record(folder).items()}


RECORDERS = (("trace.dat", "`trace-cmd report`", "tracefs text"), ("perf.data", "`perf script`"))
"""The formats of one recorder each. Two recorders need not have the same events of a busy host:
perf skips an event that comes while it writes another."""


@pytest.mark.needs("root", "tracefs", "linux", *PROGRAMS)
@pytest.mark.records
def test_formats_of_one_recorder_agree_on_a_recording_of_this_host(
    recorded: dict[str, ss.Trace],
) -> None:
    assert switches(recorded["Perfetto"])
    for formats in RECORDERS:
        for kind, (_, rows) in KINDS.items():
            first, *others = (rows(recorded[name]) for name in formats)
            assert all(other == first for other in others), (kind, formats)
            assert first or formats[0] == "perf.data", kind
