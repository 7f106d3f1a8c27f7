"""The decoder of bpftrace captures: a real one, and lines damaged as a recorder could."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import schedscope as ss
from schedscope import _native
from schedscope.analysis.check.check import missing_wakeups
from schedscope.errors import FormatError, SchedscopeError

FIXTURE = Path(__file__).parents[2] / "fixtures" / "linux-bpftrace.capture"
LINES = (FIXTURE / "events.txt").read_bytes().splitlines(keepends=True)
EVENTS = [line for line in LINES if line[:1].isalpha()]
NAMES = {
    b"S": "sched_switch",
    b"K": "sched_waking",
    b"E": "sched_wakeup",
    b"N": "sched_wakeup_new",
    b"M": "sched_migrate_task",
    b"F": "task_newtask",
    b"C": "sched_process_exec",
    b"R": "task_rename",
    b"X": "sched_process_exit",
}
TABLES = ["switches", "wakeups", "migrations", "states", "waits", "losses", "threads"]


def write(folder: Path, lines: list[bytes]) -> Path:
    """The fixture with other lines."""
    capture = folder / "x.capture"
    shutil.rmtree(capture, ignore_errors=True)
    shutil.copytree(FIXTURE, capture)
    (capture / "events.txt").write_bytes(b"".join(lines))
    return capture


def decode(capture: Path) -> tuple[dict[str, pl.DataFrame], dict[str, object]]:
    tables, text = _native.decode(capture)
    return {name: pl.DataFrame(tables[name]) for name in TABLES}, json.loads(text)


def stamp(line: bytes) -> int:
    return int(line.split(b" ")[1])


def test_bpftraces_lost_events_message_is_not_counted_again(tmp_path: Path) -> None:
    """The gap in the sequence numbers has its count already; each such sentence used to be one more
    loss.
    """
    on = next(n for n, line in enumerate(LINES) if line.startswith(b"#on "))
    at = [n for n, line in enumerate(LINES) if n > on and line[:1].isalpha()][200]
    cut = [line for n, line in enumerate(LINES) if not at <= n < at + 7]
    said = [*cut[:at], b"Lost 7 events\n", *cut[at:]]
    (silent, _), (recorded, about) = decode(write(tmp_path, cut)), decode(write(tmp_path, said))
    for name in TABLES:
        assert recorded[name].equals(silent[name], null_equal=True), name
    assert "not from the script" not in json.dumps(about)
    _, odd = decode(write(tmp_path, [*cut[:at], b"Lost x events\n", *cut[at:]]))
    assert "1 lines are not from the script" in json.dumps(odd)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda text: b"\xef\xbb\xbf" + text, "begins with a byte-order mark"),
        (lambda text: text.decode("latin1").encode("utf-16"), "is text in UTF-16"),
        (gzip.compress, "is compressed with gzip"),
    ],
)
def test_a_file_that_was_rewritten_is_refused_with_the_cause(
    tmp_path: Path, change: Callable[[bytes], bytes], cause: str
) -> None:
    capture = write(tmp_path, [change(b"".join(LINES[:300]))])
    with pytest.raises(FormatError, match=cause):
        decode(capture)


def test_cpu_without_lines_is_one_loss_from_the_start(
    tmp_path: Path,
) -> None:
    """It is not taken for a CPU of another recording, whose clock differs.

    What threads did on it is unknown: few waits are measured, and each is known between bounds.
    """
    tables, about = decode(
        write(tmp_path, [line for line in LINES if line not in EVENTS or line.split()[2] != b"0"])
    )
    gap = tables["losses"].filter(pl.col("reason") == "overrun").row(0, named=True)
    assert (gap["cpu"], gap["ts_begin"]) == (0, ON)
    assert about["clock_offsets"] == []
    whole, _ = decode(FIXTURE)
    measured = pl.col("censored") == "none"
    keys = ["ts_ready", "ts_run", "wait"]
    seen = tables["waits"].filter(measured, pl.col("ts_run") <= UNTIL)
    assert seen.height > 10
    assert seen.join(whole["waits"].filter(measured), on=keys, how="anti").is_empty()
    bounded = tables["waits"].filter(pl.col("ts_ready").is_not_null(), pl.col("ts_run") <= UNTIL)
    true = whole["waits"].filter(measured).select("ts_ready", "utid", truth="wait")
    both = bounded.join(true, on=["ts_ready"], how="inner")
    assert both.height > 10
    assert both.filter(pl.col("truth") < pl.col("wait")).is_empty()
    assert both.filter(pl.col("truth") > pl.col("wait_high")).is_empty()


def missing_at_the_end() -> dict[int, tuple[int, int]]:
    """How many of a CPU's lines are missing, and the time of the last one that arrived."""
    arrived = Counter(int(line.split(b" ")[2]) for line in EVENTS)
    last = {int(line.split(b" ")[2]): stamp(line) for line in EVENTS}
    made = (line[3:].split(b"]: ") for line in LINES if line.startswith(b"@n["))
    missing = {int(cpu): int(count) - arrived[int(cpu)] for cpu, count in made}
    return {cpu: (count, last[cpu]) for cpu, count in missing.items() if count}


