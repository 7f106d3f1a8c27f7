"""Every command that answers a question about a trace: with each source, selection and format."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import polars as pl
import pytest
from parsers_of_commands import required, selects

import schedscope as ss
from schedscope import cli
from schedscope.simulator.workloads import generators

FIXTURES = Path(__file__).parents[2] / "fixtures"

# Options that change the answer. Each question is also tested without any.
VARIANTS = [
    "affinity --outside",
    "affinity --residency cpu",
    "affinity --returns",
    "work-conservation --episodes",
    "wait-breakdown --by wait",
    "virtual-lag --model cfs",
    "virtual-lag --series",
    "interactivity --model o1",
    "interactivity --model ule-2003",
    "queue-depth --every 10ms",
]
# Commands that do not ask about one trace, or that need more than a trace.
OTHERS = {
    "capture", "collectors", "compare", "convert", "critical-path", "doctor", "export", "fidelity",
    "fleet", "ministat", "report", "simulate", "timeline", "top", "validate", "view", "wake-chain",
    "whatif",
}  # fmt: skip
ASKED = sorted(set(cli.commands()) - OTHERS)
# Those about threads and CPUs; those about a whole recording print more with a selection and are
# tested with one in test_selections.py.
WHOLE = ["check", "info"]
QUESTIONS = [name for name in ASKED if name not in WHOLE] + VARIANTS
# A question without a selection by CPU; each reports this.
NO_CPU = {
    "slowdown": "a process is not on a single CPU",
    "findings": "a finding is not about a single CPU",
    "off-cpu": "off-CPU time has no CPU",
    "requests": "requests have no CPU",
    "outliers": "a part is not about a single CPU",
}
# What only some of the sources have.
NEEDS = {
    "affinity --outside": "CPU affinity of any thread",
    "requests": "system calls",
    "dispatch-queues": "dispatch queues of sched_ext",
}
SHARED_QUEUE = {"fairness": "a selection by CPU where all CPUs share one queue"}

SOURCES = {
    "linux": FIXTURES / "linux-ftrace-mixed.capture",
    "linux-calls": FIXTURES / "linux-syscalls.capture",
    "freebsd-ule": FIXTURES / "freebsd-ule.capture",
    "freebsd-4bsd": FIXTURES / "freebsd-4bsd.capture",
    "simulated": None,
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


# Of Linux and of FreeBSD one in the gate, those with most events and most refusals.
LATER = {"linux", "freebsd-ule"}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.release) if name in LATER else name for name in SOURCES
    ],
)
def source(request: pytest.FixtureRequest, cache: Path) -> tuple[str, str, dict[str, object]]:
    """A path, and a thread of it that ran and waited."""
    name: str = request.param
    path = SOURCES[name]
    if path is None:
        path = cache / "web.sched"
        ss.simulate(generators.web(3), policy="eevdf-6.12", cpus=2).to_sched(path)
    trace = ss.open(path, cache=cache)
    wait = (
        trace.waits.filter(pl.col("ts_run").is_not_null())
        .group_by("utid")
        .agg(pl.len())
        .sort("len", "utid", descending=[True, False])
        .join(trace.threads, on="utid", how="left", maintain_order="left")
        .filter(pl.col("pid").is_not_null(), pl.col("comm") != "")
        .head(1)
        .collect()
    )
    return name, str(path), wait.row(0, named=True)


def answer(
    words: list[str], cache: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    code = cli.main([*words, "--cache", str(cache)])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


def assert_needs(code: int, out: str, err: str, what: str) -> None:
    """Not every source has these events: then the question is refused with how to record them."""
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert f"has no {what}" in err
    assert "Hint: record " in err


@pytest.mark.parametrize("question", [*QUESTIONS, *WHOLE])
def test_each_format_parses_and_has_the_same_rows(
    question: str,
    source: tuple[str, str, dict[str, object]],
    cache: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, path, _ = source
    command, *options = question.split()
    words = [command, path, *options]
    code, out, err = answer(words, cache, capsys)
    if code and question in NEEDS:
        assert_needs(code, out, err, NEEDS[question])
        return
    assert (code, bool(out.strip())) == (0, True), err
    code, out, err = answer([*words, "--format", "csv"], cache, capsys)
    assert code == 0, err
    table = list(csv.reader(io.StringIO(out)))
    assert table, "not even names of columns"
    assert len({len(row) for row in table}) == 1
    code, out, err = answer([*words, "--format", "json"], cache, capsys)
    assert code == 0, err
    document = json.loads(out)
    if question not in WHOLE:
        assert len(document["rows"]) == len(table) - 1
        if document["rows"]:
            assert list(document["rows"][0]) == table[0]


@pytest.mark.parametrize(
    "question",
    [
        "interference --victims 1",
        "events",
        "fairness",
        "work-conservation --by thread",
        "starvation --threshold 5ms --by thread",
        "wakers",
    ],
)
def test_csv_has_all_rows_of_a_cut_table(
    question: str, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A text table ends at the screen and says so; CSV is not silently cut."""
    command, *options = question.split()
    words = [command, str(SOURCES["linux"]), *options]
    _, out, _ = answer(words, cache, capsys)
    [left_out] = re.findall(r"^\(([\d,]+) .*use a larger --top\)$", out, re.MULTILINE)
    _, out, _ = answer([*words, "--format", "csv"], cache, capsys)
    rows = len(list(csv.reader(io.StringIO(out)))) - 1
    shown = {"interference": 10, "starvation": 10, "events": 50}.get(command, 20)
    assert rows == shown + int(left_out.replace(",", ""))
    _, out, _ = answer([*words, "--top", "5", "--format", "csv"], cache, capsys)
    assert len(list(csv.reader(io.StringIO(out)))) - 1 == 5


