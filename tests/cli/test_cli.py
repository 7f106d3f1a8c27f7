"""The command line: what it prints, what it refuses, and how it leaves."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from ledgers import played
from parsers_of_commands import required

import schedscope as ss
from schedscope import cli
from schedscope.analysis.asking.arguments import THREAD_COLUMNS
from schedscope.analysis.asking.command import THREAD_GROUPS
from schedscope.cli import capture
from schedscope.present.columns import Column
from schedscope.present.text_table import room, text_table

# Round numbers in us: sh runs, wakes web, is preempted by it; db waits to the end.
SESSION = """
    1000000  cpu0: idle -> sh
    2000000  cpu0: waking web on 0 by sh
    2000000  cpu0: enqueued web on 0 by sh
    5000000  cpu0: sh R -> web
    6000000  cpu0: waking db on 0 by web
    6000000  cpu0: enqueued db on 0 by web
    7000000  cpu0: web S -> sh
"""


@pytest.fixture
def sched(tmp_path: Path) -> str:
    trace = played(SESSION, ncpu=1, window=(1_000_000, 10_000_000), source={"name": "session"})
    return str(trace.to_sched(tmp_path / "session.sched").path)


def run(*words: str) -> int:
    return cli.main(list(words))


# -- commands -------------------------------------------------------------------------


@pytest.mark.parametrize("name", cli.commands())
def test_every_command_keeps_the_convention(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A heading, a line, an example, and a help page that begins with usage."""
    command = cli.commands()[name]
    assert command.heading in cli.GROUPS
    assert "\n" not in command.help
    assert len(command.help) < 60
    assert run(name, "--help") == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: schedscope {name}")
    assert f"schedscope {name}" in out.partition("example:")[2], "no example"


def test_help_lists_every_command_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    out = capsys.readouterr().out
    for name, command in cli.commands().items():
        assert f"  {name}" in out
        assert command.help in out


def test_help_all_lists_the_questions_by_group(capsys: pytest.CaptureFixture[str]) -> None:
    """Each command once, on one line, under a heading; no command is without a group."""
    assert run("--all") == 0
    lines = capsys.readouterr().out.splitlines()
    listed = [line.split()[0] for line in lines if line.startswith("  ")]
    assert sorted(listed) == list(cli.commands())
    assert max(map(len, lines)) <= 80
    headings = [line.rstrip(":") for line in lines if not line.startswith("  ")]
    assert tuple(headings) == cli.GROUPS
    assert listed[:2] == ["doctor", "capture"]


def test_help_lists_the_first_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:8]] == list(cli.FIRST_DAY)
    assert f"{len(cli.commands()) - 8} more: schedscope --all" in lines
    assert max(map(len, lines)) <= 80


def test_rows_may_be_grouped_by_whatever_is_known_of_a_thread() -> None:
    assert set(THREAD_GROUPS) == {"utid", *THREAD_COLUMNS}


def test_an_option_without_a_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--comm") == 2
    assert run("--completion", "cmd.exe") == 2
    capsys.readouterr()


@pytest.mark.parametrize("shell", cli.SHELLS)
def test_completion_knows_every_command_and_option(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("shtab")
    assert run("--completion", shell) == 0
    out = capsys.readouterr().out
    for name in cli.commands():
        assert name in out
    assert "waiting-only" in out or shell == "tcsh"
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=out.encode(), check=True)


def test_completion_without_its_library_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert run("--completion", "bash") == 1
    said = capsys.readouterr().err
    assert said.startswith("schedscope: shtab, which schedscope needs, is not installed. Hint: ")
    assert "install 'shtab" in said


def test_the_manual_page_has_every_command_with_its_example() -> None:
    pages = pytest.importorskip("argparse_manpage.manpage")
    text = str(pages.Manpage(cli.manual())).replace("\\-", "-")
    for name, command in cli.commands().items():
        assert f"schedscope {name}" in text
        assert command.example.split("\n")[0].strip() in text


def test_an_unknown_command_suggests_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("latencies") == 2
    assert "did you mean latency?" in capsys.readouterr().err


def test_version_is_the_installed_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    said = capsys.readouterr().out
    assert said.startswith("schedscope 1.")
    assert said.split()[1] == ss.__version__


# -- latency --------------------------------------------------------------------------


