"""trace.dat: written files are read back, other tools read the same, damage is reported."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, strategies as st
from tools import tool
from tracedat_judge import Judged, report

import schedscope as ss
from schedscope import _native
from schedscope.errors import FormatError, SchedscopeError, UsageError
from schedscope.parsers.schema import TABLES

FIXTURES = Path(__file__).parents[2] / "fixtures"
YIELD = FIXTURES / "linux-trace-cmd-yield.dat"
OVERRUN = FIXTURES / "linux-trace-cmd-overrun.dat"

Row = dict[str, Any]
Tables = dict[str, pl.DataFrame]

FLAVOURS = [
    {"version": "7", "compression": "zstd"},
    {"version": "7", "compression": "zlib", "endian": "big", "long_bits": "32"},
    {"version": "7", "compression": "none", "page_bytes": "65536", "absolute_every": "7"},
    {"version": "7", "compression": "zstd", "endian": "big", "buffer": "sub", "page_bytes": "512"},
    {"version": "6"},
    {"version": "6", "endian": "big", "buffer": "sub", "discard_every": "3"},
    {"version": "6", "long_bits": "32", "long_records": "1", "absolute_every": "5"},
    {"version": "6", "endian": "big", "long_bits": "32", "page_bytes": "8192"},
]


def decode(path: Path, **options: str) -> tuple[Tables, dict[str, Any]]:
    tables, text = _native.decode(path, options)
    return {name: pl.DataFrame(table) for name, table in tables.items()}, json.loads(text)


def by_tid(tables: Tables) -> Judged:
    """Our tables in the form of trace-cmd's: threads by tid, rows sorted."""
    tids = dict(tables["threads"].select("utid", "tid").iter_rows())
    judged = Judged()
    for row in tables["switches"].iter_rows(named=True):
        prev = (tids[row["prev_utid"]], row["prev_prio"], row["prev_state"])
        following = (tids[row["next_utid"]], row["next_prio"])
        judged.switches.append((row["ts"], row["cpu"], *prev, *following))
    for row in tables["wakeups"].iter_rows(named=True):
        who = (tids[row["utid"]], row["prio"], row["target_cpu"])
        judged.wakeups.append((row["ts"], row["cpu"], *who, row["kind"]))
    for row in tables["migrations"].iter_rows(named=True):
        where = (tids[row["utid"]], row["from_cpu"], row["to_cpu"])
        judged.migrations.append((row["ts"], row["cpu"], *where))
    judged.switches.sort()
    judged.wakeups.sort()
    judged.migrations.sort()
    return judged


def counted(about: dict[str, Any]) -> Counter[tuple[str, int]]:
    return Counter(
        {
            (name, int(cpu)): count
            for name, cpus in about["events"].items()
            for cpu, count in cpus.items()
        }
    )


# ---------------------------------------------------------------- what is written comes back


