"""One registry of result columns, and one package that renders them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import partial
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import columns
import polars as pl
import pytest
from archives import under_sched_ext
from frames import plain_questions

import schedscope as ss
from schedscope.present.columns import Column, choose
from schedscope.present.html_table import html_table
from schedscope.present.registry import QUESTIONS, is_quantile, meaning, meanings
from schedscope.present.text_table import text_table

ROOT = Path(ss.__file__).parent
FIXTURES = Path(__file__).parents[2] / "fixtures"

# The meaning of these names depends on the question; each other name has one heading everywhere.
QUESTION_DECIDES = {"n", "cpu", "ratio", "waited"}

# Analyses whose columns the registry declares under the name of a related question.
DECLARED_UNDER = {
    "affinity": "cpu_returns",
    "migration_agreement": "agreement",
    "migration_summary": "migrations",
    "migrations": "migration_list",
    "queue_depth_summary": "queue_depth",
    "queue_load_agreement": "queue_load",
    "virtual_lag": "interactivity",
}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> ss.Trace:
    cache = tmp_path_factory.mktemp("cache")
    return ss.open(FIXTURES / "linux-ftrace-mixed.capture", cache=cache)


def answers(trace: ss.Trace) -> dict[str, tuple[str, Callable[[], pl.DataFrame]]]:
    """Every function that returns a frame: the question in the registry, and a call.

    Those that need only a trace are found automatically; others have a line here.
    """
    utid = trace.waits.select(pl.col("utid").mode().min()).collect().item()
    starved = ss.starvation(trace, threshold="5ms", top=3)
    hogs = ss.workload.hogs(3, time="10ms")
    assert trace.path is not None
    cache = trace.path.parent
    # Its kernel reports queue lengths.
    freebsd = ss.open(FIXTURES / "freebsd-ule-synthetic.capture", cache=cache)
    calls = ss.open(FIXTURES / "linux-syscalls.capture", cache=cache)
    queued = ss.open(under_sched_ext(cache / "scx"), cache=cache)
    kicked = ss.open(under_sched_ext(cache / "kick", "kick"), cache=cache)
    plain: dict[str, tuple[str, Callable[[], pl.DataFrame]]] = {}
    for name in plain_questions():
        question = DECLARED_UNDER.get(name, name if name in QUESTIONS else "")
        plain[name] = (question, partial(getattr(ss, name), trace))
    for name in ("interference", "wakers"):
        for by in ("process", "cgroup", "service"):
            plain[f"{name} by {by}"] = (name, partial(getattr(ss, name), trace, by=by))
    return {
        **plain,
        "compare": ("compare", lambda: ss.compare([trace], [trace])),
        "critical_path": ("critical_path", lambda: ss.critical_path(trace, utid=utid)),
        "wake_chain": ("wake_chain", lambda: ss.wake_chain(trace, utid=utid)),
        "episode_interference": ("starvation", lambda: ss.episode_interference(trace, starved)),
        "whatif": ("whatif", lambda: ss.whatif(trace, policy="fifo", replays=1)),
        "fidelity": ("", lambda: ss.fidelity(trace, policies=["fifo"])),
        "fidelity_of_runs": (
            "fidelity_of_runs",
            lambda: ss.fidelity_of_runs([trace] * 3, policies=["fifo"], replays=1),
        ),
        "fleet": ("fleet", lambda: ss.fleet(str(trace.path), cache / "fleet", jobs=1)),
        "formats": ("formats", ss.formats),
        "policy_series": (
            "",
            lambda: ss.policy_series(ss.simulate(hogs, policy="ule-14", cpus=2, record=True)),
        ),
        "isolation_leaks": ("", lambda: ss.isolation_leaks(trace, "0")),
        "lag": ("", lambda: ss.lag(trace, every="100ms")),
        "match_threads": ("", lambda: ss.match_threads([trace, trace])),
        "ministat": ("ministat", lambda: ss.ministat({"a": [1.0, 2, 3], "b": [2.0, 3, 4]})),
        "ping_pong": ("ping_pong", lambda: ss.ping_pong(trace, "10ms")),
        "policies": ("", lambda: ss.policies()),
        "queue_depth every": ("queue_depth every", lambda: ss.queue_depth(trace, every="1ms")),
        "dispatch_depth": ("dispatch_depth", lambda: ss.dispatch_depth(queued)),
        "dispatch_queues": ("dispatch_queues", lambda: ss.dispatch_queues(queued)),
        "kicks": ("kicks", lambda: ss.kicks(kicked)),
        "dispatch_slices": ("dispatch_slices", lambda: ss.dispatch_slices(queued)),
        "requests": ("requests", lambda: ss.requests(calls)),
        "requests single": ("requests", lambda: ss.requests(calls, by="request", reply="any")),
        "queue_load_agreement": ("queue_load", lambda: ss.queue_load_agreement(freebsd)),
        "latency": ("latency", lambda: ss.latency(trace, every="1s")),
        "simulate_all": (
            "simulation",
            lambda: ss.simulate_all(hogs, policies=["fifo"], cpus=2, by_class=True),
        ),
        "starvation": ("starvation", lambda: starved),
        "starvation_summary": (
            "starvation",
            lambda: ss.starvation_summary(trace, threshold="5ms"),
        ),
        "starvation_timeline": (
            "starvation_timeline",
            lambda: ss.starvation_timeline(trace, starved, 1),
        ),
        "survival": ("survival", lambda: ss.survival(trace, by="cause")),
        "tunables": ("tunables", lambda: ss.tunables("bfs")),
        "wait_distribution": ("latency", lambda: ss.wait_distribution(a=trace, b=trace)),
        "work_conservation by cpu": (
            "work_conservation",
            lambda: ss.work_conservation(trace, by="cpu"),
        ),
        "work_conservation by comm": (
            "work_conservation",
            lambda: ss.work_conservation(trace, by="comm"),
        ),
        "worst_waits": ("", lambda: ss.worst_waits(trace, n=3)),
    }


def test_declared_columns_are_exactly_those_of_the_answers(
    trace: ss.Trace,
) -> None:
    """Name and type agree; the registry has no column that no answer, grouping or table has."""
    seen: set[str] = set()
    for name, (question, call) in answers(trace).items():
        frame = call()
        for column, dtype in frame.schema.items():
            declared = meaning(column, question)
            assert declared, f"{name}: {column} ({dtype}) is not in present/registry.py"
            seen.add(f"{declared.question}.{column}".lstrip("."))
            if dtype.is_float():
                fits = {"time", "number", "share", "fixed", "right"}
            elif dtype.is_integer():
                fits = {"id", "count", "time", "at", "right", "number"}
            else:
                fits = {"text", "right"}
            assert declared.kind in fits, f"{name}: {column} is {dtype}, not {declared.kind}"
    words = set(
        re.findall(r"[\w.]+", " ".join(sources("cli", "report", "simulator", "analysis", "fleets")))
    )
    unused = {key for key in meanings().keys() - seen if key.rpartition(".")[2] not in words}
    assert not unused


def test_every_public_function_returning_a_frame_is_tested(trace: ss.Trace) -> None:
    """One that needs more than a trace has a line above; annotations show which return a frame."""
    asked = {name.partition(" ")[0] for name in answers(trace)}
    frames = {
        name
        for name in ss.__all__
        if getattr(getattr(ss, name), "__annotations__", {}).get("return") == "pl.DataFrame"
    }
    assert not frames - asked


def test_each_column_name_has_one_heading() -> None:
    """Across all commands and the report; `n` has what it counts in its heading."""
    headings: dict[str, set[str]] = {}
    for declared in meanings().values():
        headings.setdefault(declared.name, set()).add(declared.heading)
    several = {name for name, found in headings.items() if len(found) > 1}
    assert several == QUESTION_DECIDES
    for name, declared in meanings().items():
        assert declared.heading, name
        assert declared.doc, name
        assert (
            declared.doc[0].islower()
            or not declared.doc[0].isalpha()
            or declared.doc[:2].isupper()
            or declared.doc.startswith(("Kendall", "Jain", "Student", "CPU"))
        ), name


def test_the_list_of_columns_names_each_column_of_each_question_once() -> None:
    """`python docs/columns.py` prints it."""
    lines = [line for line in columns.page().splitlines() if "`" in line and "|" in line]
    assert len(set(lines)) == len(lines) == len(meanings())


def test_tables_are_rendered_in_one_package_only() -> None:
    """Elsewhere columns are chosen by name: `Column(...)` is only for headings that are data."""
    for path in sorted(ROOT.rglob("*.py")):
        if path.parent.name == "present":
            continue
        calls = re.findall(r"\bColumn\(", path.read_text())
        allowed = 1 if path.name == "info.py" else 0
        assert len(calls) <= allowed, f"{path.relative_to(ROOT)}: use present.columns.choose"


def test_a_question_that_tables_name_is_declared() -> None:
    asked = set(re.findall(r'question="(\w+)"', " ".join(sources("cli", "report", "fleets"))))
    assert asked <= set(QUESTIONS)


def test_undeclared_name_is_refused() -> None:
    with pytest.raises(KeyError, match="'surprise' is not declared"):
        choose(pl.DataFrame({"surprise": [1]}), ["surprise"])


def test_optional_column_without_values_is_left_out() -> None:
    frame = pl.DataFrame({"cpu": [0], "n_censored": [0], "unknown": [0], "reason": [None]})
    names = ["cpu?", "n_censored?", "unknown?", "reason?"]
    assert [column.name for column in choose(frame, names)] == ["cpu"]
    assert [column.name for column in choose(frame, ["n_censored"])] == ["n_censored"]


def test_instant_needs_an_origin() -> None:
    """`wait-breakdown --by wait` used to show them on the recorder's clock."""
    frame = pl.DataFrame({"ts": [1_500_000_000]})
    with pytest.raises(ValueError, match="'ts' has instants"):
        choose(frame, ["ts"])
    assert choose(frame, ["ts"], origin=0)[0].origin == 0