@pytest.mark.parametrize("question", QUESTIONS)
def test_each_selection_is_answered_or_refused_with_a_reason(
    question: str,
    source: tuple[str, str, dict[str, object]],
    cache: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By time, thread and CPU; a question without an answer gives the reason in a sentence."""
    name, path, thread = source
    command, *options = question.split()
    selections = [
        ["--since", "20ms", "--until", "200ms"],
        ["--comm", str(thread["comm"]), "--pid", str(thread["pid"])],
        ["--tid", str(thread["tid"])],
        ["--cpu", "0"],
    ]
    for selection in selections:
        words = [command, path, *options, *selection, "--format", "json"]
        code, out, err = answer(words, cache, capsys)
        reason = NO_CPU.get(question) or (name == "freebsd-4bsd" and SHARED_QUEUE.get(question))
        if command == "efficiency" and selection[0] in ("--comm", "--tid"):
            reason = "expected CPUs"
            assert reason in err
        if (selection[0] == "--cpu" or command == "efficiency") and reason:
            assert code == 2
            assert reason in err
            assert err.count("\n") == 1
            continue
        if code == 1 and question in NEEDS:
            assert_needs(code, out, err, NEEDS[question])
            continue
        assert code == 0, (selection, err)
        rows = json.loads(out)["rows"]
        if selection[0] == "--tid" and rows and "tid" in rows[0]:
            mine = {row["tid"] for row in rows}
            # interference and wakers also name other threads: the selected one is the victim.
            assert command in ("interference", "wakers") or mine == {thread["tid"]}, selection
        if (
            selection[0] == "--cpu"
            and command in ("queue-depth", "work-conservation", "efficiency")
            and rows
        ):
            assert {row["cpu"] for row in rows if "cpu" in row} <= {0}, selection


@pytest.mark.parametrize("question", [*QUESTIONS, *WHOLE])
def test_empty_window_is_refused_in_one_line(
    question: str, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *options = question.split()
    words = [command, str(SOURCES["linux"]), *options, "--since", "3s", "--until", "1s"]
    code, out, err = answer(words, cache, capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_every_command_is_tested() -> None:
    """A command outside these lists is tested here, and needs only a trace."""
    assert set(cli.commands()) >= OTHERS
    for name in ASKED:
        assert selects(name), name
        assert required(name) == ["input"], f"{name} needs more than a trace: name it in OTHERS"


@pytest.mark.parametrize("recording", ["linux", "linux-requests"])
@pytest.mark.parametrize("question", [*WHOLE, *QUESTIONS])
def test_every_table_fits_a_terminal_of_80_columns(
    question: str,
    recording: str,
    cache: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also with the columns that interrupts, system calls and groups add.

    Facts about the recording may be longer: a line of `info` is for copying.
    """
    monkeypatch.setenv("COLUMNS", "80")
    if question == "requests" and recording == "linux":
        pytest.skip("it has no system calls")
    if question == "dispatch-queues":
        pytest.skip("it has none; test_lab.py asks a recording that has")
    path = SOURCES.get(recording, FIXTURES / f"{recording}.capture")
    name, *words = question.split()
    assert cli.main([name, str(path), *words, "--cache", str(cache)]) == 0
    lines = capsys.readouterr().out.splitlines()
    facts = (path.name, "recorder", "workload", "tables", "folder", "source")
    assert [line for line in lines if len(line) > 80 and not line.startswith(facts)] == []