UNTIL = min(last for _, last in missing_at_the_end().values())
"""The fixture's window ends before; what came later did not arrive of every CPU."""
ON = next(int(line.split(b" ")[1]) for line in LINES if line.startswith(b"#on "))
"""From here on all probes record."""
WITHIN = [line for line in EVENTS if ON <= stamp(line) <= UNTIL]


def test_every_line_is_an_event() -> None:
    """Counted by letter and CPU, with nothing but split()."""
    expected: dict[str, Counter[str]] = {}
    for line in WITHIN:
        letter, _, cpu, *_ = line.split(b" ")
        expected.setdefault(NAMES[letter], Counter())[cpu.decode()] += 1
    _, info = decode(FIXTURE)
    assert info["events"] == expected


def test_switches_are_the_lines_field_by_field() -> None:
    """Those with a line, and one more for each new `since` in a line."""
    tables, _ = decode(FIXTURE)
    tids = dict(tables["threads"].select("utid", "tid").iter_rows())
    switches = tables["switches"]
    found = {
        (row["ts"], row["cpu"], tids[row["prev_utid"]], tids[row["next_utid"]], row["next_prio"])
        for row in switches.iter_rows(named=True)
    }
    recorded = set()
    for line in WITHIN:
        if line.startswith(b"S "):
            _, ts, cpu, _, _, _, _, prev, prio, following, *_ = line.split(b" ")
            recorded.add((int(ts), int(cpu), int(prev), int(following), int(prio)))
    assert recorded <= found
    hidden = {(line.split(b" ")[2], line.split(b" ")[4]) for line in EVENTS if line[:1] == b"S"}
    hidden = {pair for pair in hidden if pair[1] != b"0" and ON <= int(pair[1]) <= UNTIL}
    assert len(found) == len(recorded) + len(hidden)


def test_lines_missing_after_the_window_end_the_trace_without_a_loss() -> None:
    """bpftrace detaches its probes one after the other, and stops reading while it does."""
    assert missing_at_the_end()
    tables, info = decode(FIXTURE)
    assert tables["losses"].filter(pl.col("reason") != "chain_break").is_empty()
    assert info["warnings"] == []
    assert info["window"] == [stamp(min(WITHIN, key=stamp)), UNTIL]  # type: ignore[comparison-overlap]


def test_events_before_all_probes_are_attached_are_excluded(tmp_path: Path) -> None:
    """Attaching a script takes seconds, which used to count as time of every CPU, with gaps as
    losses.
    """
    expected, about = decode(FIXTURE)
    assert about["window"][0] >= ON  # type: ignore[index]
    early = ON - 2 * 10**9
    stray = b"K %d 0 0 28220 0 120 28308\n" % early
    moved = [line for line in LINES if line not in EVENTS or stamp(line) >= ON]
    tables, recorded = decode(write(tmp_path, [moved[0], stray, *moved[1:]]))
    # Lines are missing, of which some may have been after the mark.
    assert recorded["window"] == [ON, UNTIL]
    for name in ("switches", "wakeups", "migrations"):
        assert len(tables[name]) == len(expected[name]), name
    lost = tables["losses"].filter(pl.col("reason") == "overrun")
    assert lost["ts_begin"].min() is None or lost["ts_begin"].min() >= ON  # type: ignore[operator]


def test_damaged_mark_keeps_the_rest_of_the_recording(tmp_path: Path) -> None:
    """`capture` waits for the mark, so it cannot be before the window's start."""
    begin = json.loads((FIXTURE / "capture.json").read_text())["window"]["begin"]
    late = [b"#on 9323533204785\n" if line.startswith(b"#on ") else line for line in LINES]
    _, about = decode(write(tmp_path, late))
    assert about["window"] == [begin, UNTIL]


@pytest.mark.parametrize("ahead", [10**6, 10**8, 9 * 10**18])
def test_timestamp_in_the_future_loses_the_lines_after_it(tmp_path: Path, ahead: int) -> None:
    """They are excluded as earlier ones: a loss from the line before the damaged one."""
    at = [n for n, line in enumerate(LINES) if line in WITHIN and line.split(b" ")[2] == b"1"][1000]
    fields = LINES[at].split(b" ")
    fields[1] = b"%d" % (int(fields[1]) + ahead)
    tables, about = decode(write(tmp_path, [*LINES[:at], b" ".join(fields), *LINES[at + 1 :]]))
    assert "are not from the script" in json.dumps(about)
    lost = tables["losses"].filter(reason="overrun", cpu=1)
    begin, end = stamp(LINES[at - 1]), min(int(fields[1]), UNTIL)
    assert ((lost["ts_begin"] <= begin) & (lost["ts_end"] >= end)).any()
    known = {(r["utid"], r["ts_run"]): r["wait"] for r in measured(decode(FIXTURE)[0]["waits"])}
    assert all(known[r["utid"], r["ts_run"]] == r["wait"] for r in measured(tables["waits"]))


