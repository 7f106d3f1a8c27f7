"""perf.data against perf's own reading of the same file."""

from __future__ import annotations

import json
import re
import struct
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest
from decoded import FIXTURES, decode, switches, tids, wakeups
from hypothesis import given, strategies as st

import schedscope as ss
from schedscope import _native
from schedscope.analysis.threads.memberships import memberships
from schedscope.errors import FormatError, SchedscopeError

LATENCY = re.compile(
    r"\s+(?P<comm>.+):(?P<tid>\d+)\s+\|\s+[\d.]+ ms \|\s+(?P<n>\d+) \| avg:\s+(?P<avg>[\d.]+) ms "
    r"\| max:\s+(?P<max>[\d.]+) ms \| max start:\s+(?P<start>[\d.]+) s "
    r"\| max end:\s+(?P<end>[\d.]+) s"
)


def latency_rows(text: str) -> list[tuple[str, ...]]:
    """What `perf sched latency -p` prints for each thread."""
    keys = ("tid", "n", "avg", "max", "start", "end")
    return sorted(match.group(*keys) for match in map(LATENCY.match, text.splitlines()) if match)


def our_rows(trace: ss.Trace) -> list[tuple[str, ...]]:
    """The same from the `perf` definition, in perf's own rounding."""
    waits = ss.as_defined(trace, "perf").waits.collect().join(tids(trace), on="utid")
    rows = []
    for _, one in waits.group_by("utid"):
        n, total, longest = len(one), int(one["wait"].sum()), int(one["wait"].max())
        first = one.row(int(one["wait"].arg_max()), named=True)
        start, end = (first["ts_ready"], first["ts_run"]) if longest else (0, 0)
        rows.append(
            (
                str(one["tid"][0]),
                str(n),
                f"{total // n / 1e6:.3f}",
                f"{longest / 1e6:.3f}",
                f"{start // 10**9}.{start // 1000 % 10**6:06d}",
                f"{end // 10**9}.{end // 1000 % 10**6:06d}",
            )
        )
    return sorted(rows)


@pytest.mark.parametrize("name", ["sched", "pipe", "zstd", "lost"])
def test_latency_equals_perf(name: str) -> None:
    """Count, mean, maximum and its place: every thread, every printed digit."""
    theirs = latency_rows((FIXTURES / f"perf-{name}.latency.txt").read_text())
    assert len(theirs) > 10
    assert our_rows(decode(FIXTURES / f"perf-{name}.data")) == theirs


def test_groups_equal_perfs_at_every_sample() -> None:
    """perf prints the running thread's control group; two threads move, one is moved."""
    trace = decode(FIXTURES / "perf-cgroups.data")
    groups = memberships(trace)
    known = trace.threads.select("utid", "tid", "start_ts", "exit_ts", "cgroup").collect()
    theirs = pl.read_csv(
        FIXTURES / "perf-cgroups.tsv", separator="\t", has_header=False,
        new_columns=["tid", "at", "theirs"], schema_overrides={"at": pl.String},
    )  # fmt: skip
    ts = pl.col("at").str.replace(".", "", literal=True).cast(pl.Int64)
    lives = pl.col("start_ts").fill_null(0) <= pl.col("ts")
    theirs = theirs.with_columns(ts=ts).with_row_index("row").filter(pl.col("tid") > 0)
    one = theirs.join(known.with_columns(pl.col("tid").cast(pl.Int64)), on="tid").filter(lives)
    assert one.height == theirs.height
    within = pl.col("ts").is_between("since", "until", closed="left")
    then = one.join(groups, on="utid", suffix="_then").filter(within)
    ours = one.join(then.select("row", "cgroup_then"), on="row", how="left")
    ours = ours.with_columns(ours=pl.coalesce("cgroup_then", "cgroup"))
    assert ours.filter(pl.col("ours").ne_missing(pl.col("theirs"))).is_empty()
    assert ours["theirs"].n_unique() == 4
    moves = {(move["from"], move["cgroup"]) for move in trace.info["group_moves"]}
    assert sorted(move for move in moves if move[0] != move[1]) == [
        ("/", f"/{name}.service") for name in ("batch", "late", "web")
    ]


