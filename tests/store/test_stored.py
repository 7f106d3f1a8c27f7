"""A `.sched` folder is read as written, or one sentence names file, table, column and row."""

from __future__ import annotations

import copy
import functools
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import schedscope as ss
from schedscope import _native, cli
from schedscope.errors import FormatError, InternalError, SchedscopeError, StorageError, UsageError
from schedscope.parsers import derived, trace_json
from schedscope.store import stored

FIXTURE = Path(__file__).parents[2] / "fixtures" / "linux-trace-cmd-yield.dat"
FAR = 2**62 - 1


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "t.sched"
    ss.convert(FIXTURE, folder)
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    """A copy without checksums, as other programs write them."""
    own = tmp_path / "t.sched"
    shutil.copytree(sound, own)
    about = json.loads((own / "trace.json").read_text())
    del about["files"]
    (own / "trace.json").write_text(json.dumps(about))
    return own


def test_flipped_bit_in_trace_json_is_reported_in_one_sentence(sound: Path, tmp_path: Path) -> None:
    """At any position: the last line may then have another key, but what is read is right."""
    own = tmp_path / "t.sched"
    shutil.copytree(sound, own)
    whole = (own / "trace.json").read_bytes()
    facts = ss.open(own).info
    last = whole.rindex(b",")
    chance = random.Random(7)
    for at in [*chance.sample(range(last), 60), *range(last, len(whole))]:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << chance.randrange(8)
        (own / "trace.json").write_bytes(damaged)
        try:
            found = ss.open(own).info
        except FormatError:
            continue
        assert at >= last
        known = {key: value for key, value in found.items() if key in facts}
        assert known == facts


def test_trace_json_may_be_changed_without_its_checksum(sound: Path, tmp_path: Path) -> None:
    own = tmp_path / "t.sched"
    shutil.copytree(sound, own)
    text = (own / "trace.json").read_text()
    changed = text.replace('"hostname": ', '"owner": "me",\n "hostname": ')
    (own / "trace.json").write_text(changed)
    with pytest.raises(FormatError, match=r"not as it was written.*remove its line crc32"):
        ss.open(own)
    (own / "trace.json").write_text(changed[: changed.rindex(",")] + "\n}\n")
    assert ss.open(own).info["owner"] == "me"


def change(folder: Path, table: str, row: int, forged: bool = False, **values: Any) -> None:
    path = folder / f"{table}.parquet"
    frame = derived.plain(table, pl.scan_parquet(path, glob=False)).collect()
    frame = frame.with_columns(
        pl.when(pl.int_range(pl.len()) == row)
        .then(pl.lit(value))
        .otherwise(pl.col(name))
        .alias(name)
        for name, value in values.items()
    )
    frame.cast(dict(ss.parsers.schema.TABLES[table].schema)).write_parquet(path)
    if forged:
        about = json.loads((folder / "trace.json").read_text())
        about["files"] = stored.record(folder)
        (folder / "trace.json").write_text(json.dumps(about))


@pytest.mark.parametrize(
    ("table", "row", "values", "said"),
    [
        ("states", 7, {"utid": 4294967295}, "utid holds 4294967295 in row 7"),
        ("states", 7, {"ts": 2**63 - 1}, "ts holds 9223372036854775807 in row 7"),
        ("states", 7, {"dur": -1}, "dur holds -1 in row 7"),
        ("states", 7, {"dur": FAR}, "ns on in row 7"),
        ("states", 7, {"cpu": 65535}, "cpu holds 65535 in row 7"),
        ("states", 7, {"ts": 5}, "row 7"),
        ("states", 9, {"prev": None, "dur": 10**9}, "row "),
        ("waits", 3, {"wait": -1}, "wait holds -1 in row 3"),
        ("waits", 3, {"waker_utid": 4294967295}, "waker_utid holds 4294967295 in row 3"),
        ("waits", 3, {"ts_run": 0}, "column ts_run holds 0 in row 3"),
        ("switches", 3, {"ts": 0}, "column ts holds 0 in row 3"),
        ("irqs", 3, {"dur": -5}, "dur holds -5 in row 3"),
        ("threads", 3, {"utid": 2}, "not in order, or with duplicates"),
        ("threads", 3, {"parent_utid": 4294967295}, "parent_utid holds 4294967295 in row 3"),
    ],
)
def test_impossible_values_are_named(
    folder: Path, table: str, row: int, values: dict[str, Any], said: str
) -> None:
    values.pop("prev", None)
    change(folder, table, row, **values)
    with pytest.raises(FormatError) as caught:
        getattr(ss.Trace.read(folder), table).collect()
    assert f"{table}.parquet" in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"utid": 4294967295}, "column utid holds 4294967295 in row 7; expected utids"),
        ({"ts": FAR + 1}, "column ts holds 4611686018427387904 in row 7"),
        ({"dur": -1}, "column dur holds -1 in row 7"),
        ({"cpu": 65535}, "column cpu holds 65535 in row 7"),
    ],
)
def test_every_native_entry_point_checks_values(
    folder: Path, columns: dict[str, Any], said: str
) -> None:
    """Even with a forged checksum the engine cannot be made to take endless memory."""
    change(folder, "states", 7, forged=True, **columns)
    blind = {ss.check, ss.interactivity, ss.efficiency, ss.queue_depth_summary, ss.virtual_lag}
    for ask in (
        ss.fairness, ss.interference, ss.work_conservation, ss.queue_depth_summary, ss.efficiency,
        ss.check, ss.run_lengths, ss.virtual_lag, ss.interactivity,
        lambda trace: ss.critical_path(trace, utid=5),
    ):  # fmt: skip
        if "cpu" in columns and ask in blind:
            continue  # some read no CPU
        with pytest.raises(FormatError) as caught:
            ask(ss.Trace.read(folder))
        assert said in str(caught.value)
        assert "states" in str(caught.value)