def test_text_and_html_show_the_same_cells() -> None:
    frame = pl.DataFrame({"comm": ["a<b"], "wait": [1_500], "moved_frac": [0.5], "leak": [True]})
    columns = choose(frame, frame.columns)
    assert [cell.strip() for cell in re.split("  +", text_table(frame, columns)[1])] == [
        *("a<b", "1.50 µs", "50.0 %", "yes")
    ]
    html = html_table(frame, columns)
    assert re.findall(r"<td[^>]*>([^<]*)</td>", html) == ["a&lt;b", "1.50 µs", "50.0 %", "yes"]


def test_text_in_the_last_column_is_wrapped() -> None:
    said = "clocks that differ by up to 21.1 µs, or by more for up to 2.15 s, would not show"
    frame = pl.DataFrame({"level": ["ok", "note"], "text": [said, "short"]})
    lines = text_table(frame, choose(frame, ["level", "text"]), width=50)[1:]
    assert all(len(line) <= 50 for line in lines)
    assert " ".join(line[7:] for line in lines[:-1]) == said
    assert [line[:7].strip() for line in lines] == ["ok", "", "note"]
    # Without room to read it, it is shortened.
    assert text_table(frame, choose(frame, ["level", "text"]), width=20)[1].endswith("…")


def test_text_in_a_numeric_column_is_right_aligned() -> None:
    [column] = choose(pl.DataFrame({"max": [">=4.00 ms"]}), ["max"])
    assert column == Column("max", "max", "right")