def test_latency_prints_its_table(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole output: which trace, what is missing, totals, table, and what >= means."""
    assert run("latency", sched, "--by", "comm") == 0
    assert capsys.readouterr().out.splitlines() == [
        "session · 1 CPU · 9.00 ms · 3 events",
        "data quality: nothing is missing",
        "2 waits, 9.00 ms in total; 1 unfinished when last observed;"
        " 1 excluded: start not recorded",
        "",
        "comm  waits  unfinished  excluded    total        mean         p50         p90         p99"
        "       p99.9         max      max at",
        "db        0           1         0  4.00 ms  >= 4.00 ms  >= 4.00 ms  >= 4.00 ms  >= 4.00 ms"
        "  >= 4.00 ms  >= 4.00 ms  0.005000 s",
        "web       1           0         0  3.00 ms     3.00 ms     3.00 ms     3.00 ms     3.00 ms"
        "     3.00 ms     3.00 ms  0.001000 s",
        "sh        1           0         1  2.00 ms     2.00 ms     2.00 ms     2.00 ms     2.00 ms"
        "     2.00 ms     2.00 ms  0.004000 s",
        "unfinished: waits not over when last observed; >= marks a lower bound",
    ]


def test_latency_csv_is_in_ns(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("latency", sched, "--by", "comm", "--format", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["comm"] for row in rows] == ["db", "web", "sh"]
    assert (rows[1]["max"], rows[1]["max_high"]) == ("3000000", "3000000")
    assert (rows[0]["max"], rows[0]["max_high"]) == ("4000000", "")
    assert rows[0]["max_censored"] == "4000000"
    assert run("latency", sched, "--by", "comm", "--top", "1", "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["trace"] == "session"
    assert document["time_unit"] == "ns"
    assert document["rows_in_all"] == 3
    assert document["all"]["n"] == 2
    assert [row["comm"] for row in document["rows"]] == ["db"]


def test_long_table_is_cut_in_text_output_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = ss.simulate(ss.workload.hogs(130, time="1ms"), policy="rr", cpus=2)
    folder = str(trace.to_sched(tmp_path / "hogs.sched").path)
    assert run("latency", folder) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("hog-") for line in lines) == 100
    assert "(30 more rows; use a larger --top)" in lines
    assert run("latency", folder, "--format", "csv") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 130


@pytest.mark.parametrize(
    ("words", "comms"),
    [
        (["--comm", "web"], ["web"]),
        (["--comm", "web", "--comm", "sh"], ["web", "sh"]),
        (["--cause", "preempt"], ["sh"]),
        (["--cause", "wake"], ["db", "web"]),
        (["--cpu", "0", "--sort", "max"], ["db", "web", "sh"]),
    ],
)
def test_latency_selects(
    sched: str, capsys: pytest.CaptureFixture[str], words: list[str], comms: list[str]
) -> None:
    assert run("latency", sched, *words, "--format", "json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["comm"] for row in rows] == comms


def test_latency_over_time_and_by_all(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("latency", sched, "--by", "all", "--every", "1ms", "--format", "json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["ts"], row["n"]) for row in rows] == [
        (1_000_000, 0),
        (2_000_000, 1),
        (5_000_000, 1),
        (6_000_000, 0),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["latency", "{}", "--by", "colour"],
        ["latency", "{}", "--top", "0"],
        ["efficiency", "{}", "--top", "99999999999999999999"],
        ["latency", "{}", "--every", "soon"],
        ["latency", "{}", "--format", "xml"],
        ["latency"],
        ["latency", "{}", "-O", "novalue"],
        ["convert", "{}", "-o", "{}"],
    ],
)
def test_wrong_usage_is_exit_code_2(
    sched: str, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """One clear sentence on stderr, nothing on stdout."""
    assert run(*(word.format(sched) for word in words)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert err


# -- things that are not traces -------------------------------------------------------


@pytest.fixture
def odd(tmp_path: Path) -> dict[str, Path]:
    paths = {
        "missing": tmp_path / "missing",
        "empty file": tmp_path / "empty.dat",
        "empty folder": tmp_path / "empty.capture",
        "text": tmp_path / "notes.txt",
        "binary": tmp_path / "noise.dat",
        "folder": tmp_path / "folder.capture",
    }
    paths["empty file"].touch()
    paths["empty folder"].mkdir()
    paths["text"].write_text("hello\n")
    paths["binary"].write_bytes(bytes(range(256)) * 100)
    paths["folder"].mkdir()
    (paths["folder"] / "capture.json").write_text("{")
    return paths


@pytest.mark.parametrize("command", ["latency", "info", "convert", "report"])
@pytest.mark.parametrize(
    "what", ["missing", "empty file", "empty folder", "text", "binary", "folder"]
)
def test_file_that_is_not_a_trace_is_reported_in_one_sentence(
    odd: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    what: str,
    command: str,
) -> None:
    """It names the file, exits with 1, prints nothing on stdout, leaves nothing behind."""
    before = sorted(tmp_path.rglob("*"))
    assert run(command, str(odd[what])) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert odd[what].name in err
    assert "Traceback" not in err
    assert "internal error" not in err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("damage", ["cut", "noise", "gone", "about", "version"])
def test_a_damaged_sched_folder_is_refused(
    sched: str, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    folder = Path(sched)
    table = folder / "waits.parquet"
    about = folder / "trace.json"
    match damage:
        case "cut":
            table.write_bytes(table.read_bytes()[:-100])
        case "noise":
            table.write_bytes(b"noise" * 100)
        case "gone":
            table.unlink()
        case "about":
            about.write_text(about.read_text()[:50])
        case "version":
            info = json.loads(about.read_text())
            about.write_text(json.dumps({**info, "schema_version": 0}))
    assert run("latency", sched) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "convert the capture again" in err
    assert "Traceback" not in err


# -- tables ---------------------------------------------------------------------------


def test_a_large_number_is_written_out() -> None:
    frame = pl.DataFrame({"x": [0.25, 9999.4, 34540.26, None]})
    lines = text_table(frame, [Column("x", kind="number")], width=None)
    assert [line.strip() for line in lines[1:]] == ["0.25", "9999", "34,540", "-"]


def test_narrow_terminal_drops_columns_by_rank_with_a_note() -> None:
    frame = pl.DataFrame({"comm": ["a" * 15], "n": [1], "mean": [1_000], "max": [2_000]})
    columns = [
        Column("comm"),
        Column("n", kind="count"),
        Column("mean", kind="time", rank=1),
        Column("max", kind="time"),
    ]
    wide = text_table(frame, columns, width=None)
    assert wide[0].split() == ["comm", "n", "mean", "max"]
    narrow = text_table(frame, columns, width=30)
    assert narrow[0].split() == ["comm", "n", "max"]
    said = "(no room for: mean; --format csv has every column)"
    assert " ".join(map(str.strip, narrow[2:])) == said
    assert max(map(len, narrow)) <= 30
    tiny = text_table(frame, columns, width=24)
    assert tiny[1].startswith("aaaaaaaa")
    assert "…" in tiny[1]
    assert max(map(len, tiny[:2])) <= 24


def test_columns_line_up_beside_letters_of_any_width() -> None:
    """East Asian letters take two columns, a combining accent none; what is cut still fits."""
    names = ["日本語", "e\u0301a", "plain", "日本語日本語日本語"]
    frame = pl.DataFrame({"comm": names, "n": [1, 2, 3, 4]})
    columns = [Column("comm"), Column("n", kind="count")]
    assert {room(line) for line in text_table(frame, columns)} == {18 + 2 + 1}
    lines = text_table(frame, columns, width=13)
    assert lines[1].startswith("日本語 ")
    assert lines[4].startswith("日本語日… ")
    assert {room(line) for line in lines} <= {12, 13}


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("words", [["events"], ["latency", "--histogram"], ["wakers"]])
def test_every_line_fits_the_terminal(
    words: list[str], width: int, sched: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(words[0], sched, *words[1:]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(room, lines)) <= width
    bars = [line.count("#") for line in lines]
    assert max(bars) == ({60: 24, 80: 44}.get(width, 80) if "--histogram" in words else 0)


def test_a_name_cannot_move_the_cursor() -> None:
    """Thread names are anybody's choice: escape sequences are shown, not sent."""
    frame = pl.DataFrame({"comm": ["\x1b[2Jevil\n"]})
    assert text_table(frame, [Column("comm")], width=None)[1] == r"\x1b[2Jevil\n"


def test_a_terminal_without_utf8_gets_ascii(sched: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "schedscope", "latency", sched],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"},
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode("ascii").startswith("session | 1 CPU")


# -- ways out -------------------------------------------------------------------------


def test_closed_pipe_ends_the_command_quietly(sched: str) -> None:
    """`schedscope info x | head -0`: no complaint, and the code of SIGPIPE."""
    process = subprocess.Popen(
        [sys.executable, "-m", "schedscope", "info", sched],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait() == 128 + signal.SIGPIPE


STOPS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


@pytest.mark.parametrize(("number", "code"), STOPS)
def test_a_signal_during_conversion_leaves_nothing(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """The exit code names the signal; no partial folder, no traceback."""
    source = tmp_path / "trace.dat"
    source.write_text("x")
    script = f"""
import sys, time
from schedscope import cli, _native
def convert(path, folder, options, progress, layout, jobs):
    print("started", flush=True)
    time.sleep(60)
_native.convert = convert
sys.exit(cli.main(["latency", {str(source)!r}]))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == code
    assert b"Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["trace.dat"]


@pytest.mark.parametrize(("number", "code"), STOPS)
def test_a_signal_during_garbage_collection_is_not_lost(
    sched: str, number: signal.Signals, code: int
) -> None:
    """Python drops exceptions of such a callback with a traceback, and goes on."""
    script = f"""
import gc, signal, sys
from schedscope import cli
def collected(phase, info):
    gc.callbacks.remove(collected)
    signal.raise_signal({int(number)})
def run(args):
    gc.callbacks.append(collected)
    gc.collect()
    while True:
        pass
from schedscope.cli import info
info.run = run
sys.exit(cli.main(["info", {sched!r}]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=20)
    assert done.returncode == code
    assert b"Traceback" not in done.stderr


def test_internal_error_is_reported_in_one_sentence(
    sched: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless SCHEDSCOPE_DEBUG asks for the traceback."""
    from schedscope.cli import info

    def broken(_: object) -> int:
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr(info, "run", broken)
    assert run("info", sched) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "ZeroDivisionError: division by zero" in err
    monkeypatch.setenv("SCHEDSCOPE_DEBUG", "1")
    assert run("info", sched) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.needs("linux")
@pytest.mark.release
def test_too_little_memory_is_reported_in_one_sentence(sched: str, tmp_path: Path) -> None:
    words = [sched, "-o", str(tmp_path / "out"), "--labels", "/dev/zero"]
    limited = (
        "import resource, sys; from schedscope import cli; import schedscope.fleets.labels;"
        " resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30));"
        " sys.exit(cli.main(['fleet', *sys.argv[1:]]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", limited, *words], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith("schedscope: there is not enough memory")
    assert ran.stderr.count("\n") == 1


# -- the other commands ---------------------------------------------------------------


def test_info_prints_text_json_and_csv(sched: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("info", sched) == 0
    out = capsys.readouterr().out
    assert "window      1000000 to 10000000 ns: 9.00 ms" in out
    assert run("info", sched, "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["ncpu"] == 1
    assert run("info", sched, "--format", "csv") == 0
    rows = dict(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows["ncpu"] == "1"


def test_convert_overwrites_only_its_own_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "trace.dat"
    source.write_text("x")
    target = tmp_path / "precious"
    target.mkdir()
    assert run("convert", str(source), "-o", str(target)) == 2
    assert run("convert", str(source), "-o", str(target), "--force") == 2
    assert "not a .sched folder" in capsys.readouterr().err
    assert run("convert", str(source), "-o", str(tmp_path / "no" / "where.sched")) == 1
    assert target.is_dir()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("latncy x", "no command 'latncy': did you mean latency?"),
        ("foo", "no command 'foo'. Hint: `schedscope --all` lists the commands"),
        ("latency", "latency needs INPUT, a capture folder, a .sched folder, or a trace file of"
         " another tool. Hint: see `schedscope latency --help`"),
        ("latency x --toop 3", "latency has no option --toop: did you mean --top?"),
        ("latency x --top y", "--top y; expected a whole number"),
        ("starvation x --share y", "--share y; expected a number"),
        ("latency x --format xml", "--format xml; expected one of table, json, csv"),
        ("latency x --sort maxx", "--sort maxx; expected one of total, n, mean, p50, p90, p99,"
         " p99.9, max; did you mean max?"),
        ("latency x y", "latency was given more than it takes: y. Hint: see `schedscope latency"
         " --help`"),
        ("latency x --top", "--top needs a value. Hint: see `schedscope latency --help`"),
        ("critical-path x", "critical-path needs one of --tid, --utid, --worst. Hint: see"
         " `schedscope critical-path --help`"),
        ("latency x --every 10x", "latency: argument --every: '10x' is not a duration; expected a"
         " number and ns, us, ms, s, m or h. Hint: as in 10ms"),
        ("migrations x --each --matrix", "--matrix with --each; expected one of them"),
    ],
)  # fmt: skip
def test_invalid_command_line_is_reported_in_one_sentence(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"schedscope: {said}\n")


@pytest.mark.parametrize("name", ["critical-path", "fleet", "info", "view", "whatif"])
def test_a_required_argument_is_named_in_one_line(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert required(name)
    assert run(name) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"schedscope: {name} needs ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("text", ["0.5", "500ms", "0.5s"])
def test_a_recording_lasts_seconds_or_what_its_unit_says(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: list[list[str]] = []

    def record(given: list[str]) -> tuple[int, bool]:
        words.append(given)
        return 1, False

    monkeypatch.setattr(capture, "_record", record)
    assert run("capture", "-d", text, "-o", "never-made") == 1
    [given] = words
    assert given[given.index("-d") + 1] == "0.5"


def test_invalid_duration_is_reported_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("capture", "-d", "10x") == 125
    said = capsys.readouterr().err
    assert said.startswith("schedscope: capture: argument -d/--duration: '10x' is not a duration;")
    assert said.count("\n") == 1
