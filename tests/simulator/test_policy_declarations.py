"""A policy's own file is the only place where something is said of it by name."""

from __future__ import annotations

import ast

import polars as pl
import pytest
from frames import longest_lived, mixed, questions
from sources import ROOT, sources

import schedscope as ss
from schedscope.analysis.asking.policies import declared, rules
from schedscope.errors import MissingEventsError
from schedscope.simulator.workloads.workload import CLASSES

POLICIES = ss.policies()["name"].to_list()
# Of each family the one that its name means.
FIRST = list({row["family"]: row for row in reversed(declared().values())}.values())
# What no simulation has, and what asks for it.
NOT_SIMULATED = {
    "queue_load_agreement": "queue lengths",
    "requests": "system calls",
    "kicks": "kicks",
    **dict.fromkeys(("dispatch_depth", "dispatch_queues", "dispatch_slices"), "dispatch queues"),
}
# The one default.
EXEMPT = ("simulator/recorded/scheduler.py", "simulator/runs/first_cpus.py")
"""Which kernels have which scheduler if they do not say; what 4BSD does with kernel threads."""


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(name, marks=() if declared()[name] in FIRST else pytest.mark.release)
        for name in POLICIES
    ],
)
def test_every_question_is_answered_on_every_policys_trace(policy: str) -> None:
    trace = mixed(policy)
    assert longest_lived(trace) >= trace.ncpu
    for name, ask in questions().items():
        if name in NOT_SIMULATED:
            with pytest.raises(MissingEventsError, match=NOT_SIMULATED[name]):
                ask(trace)
        else:
            ask(trace)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_scale_of_priorities_is_what_the_trace_shows(policy: str) -> None:
    """Linux's scale is 120 + nice throughout; then nice levels have weights."""
    trace = mixed(policy)
    prios = {
        row["comm"]: set(row["prio"])
        for row in trace.states.join(trace.threads.select("utid", "comm"), on="utid")
        .filter(pl.col("comm").str.starts_with("hog"), pl.col("state") == "running")
        .group_by("comm")
        .agg(pl.col("prio"))
        .collect()
        .to_dicts()
    }
    assert prios
    shown = all(seen == {120 + int(comm[3:])} for comm, seen in prios.items())
    assert (declared()[policy]["priorities"] == "linux") == shown
    assert trace.metadata("scheduler", "priorities") == declared()[policy]["priorities"]
    basis = ss.weights(trace).filter(pl.col("comm").str.starts_with("hog"))["basis"].unique()
    assert basis.to_list() == ["kernel table" if shown else "equal"]


def test_family_name_means_its_first_policy() -> None:
    known = rules("scores")
    assert known["ule"]["name"] == "ule-14"
    assert rules("keeps_virtual_time")["eevdf"]["name"] == "eevdf-6.17"
    assert set(known) & set(rules("keeps_virtual_time")) == set()


def test_no_list_elsewhere_names_policies() -> None:
    """No tuple, list, set or table of names in Python: what is declared is asked for."""
    names = {row[key] for row in declared().values() for key in ("name", "family")}
    names -= set(CLASSES)  # fifo and rr are scheduling classes, too
    found = []
    for path in sources():
        place = path.relative_to(ROOT).as_posix()
        if place.startswith(EXEMPT):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            parts: list[ast.expr | None] = []
            if isinstance(node, ast.Tuple | ast.List | ast.Set):
                parts = [*node.elts]
            elif isinstance(node, ast.Dict):
                parts = [*node.keys, *node.values]
            elif isinstance(node, ast.Compare):
                parts = [node.left, *node.comparators]
            words = {part.value for part in parts if isinstance(part, ast.Constant)}
            found += [f"{place}:{node.lineno} {word}" for word in words & names]
    assert not found, found
