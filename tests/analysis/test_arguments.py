"""Arguments of questions: mistakes are named, and none is silently accepted."""

from __future__ import annotations

from inspect import isclass, signature
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from decoded import FIXTURES

import schedscope as ss
from schedscope import Trace
from schedscope.errors import UsageError
from schedscope.simulator.workloads.generators import web


@pytest.fixture(scope="module")
def trace() -> Trace:
    return ss.simulate(web(3, requests=60), policy="rr", cpus=2)


def asking(option: str) -> list[str]:
    """The questions about one trace that have this option and need nothing else."""
    found = []
    for name in ss.__all__:
        question = getattr(ss, name)
        if isclass(question) or not callable(question):
            continue
        first, *others = [*signature(question).parameters.values()] or [None]
        needed = [other for other in others if other.default is other.empty]
        named = {other.name for other in others}
        if first is not None and first.name == "trace" and not needed and option in named:
            found.append(name)
    return found


SELECTING = asking("where")
NO_SELECTIONS: dict[str, Any] = {
    "a text": "comm",
    "a truth": True,
    "numbers": pl.col("tid") + 1,
    "a sum": pl.col("tid").sum(),
    "nothing": pl.lit(None),
    "two columns": pl.col("comm", "process_name") == "web",
    "text and number": pl.col("comm") > 3,
    "no column": pl.col("no such column") == 1,
}


@pytest.mark.parametrize("name", SELECTING)
@pytest.mark.parametrize("what", NO_SELECTIONS)
def test_invalid_selection_is_refused(what: str, name: str, trace: Trace) -> None:
    options = {"cpus": 3} if name == "whatif" else {}
    with pytest.raises(ss.SchedscopeError) as caught:
        getattr(ss, name)(trace, where=NO_SELECTIONS[what], **options)
    if not isinstance(caught.value, ss.MissingEventsError):
        assert isinstance(caught.value, UsageError)


def test_the_column_is_named(trace: Trace) -> None:
    for name in ("latency", "wakers", "off_cpu", "virtual_lag", "outliers", "check"):
        with pytest.raises(UsageError, match="no column 'no such column'"):
            getattr(ss, name)(trace, where=NO_SELECTIONS["no column"])


def test_unknown_category_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    """Polars refuses it where a file says which values it holds."""
    recorded = ss.open(FIXTURES / "perf-zstd.data", cache=tmp_path)
    with pytest.raises(UsageError, match="no cause is 'wakeup'; expected wake, new, preempt"):
        ss.latency(recorded, where=pl.col("cause") == "wakeup")
    with pytest.raises(UsageError, match="no sched_class is 'rt'; expected stop, deadline"):
        ss.findings(recorded, where=pl.col("sched_class") == "rt")


def test_questions_under_test_are_found() -> None:
    assert {"latency", "check", "findings", "whatif", "timeline_html"} <= set(SELECTING)


@pytest.mark.parametrize("name", [*SELECTING, "efficiency", "compare", "export"])
def test_a_path_is_not_a_trace(name: str) -> None:
    more = {"compare": ["b"], "export": ["out", "csv"]}.get(name, [])
    options = {"cpus": 3} if name == "whatif" else {}
    with pytest.raises(UsageError, match=r"of 'web\.capture'; expected a trace"):
        getattr(ss, name)("web.capture", *more, **options)


def test_second_trace_is_checked_too(trace: Trace) -> None:
    with pytest.raises(UsageError, match=r"compare of 'b\.capture'"):
        ss.compare(trace, "b.capture")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", asking("by"))
@pytest.mark.parametrize("by", [5, pl.col("comm"), [pl.col("comm")], "no such column"])
def test_unknown_by_column_is_refused(name: str, by: Any, trace: Trace) -> None:
    with pytest.raises(ss.SchedscopeError) as caught:
        getattr(ss, name)(trace, by=by, **({"cpus": 3} if name == "whatif" else {}))
    if not isinstance(caught.value, ss.MissingEventsError):
        assert str(caught.value).startswith("by=")


@pytest.mark.parametrize("name", asking("quantiles"))
@pytest.mark.parametrize("quantiles", [0.5, None, ["x"], [0], [1.5], [float("nan")], [1e-300]])
def test_invalid_quantiles_are_refused(name: str, quantiles: Any, trace: Trace) -> None:
    with pytest.raises(UsageError, match="quantile"):
        getattr(ss, name)(trace, quantiles=quantiles)


@pytest.mark.parametrize("name", asking("quantiles"))
def test_repeated_quantile_is_one_column(name: str, trace: Trace) -> None:
    once = getattr(ss, name)(trace, quantiles=[0.5])
    assert getattr(ss, name)(trace, quantiles=[0.5, 0.5]).equals(once)


def test_close_quantiles_have_different_names(trace: Trace) -> None:
    found = ss.latency(trace, quantiles=[0.99, 0.99999999])
    assert {"p99", "p99.999999"} <= set(found.columns)


@pytest.mark.parametrize("n", [0, -1, 1.5, "3", True, 10**30])
def test_invalid_number_of_waits_is_refused(n: Any, trace: Trace) -> None:
    with pytest.raises(UsageError, match=r"a number of waits, 1 or more"):
        ss.worst_waits(trace, n)
    with pytest.raises(UsageError, match=r"a number of victims, 1 or more"):
        ss.interference(trace, victims=n)


@pytest.mark.parametrize("every", [True, 10**30, 1.5])
def test_invalid_duration_is_refused(every: Any, trace: Trace) -> None:
    with pytest.raises(UsageError, match=r"is not a duration|is too long"):
        ss.latency(trace, every=every)


def test_a_service_selects_threads_of_the_virtual_lag(trace: Trace) -> None:
    everything = ss.virtual_lag(trace, where=pl.col("service").is_null())
    assert everything.equals(ss.virtual_lag(trace))


def test_figure_of_another_object_is_refused(trace: Trace) -> None:
    with pytest.raises(UsageError, match=r"a figure of a Trace; expected the frame that"):
        ss.plot.latency(trace)  # type: ignore[arg-type]


def test_cpus_argument_takes_numbers_or_a_list(trace: Trace) -> None:
    assert ss.queue_depth(trace, cpus="1").equals(ss.queue_depth(trace, cpus=[1]))
    for wrong in ("one", 1, ["1"], [1.5]):
        with pytest.raises(UsageError, match=r"cpus=.*; expected a list of CPUs"):
            ss.queue_depth(trace, cpus=wrong)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"isolated=.*; expected a list of CPUs"):
            ss.isolation_leaks(trace, wrong)  # type: ignore[arg-type]


def test_questions_about_several_traces_take_a_function_that_selects(trace: Trace) -> None:
    some = pl.col("comm").str.starts_with("httpd")
    for question in (ss.compare, ss.wait_distribution):
        made = question(trace, trace, where=lambda _: some)
        assert made.equals(question(trace, trace, where=some))
        with pytest.raises(UsageError, match="where='comm'; expected a Polars expression"):
            question(trace, trace, where=lambda _: "comm")  # type: ignore[arg-type, return-value]
