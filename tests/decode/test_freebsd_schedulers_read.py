"""FreeBSD's own probes and KTR points of a run are read back as that run."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl
import pytest
from freebsd.reading import Decoded, decode
from freebsd.writer import ring

import schedscope as ss
from schedscope.errors import FormatError
from schedscope.store.trace import Trace

FOLDER = Path(__file__).parents[2] / "fixtures" / "freebsd-schedulers"

FIRST_TID = 100101
"""Thread 0 of a case."""

TOLERANCE = 2_000
"""ns: probes at one instant are 1 ns apart, some hundreds of them at most."""

PROBES = sorted(FOLDER.glob("**/probes/*.txt.gz"))
POINTS = sorted(FOLDER.glob("**/probes/*.ktr.gz"))
CLOCKS = sorted(FOLDER.glob("ktr-clock/*.ktr.gz"))

Interval = tuple[str, int, int | None, int | None]


def label(path: Path) -> str:
    return str(path.relative_to(FOLDER))


def plain(path: Path, folder: Path) -> Path:
    """The file without its compression."""
    file = folder / path.stem
    file.write_bytes(gzip.decompress(path.read_bytes()))
    return file


def lasting(rows: Iterable[Interval]) -> Iterator[Interval]:
    """Without intervals of length zero; adjoining ones in one state are joined."""
    last: Interval | None = None
    for state, begin, end, cpu in rows:
        where = cpu if state == "running" else None
        if end is not None and end - begin <= TOLERANCE:
            continue
        if last is not None and (last[0], last[3]) == (state, where):
            last = (state, last[1], end, where)
            continue
        if last is not None:
            yield last
        last = (state, begin, end, where)
    if last is not None:
        yield last


def read(trace: Trace) -> dict[int, list[Interval]]:
    """The intervals of each thread, by its number in the case."""
    tids = dict(trace.threads.select("utid", "tid").collect().rows())
    rows = trace.states.filter(pl.col("utid") >= trace.ncpu).sort("utid", "ts").collect()
    found: dict[int, list[Interval]] = {}
    for row in rows.filter(~pl.col("state").is_in(["unknown", "dead"])).iter_rows(named=True):
        end = None if row["end"] == "window" else row["ts"] + row["dur"]
        interval = (row["state"], row["ts"], end, row["cpu"])
        found.setdefault(tids[row["utid"]] - FIRST_TID, []).append(interval)
    return found


def true(path: Path) -> dict[int, list[Interval]]:
    """The true values of the machine that made the file."""
    rows = pl.read_parquet(path.parents[1] / "states.parquet").with_columns(
        pl.col("case", "state").cast(pl.String)
    )
    found: dict[int, list[Interval]] = {}
    for row in rows.filter(pl.col("case") == path.name.split(".")[0]).iter_rows(named=True):
        interval = (row["state"], row["begin"], row["end"], row["cpu"])
        found.setdefault(row["thread"], []).append(interval)
    return found


def assert_same(ours: dict[int, list[Interval]], theirs: dict[int, list[Interval]]) -> None:
    """Equal states and CPUs, with times within the tolerance."""
    # A KTR file has its own origin of time.
    shift = min(r[0][1] for r in theirs.values()) - min(r[0][1] for r in ours.values())
    shift = 0 if abs(shift) <= TOLERANCE else shift
    assert ours.keys() == theirs.keys()
    for thread, rows in theirs.items():
        expected = list(lasting(rows))
        got = list(lasting(ours[thread]))
        assert [(r[0], r[3]) for r in got] == [(r[0], r[3]) for r in expected]
        for one, other in zip(got, expected, strict=True):
            assert abs(one[1] + shift - other[1]) <= TOLERANCE, (thread, one, other)
            assert (one[2] is None) == (other[2] is None), (thread, one, other)
            if one[2] is not None and other[2] is not None:
                assert abs(one[2] + shift - other[2]) <= TOLERANCE, (thread, one, other)


@pytest.mark.parametrize("path", PROBES, ids=label)
def test_states_from_dtrace_lines(path: Path, tmp_path: Path) -> None:
    """The lines of collectors/freebsd/sched.d, made by the kernel's own SDT probes."""
    assert_same(read(ss.open(plain(path, tmp_path))), true(path))


@pytest.mark.parametrize("path", POINTS, ids=label)
def test_states_from_ktrdump(path: Path, tmp_path: Path) -> None:
    """`ktrdump -ct` of the same runs, its counter's frequency fitted."""
    assert_same(read(ss.open(plain(path, tmp_path))), true(path))


