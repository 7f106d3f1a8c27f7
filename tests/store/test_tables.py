"""Tables from elsewhere: what is accepted, what is refused, and how they are read."""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from decoded import FIXTURES, decode, switches

import schedscope as ss
from schedscope.cli import main
from schedscope.errors import FormatError, UsageError
from schedscope.parsers import tables
from schedscope.parsers.files import no_panics

SWITCHES = """\
ts,cpu,prev_utid,prev_state,next_utid
100,0,0,runnable,2
150,1,1,runnable,3
200,0,2,sleeping,0
"""
WAKEUPS = """\
ts,cpu,utid,kind,target_cpu
90,0,2,waking,0
"""


def folder(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        stem, _, suffix = name.rpartition("_")
        (tmp_path / f"{stem}.{suffix}").write_text(text)
    return tmp_path


def test_two_csv_files_are_a_trace(tmp_path: Path) -> None:
    """Without threads or trace.json: CPUs as named, threads without names, waits computed."""
    trace = ss.open(folder(tmp_path, switches_csv=SWITCHES, wakeups_csv=WAKEUPS))
    assert trace.ncpu == 2
    assert trace.window == (90, 200)
    assert trace.threads.select("utid", "comm").collect().rows() == [
        (0, "idle/0"),
        (1, "idle/1"),
        (2, ""),
        (3, ""),
    ]
    waits = trace.waits.filter(pl.col("wait").is_not_null())
    assert waits.select("utid", "ts_ready", "ts_run", "wait").collect().rows() == [(2, 90, 100, 10)]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_an_exported_trace_comes_back(tmp_path: Path, suffix: str) -> None:
    """Exported facts give the same waits; states and waits are not read but reconstructed.

    An exception is waits after CPU 0 ended early: in a file that is found only at its end, while
    the folder has it from the start.
    """
    trace = decode(FIXTURES / "perf-zstd.data")
    path = ss.export(trace, tmp_path / "x", suffix)
    for name in ("states", "waits"):
        (path / f"{name}.{suffix}").unlink()
    again = ss.open(path)
    assert switches(again).equals(switches(trace), null_equal=True)
    silent = trace.losses.filter(reason="early_end").collect()["ts_begin"].item()
    ran = pl.col("ts_run") < silent
    assert again.waits.filter(ran).collect().equals(trace.waits.filter(ran).collect())
    later = again.waits.filter(
        ~ran.fill_null(value=False), pl.col("ts_ready").is_not_null()
    ).collect()
    whole = trace.waits.select("utid", "ts_ready", most="wait").collect()
    both = later.join(whole, on=["utid", "ts_ready"])
    assert both.height > 2
    assert (both["wait"] <= both["most"]).all()
    assert (both["most"] <= both["wait_high"].fill_null(2**62)).all()
    assert again.info["reconstruction"]["chain_breaks"] == 0


@pytest.mark.parametrize(
    ("files", "table", "found"),
    [
        ({"wakeups_csv": WAKEUPS}, "switches", "no such file"),
        ({"switches_csv": SWITCHES.replace("cpu", "core")}, "switches", "unknown columns: core"),
        ({"switches_csv": SWITCHES.replace("sleeping", "S")}, "switches", "prev_state"),
        ({"switches_csv": SWITCHES.replace("200,", "20,")}, "switches", "ts goes back at row 2"),
        ({"switches_csv": SWITCHES.replace("1,1,runn", "1,0,runn")}, "switches", "prev_utid is 0"),
        ({"switches_csv": SWITCHES, "trace_json": "[]"}, "trace.json", "not an object"),
        ({"switches_csv": SWITCHES, "trace_json": '{"ncpu": 1}'}, "switches", "CPU 1 of a machine"),
        (
            {"switches_csv": SWITCHES, "threads_csv": "utid,comm,comm_first\n2,a,a\n"},
            "threads",
            "3 utids are in no row, the first is 0",
        ),
        ({"switches_parquet": "PAR1"}, "switches", "switches.parquet"),
    ],
)
def test_problems_are_named(tmp_path: Path, files: dict[str, str], table: str, found: str) -> None:
    """Table, what was found, what was expected; `open` refuses with the first of them."""
    path = folder(tmp_path, **files)
    problems = tables.problems(path)
    assert any(p.table == table and found in p.found and p.expected for p in problems), problems
    if table != "switches" or "no such file" not in found:
        with pytest.raises(FormatError):
            ss.open(path)


@pytest.mark.parametrize("name", ["threads.csv", "trace.json"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_non_regular_file_is_refused_not_skipped(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    given = folder(tmp_path, switches_csv=SWITCHES, wakeups_csv=WAKEUPS)
    make(given / name)
    (problem,) = tables.problems(given)
    assert problem.found.startswith(name)
    with pytest.raises(FormatError, match="expected a regular file"):
        ss.open(given)


def test_values_of_trace_json_are_kept(tmp_path: Path) -> None:
    about = {"ncpu": 4, "window": [0, 500], "os": "Plan9", "release": "4"}
    path = folder(tmp_path, switches_csv=SWITCHES.replace(",2\n", ",5\n"), wakeups_csv="")
    (path / "wakeups.csv").unlink()
    text = SWITCHES.replace("0,0,runnable,2", "0,0,runnable,5").replace("2,sleeping", "5,sleeping")
    (path / "switches.csv").write_text(text.replace("runnable,3", "runnable,6"))
    (path / "trace.json").write_text(json.dumps(about))
    trace = ss.open(path)
    assert (trace.ncpu, trace.window, trace.info["os"]) == (4, (0, 500), "Plan9")


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".csv"])
def test_damaged_table_is_answered_or_reported_in_one_sentence(
    suffix: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Polars panics on some damaged Parquet files, and Rust writes that to stderr itself."""
    source = FIXTURES / "linux-trace-cmd-yield.dat"
    frame = ss.read_tables(source, "switches")["switches"].head(400)
    path = tmp_path / f"switches{suffix}"
    write = {".parquet": frame.write_parquet, ".arrow": frame.write_ipc, ".csv": frame.write_csv}
    write[suffix](path)
    whole, chance, refused = path.read_bytes(), random.Random(suffix), 0
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(chance.choice([1, 2, 8])):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        refused += bool(tables.problems(tmp_path))
    assert refused > 20
    assert "panicked" not in capfd.readouterr().err


def test_stderr_of_other_code_is_kept_during_a_panic_guard(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with no_panics():
        os.write(2, b"from elsewhere\n")
    assert capfd.readouterr().err == "from elsewhere\n"


def test_stderr_of_other_code_is_kept_after_another_error(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with contextlib.suppress(KeyError), no_panics():
        os.write(2, b"and this\n")
        raise KeyError
    assert capfd.readouterr().err == "and this\n"


def found(tmp_path: Path, **files: str) -> list[tuple[str, str, str]]:
    return [(p.table, p.found, p.expected) for p in tables.problems(folder(tmp_path, **files))]


def test_a_window_holds_all_events(tmp_path: Path) -> None:
    """Otherwise busy and idle time would be those of a part, and waits those of the whole."""
    about = json.dumps({"ncpu": 2, "window": [100, 180]})
    assert found(tmp_path, switches_csv=SWITCHES, wakeups_csv=WAKEUPS, trace_json=about) == [
        (
            "switches",
            "ts is 200 in row 2, outside the window of trace.json",
            "times from 100 to 180",
        ),
        ("wakeups", "ts is 90 in row 0, outside the window of trace.json", "times from 100 to 180"),
    ]
    whole = json.dumps({"ncpu": 2, "window": [90, 200]})
    assert not found(tmp_path, switches_csv=SWITCHES, wakeups_csv=WAKEUPS, trace_json=whole)


@pytest.mark.parametrize(
    ("state", "text"),
    [("asleep", "has 'asleep' in row 2"), ("", "has no value in 1 row, the first is row 2")],
)
def test_a_value_that_does_not_fit_is_shown_with_its_row(
    tmp_path: Path, state: str, text: str
) -> None:
    ((table, what, _),) = found(tmp_path, switches_csv=SWITCHES.replace("sleeping", state))
    assert (table, what) == ("switches", f"table switches, column prev_state {text}")


def test_validate_lists_all_categories(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--columns", "switches"]) == 0
    assert (
        "running, runnable, sleeping, blocked, stopped, parked, dead or" in capsys.readouterr().out
    )


def test_a_thread_with_one_name_has_it_from_the_start(tmp_path: Path) -> None:
    names = "utid,comm\n0,idle/0\n1,idle/1\n2,web\n3,db\n"
    trace = ss.open(folder(tmp_path, switches_csv=SWITCHES, threads_csv=names))
    assert trace.threads.collect()["comm_first"].to_list() == ["idle/0", "idle/1", "web", "db"]


def test_question_names_the_missing_column_of_a_user_table() -> None:
    """The error is ours, not Polars' with its plan."""
    states = pl.DataFrame(
        {"ts": [0, 10], "dur": [10, 10], "utid": [1, 1], "state": ["running", "sleeping"]}
    ).with_columns(cpu=pl.Series([0, None]))
    threads = pl.DataFrame({"utid": [0, 1], "tid": [0, 7], "comm": ["idle", "x"]})
    trace = ss.Trace.from_tables({"states": states, "threads": threads}, {"ncpu": 1})
    with pytest.raises(UsageError, match="states has no column end, which run_lengths needs"):
        ss.run_lengths(trace)
    with pytest.raises(UsageError, match="threads has no column start_ts, which slowdown needs"):
        ss.slowdown(trace, by="comm")
    tables = {"states": states.with_columns(end=pl.lit("switched")), "threads": threads}
    whole = ss.Trace.from_tables(tables, {"ncpu": 1, "window": [0, 20]})
    assert ss.run_lengths(whole)["total_censored"].sum() == 10
