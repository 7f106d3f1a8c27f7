"""Answers in notebooks: shown as in the terminal, and usable as Polars frames."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import schedscope as ss
from schedscope.notebook_frames import ROWS, AnswerFrame

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> ss.Trace:
    name = FIXTURES / "linux-ftrace-starved.capture"
    return ss.open(name, cache=tmp_path_factory.mktemp("cache"))


def html(frame: pl.DataFrame) -> str:
    return frame._repr_html_()


def test_answer_in_a_notebook_has_headings_units_and_bounds(trace: ss.Trace) -> None:
    text = html(ss.latency(trace, by="comm"))
    assert "<th class=n>unfinished</th>" in text, "not n_censored"
    assert "<td class=n>285 ms</td>" in text
    assert "1.54 to 1.57 s" in text, "between two bounds"
    assert "_high" not in text


def test_answer_names_its_trace_and_data_quality(trace: ss.Trace) -> None:
    text = html(ss.queue_depth_summary(trace))
    assert "linux-ftrace-starved.capture · Linux" in text
    assert "data quality: 20 switches that this kernel never reports" in text


def test_comparison_has_a_unit_for_each_measure(tmp_path: Path) -> None:
    names = ("linux-slice-default-1.capture", "linux-slice-short-1.capture")
    one, two = (ss.open(FIXTURES / name, cache=tmp_path) for name in names)
    text = html(ss.compare(one, two, labels=["default", "short"]))
    assert "<th class=n>first</th><th class=n>short</th>" in text.replace("<th>", "<th class=n>")
    assert " ms</td>" in text
    assert " %</td>" in text
    assert "data quality" not in text, "there are two traces"


def test_bounds_of_shares_and_ratios_are_not_durations(trace: ss.Trace) -> None:
    text = html(ss.fairness(trace))
    assert re.search(r">\d+\.\d to \d+\.\d %<", text)
    assert re.search(r">\d\.\d\d to \d\.\d\d<", text)
    assert not re.search(r"\.\d+ ns", text)


def test_long_answer_is_cut_only_on_screen(trace: ss.Trace) -> None:
    frame = ss.events(trace)
    text = html(frame)
    assert text.count("<tr>") == ROWS + 1
    assert f"{len(frame) - ROWS:,} more rows: the frame has all" in text


def test_answer_behaves_like_a_polars_frame(trace: ss.Trace) -> None:
    frame = ss.latency(trace, by="comm")
    plain = pl.DataFrame(frame)
    assert type(plain) is pl.DataFrame
    assert_frame_equal(frame, plain)
    assert type(frame.select(pl.col("total").sum())) is pl.DataFrame
    assert_frame_equal(frame.join(plain, on="comm"), plain.join(plain, on="comm"))
    assert_frame_equal(pickle.loads(pickle.dumps(frame)), plain)
    assert pl.concat([frame, plain]).height == 2 * plain.height


def test_head_of_an_answer_is_an_answer(trace: ss.Trace) -> None:
    few = ss.latency(trace, by="comm").sort("max", descending=True).head(2)
    assert isinstance(few, AnswerFrame)
    assert html(few).count("<tr>") == 3


def test_derived_and_foreign_frames_keep_polars_display(
    trace: ss.Trace,
) -> None:
    made = ss.latency(trace, by="comm").with_columns(double=pl.col("total") * 2)
    assert "schedscope" not in html(made)
    assert html(made) == html(pl.DataFrame(made))
    code = "import polars as pl, schedscope as ss\nbefore = pl.DataFrame._repr_html_\nss.latency\n"
    code += "assert pl.DataFrame._repr_html_ is before and pl.DataFrame.head.__module__ != ss"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_finding_is_a_card_with_text_and_advice(trace: ss.Trace) -> None:
    found = ss.findings(trace)
    text = html(found)
    assert text.count("<article") == len(found)
    for row in found.iter_rows(named=True):
        for sentence in (row["text"], row["advice"]):
            assert sentence.replace("'", "&#x27;").replace('"', "&quot;") in text
    assert "schedscope view linux-ftrace-starved.capture --at" in text


def test_trace_without_findings_shows_no_findings() -> None:
    run = ss.simulate(ss.workload.hogs(1, time="1ms"), policy="rr", cpus=1)
    assert "No findings" in html(ss.findings(run))


def test_marimo_shows_the_same_html(trace: ss.Trace) -> None:
    frame = ss.latency(trace, by="comm")
    assert isinstance(frame, AnswerFrame)
    shown = frame._display_()
    assert shown._repr_html_() == html(frame)  # type: ignore[attr-defined]


def test_findings_in_a_kernel_are_a_widget_with_cards_as_fallback(
    trace: ss.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("anywidget")
    from schedscope.timelines import cards

    found = ss.findings(trace)
    assert found._repr_mimebundle_() == {}, "nobody could press a button"
    monkeypatch.setattr(cards, "_in_a_kernel", lambda: True)
    bundle = found._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/html"] == html(found)


def test_names_of_threads_are_text_in_a_card(trace: ss.Trace) -> None:
    hostile = pl.DataFrame(ss.findings(trace)).with_columns(
        text=pl.lit("<script>\x1b[31m</script>")
    )
    from schedscope.timelines.cards import cards

    text = cards(hostile, trace)
    assert "<script>" not in text
    assert "\x1b" not in text