@pytest.mark.parametrize(
    "path", [path for path in PROBES if path.name.startswith(("m45", "m28", "z4"))], ids=label
)
def test_states_from_a_flight_recorder(path: Path, tmp_path: Path) -> None:
    """Each CPU's ring starts at another time: all that is read is true, and complete after the last
    start.
    """
    text = gzip.decompress(path.read_bytes()).decode()
    lines = [line.split("\t", 3) for line in text.splitlines() if line[0] not in "#\n"]
    begin, end = int(lines[0][1]), int(lines[-1][1])
    ncpu = 1 + max(int(line[2]) for line in lines)
    starts = [begin + (end - begin) * (5 - cpu) // 10 for cpu in range(ncpu)]
    file = tmp_path / "ring.txt"
    file.write_text(ring(text, starts, end + 1))
    trace = ss.open(file)
    late = trace.losses.filter(reason="late_start").collect()
    assert set(late["cpu"]) == set(range(ncpu - 1))
    last = max(late["ts_end"])
    read_back = read(trace)
    ran = [0, 0]
    for thread, rows in true(path).items():
        # A thread that keeps a CPU to itself has no line at all.
        if thread not in read_back:
            continue
        truth = [(r[0], r[3], r[1] - TOLERANCE, (r[2] or end) + TOLERANCE) for r in lasting(rows)]
        for state, since, until, cpu in read_back[thread]:
            if (until or end) - since > TOLERANCE:
                where = cpu if state == "running" else None
                covers = [t for t in truth if t[2] <= since and (until or end) <= t[3]]
                assert (state, where) in [t[:2] for t in covers], (thread, state, since, until)
        for which, intervals in enumerate([rows, read_back[thread]]):
            running = [(r[1], r[2] or end) for r in intervals if r[0] == "running"]
            ran[which] += sum(max(0, e - max(b, last)) for b, e in running)
    # After the last start every running thread is known.
    assert ran[0] > (end - last) // 2
    assert ran[1] == pytest.approx(ran[0], abs=10 * TOLERANCE)


def doubts(decoded: Decoded) -> list[str]:
    return [text for text in decoded.about["warnings"] if "frequency" in text]


@pytest.mark.parametrize("path", CLOCKS, ids=label)
def test_frequency_is_found_on_an_idle_machine(path: Path, tmp_path: Path) -> None:
    """The counter's frequency to 0.1 %, with a warning where few points determine it."""
    text = gzip.decompress(path.read_bytes())
    decoded = decode(tmp_path, text)
    assert decoded.about["clock"]["hz"] == pytest.approx(2_500_000_000, rel=0.001)
    points = [
        line for line in text.splitlines() if b"statclock" in line and b'id:"idle' not in line
    ]
    assert bool(doubts(decoded)) == (len(points) < 12)


def test_frequency_of_any_part_is_right_or_marked_doubtful(tmp_path: Path) -> None:
    """A ring of any length, with missing points: never silently another frequency."""
    chance = random.Random(7)
    answers = {"right": 0, "in doubt": 0, "refused": 0}
    for path in CLOCKS:
        head, *lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
        for length in (300, 1000, 3000, len(lines)) * 4:
            begin = chance.randrange(max(1, len(lines) - length))
            kept = chance.choice([1.0, 0.5])
            part = [
                line
                for line in lines[begin : begin + length]
                if b"statclock" not in line or chance.random() < kept
            ]
            try:
                decoded = decode(tmp_path, head + b"".join(part))
            except FormatError:
                answers["refused"] += 1
                continue
            answers["in doubt" if doubts(decoded) else "right"] += 1
            if not doubts(decoded):
                assert decoded.about["clock"]["hz"] == pytest.approx(2_500_000_000, rel=0.001)
    assert min(answers.values()) >= 5, answers


def test_too_few_statclock_points_require_tsc_hz(tmp_path: Path) -> None:
    """Points of idle threads are off the grid and do not help."""
    text = gzip.decompress(CLOCKS[0].read_bytes())
    idle = [line for line in text.splitlines() if b"statclock" not in line or b'id:"idle' in line]
    with pytest.raises(FormatError, match="statclock points of running threads"):
        decode(tmp_path, b"\n".join(idle))
    given = decode(tmp_path, b"\n".join(idle), tsc_hz="2500000000")
    assert given.about["clock"]["hz"] == 2_500_000_000