@st.composite
def streams(draw: st.DrawFn) -> tuple[int, Tables]:
    """Rows that a trace.dat can hold, in time order, of a few threads and CPUs."""
    ncpu = draw(st.integers(1, 4))
    tids = draw(
        st.lists(st.integers(1, (1 << 22) - 1), min_size=1, max_size=6, unique=True), label="tids"
    )
    comm = st.text(st.characters(codec="ascii", exclude_characters="\0\n"), min_size=1, max_size=15)
    comms = draw(st.lists(comm, min_size=len(tids), max_size=len(tids)))
    utid = st.integers(0, len(tids) - 1).map(lambda index: ncpu + index)
    prio = st.integers(-32768, 32767) | st.none()
    cpu = st.integers(0, ncpu - 1)
    cpu_or_none = cpu | st.none()
    # Within a header's 27 bits, beyond them, beyond 32 bits; none at all.
    pause = st.sampled_from([0, 1, 999, (1 << 27) - 1, 1 << 27, 1 << 33, 1 << 45])
    rows: dict[str, list[Row]] = {"switches": [], "wakeups": [], "migrations": []}
    ts = draw(st.integers(0, 1 << 50))
    for _ in range(draw(st.integers(0, 60))):
        # Ties across tables have a defined order: see test_merge.
        ts += 1 + draw(pause)
        on = draw(cpu)
        match draw(st.sampled_from(["switch", "wake", "migrate"])):
            case "switch":
                prev = draw(utid | st.just(on))
                state, preempted = draw(
                    st.sampled_from(
                        [
                            ("runnable", None),
                            ("sleeping", False),
                            ("blocked", False),
                            ("stopped", False),
                            ("parked", False),
                            ("dead", False),
                            ("unknown", None),
                        ]
                        + ([("runnable", True)] if prev >= ncpu else [])
                    )
                )
                rows["switches"].append(
                    {
                        "ts": ts,
                        "cpu": on,
                        "prev_utid": prev,
                        "prev_state": state,
                        "prev_prio": draw(prio),
                        "preempted": preempted,
                        "next_utid": draw(utid | st.just(on)),
                        "next_prio": draw(prio),
                    }
                )
            case "wake":
                current = draw(utid | st.just(on))
                rows["wakeups"].append(
                    {
                        "ts": ts,
                        "cpu": on,
                        "waker_utid": draw(st.sampled_from([current, None])),
                        "utid": draw(utid),
                        "kind": draw(st.sampled_from(["waking", "enqueued", "new"])),
                        "target_cpu": draw(cpu_or_none),
                        "prio": draw(prio),
                        "current_utid": current,
                    }
                )
            case _:
                rows["migrations"].append(
                    {
                        "ts": ts,
                        "cpu": on,
                        "utid": draw(utid),
                        "from_cpu": draw(cpu_or_none),
                        "to_cpu": draw(cpu_or_none),
                    }
                )
    tables = {
        name: pl.DataFrame(found, schema=TABLES[name].schema, orient="row")
        for name, found in rows.items()
    }
    tables["threads"] = pl.DataFrame(
        {
            "utid": range(ncpu + len(tids)),
            "tid": [0] * ncpu + tids,
            "comm": ["idle"] * ncpu + comms,
            "comm_first": ["idle"] * ncpu + comms,
        }
    )
    return ncpu, tables


def renamed(tables: Tables, name: str) -> list[Row]:
    """A table's rows with tids (and for idle threads the CPU) instead of utids."""
    threads = {row["utid"]: row for row in tables["threads"].iter_rows(named=True)}

    def who(utid: int | None) -> object:
        if utid is None:
            return None
        return threads[utid]["tid"] or f"idle {utid}"

    return [
        {key: who(value) if key.endswith("utid") else value for key, value in row.items()}
        for row in tables[name].iter_rows(named=True)
    ]


@given(stream=streams(), flavour=st.sampled_from(FLAVOURS))
def test_written_trace_dat_is_read_back_unchanged(
    tmp_path_factory: pytest.TempPathFactory, stream: tuple[int, Tables], flavour: dict[str, str]
) -> None:
    """Any stream, either version, byte order, long size, page size and compression."""
    ncpu, tables = stream
    path = tmp_path_factory.mktemp("identity") / "trace.dat"
    assert _native.write_trace_dat([tables], path, ncpu, flavour) == {}
    if tables["switches"].is_empty():
        with pytest.raises(FormatError, match="has no context switches"):
            decode(path)
        return
    read, about = decode(path)
    for name in ("switches", "wakeups", "migrations"):
        # The tid of a dead thread is a new thread at its next event, with the same tid.
        assert renamed(read, name) == renamed(tables, name)
    assert about["ncpu"] == ncpu
    assert about["warnings"] == []
    # A silent CPU that others put threads on is an uncounted loss. Nothing was lost; but random
    # switches look like missing ones, of which one row stands for several mismatches.
    assert (read["losses"]["count"].fill_null(6) >= 6).all()
    assert sum(counted(about).values()) == sum(
        tables[name].height for name in ("switches", "wakeups", "migrations")
    )


def test_a_thread_that_linux_cannot_have_is_not_written(tmp_path: Path) -> None:
    """Readers take such a number for damage."""
    tables = {
        "wakeups": pl.DataFrame({"ts": [1], "cpu": [0], "kind": ["waking"], "utid": [1]}),
        "threads": pl.DataFrame({"utid": [0, 1], "tid": [0, 1 << 22]}),
    }
    with pytest.raises(UsageError, match="number 4194304; expected numbers below 4194304"):
        _native.write_trace_dat([tables], tmp_path / "trace.dat", 1, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda f: "-".join(f.values()))
