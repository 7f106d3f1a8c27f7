"""Selections in commands about a whole recording, or that write a file."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from parsers_of_commands import selects

import schedscope as ss
from schedscope import cli

FIXTURES = Path(__file__).parents[2] / "fixtures"
CAPTURE = FIXTURES / "linux-requests.capture"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def trace(cache: Path) -> ss.Trace:
    return ss.open(CAPTURE, cache=cache)


@pytest.fixture
def run(cache: Path, capsys: pytest.CaptureFixture[str]):
    def run(*words: object, code: int = 0) -> str:
        found = cli.main([*map(str, words), "--cache", str(cache)])
        out, err = capsys.readouterr()
        assert (found, "Traceback" in err) == (code, False), err
        if code == 2:
            assert (out, len(err.splitlines())) == ("", 1)
            return err
        return out

    return run


def checks(text: str) -> dict[str, dict[str, object]]:
    return {row["check"]: row for row in json.loads(text)["rows"]}


def test_check_reports_quality_of_the_selected_threads(run, trace: ss.Trace) -> None:
    whole = checks(run("check", CAPTURE, "--format", "json"))
    some = checks(run("check", CAPTURE, "--process", "python3", "--format", "json"))
    # The recording's own facts are unchanged, and the last row stays last.
    assert {name: some[name] for name in whole} == whole
    assert list(some)[-1] == "rests on"
    new = [name for name in some if name not in whole]
    assert new == ["selected threads", "selected waits", "selected time", "selected reasons"]
    mine = trace.threads.filter(process_name="python3").collect()["utid"].implode()
    states = trace.states.filter(pl.col("utid").is_in(mine)).collect()
    waits = trace.waits.filter(pl.col("utid").is_in(mine)).collect()
    assert waits.height > 100
    assert some["selected threads"]["found"] == states.filter(state="running")["dur"].sum()
    # Upper bound of their waiting: cut waits and unknown time count as waiting.
    possible = states.filter(pl.col("state").is_in(["runnable", "unknown"]))["dur"].sum()
    measured = waits.filter(censored="none")["wait"].sum()
    assert some["selected waits"]["total"] == possible
    assert 0 < some["selected waits"]["found"] <= possible - measured
    assert f" of {waits.height:,} waits" in some["selected waits"]["text"]
    assert some["selected time"]["total"] == states["dur"].sum()
    assert some["selected time"]["found"] == states.filter(state="unknown")["dur"].sum()
    runnable = states.filter(state="runnable")["dur"].sum()
    assert some["selected reasons"]["total"] == runnable
    assert "selected: --process python3: " in run("check", CAPTURE, "--process", "python3")


def test_poor_quality_of_the_selection_is_a_warning(run, trace: ss.Trace) -> None:
    """`--strict` covers the selection that the script asks about next."""
    cut = trace.waits.filter(pl.col("censored") != "none").select("utid").unique()
    tid = trace.threads.join(cut, on="utid", how="semi").select("tid").collect()["tid"][0]
    rows = checks(run("check", CAPTURE, "--tid", tid, "--format", "json"))
    assert rows["selected waits"]["level"] == "warning"
    assert run("check", CAPTURE, "--tid", tid, "--strict", code=1)


def test_check_in_python_takes_an_expression(trace: ss.Trace) -> None:
    found = ss.check(trace, where=ss.of_processes(trace, process="python3"))
    assert "selected waits" in found["check"].to_list()
    with pytest.raises(ss.UsageError, match="no column 'queue'"):
        ss.check(trace, where=pl.col("queue") > 1)
    with pytest.raises(ss.UsageError, match=r"no thread of .* matches"):
        ss.check(trace, where=pl.col("comm") == "nobody")


def test_info_lists_processes_and_threads_of_the_selection(run, trace: ss.Trace) -> None:
    found = json.loads(run("info", CAPTURE, "--process", "python*", "--format", "json"))
    threads = pl.DataFrame(found["selection"]["threads"], infer_schema_length=None)
    processes = pl.DataFrame(found["selection"]["processes"])
    mine = trace.threads.filter(pl.col("process_name").str.starts_with("python")).collect()
    assert set(threads["utid"]) == set(mine["utid"])
    assert set(processes["pid"]) == set(mine["pid"])
    assert processes["threads"].sum() == threads.height == mine.height
    per_thread = trace.states.filter(state="running").group_by("utid").agg(pl.col("dur").sum())
    ran = dict(per_thread.collect().iter_rows())
    assert {t["utid"]: t["running"] for t in threads.to_dicts() if t["running"]} == {
        utid: ran[utid] for utid in mine["utid"] if utid in ran
    }
    assert processes["running"].sum() == threads["running"].sum()
    people = run("info", CAPTURE, "--process", "python*")
    assert f"{threads.height} threads of {processes.height} processes" in people
    whole = run("info", CAPTURE)
    assert people.startswith(whole)
    assert "selection" not in json.loads(run("info", CAPTURE, "--format", "json"))


def test_info_of_one_cpu(run) -> None:
    text = run("info", CAPTURE, "--cpu", "1")
    assert "cpu1" in text
    assert "cpu0" not in text
    assert run("info", CAPTURE, "--cpu", "7", code=2).count("a CPU of this trace") == 1


@pytest.mark.parametrize("command", ["check", "info"])
def test_a_selection_that_matches_nothing_is_refused(run, command: str) -> None:
    for options in (["--comm", "nobody"], ["--process", "[p]ython3"], ["--tree", "999999"]):
        assert "matches" in run(command, CAPTURE, *options, code=2)


PYTHON = ("--process", "python3")


def exported(run, to: str, path: Path, *options: object) -> str:
    return run("export", CAPTURE, "--to", to, "-o", path, *options)


@pytest.fixture(scope="module")
def mine(trace: ss.Trace) -> set[int]:
    return set(trace.threads.filter(process_name="python3").collect()["utid"])


def test_chrome_gets_the_waits_of_the_selection_and_whole_cpus(
    run, trace: ss.Trace, mine: set[int], tmp_path: Path
) -> None:
    assert "waits of 5 selected threads only" in exported(run, "chrome", tmp_path / "a", *PYTHON)
    exported(run, "chrome", tmp_path / "whole")
    some, whole = (
        [e for e in json.loads((tmp_path / name).read_text())["traceEvents"] if e["ph"] == "X"]
        for name in ("a", "whole")
    )
    cpus = [e for e in some if e["pid"] == 1]
    assert cpus == [e for e in whole if e["pid"] == 1]
    waits = [e for e in some if e["pid"] == 2]
    assert waits == [e for e in whole if e["pid"] == 2 and e["tid"] in mine]
    assert 0 < len(waits) < len(whole) - len(cpus)


def test_perfetto_gets_the_waits_of_the_selection_and_every_switch(
    run, trace: ss.Trace, tmp_path: Path
) -> None:
    assert "waits of 5 selected threads only" in exported(run, "perfetto", tmp_path / "a", *PYTHON)
    exported(run, "perfetto", tmp_path / "none", "--no-waits")
    exported(run, "perfetto", tmp_path / "whole")
    sizes = [(tmp_path / name).stat().st_size for name in ("none", "a", "whole")]
    assert sizes == sorted(set(sizes))
    again = ss.open(tmp_path / "a", cache=tmp_path / "cache").switches.collect()
    place = ["ts", "cpu", "prev_state"]
    assert (
        again.select(place).sort(place).equals(trace.switches.collect().select(place).sort(place))
    )
    err = run("export", CAPTURE, "--to", "perfetto", "--no-waits", *PYTHON, code=2)
    assert "a selection of threads without waits" in err


@pytest.mark.parametrize("to", ["csv", "parquet"])
def test_tables_get_the_rows_about_the_selection_and_are_not_a_trace(
    run, trace: ss.Trace, mine: set[int], tmp_path: Path, to: str
) -> None:
    path = tmp_path / "mine"
    assert "not a trace to open" in exported(run, to, path, *PYTHON)
    read = partial(pl.read_csv, infer_schema_length=None) if to == "csv" else pl.read_parquet
    for name in ("states", "waits", "wakeups", "system_calls"):
        rows = read(path / f"{name}.{to}")
        whole = getattr(trace, name).filter(pl.col("utid").is_in(list(mine))).collect()
        assert rows.height == whole.height > 0
        assert rows["ts" if name != "waits" else "wait"].to_list() == (
            whole["ts" if name != "waits" else "wait"].to_list()
        )
    assert read(path / f"threads.{to}").height == trace.threads.collect().height
    assert not (path / f"switches.{to}").exists()
    about = json.loads((path / "selection.json").read_text())
    assert set(about["selected_utids"]) == mine
    # A CPU without its other threads would look idle, so this is never written by accident.
    assert cli.main(["latency", str(path)]) == 1
    with pytest.raises(ss.FormatError, match="only the rows about some threads"):
        ss.open(path)
    # The same folder again, and then a complete one in its place.
    exported(run, to, path, *PYTHON, "--force")
    exported(run, to, path, "--force")
    assert not (path / "selection.json").exists()
    assert ss.open(path, cache=tmp_path / "cache").switches.collect().height


def test_selection_that_a_format_cannot_hold_is_refused(
    run, trace: ss.Trace, tmp_path: Path
) -> None:
    err = run("export", CAPTURE, "--to", "trace.dat", *PYTHON, "-o", tmp_path / "a", code=2)
    assert "CPUs without the other threads would look idle" in err
    assert "csv, parquet, perfetto or chrome" in err
    err = run("export", CAPTURE, "--to", "csv", "--cpu", "0", "-o", tmp_path / "a", code=2)
    assert "the CPUs are whole in every format" in err
    with pytest.raises(ss.UsageError, match=r"no thread of .* matches"):
        ss.export(trace, tmp_path / "a", "csv", where=pl.col("comm") == "nobody")
    with pytest.raises(ss.UsageError, match="no column 'cpu'"):
        ss.export(trace, tmp_path / "a", "csv", where=pl.col("cpu") == 0)
    assert not list(tmp_path.iterdir())


def test_compare_selects_the_processes_of_each_recording(run) -> None:
    """pids differ in each recording: those of the first must not be used in the second."""
    other = FIXTURES / "linux-syscalls.capture"
    words = ["compare", CAPTURE, other, "--format", "json", "--measure", "running", "--top", "0"]
    by_process = json.loads(run(*words, "--process", "python3"))["rows"][0]
    assert by_process["a"] > 0
    assert by_process["b"] > 0
    traces = [ss.open(path) for path in (CAPTURE, other)]
    frame = ss.compare(
        *traces,
        where=lambda trace: ss.of_processes(trace, process="python3"),
        measures=["running"],
        top=0,
    )
    assert frame.row(0, named=True)["b"] == by_process["b"]


def test_whatif_replays_a_selection_of_any_kind(run, trace: ss.Trace, mine: set[int]) -> None:
    words = ["whatif", CAPTURE, "--set-nice", "python3=5", "--replays", "1", "--format", "json"]
    by_process = json.loads(run(*words, *PYTHON))
    assert by_process["others"] in ("occupy", "compete")
    (recorded,) = (r for r in by_process["rows"] if r["configuration"] == "recorded")
    assert recorded["threads"] == len(mine)
    tids = trace.threads.filter(pl.col("utid").is_in(list(mine))).collect()["tid"].to_list()
    by_tid = json.loads(run(*words, *(word for tid in tids for word in ("--tid", tid))))
    assert by_tid["rows"] == by_process["rows"]
    err = run("whatif", CAPTURE, "--cpus", "4", "--cpu", "0", code=2)
    assert "a replay is of the whole machine" in err
    err = run("whatif", CAPTURE, "--cpus", "4", "--others", "occupy", code=2)
    assert "expected a selection of threads as well" in err


def test_fidelity_compares_a_selection_of_any_kind(run) -> None:
    words = ["fidelity", CAPTURE, "--policy", "fifo", "--format", "json"]
    some = json.loads(run(*words, *PYTHON))["rows"]
    named = json.loads(run(*words, "--comm", "python3"))["rows"]
    assert some == named
    assert some[0]["n_waits"] < json.loads(run(*words))["rows"][0]["n_waits"]


@pytest.mark.parametrize(
    "option", [("--comm", "x"), ("--tree", "1"), ("--workload",), ("--cpu", "0")]
)
def test_convert_refuses_selections(capsys: pytest.CaptureFixture[str], option) -> None:
    assert cli.main(["convert", str(CAPTURE), *option]) == 2
    assert option[0] in capsys.readouterr().err


# Commands without a selection, and the reason.
WITHOUT = {
    "capture": "records everything; its own options say of whom",
    "collectors": "no trace",
    "convert": "refuses it: the tables of some threads are no trace",
    "doctor": "no trace",
    "ministat": "numbers, no trace",
    "validate": "looks at the files",
}


def test_every_other_command_takes_a_selection() -> None:
    """A new command must have the options, or a reason here."""
    without = {
        name
        for name in cli.commands()
        if not selects(name)
        # Their --tid names one thread, and their selections choose whose worst wait it is.
        and name not in ("critical-path", "wake-chain")
    }
    assert without == set(WITHOUT)


def forest() -> ss.Trace:
    """sh 10 started make 11 and cc 12; another sh 20 started cc 21."""
    threads = pl.DataFrame(
        {
            "utid": range(1, 6),
            "tid": [10, 11, 12, 20, 21],
            "pid": [10, 11, 12, 20, 21],
            "ppid": [1, 10, 11, 1, 20],
            "comm": ["sh", "make", "[cc]\nx", "sh", "cc"],
            "process_name": ["sh", "make", "cc", "sh", "cc"],
        }
    )
    about = {"ncpu": 1, "window": [0, 1], "workload": {"pid": 10, "command": ["sh"]}}
    return ss.Trace.from_tables({"threads": threads}, about)


@pytest.mark.parametrize(
    ("asked", "pids"),
    [
        ({"tree": 10}, [10, 11, 12]),
        ({"tree": [11, 20]}, [11, 12, 20, 21]),
        ({"workload": True}, [10, 11, 12]),
        # Different arguments must all hold, as --process and --tree do.
        ({"workload": True, "tree": 11}, [11, 12]),
        ({"workload": True, "process": "cc"}, [12]),
        ({"process": ["make", "cc"]}, [11, 12, 21]),
    ],
)
def test_combined_selections_narrow_the_result(asked: dict[str, object], pids: list[int]) -> None:
    trace = forest()
    found = trace.threads.filter(ss.of_processes(trace, **asked)).collect()
    assert found["pid"].to_list() == pids


def test_process_tree_outside_the_workload_selects_nothing() -> None:
    trace = forest()
    with pytest.raises(ss.UsageError, match="matches workload and tree 20"):
        ss.of_processes(trace, workload=True, tree=20)


def test_workload_with_a_lost_start_is_reported() -> None:
    """The command was process 9; the trace has no event of it or its children."""
    trace = forest()
    losses = pl.DataFrame({"cpu": [0], "ts_begin": [0], "ts_end": [1], "reason": ["overrun"]})
    about = {**trace.info, "workload": {"pid": 9, "command": ["make", "-j 2"]}}
    lossy = ss.Trace.from_tables({"threads": trace.threads.collect(), "losses": losses}, about)
    with pytest.raises(ss.UsageError) as raised:
        ss.of_processes(lossy, workload=True)
    text = str(raised.value)
    assert "no event of the recorded command" in text
    assert "(process 9)" in text
    assert "; 1 gap in the trace may have held it" in text
    assert "--cmdline" in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--process", "pyhton3"], "did you mean python3"),
        (["--comm", "pyhton3"], "did you mean python3"),
        # Every name exists, but no thread has both.
        (["--process", "python3", "--comm", "head"], "a thread must match every option"),
        (["--process", "head", "--tree", "18293"], "a process must match everything given"),
        (["--comm", "[a"], "matches --comm '[a'"),
        (["--comm", ""], "matches --comm ''"),
        (["--comm", "\x1b[31m\n"], r"matches --comm '\x1b[31m\n'"),
        (["--process", "a" * 5000], f"matches process {'a' * 57}..."),
        (["--cmdline", "b" * 5000], "no cmdline of any thread"),
    ],
)
def test_empty_selection_suggests_similar_names(run, options: list[str], said: str) -> None:
    err = run("latency", CAPTURE, *options, code=2)
    assert said in err
    assert len(err) < 400


@pytest.mark.parametrize(
    "command", ["check", "export --to csv", "fidelity", "findings", "off-cpu", "outliers", "report",
                "requests", "slowdown", "whatif --cpus 4"],
)  # fmt: skip
def test_commands_without_cpu_selection_refuse_it_alike(
    run, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *more = command.split()
    err = run(name, CAPTURE, *more, "--cpu", "0", code=2)
    who = "a report" if name == "report" else name
    assert f"{who} with --cpu; expected a selection of threads, or none. Hint: " in err
    assert not list(tmp_path.iterdir())


def test_change_of_an_unselected_thread_is_refused(run) -> None:
    err = run("whatif", CAPTURE, *PYTHON, "--set-nice", "head=5", code=2)
    assert "one of the selected threads, which are those replayed" in err


def test_report_on_selected_threads_starts_its_timeline_and_whatif_with_them(
    run, mine: set[int], tmp_path: Path
) -> None:
    """All threads are replayed, since the change may affect others: the selection may not wait the
    most.
    """
    path = tmp_path / "page.html"
    options = ["--process", "head", "--set-nice", "python3=5", "-o", path]
    run("report", CAPTURE, *options)
    page = path.read_text()
    lines = re.findall(r"schedscope timeline --since \d[^<]*<", page)
    assert lines
    assert all(" --process head" in line for line in lines), lines
    section = page[page.index("What if: ") :]
    assert "The selected threads come first." in section
    table = section[section.index("<table") : section.index("</table>")]
    first = [name for name in re.findall(r"<tr><t[dh][^>]*>([^<]*)<", table)[1:] if name]
    assert first[0] == "head"
    assert "python3" in first
    # The page's own timeline: CPUs, and no lane of another thread.
    about = re.search(r'<script type="application/json">(.*?)</script>', page)
    assert about
    lanes = json.loads(about[1])["about"]["lanes"]
    assert not {f"utid:{utid}" for utid in mine} & set(lanes)