def measured(waits: pl.DataFrame) -> list[dict[str, int]]:
    """The waits with a known start and end, within the complete part of the fixture."""
    return waits.filter(pl.col("censored") == "none", pl.col("ts_run") <= UNTIL).to_dicts()


def test_lines_with_windows_line_ends_are_refused(tmp_path: Path) -> None:
    """Every switch used to be excluded, since its name did not end with the line."""
    with pytest.raises(FormatError, match="its lines end with CR LF"):
        decode(write(tmp_path, [line.replace(b"\n", b"\r\n") for line in LINES]))


def test_numbers_that_are_missing_in_the_window_are_losses(tmp_path: Path) -> None:
    """seq numbers the lines of a CPU; the footer has their total."""
    capture = write(tmp_path, LINES)
    about = json.loads((capture / "capture.json").read_text())
    about["window"]["end"] = stamp(max(EVENTS, key=stamp)) + 10**6
    (capture / "capture.json").write_text(json.dumps(about))
    tables, info = decode(capture)
    lost = (
        tables["losses"]
        .filter(pl.col("reason") == "overrun")
        .group_by("cpu")
        .agg(pl.col("count").sum())
    )
    assert dict(lost.iter_rows()) == {cpu: n for cpu, (n, _) in missing_at_the_end().items()}
    assert "did not arrive" in " ".join(info["warnings"])  # type: ignore[arg-type]