def test_frames_in_memory_are_checked(sound: Path) -> None:
    trace = ss.Trace.read(sound)
    states = trace.states.collect()
    wide = states.with_columns(utid=pl.lit(4294967295, pl.UInt32))
    bad = ss.Trace.from_tables({"states": wide, "threads": trace.threads}, trace.info)
    with pytest.raises(FormatError, match="table states, column utid holds 4294967295 in row 0"):
        ss.fairness(bad)
    with pytest.raises(FormatError, match="table states, column utid holds 4294967295"):
        bad.to_sched(sound.parent / "bad.sched")
    assert not (sound.parent / "bad.sched").exists()


def test_times_whose_sum_would_wrap_are_refused() -> None:
    long = pl.DataFrame({"ts": [0, 0, 0], "dur": [FAR, FAR, FAR], "utid": [4, 5, 6]})
    table = long.cast({"utid": pl.UInt32})
    with pytest.raises(
        FormatError, match=r"column dur: its times sum up to 13835058055282163709 ns"
    ):
        _native.check_table(table, "states", "states.parquet", 1)


def test_process_survives_a_huge_utid(folder: Path) -> None:
    """It used to end a Jupyter kernel: the engine asked for 64 GiB of memory."""
    change(folder, "states", 7, forged=True, utid=4294967295)
    code = (
        "import sys, schedscope as ss\n"
        "try: ss.fairness(ss.open(sys.argv[1]))\n"
        "except ss.errors.FormatError: print('alive')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr[-500:]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.unlink(), "does not exist"),
        (lambda path: path.write_bytes(b""), "does not start and end like a Parquet file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-30]), "does not start and end"),
        (lambda path: path.write_bytes(b"PAR1" + bytes(500) + b"PAR1"), "is damaged"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "is not a file"),
        (lambda path: (path.unlink(), path.mkdir()), "is not a file"),
        (lambda path: shutil.copy(path.with_name("waits.parquet"), path), "rows; expected"),
        (lambda path: pl.read_parquet(path).drop("dur").write_parquet(path), "no column dur"),
        (
            lambda path: pl.read_parquet(path).cast({"dur": pl.Float64}).write_parquet(path),
            "a column dur of type Float64",
        ),
    ],
)
def test_damaged_table_is_reported_in_one_sentence(
    folder: Path, damage: Callable[[Path], object], said: str
) -> None:
    damage(folder / "states.parquet")
    with pytest.raises((FormatError, StorageError)) as caught:
        ss.Trace.read(folder).states.collect()
    assert said in str(caught.value)
    assert "states.parquet" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("ncpu", "2", "ncpu is '2'"),
        ("ncpu", 2**31, "ncpu is 2147483648"),
        ("ncpu", None, "has no ncpu"),
        ("window", [5, 4], r"window is \[5, 4\]"),
        ("window", [0, 2**63], "window is"),
        ("window", [-FAR, FAR], "292 years"),
        ("events", {"sched_switch": {"x": 1}}, "a key of events.sched_switch is 'x'"),
        ("per_cpu", [{"cpu": -1}], r"per_cpu\[0\].cpu is -1"),
        ("warnings", 7, "warnings is 7"),
        ("os", ["Linux"], r"os is \['Linux'\]"),
        ("clock", {"pairs": [[1]]}, r"clock.pairs\[0\]"),
        ("rows", {"states": -1}, "rows.states is -1"),
        ("schema_version", 99, "schema version 99"),
    ],
)
def test_impossible_trace_json_is_reported_in_one_sentence(
    folder: Path, key: str, value: Any, said: str
) -> None:
    about = json.loads((folder / "trace.json").read_text())
    (folder / "trace.json").write_text(json.dumps({**about, key: value}))
    with pytest.raises(FormatError, match=said):
        ss.open(folder)