def test_every_flavour_reads_like_the_plain_one(tmp_path: Path, flavour: dict[str, str]) -> None:
    """Thousands of events over many pages and chunks, in every kind of file."""
    plain, other = tmp_path / "plain.dat", tmp_path / "other.dat"
    _native.synthesize_trace_dat(plain, 20_000, 3, 40, 7, {"compression": "none"})
    _native.synthesize_trace_dat(other, 20_000, 3, 40, 7, flavour)
    expected, _ = decode(plain)
    found, about = decode(other)
    assert about["trace_dat"]["version"] == int(flavour["version"])
    for name, table in expected.items():
        assert table.equals(found[name]), name
    kinds, counts = _native.count_events(other)
    assert kinds["out_of_order"] == 0
    assert counts == counted(about)


def test_lost_events_come_back_as_losses_between_their_neighbours(tmp_path: Path) -> None:
    """A counted loss, an uncounted one, and one before the first event of a CPU."""
    switches = pl.DataFrame(
        {
            "ts": [100, 200, 300, 400, 500],
            "cpu": [0, 0, 1, 0, 1],
            "prev_utid": [0, 2, 1, 0, 3],
            "prev_state": ["runnable", "sleeping", "runnable", "runnable", "sleeping"],
            "prev_prio": [120, 100, 120, 120, 101],
            "preempted": [None, False, None, None, False],
            "next_utid": [2, 0, 3, 2, 1],
            "next_prio": [100, 120, 101, 100, 120],
        }
    )
    losses = pl.DataFrame(
        {
            "cpu": [1, 0, 1],
            "ts_begin": [100, 200, 300],
            "ts_end": [300, 400, 500],
            "count": [5, 7, None],
            "reason": ["late_start", "overrun", "overrun"],
        }
    )
    threads = pl.DataFrame(
        {"utid": [0, 1, 2, 3], "tid": [0, 0, 11, 12], "comm": ["", "", "a", "b"]}
    )
    path = tmp_path / "lossy.dat"
    tables = {"switches": switches, "losses": losses, "threads": threads}
    for flavour in FLAVOURS:
        _native.write_trace_dat([tables], path, 2, flavour)
        read, _ = decode(path)
        recorded = read["losses"].filter(pl.col("reason") != "chain_break").sort("ts_begin")
        assert recorded.select(losses.columns).rows() == losses.rows()


# ---------------------------------------------------------------- other tools as judges


@pytest.mark.needs("trace-cmd")
@pytest.mark.parametrize("fixture", [YIELD, OVERRUN], ids=lambda path: path.stem)
def test_every_row_is_what_trace_cmd_reports(fixture: Path, tmp_path: Path) -> None:
    """Counts by event and CPU, and every field of switches, wakeups and migrations."""
    assert _as_reported(fixture, tmp_path) > 1000


@pytest.mark.needs("trace-cmd")
@pytest.mark.parametrize(
    "flavour",
    [flavour for flavour in FLAVOURS if flavour.get("page_bytes") != "512"],
    ids=lambda f: "-".join(f.values()),
)
def test_trace_cmd_reads_what_we_write(flavour: dict[str, str], tmp_path: Path) -> None:
    """The real trace-cmd on our files; it cannot map pages smaller than the host's."""
    command = tool("trace-cmd")
    assert command is not None
    listed = subprocess.run([*command, "list", "-c"], capture_output=True, check=False).stdout
    if flavour.get("compression") == "zlib" and b"zlib" not in listed:
        pytest.skip("this trace-cmd was built without zlib")
    path = tmp_path / "ours.dat"
    _native.synthesize_trace_dat(path, 5_000, 3, 40, 3, flavour)
    assert _as_reported(path, tmp_path) >= 5_000


def _as_reported(path: Path, tmp_path: Path) -> int:
    command = tool("trace-cmd")
    assert command is not None
    # A tool under chroot sees only /tmp.
    copy = tmp_path / "judged.dat"
    copy.write_bytes(path.read_bytes())
    tables, about = decode(path)
    judged = report(command, copy, len(str(about["window"][0])))
    found = by_tid(tables)
    assert counted(about) == judged.counts
    assert found.switches == judged.switches
    assert found.wakeups == judged.wakeups
    assert found.migrations == judged.migrations
    return sum(judged.counts.values())


