"""The questions of the prediction bench: predictions.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from research.lab.boots import Cell
from research.lab.guests import HERE


@dataclass(frozen=True)
class Under:
    """A kernel as the bench knows it."""

    name: str
    kernel: str
    """Of matrix.toml."""
    policy: str
    """The policy that models it."""
    bpf: str = ""
    """A scheduler that replaces the kernel's own."""


@dataclass(frozen=True)
class Question:
    """A workload recorded in one machine, and asked for another."""

    case: str
    """What the tables call it: `6.1 to 6.12`, or a change."""
    work: str
    before: Cell
    after: Cell
    under: Under
    """The kernel of `after`."""
    cpus: int
    whatif: Mapping[str, Any] = field(default_factory=dict)
    """The change as `whatif` takes it; without one it is the kernel that changes."""

    @property
    def same(self) -> bool:
        """Nothing changes: a replay of a kernel under its own policy."""
        return self.before == self.after


@dataclass(frozen=True)
class Plan:
    """predictions.toml."""

    kernels: dict[str, Under]
    questions: list[Question]
    works: dict[int, list[str]]
    """The workloads that there are for so many CPUs."""
    others: dict[tuple[str, int], list[str]]
    """Of a case and a number of CPUs: why it has no others than its own."""


def plan() -> Plan:
    """What predictions.toml says."""
    document = tomllib.loads((HERE / "predictions.toml").read_text())
    kernels = {row["name"]: Under(**row) for row in document["kernel"]}
    works = {
        cpus: [row["name"] for row in document["work"] if str(cpus) in row] for cpus in (1, 2, 4, 8)
    }
    others: dict[tuple[str, int], list[str]] = {}
    for case in document["case"]:
        why = others.setdefault((_label(case), case["cpus"]), [])
        if case.get("others"):
            why.append(case["others"])
    return Plan(kernels, list(_questions(document, kernels)), works, others)


def _label(case: dict[str, Any]) -> str:
    """What the tables call a case."""
    if case.get("change"):
        return f"{case['source']}: {case['change']}"
    return f"{case['source']} to {case.get('target', case['source'])}"


def _questions(document: dict[str, Any], kernels: dict[str, Under]) -> Iterator[Question]:
    works = {row["name"]: row for row in document["work"]}
    for case in document["case"]:
        source = kernels[case["source"]]
        target = kernels[case.get("target", case["source"])]
        name, cpus = case.get("change", ""), case["cpus"]
        for work in case.get("work", [name for name in works if str(cpus) in works[name]]):
            row = works[work] | case.get("from", {})
            before = _cell(document, row, source, cpus)
            if name:
                after = _cell(document, row | case["becomes"], source, cpus)
            else:
                after = _cell(document, row, target, cpus)
            yield Question(_label(case), work, before, after, target, cpus, case.get("whatif", {}))


def _cell(document: dict[str, Any], row: dict[str, Any], under: Under, cpus: int) -> Cell:
    """The machine that records a workload in its size for `cpus`; it may have fewer or more."""
    scripts = document["scripts"]
    there = str(row.get("cpus", cpus))
    name = f"bench-{under.name}-{there}cpu-{row['name']}"
    name += f"-of_{cpus}" if there != str(cpus) else ""
    plain = next(one for one in document["work"] if one["name"] == row["name"])
    changed = [str(row[key]) for key in ("settings", "before") if row.get(key) != plain.get(key)]
    for words in changed:
        name += "-" + "".join(c if c.isalnum() else "_" for c in words)
    before = scripts[row["before"]] if row.get("before") else ""
    if under.bpf:
        before += f"bpftool struct_ops register /bin/{under.bpf.removesuffix('.c')}.o || exit\n"
    return Cell(
        name=name,
        kernel=under.kernel,
        work=row[str(cpus)],
        smp=there,
        counted=True,
        before=before,
        options=row.get("options", ""),
        settings=row.get("settings", ""),
        bpf=under.bpf,
        tools="bpftool" if under.bpf else "",
        repeats=row.get("repeats", document["repeats"]),
    )