RICH: dict[str, Any] = {
    "autogroups": [{"pid": 7, "session": 3, "nice": 0}],
    "checksums": {"files": 2, "damaged": ["cpus.tsv"]},
    "clock_offsets": [{"cpu": 1, "ahead": [10, 20], "breaks": 3, "breaks_left": 0}],
    "cpu_time": [{"cpu": 0, "user": 10, "system": 0, "idle": 5, "steal": 1, "elapsed": 16}],
    "group_moves": [{"ts": 5, "tid": 7, "from": None, "cgroup": "/a"}],
    "groups": [{"cgroup": "/a", "weight": 100, "quota": None, "throttled": 30, "n_throttled": 2}],
    "reservations": [{"tid": 7, "runtime": 3, "deadline": 10, "period": 10}],
    "scheduler": {
        "name": "eevdf",
        "tunables": {"/proc/sys/kernel/sched_autogroup_enabled": "1"},
    },
    "slices": [{"tid": 7, "slice": 500_000}],
    "unplaced_losses": [{"cpu": 1, "count": 4, "reason": "overrun"}],
}
"""Keys that only some traces have, as a decoder writes them."""

WRONG = ("absent", None, "x", -1, [], {}, [None], 2**70, 1.5)


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every key of an object, and of the first of each list of them."""
    parts = value.items() if isinstance(value, dict) else enumerate(value[:1])
    for key, part in parts:
        yield (*path, key)
        if isinstance(part, dict | list):
            yield from places(part, (*path, key))


def test_damaged_trace_json_is_answered_or_reported_in_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong values, and missing ones, at every place."""
    about = json.loads((folder / "trace.json").read_text()) | RICH
    known = list(places({key: value for key, value in about.items() if key != "events"}))
    chance, answers, sentences = random.Random(19), 0, 0
    for path, value in chance.sample([(path, value) for path in known for value in WRONG], 120):
        changed = copy.deepcopy(about)
        *way, last = path
        inner = functools.reduce(lambda part, key: part[key], way, changed)
        if value == "absent":
            del inner[last]
        else:
            inner[last] = value
        (folder / "trace.json").write_text(json.dumps(changed))
        status = [cli.main([command, str(folder)]) for command in ("info", "check", "fairness")]
        said = capsys.readouterr().err
        assert "internal error" not in said, (path, value, said)
        answers += status == [0, 0, 0]
        sentences += 1 in status
    assert answers > 15
    assert sentences > 15


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b"1" * 10_000])
def test_trace_json_that_is_not_an_object_is_refused(folder: Path, text: bytes) -> None:
    (folder / "trace.json").write_bytes(text)
    with pytest.raises(FormatError, match=r"trace\.json"):
        ss.open(folder)


def test_every_own_trace_passes_the_checks_of_values(tmp_path: Path) -> None:
    """The checks of tables without checksums accept what our own decoders and simulator write."""
    sources = [
        path
        for path in sorted(FIXTURE.parent.iterdir())
        if path.suffix in (".capture", ".dat", ".data", ".pftrace") or path.name.startswith("text-")
    ]
    traces = [ss.open(source, cache=tmp_path) for source in sources]
    traces.append(ss.simulate(ss.workload.web(3), policy="ule-14", cpus=2))
    traces.append(traces[0].between("10ms", "20ms"))
    for trace in traces:
        assert trace_json.wrong(trace.info) is None
        folder = trace.to_sched(tmp_path / "copy.sched", force=True).path
        assert folder is not None
        about = json.loads((folder / "trace.json").read_text())
        about.pop("files")
        (folder / "trace.json").write_text(json.dumps(about))
        again = ss.Trace.read(folder)
        for name in ss.parsers.schema.TABLES:
            again.table(name)


def test_internal_error_is_not_a_usage_error(sound: Path) -> None:
    states = ss.Trace.read(sound).states.select("ts", "dur").collect()
    with pytest.raises(InternalError, match=r"internal error: no column utid.*report it") as caught:
        _native.run_sums(states, (0, 1))
    assert isinstance(caught.value, SchedscopeError)
    assert not isinstance(caught.value, UsageError)


def test_table_changed_after_opening_is_reported_in_one_sentence(
    sound: Path, tmp_path: Path
) -> None:
    """The next question reports it; Polars would raise its own error, or nothing."""
    copy = shutil.copytree(sound, tmp_path / "t.sched")
    trace = ss.open(copy)
    assert trace.waits.collect().height
    path = copy / "waits.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))
    for question in (lambda: trace.waits, lambda: ss.latency(trace)):
        with pytest.raises(FormatError, match=r"waits\.parquet has the checksum"):
            question()


@pytest.mark.parametrize("column", ["wait", "queue", "placement", "ts_run", "ts_ready"])
@pytest.mark.parametrize("value", [-(10**10), 10**10, 2**61])
def test_forged_times_of_waits_are_refused_by_every_question(
    folder: Path, column: str, value: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """With valid checksums they gave negative means."""
    change(folder, "waits", 100, forged=True, **{column: value})
    for command in ("latency", "off-cpu", "starvation", "virtual-lag", "events"):
        assert cli.main([command, str(folder)]) == 1
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "waits.parquet" in said
        assert "row 100" in said
        assert column in said


def test_foreign_tables_are_checked_once(sound: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    monkeypatch.setattr(stored, "check_rows", lambda name, *_, **__: looks.append(name))
    ss.latency(ss.Trace.read(sound))
    assert not looks  # written here
    copy = shutil.copytree(sound, sound.parent / "copy.sched")
    ss.latency(ss.Trace.read(copy))
    assert looks