def test_missing_line_may_have_been_the_switch_from_the_recorder(
    tmp_path: Path,
) -> None:
    """The recorder's own switch-out has no line; the next switch there gives its time (`since`)."""
    lines = {(int(f[2]), int(f[3])): f for f in (line.split(b" ") for line in EVENTS)}
    hidden_switches = []
    for (cpu, number), fields in lines.items():
        before = lines.get((cpu, number - 1))
        late = fields[0] == b"S" and before and 0 < int(fields[4]) < int(before[1])
        if late and int(fields[4]) > ON and int(fields[1]) < UNTIL:
            hidden_switches.append((cpu, number, int(fields[4])))
    assert hidden_switches
    for cpu, number, since in hidden_switches[:: len(hidden_switches) // 3]:
        missing = b" ".join(lines[cpu, number])
        tables, _ = decode(write(tmp_path, [line for line in LINES if line != missing]))
        (lost,) = tables["losses"].filter(pl.col("reason") == "overrun").to_dicts()
        assert (lost["cpu"], lost["count"]) == (cpu, 1)
        assert lost["ts_begin"] <= since < lost["ts_end"]


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_the_order_of_cpus_does_not_matter(tmp_path: Path, seed: int) -> None:
    """Buffers are drained CPU by CPU, in any order; the tables are the same."""
    chance = random.Random(seed)
    queues: dict[bytes, list[bytes]] = {}
    for line in EVENTS:
        queues.setdefault(line.split(b" ")[2], []).append(line)
    mixed = []
    while queues:
        cpu = chance.choice(sorted(queues))
        turn = chance.randint(1, 400)
        mixed += queues[cpu][:turn]
        queues[cpu] = queues[cpu][turn:]
        if not queues[cpu]:
            del queues[cpu]
    head = [line for line in LINES[:3] if line.startswith(b"#")]
    tail = [line for line in LINES if line.startswith((b"#end", b"@"))]
    expected, _ = decode(write(tmp_path, [*head, *EVENTS, *tail]))
    found, _ = decode(write(tmp_path, [*head, *mixed, *tail]))
    for name in TABLES:
        assert found[name].equals(expected[name]), name


def test_truncated_file_is_reported(tmp_path: Path) -> None:
    whole = b"".join(LINES)
    tables, info = decode(write(tmp_path, [whole[: len(whole) // 2 - 3]]))
    ended = tables["losses"].filter(pl.col("reason") == "early_end")
    assert ended["ts_end"].unique().to_list() == [info["window"][1]]  # type: ignore[index]
    warnings = " ".join(info["warnings"])  # type: ignore[arg-type]
    assert "ends inside a line" in warnings
    assert "has no #end line" in warnings
    reasons = [loss["reason"] for loss in info["unplaced_losses"]]  # type: ignore[attr-defined]
    assert reasons == ["truncated"]


@pytest.mark.parametrize(
    ("text", "message"),
    [(b"", "events.txt is empty"), (b"S 1 2 3\n", "line 1 is not the script's")],
)
def test_file_without_a_recording_is_refused(tmp_path: Path, text: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        decode(write(tmp_path, [text]))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flips=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), max_size=40))
def test_damaged_bytes_never_panic(tmp_path: Path, flips: list[tuple[float, int]]) -> None:
    """A damaged line is counted, or the file is refused in a sentence."""
    data = bytearray(b"".join(LINES))
    for place, byte in flips:
        data[int(place * len(data))] = byte
    with contextlib.suppress(SchedscopeError):
        decode(write(tmp_path, [bytes(data)]))


def test_wakeups_of_the_recorder_are_not_counted_as_missing(tmp_path: Path) -> None:
    """The script omits wakeups of its own thread, whose tid is in the header."""
    trace = ss.open(FIXTURE, cache=tmp_path)
    unseen = trace.waits.filter(pl.col("censored") == "left").join(trace.threads, on="utid")
    own = LINES[0].split(b"tid=")[1].split()[0]
    hidden = unseen.filter(pl.col("tid") == int(own)).collect().height
    others, recorders, _ = missing_wakeups(trace) or (0, 0, 0)
    assert others + recorders == trace.info["reconstruction"]["missing_wakeups"]
    assert recorders >= hidden > 1000
    assert others < 30


def test_second_late_line_of_a_cpu_cannot_go_back_in_time(tmp_path: Path) -> None:
    """Two `@late` lines of one CPU, the second with an earlier time: it is ignored."""
    # The fixture's last lines are after the end of the window.
    recorded = int(decode(FIXTURE)[0]["switches"]["ts"][-1])
    late = [b"@late[0]: %d\n" % (recorded - before) for before in (1_000, 2_000)]
    one, _ = decode(write(tmp_path, [*LINES, late[0]]))
    two, _ = decode(write(tmp_path, [*LINES, *late]))
    assert recorded - 1_000 in one["switches"]["ts"]
    assert two["switches"].equals(one["switches"])


def named(name: bytes, *, times: bool) -> list[bytes]:
    """The fixture, in which the thread that is switched in most often has another name; `times`:
    as the second version of the script writes it."""
    fields = {b"S": 10, b"F": 8, b"C": 6, b"R": 5}
    ins = [line.split(b" ")[9] for line in EVENTS if line.startswith(b"S ")]
    busiest = max({*ins} - {b"0"}, key=ins.count)
    lines = []
    for line in LINES:
        before = fields.get(line[:1])
        if before is None or line[1:2] != b" ":
            lines.append(line.replace(b"bpftrace 1 ", b"bpftrace 2 ") if times else line)
            continue
        words = line.rstrip(b"\n").split(b" ", before)
        if line.startswith(b"S ") and words[9] == busiest:
            words[-1] = name
        lines.append(b" ".join([*words, words[1]] if times else words) + b"\n")
    return lines


HOSTILE = [
    *(b"a\nb", b"a\nX 1 0 9 7 7", b"\n", b"a\n", b"\n\n\nx", b"\n#end 5", b"\nLost 7 events"),
    b"a 5",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_name_may_contain_newlines(tmp_path: Path, name: bytes) -> None:
    """Text after a newline is the rest of the name, whatever it looks like: no event, and none is
    lost.
    """
    (plain, before), (odd, about) = (
        decode(write(tmp_path, named(one, times=True))) for one in (b"plain", name)
    )
    for table in TABLES:
        if table != "threads":
            assert odd[table].equals(plain[table], null_equal=True), table
    assert about["warnings"] == before["warnings"]
    renamed = odd["threads"].filter(plain["threads"]["comm"] == "plain")
    assert renamed["comm"].to_list() == [name.decode()]


@pytest.mark.parametrize("name", [b"a\nb", b"\n\n\nx", b"a\nb\nc\nd\ne\nf\ng\nh"])
def test_names_with_newlines_are_joined_in_older_captures(tmp_path: Path, name: bytes) -> None:
    (plain, before), (odd, about) = (
        decode(write(tmp_path, named(one, times=False))) for one in (b"plain", name)
    )
    for table in ("switches", "waits", "losses"):
        assert odd[table].equals(plain[table], null_equal=True), table
    assert about["warnings"] == before["warnings"]
    assert name.decode() in odd["threads"]["comm"].to_list()


def test_both_versions_of_the_script_give_the_same_tables() -> None:
    with tempfile.TemporaryDirectory() as folder:
        old, _ = decode(write(Path(folder), named(b"x", times=False)))
        new, _ = decode(write(Path(folder), named(b"x", times=True)))
    for table in TABLES:
        assert new[table].equals(old[table], null_equal=True), table