@pytest.mark.needs("trace-cmd")
@pytest.mark.parametrize(
    "words",
    [
        ["convert", "--file-version", "6", "--compression", "none"],
        ["convert", "--file-version", "7", "--compression", "none"],
        ["convert", "--file-version", "7", "--compression", "zstd"],
    ],
    ids=" ".join,
)
def test_trace_cmd_conversions_read_alike(words: list[str], tmp_path: Path) -> None:
    """The same events from every kind of file that trace-cmd makes of one."""
    command = tool("trace-cmd")
    assert command is not None
    source, target = tmp_path / "in.dat", tmp_path / "out.dat"
    source.write_bytes(YIELD.read_bytes())
    subprocess.run(
        [*command, *words, "-i", str(source), "-o", str(target)], capture_output=True, check=True
    )
    expected, _ = decode(source)
    found, about = decode(target)
    assert about["trace_dat"]["version"] == int(words[2])
    for name, table in expected.items():
        assert table.equals(found[name]), name


@pytest.mark.needs("trace-cmd")
@pytest.mark.parametrize("version", ["6", "7"])
def test_file_from_trace_cmd_split_has_only_its_switches(version: str, tmp_path: Path) -> None:
    """`trace-cmd split`: the switches between two times, and no others."""
    command = tool("trace-cmd")
    assert command is not None
    source, target = tmp_path / "in.dat", tmp_path / "out.dat"
    options = {"version": version, "compression": "none", "clock": "mono"}
    _native.synthesize_trace_dat(source, 20_000, 2, 40, 5, options)
    subprocess.run(
        [*command, "split", "-i", str(source), "-o", str(target), "1.2", "1.6"],
        capture_output=True,
        check=True,
    )
    parts = sorted(tmp_path.glob("out.dat*"))
    assert len(parts) == 1
    expected, _ = decode(source)
    found, _ = decode(parts[0])
    inside = pl.col("ts").is_between(1_200_000_000, 1_600_000_000)
    assert (
        by_tid(found).switches
        == by_tid(
            expected
            | {
                name: expected[name].filter(inside)
                for name in ("switches", "wakeups", "migrations")
            }
        ).switches
    )
    assert found["switches"].height > 100


# ---------------------------------------------------------------- what a real file tells


def test_recorded_sched_yield_distinguishes_yield_from_preemption() -> None:
    """Plain R after a sched_yield is voluntary; R+ never is."""
    tables, _ = decode(YIELD)
    assert tables["yields"].height == 213
    left = tables["switches"].filter(pl.col("prev_state") == "runnable")
    counts = dict(left.group_by("preempted").len().iter_rows())
    assert counts[False] > 100
    assert counts[True] > 100


def test_softirqs_become_intervals() -> None:
    """Entry and exit of the same softirq on the same CPU."""
    tables, about = decode(YIELD)
    entries = sum(about["events"]["softirq_entry"].values())
    assert tables["irqs"].height == entries
    assert tables["irqs"]["kind"].unique().to_list() == ["soft"]
    assert tables["irqs"]["dur"].min() > 0


def test_an_overwritten_buffer_is_a_late_start() -> None:
    """Events overwritten before a CPU's first event, with their count.

    The trace starts with CPU 1: its losses were before the window.
    """
    tables, about = decode(OVERRUN)
    recorded = tables["losses"].filter(pl.col("reason") == "late_start")
    assert recorded.select("cpu", "count").rows() == [(0, 11_876), (1, 17_309)]
    assert recorded["ts_begin"].to_list() == [about["window"][0]] * 2
    assert (recorded["ts_end"] - recorded["ts_begin"]).to_list() == [3_573_211, 0]


def test_file_has_the_facts_of_its_host() -> None:
    """Release, machine and recorder come from the file's options."""
    _, about = decode(YIELD)
    assert about["os"] == "Linux"
    assert about["release"].startswith("6.18")
    assert about["machine"] == "x86_64"
    assert about["recorder"]["name"] == "trace-cmd"
    assert about["recorder"]["version"].startswith("3.1.6")
    assert about["trace_dat"]["buffer"] == "decode-fixture"
    assert (about["has_waking"], about["has_enqueued"]) == (True, True)


def test_unknown_buffer_is_refused_with_the_existing_ones() -> None:
    """The error lists the buffers that hold events."""
    with pytest.raises(UsageError, match="decode-fixture"):
        decode(YIELD, buffer="nosuch")
    with pytest.raises(FormatError, match="has no context switches"):
        decode(YIELD, buffer="")


# ---------------------------------------------------------------- damage


def attempt(path: Path, **options: str) -> str | None:
    """The error's sentence, or None if the file was read; any other exception is a bug."""
    try:
        _native.decode(path, options)
    except SchedscopeError as error:
        sentence = str(error)
        assert str(path) in sentence or path.name in sentence
        assert "\n" not in sentence
        return sentence
    return None


