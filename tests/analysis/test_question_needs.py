"""A trace that lacks what a question needs is refused in one sentence, never answered emptily."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from frames import questions

import schedscope as ss
from schedscope import Trace
from schedscope.analysis.asking.needs import NEEDS, QUESTIONS
from schedscope.errors import MissingEventsError
from schedscope.simulator.workloads.generators import web

for name in ss.__all__:
    getattr(ss, name)  # loads every question, which declares itself

PAGE = Path(__file__).parents[2] / "docs" / "opening-traces.md"


@pytest.fixture(scope="module")
def whole() -> Trace:
    return ss.simulate(web(3, requests=60), policy="rr", cpus=2)


def lacking(trace: Trace, need: str) -> Trace:
    """The trace, recorded without what is needed."""
    kept = {name: getattr(trace, name) for name in ("threads", "cpus")}
    if need == "competitors":
        kept |= {name: getattr(trace, name) for name in ("switches", "wakeups", "states", "waits")}
        return Trace.from_tables(kept, {**trace.info, "filtered": {"utids": [2]}})
    info = {**trace.info, "events": {}, "has_waking": False, "has_enqueued": False}
    if need == "switches":
        return Trace.from_tables({**kept, "wakeups": trace.wakeups}, info)
    kept |= {name: getattr(trace, name) for name in ("switches", "states", "waits")}
    if need == "wakeups":
        kept["waits"] = trace.waits.filter(~pl.col("cause").cast(pl.String).is_in(["wake", "new"]))
        return Trace.from_tables(kept, info)
    kept |= {"wakeups": trace.wakeups}
    if need == "affinity":
        mask = pl.lit(None, pl.String)
        kept["threads"] = trace.threads.with_columns(affinity=mask)
    return Trace.from_tables(kept, trace.info)


def asked() -> list[tuple[str, str]]:
    return [(name, need) for name, what in QUESTIONS.items() for need in what]


@pytest.mark.parametrize(("question", "need"), asked())
def test_missing_events_are_named_with_how_to_record_them(
    question: str, need: str, whole: Trace
) -> None:
    trace = lacking(whole, need)
    with pytest.raises(MissingEventsError) as caught:
        ask(question, trace, whole)
    text = str(caught.value)
    assert NEEDS[need].what in text
    assert question in text
    assert text.endswith(NEEDS[need].record)


def ask(question: str, trace: Trace, whole: Trace) -> Any:
    """The question as `research/benchmarks/frames.py` asks it, episodes of the whole trace."""
    if question in ("episode_interference", "starvation_timeline"):
        episodes = ss.starvation(whole, threshold="1us")
        return getattr(ss, question)(trace, episodes)
    return questions()[question](trace)


def test_every_public_question_declares_what_it_needs() -> None:
    homes = {name: getattr(getattr(ss, name), "__module__", "") for name in ss.__all__}
    public = {name for name, home in homes.items() if home.startswith("schedscope.analysis.")}
    of_numbers = {"ministat", "ministat_text"}
    of_frames = {name for name in public if name.endswith("_sentences")}
    assert public - of_numbers - of_frames == set(QUESTIONS)
    assert set(QUESTIONS) <= {key.split()[0] for key in questions()}


def test_docstrings_state_the_needed_events() -> None:
    for name, what in QUESTIONS.items():
        last = (getattr(ss, name).__doc__ or "").strip().splitlines()[-1].strip()
        words = " and ".join(NEEDS[need].what for need in what)
        assert last == f"Needs {words}." if what else not last.startswith("Needs "), name


def test_the_page_lists_what_may_be_missing() -> None:
    """A row for each in docs/opening-traces.md, and no other; what few need names who does."""
    _, _, section = PAGE.read_text().partition("\n## What each question needs\n")
    rows = re.findall(r"^\| ([^|]*) \| ([^|]*) \|", section, re.MULTILINE)
    page = {what: who for what, who in rows if what not in ("what", "---")}
    assert set(page) == {need.what for need in NEEDS.values()}
    for need in ("affinity", "queue_load"):
        found = {name for name, what in QUESTIONS.items() if need in what}
        assert page[NEEDS[need].what] == ", ".join(f"`{name}`" for name in sorted(found))
