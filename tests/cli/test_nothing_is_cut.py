"""Frames, JSON and CSV are complete; a cut table says so; `rows_in_all` counts before any cut.

Asked are every command that answers a question about a trace, each as its parser lets it be asked,
and every public function that can return a part of its rows: new ones are tested, too.
"""

from __future__ import annotations

import csv
import inspect
import io
import json
import re
from pathlib import Path

import polars as pl
import pytest
from archives import under_sched_ext
from parsers_of_commands import actions

import schedscope as ss
from schedscope import cli
from schedscope.present.columns import choose
from schedscope.present.html_table import html_table

FIXTURES = Path(__file__).parents[2] / "fixtures"
MANY = 1_000_000
# Commands that do not ask about a trace, or whose output is not a table of rows.
OTHERS = {
    "capture", "collectors", "convert", "doctor", "export", "fleet", "ministat", "report",
    "simulate", "timeline", "top", "validate", "view", "info", "check", "fidelity", "whatif",
}  # fmt: skip
# Arguments that these require; of several kinds of rows, the most numerous.
GIVEN = {
    "compare": [""],
    "critical-path": ["--worst 1", "--worst 1 --by thread"],
    "wake-chain": ["--worst 1"],
    "starvation": [
        "--threshold 500us",
        "--threshold 500us --culprits",
        "--threshold 500us --by thread",
    ],
    "work-conservation": ["", "--by thread", "--episodes --longer-than 1ns"],
    "wait-breakdown": ["", "--by wait"],
    "requests": ["", "--by request"],
    "interference": ["", "--together"],
    "fairness": ["", "--every 1ms"],
    "latency": ["--by tid", "--every 1ms"],
    "migrations": ["--by tid", "--each", "--matrix", "--ping-pong"],
    "affinity": ["--by tid", "--residency cpu", "--returns"],
    "virtual-lag": ["", "--series"],
    "interactivity": ["", "--series"],
    "outliers": ["--all --every 2ms"],
    "dispatch-queues": ["--by tid", "--slices --by tid", "--steps", "--kicks"],
}
ASKED = sorted(set(cli.commands()) - OTHERS)
QUESTIONS = [f"{name} {how}".strip() for name in ASKED for how in GIVEN.get(name, [""])]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def source(command: str, options: list[str], cache: Path) -> str:
    if command == "dispatch-queues":
        cell = "kick" if "--kicks" in options else "2cpu"
        return str(under_sched_ext(cache / cell, cell))
    kind = {"requests": "requests", "idle_episodes": "ftrace-pool"}.get(command, "ftrace-mixed")
    return str(FIXTURES / f"linux-{kind}.capture")


def words(question: str, cache: Path, *more: str) -> list[str]:
    command, *options = question.split()
    path = source(command, options, cache)
    inputs = [path, path] if command == "compare" else [path]
    part = ["--since", "0.4", "--until", "0.5"] if "mixed" in path else []
    return [command, *inputs, *options, *part, *more, "--cache", str(cache)]


@pytest.mark.parametrize("question", QUESTIONS)
def test_csv_and_json_have_every_row_and_text_counts_the_rest(
    question: str, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*more: str) -> str:
        assert cli.main(words(question, cache, *more)) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    document = json.loads(said("--format", "json"))
    rows = len(document["rows"])
    assert document["rows_in_all"] == rows
    assert len(list(csv.reader(io.StringIO(said("--format", "csv"))))) - 1 == rows
    options = {name for action in actions(question.split()[0]) for name in action.option_strings}
    of_victims = set() if "--together" in question else {"--victims"}
    limits = sorted(options & {"--top", *of_victims})
    if not limits or question == "compare":
        return
    everything = [word for option in limits for word in (option, str(MANY))]
    assert json.loads(said("--format", "json", *everything))["rows"] == document["rows"]
    for option in limits:
        first = json.loads(said("--format", "json", option, "1"))
        assert first["rows_in_all"] == rows
        shown = said(option, "1")
        if len(first["rows"]) < rows:
            assert re.search(r"^\([\d,]+ .*\)$", shown, re.MULTILINE), shown


def limited() -> list[str]:
    """Public functions that can return a part of their rows."""
    found = []
    for name in ss.__all__:
        value = getattr(ss, name)
        if inspect.isfunction(value) and not inspect.isclass(value):
            found += [name] * bool(LIMITS & set(inspect.signature(value).parameters))
    return found


LIMITS = {"top", "victims", "most", "limit", "rows"}
# Their rows are tests of significance: with more groups each test shows less.
TESTS = {"compare"}


@pytest.mark.parametrize("name", sorted(set(limited()) - TESTS))
def test_functions_return_all_rows_by_default(name: str) -> None:
    for limit in LIMITS & set(inspect.signature(getattr(ss, name)).parameters):
        assert inspect.signature(getattr(ss, name)).parameters[limit].default is None


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("wait_breakdown", {"by": "wait"}),
        ("requests", {"by": "request"}),
        ("idle_episodes", {"longer_than": 0}),
        ("starvation", {"threshold": "10ms"}),
        ("interference", {}),
    ],
)
def test_no_limit_equals_a_limit_above_the_number_of_rows(
    name: str, how: dict[str, object], cache: Path
) -> None:
    trace = ss.open(source(name, [], cache), cache=cache)
    question = getattr(ss, name)
    limit = (LIMITS & set(inspect.signature(question).parameters)).pop()
    everything = question(trace, **how)
    assert everything.height > 20
    assert everything.equals(question(trace, **how, **{limit: MANY}))
    assert question(trace, **how, **{limit: 1}).height < everything.height


def test_wait_breakdown_by_wait_has_a_row_for_each_wait(cache: Path) -> None:
    trace = ss.open(source("latency", [], cache), cache=cache)
    runnable = trace.states.filter(pl.col("state") == "runnable", pl.col("dur") > 0).collect()
    assert ss.wait_breakdown(trace, by="wait")["wait"].sum() == runnable["dur"].sum()


def test_html_table_says_that_it_is_cut() -> None:
    frame = pl.DataFrame({"comm": ["a", "b", "c"]})
    columns = choose(frame, ["comm"])
    cut = html_table(frame, columns, most=2)
    assert "Only the first 2 rows" in cut
    assert cut.count("<tr>") == 1 + 2
    for most in (3, None):
        assert "Only the first" not in html_table(frame, columns, most=most)