@pytest.mark.parametrize("flavour", [FLAVOURS[0], FLAVOURS[4]], ids=["v7", "v6"])
def test_a_file_cut_anywhere_is_one_clear_error(flavour: dict[str, str], tmp_path: Path) -> None:
    """At every 1 KiB: an error that names a byte, or all events, never some of them."""
    whole, cut = tmp_path / "whole.dat", tmp_path / "cut.dat"
    _native.synthesize_trace_dat(whole, 3_000, 2, 10, 1, flavour)
    expected, _ = decode(whole)
    content = whole.read_bytes()
    for size in range(0, len(content), 1024):
        cut.write_bytes(content[:size])
        sentence = attempt(cut)
        if sentence is None:
            # Only unused parts are missing: descriptions of sections.
            assert len(content) - size < 256
            found, _ = decode(cut)
            assert all(table.equals(found[name]) for name, table in expected.items())
        elif size:
            assert "byte" in sentence


def test_salvage_reads_the_intact_part_of_a_truncated_file(tmp_path: Path) -> None:
    """With salvage, every event before the cut, and a loss from there to the end."""
    whole, cut = tmp_path / "whole.dat", tmp_path / "cut.dat"
    _native.synthesize_trace_dat(whole, 20_000, 1, 10, 1, {"version": "6"})
    expected, _ = decode(whole)
    content = whole.read_bytes()
    for size in (len(content) - 5_000, len(content) // 2):
        cut.write_bytes(content[:size])
        assert attempt(cut) is not None
        found, about = decode(cut, salvage="1")
        rows = found["switches"].height
        assert 0 < rows < expected["switches"].height
        assert "truncated" in found["losses"]["reason"]
        assert found["switches"].equals(expected["switches"].head(rows))
        assert any("ends inside" in warning for warning in about["warnings"])


def test_flipped_bit_is_an_error_or_changes_only_its_field(tmp_path: Path) -> None:
    """Every bit of the headers, and many in the data: no panic and no hang."""
    whole, flipped = tmp_path / "whole.dat", tmp_path / "flipped.dat"
    _native.synthesize_trace_dat(whole, 400, 2, 10, 1, {"version": "7", "compression": "none"})
    content = whole.read_bytes()
    errors = 0
    for bit in [*range(8 * 64), *range(8 * 64, 8 * len(content), 2003)]:
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        flipped.write_bytes(damaged)
        errors += attempt(flipped) is not None
        attempt(flipped, salvage="1")
    assert errors > 50


@pytest.mark.parametrize(
    ("name", "content"),
    [("empty.dat", b""), ("text.dat", b"hello, world\n"), ("magic.dat", b"\x17\x08\x44tracing")],
)
def test_a_wrong_file_is_one_clear_error(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(FormatError, match=name):
        decode(path)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    """No partial file after any failure."""
    target = tmp_path / "no" / "such" / "folder.dat"
    with pytest.raises(SchedscopeError):
        _native.synthesize_trace_dat(target, 100, 2, 10, 1, {})
    with pytest.raises(UsageError):
        _native.synthesize_trace_dat(tmp_path / "x.dat", 100, 2, 10, 1, {"version": "5"})
    assert list(tmp_path.iterdir()) == []


def test_a_clock_that_the_kernels_statistics_count_in_ticks_is_refused(tmp_path: Path) -> None:
    """`trace-cmd extract -B` writes the top buffer's clock: the statistics have the right one."""
    data = (FIXTURES / "linux-trace-cmd-yield.dat").read_bytes()
    stamps = set(re.findall(rb"now ts: +\d+\.\d+", data))
    assert stamps
    for stamp in stamps:
        # The kernel prints the point only for clocks in ns.
        data = data.replace(stamp, stamp.replace(b".", b"0"))
    path = tmp_path / "t.dat"
    path.write_bytes(data)
    with pytest.raises(ss.FormatError, match="statistics count it in ticks"):
        ss.open(path, cache=tmp_path)
    plain = ss.open(FIXTURES / "linux-trace-cmd-yield.dat", cache=tmp_path)
    cycles = ss.open(path, cache=tmp_path, options={"tsc_hz": "2000000000"})
    length = plain.window[1] - plain.window[0]
    assert cycles.window[1] - cycles.window[0] == pytest.approx(length / 2, rel=1e-6)