def test_quantile_columns_have_the_unit_of_the_mean() -> None:
    assert is_quantile("p99.9")
    assert not is_quantile("prio")
    kinds = [meaning("p50", question) for question in ("latency", "queue_depth_summary")]
    assert [found and found.kind for found in kinds] == ["time", "count"]


def sources(*packages: str) -> list[str]:
    return [path.read_text() for name in packages for path in sorted((ROOT / name).rglob("*.py"))]


PACKAGES = (
    "present", "cli", "report", "plot", "exports", "timelines", "analysis", "simulator", "fleets",
)  # fmt: skip


def test_imports_have_no_cycle() -> None:
    """Imports anywhere, also inside functions; those only for type checkers do not count."""
    between: dict[str, set[str]] = {name: set() for name in PACKAGES}
    modules: dict[str, set[str]] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            own = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            for name in imported(path):
                other = name.partition(".")[0]
                if other in PACKAGES and other != package:
                    between[package].add(other)
                modules.setdefault(own, set()).add(name)
    for what, graph in (("packages", between), ("modules", modules)):
        try:
            list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            pytest.fail(f"a circle of {what}: {' -> '.join(error.args[1])}")
    assert between["present"] <= {"analysis"}


def imported(path: Path) -> set[str]:
    """Our modules, as `report.page`, that a file imports when something in it runs."""
    found: set[str] = set()

    class Visitor(ast.NodeVisitor):
        def visit_If(self, node: ast.If) -> None:
            if getattr(node.test, "id", "") != "TYPE_CHECKING":
                self.generic_visit(node)

        def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
            module = node.module or ""
            for name in node.names:
                inner = f"{module}.{name.name}"
                file = ROOT.joinpath(*inner.split(".")[1:])
                own = file.with_suffix(".py").exists() or (file / "__init__.py").exists()
                if module.partition(".")[0] == "schedscope":
                    found.add((inner if own else module).removeprefix("schedscope").lstrip("."))

    Visitor().visit(ast.parse(path.read_text()))
    return found - {"", ".".join(path.relative_to(ROOT).with_suffix("").parts)}