TIMEHIST = re.compile(
    r"\s*(?P<s>\d+)\.(?P<us>\d{6}) \[(?P<cpu>\d+)\]\s+(?P<task>.+?)\s+[\d.]+\s+[\d.]+\s+"
    r"(?P<run>[\d.]+)\s+(?P<state>\S)\s*$"
)
LETTERS = {
    "runnable": "R",
    "sleeping": "S",
    "blocked": "D",
    "stopped": "T",
    "parked": "I",
    "dead": "XZ",
}


def test_every_row_of_timehist_is_a_switch() -> None:
    """Row by row: time, CPU, thread and state; <idle> shows I for its R."""
    text = (FIXTURES / "perf-sched.timehist.txt").read_text().splitlines()
    theirs = [match for match in map(TIMEHIST.match, text) if match]
    ours = switches(decode(FIXTURES / "perf-sched.data")).to_dicts()
    # perf leaves a CPU's first switch out where the thread has no name yet.
    assert len(ours) - 2 <= len(theirs) <= len(ours)
    by_place = {(row["ts"] // 1000, row["cpu"], row["prev"]): row for row in ours}
    for match in theirs:
        numbers = re.search(r"\[(\d+)(?:/\d+)?\]$", match["task"])
        tid = int(numbers[1]) if numbers else 0
        row = by_place[int(match["s"]) * 10**6 + int(match["us"]), int(match["cpu"]), tid]
        assert match["state"] in ("I" if tid == 0 else LETTERS[row["prev_state"]]), match[0]


def test_counts_are_those_of_perf_report() -> None:
    """Samples per event as `perf report --stats` counts them."""
    events = decode(FIXTURES / "perf-sched.data").info["events"]
    totals = {name: sum(per_cpu.values()) for name, per_cpu in events.items()}
    assert totals == {
        "sched:sched_switch": 575,
        "sched:sched_stat_runtime": 631,
        "sched:sched_process_fork": 6,
        "sched:sched_wakeup_new": 6,
        "sched:sched_migrate_task": 3,
        "sched:sched_waking": 275,
    }


def test_pipe_and_compressed_files_equal_plain_ones() -> None:
    """Host, clock, topology and thread names come from records or sections alike."""
    for name in ("sched", "pipe", "zstd"):
        trace = decode(FIXTURES / f"perf-{name}.data")
        assert trace.info["release"].startswith("6.18."), name
        assert trace.info["clock"]["name"] == "mono", name
        assert trace.ncpu == 2, name
        comms = set(trace.threads.collect()["comm"])
        assert {"sched-pipe", "true"} <= comms, name
        assert trace.info["warnings"] == [], name


def test_wake_events_are_distinguished() -> None:
    """perf sched record has sched_waking only; our own choice of events has both."""
    sched, both = decode(FIXTURES / "perf-sched.data"), decode(FIXTURES / "perf-zstd.data")
    assert (sched.info["has_waking"], sched.info["has_enqueued"]) == (True, False)
    assert (both.info["has_waking"], both.info["has_enqueued"]) == (True, True)
    kinds = wakeups(both)["kind"].value_counts().sort("kind").rows()
    assert kinds == [("enqueued", 220), ("new", 6), ("waking", 220)]


def test_forks_exits_and_execs() -> None:
    """A forked thread has parent, begin, end and the name of what it executed."""
    trace = decode(FIXTURES / "perf-sched.data")
    born = trace.threads.filter(pl.col("start_ts").is_not_null()).collect()
    assert len(born) == 6
    assert born["parent_utid"].null_count() == 0
    true = born.filter(pl.col("comm") == "true")
    assert len(true) == 3
    assert true["exit_ts"].null_count() == 0
    assert (true["tid"] == true["pid"]).all()


def test_threads_that_never_ran_have_the_names_of_perfs_list() -> None:
    """perf lists each with a FORK and a COMM without a time, process 1 with its own name."""
    names = dict(
        decode(FIXTURES / "perf-sched.data").threads.select("tid", "comm").collect().rows()
    )
    assert names[1] == "process_api"
    assert names[2] == "kthreadd"
    assert "" not in names.values()


def test_a_lost_record_is_a_loss_with_its_place() -> None:
    """LOST is placed once; the totals of LOST_SAMPLES repeat it and add nothing."""
    trace = decode(FIXTURES / "perf-lost.data")
    losses = trace.losses.filter(pl.col("reason") == "overrun").collect().to_dicts()
    assert len(losses) == 1
    assert losses[0]["cpu"] == 0
    assert losses[0]["count"] == 11
    assert losses[0]["ts_begin"] < losses[0]["ts_end"]
    assert trace.info["unplaced_losses"] == []


def test_losses_before_the_first_sample_do_not_extend_the_trace(tmp_path: Path) -> None:
    """perf records forks before it switches its events on, and may lose some of these, too."""
    data = bytearray((FIXTURES / "perf-lost.data").read_bytes())
    whole = decode(FIXTURES / "perf-lost.data")
    at, size = struct.unpack_from("<QQ", data, 40)
    end = at + size
    while at < end:
        kind, _, length = struct.unpack_from("<IHH", data, at)
        if kind == 2:
            # Of its sample id: thread, time, ...
            struct.pack_into("<Q", data, at + 24 + 8, whole.window[0] - 500_000_000)
        at += length
    path = tmp_path / "perf.data"
    path.write_bytes(data)
    trace = decode(path)
    assert trace.window == whole.window
    (lost,) = trace.losses.filter(pl.col("reason") == "overrun").collect().to_dicts()
    assert (lost["cpu"], lost["count"]) == (0, 11)
    assert lost["ts_begin"] == lost["ts_end"] == whole.window[0]


def test_losses_only_in_totals_are_after_the_last_record(tmp_path: Path) -> None:
    """A buffer full to the end: no LOST follows, and the CPU is unknown from there on.

    perf leaves CPU and time of LOST_SAMPLES at 0; whose they are, the sample id says.
    """
    data = bytearray((FIXTURES / "perf-lost.data").read_bytes())
    before = decode(FIXTURES / "perf-lost.data")
    at, size = struct.unpack_from("<QQ", data, 40)
    end = at + size
    ids: dict[int, int] = {}
    totals = 0
    last = before.window[1]
    while at < end:
        kind, _, length = struct.unpack_from("<IHH", data, at)
        if kind == 69:
            for entry in range(struct.unpack_from("<Q", data, at + 8)[0]):
                sample_id, _, cpu, _ = struct.unpack_from("<4Q", data, at + 16 + 32 * entry)
                ids[sample_id] = cpu
        elif kind == 2:
            struct.pack_into("<I", data, at, 5)
        elif kind == 13:
            # Of the other CPU's buffer instead.
            (sample_id,) = struct.unpack_from("<Q", data, at + length - 8)
            assert ids[sample_id] == 0
            other = min(one for one, cpu in ids.items() if cpu == 1)
            struct.pack_into("<Q", data, at + length - 8, other)
            totals += struct.unpack_from("<Q", data, at + 8)[0]
        at += length
    assert totals == 11
    path = tmp_path / "perf.data"
    path.write_bytes(data)
    trace = decode(path)
    on_cpu_1 = trace.switches.filter(pl.col("cpu") == 1).collect()["ts"].max()
    (lost,) = trace.losses.filter(pl.col("reason") == "overrun").collect().to_dicts()
    assert (lost["cpu"], lost["count"], lost["ts_end"]) == (1, 11, last)
    assert on_cpu_1 <= lost["ts_begin"]
    ran = trace.states.filter((pl.col("cpu") == 1) & (pl.col("state") == "running"))
    assert ran.select((pl.col("ts") + pl.col("dur")).max()).collect().item() <= lost["ts_begin"]
    assert trace.info["unplaced_losses"] == []


def test_samples_excluded_by_a_bpf_filter_are_not_lost(tmp_path: Path) -> None:
    """perf counts it in a LOST_SAMPLES record, too, marked in the header (bit 15 of misc)."""
    data = bytearray((FIXTURES / "perf-lost.data").read_bytes())
    at, size = struct.unpack_from("<QQ", data, 40)
    end = at + size
    while at < end:
        kind, misc, length = struct.unpack_from("<IHH", data, at)
        if kind == 2:
            struct.pack_into("<I", data, at, 5)
        elif kind == 13:
            struct.pack_into("<H", data, at + 4, misc | 1 << 15)
        at += length
    path = tmp_path / "perf.data"
    path.write_bytes(data)
    trace = decode(path)
    assert trace.losses.filter(pl.col("reason") == "overrun").collect().height == 0
    assert trace.info["unplaced_losses"] == []
    assert any("left out 11 events" in text for text in trace.info["warnings"])


def test_a_piped_file_that_stops_inside_a_record_ends_unknown(tmp_path: Path) -> None:
    """perf was killed: what each CPU did after its last event is in no record."""
    data = (FIXTURES / "perf-pipe.data").read_bytes()
    path = tmp_path / "perf.data"
    path.write_bytes(data[: len(data) * 3 // 4 - 3])
    trace = decode(path)
    # The CPU of the very last event is known to the end.
    early = trace.losses.filter(pl.col("reason") == "early_end").collect()
    assert early.height == trace.ncpu - 1
    assert set(early["ts_end"].to_list()) == {trace.window[1]}
    ran = trace.states.filter(pl.col("state") == "running").collect()
    for cpu, begin in early.select("cpu", "ts_begin").iter_rows():
        assert ran.filter((pl.col("cpu") == cpu) & (pl.col("ts") > begin)).is_empty()


def test_events_are_in_order_of_time() -> None:
    """The file holds one ring buffer after the other; the tables are sorted."""
    for name in ("sched", "pipe", "zstd", "lost"):
        trace = decode(FIXTURES / f"perf-{name}.data")
        assert trace.switches.collect()["ts"].is_sorted(), name
        assert trace.wakeups.collect()["ts"].is_sorted(), name


def _decode_bytes(data: bytes, folder: Path) -> None:
    path = folder / "x.data"
    path.write_bytes(data)
    _native.decode(str(path))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("perf")


@given(st.data())
def test_any_cut_is_an_error_or_a_part_of_the_whole(folder: Path, data: st.DataObject) -> None:
    """File mode needs its end (the event formats); pipe mode gives what was written."""
    name = data.draw(st.sampled_from(["sched", "pipe", "zstd"]))
    whole = (FIXTURES / f"perf-{name}.data").read_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    (folder / "cut.data").write_bytes(whole[:cut])
    try:
        trace = decode(folder / "cut.data")
    except SchedscopeError:
        return
    rest, all_of_it = switches(trace), switches(decode(FIXTURES / f"perf-{name}.data"))
    if name == "pipe":
        # Later ring buffers are missing: what is there is as it was.
        assert rest.join(all_of_it, on=rest.columns, how="anti", nulls_equal=True).is_empty()
    else:
        # Only descriptions that we do not need were cut off.
        assert rest.equals(all_of_it, null_equal=True)


@given(st.data())
def test_any_flipped_bytes_are_an_error_or_a_trace(folder: Path, data: st.DataObject) -> None:
    """Damage never crashes, hangs or shows a Python traceback of ours."""
    name = data.draw(st.sampled_from(["sched", "pipe", "zstd", "lost"]))
    damaged = bytearray((FIXTURES / f"perf-{name}.data").read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        # Half of them in the head, where a byte decides most.
        top = data.draw(st.sampled_from([2048, len(damaged)]))
        damaged[data.draw(st.integers(8, top - 1))] = data.draw(st.integers(0, 255))
    with suppress(SchedscopeError):
        _decode_bytes(bytes(damaged), folder)


def test_errors_have_hints(folder: Path) -> None:
    """Killed recorder, numbers in another byte order than the magic: named, with a way out."""
    whole = (FIXTURES / "perf-sched.data").read_bytes()
    killed = whole[:48] + bytes(8) + whole[56:]
    swapped = b"2ELIFREP" + whole[8:]
    for data, found in [(killed, "0 bytes of records"), (swapped, "the file ends at byte")]:
        with pytest.raises(FormatError, match=found) as caught:
            _decode_bytes(data, folder)
        assert caught.value.hint


def test_expanded_file_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed records are expanded below TMPDIR, in a file without a name."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    decode(FIXTURES / "perf-zstd.data")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_perf_could_not_finish_is_read_with_the_formats_beside_it(
    tmp_path: Path,
) -> None:
    """On a full disk perf neither enters the size of its records nor stores the formats."""
    whole = (FIXTURES / "perf-sched.data").read_bytes()
    begin, size = struct.unpack_from("<QQ", whole, 40)
    cut = bytearray(whole[: begin + size - 3000])
    struct.pack_into("<Q", cut, 48, 0)
    struct.pack_into("<QQQQ", cut, 72, 0, 0, 0, 0)
    capture = tmp_path / "x.capture"
    capture.mkdir()
    (capture / "perf.data").write_bytes(cut)
    whole_trace = decode(FIXTURES / "perf-sched.data")
    about = json.loads((FIXTURES / "linux-slice-default-4.capture/capture.json").read_text())
    first = int(whole_trace.switches.collect()["ts"][0])
    about["recorder"]["name"] = "perf"
    about |= {"complete": False, "lost": [], "window": {"begin": first, "end": None}}
    (capture / "capture.json").write_text(json.dumps(about))
    with pytest.raises(FormatError, match="could finish the file"):
        ss.open(capture)
    for text in re.findall(rb"name: \w+\nID: \d+\nformat:.*?print fmt:[^\n]*\n", whole, re.DOTALL):
        name = re.match(rb"name: (\w+)", text)
        assert name
        folder = capture / "events" / "sched" / name[1].decode()
        folder.mkdir(parents=True)
        (folder / "format").write_bytes(text)
    trace = ss.open(capture)
    assert any("before it could finish the file" in text for text in trace.info["warnings"])
    all_of_them = whole_trace.switches.collect()
    assert trace.switches.collect().height > 0.5 * all_of_them.height
    # Where a CPU's records end it is unknown what came after.
    assert "early_end" in trace.losses.collect()["reason"]
    for (cpu,), got in trace.switches.collect().group_by("cpu"):
        true = all_of_them.filter(cpu=cpu)["ts"].to_list()
        assert got["ts"].to_list() == true[: got.height]


def with_period(data: bytes, period: int, every: int) -> tuple[bytes, int]:
    """perf.data whose samples, one in `every`, stand for `period` events; and how many do."""
    out = bytearray(data)
    (attrs, _, begin, size) = struct.unpack_from("<QQQQ", data, 24)
    sample_type = struct.unpack_from("<Q", data, attrs + 24)[0]
    assert sample_type >> 8 & 1
    # IDENTIFIER, IP, TID, TIME, ADDR, ID, CPU, PERIOD: in this order, with STREAM_ID before CPU.
    at = 8 + 8 * sum(sample_type >> bit & 1 for bit in (16, 0, 1, 2, 3, 6, 9, 7))
    place, seen, changed = begin, 0, 0
    while place < begin + size:
        kind, _, length = struct.unpack_from("<IHH", data, place)
        if kind == 9:
            seen += 1
            if seen % every == 0:
                struct.pack_into("<Q", out, place + at, period)
                changed += 1
        place += length
    return bytes(out), changed


def test_samples_with_periods_report_missing_events(tmp_path: Path) -> None:
    """`perf record -F 1000 -e sched:...`: nothing is measured where events may be missing."""
    data, changed = with_period((FIXTURES / "perf-sched.data").read_bytes(), 3, 50)
    assert changed > 10
    path = tmp_path / "sampled.data"
    path.write_bytes(data)
    trace = ss.open(path)
    warning = "".join(trace.info["warnings"])
    said = re.search(r"samples of its events, not every one: (\d+) switches", warning)
    missing = sum(loss["count"] for loss in trace.info["unplaced_losses"])
    assert said
    assert 0 < int(said[1]) == missing <= 2 * changed
    measured = trace.waits.filter(pl.col("censored") == "none").collect().height
    whole = ss.open(FIXTURES / "perf-sched.data")
    assert measured < whole.waits.filter(pl.col("censored") == "none").collect().height


def test_a_recording_that_perf_inject_wrote_again_is_of_all_cpus(tmp_path: Path) -> None:
    """Its command line has no -a, but idle threads switch in it, and kernel threads are listed."""
    data = (FIXTURES / "perf-iowait.data").read_bytes()
    words = [(b"record", b"inject"), (b"-a", b"-b")]
    for old, new in words:
        # A word of the command line takes 64 bytes.
        word = struct.pack("<I", 64) + old + b"\0"
        assert data.count(word) == 1
        data = data.replace(word, word.replace(old, new))
    path = tmp_path / "injected.data"
    path.write_bytes(data)
    trace = decode(path)
    assert " inject " in trace.info["recorder"]["command"]
    assert not any("one program only" in warning for warning in trace.info["warnings"])


@pytest.mark.parametrize(
    ("files", "found", "hint"),
    [
        (["data", "data.0", "data.1"], "whose records are in several files", "without --threads"),
        (["data", "kcore_dir/kcore"], "is a folder of perf record", "open .*/data$"),
    ],
)
def test_perf_folder_is_refused_with_the_file_to_open(
    tmp_path: Path, files: list[str], found: str, hint: str
) -> None:
    """`perf record --threads` and `--kcore`."""
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"PERFILE2" if name.startswith("data") else b"")
    with pytest.raises(FormatError, match=found) as caught:
        decode(tmp_path)
    assert re.search(hint, caught.value.hint or "")
