"""How far apart are two CPUs, and which share a core, a cache or memory?"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from operator import index
from typing import TYPE_CHECKING

import polars as pl

from schedscope.errors import FormatError, UsageError

if TYPE_CHECKING:
    from schedscope.store.trace import Trace

DISTANCE = pl.Enum(["smt", "llc", "package", "numa"])
"""`smt`: other thread of the core; `llc`: other core, same last-level cache; `package`: other
cache, same package and memory node; `numa`: another package or memory node."""

PLACES = ("cpu", "core", "llc", "package", "numa_node")
"""Columns of `cpus` that put CPUs into groups, the smallest first."""


# `cpu` is a UInt16.
_LAST_CPU = (1 << 16) - 1


def recorded_cpus(trace: Trace) -> list[int]:
    """Numbers of the CPUs that were recorded, in order; they may have gaps."""
    recorded = {int(cpu["cpu"]) for cpu in trace.info.get("per_cpu") or []}
    return sorted(recorded or range(trace.ncpu))


def cpus_of(trace: Trace) -> list[int]:
    """Numbers of the CPUs that the trace knows, ascending; they may have gaps."""
    listed = trace.cpus.select("cpu").collect()["cpu"].to_list()
    counted = [int(cpu["cpu"]) for cpu in trace.info.get("per_cpu") or []]
    return sorted({*listed, *counted} or range(trace.ncpu))


def places(trace: Trace, over: str) -> dict[int, int | None]:
    """The number of each CPU's core, cache, package or node; None where the trace has none.

    Raises `UsageError` for another word than those of `PLACES`.
    """
    if over not in PLACES:
        raise UsageError(f"over={over!r}", "a place in the machine", "one of " + ", ".join(PLACES))
    known = dict(trace.cpus.select("cpu", pl.col(over).alias("place")).collect().iter_rows())
    return {cpu: cpu if over == "cpu" else known.get(cpu) for cpu in cpus_of(trace)}


def groups(trace: Trace, over: str) -> dict[int, list[int]]:
    """The CPUs of each core, cache, package or node; empty where the trace has no topology."""
    found: dict[int, list[int]] = {}
    for cpu, place in places(trace, over).items():
        if place is not None:
            found.setdefault(place, []).append(cpu)
    return found


def distances(trace: Trace, pairs: pl.DataFrame | None = None) -> pl.DataFrame:
    """One row per ordered pair of CPUs: how far it is from one to the other.

    * `from_cpu`, `to_cpu`: two different CPUs of the trace, or each of `pairs` (those two columns);
    * `distance`: the smallest thing that they share, see `DISTANCE`; null where
      the trace does not say enough to tell.

    >>> from schedscope import Trace
    >>> cpus = pl.DataFrame({
    ...     "cpu": [0, 1, 2], "core": [0, 0, 2], "llc": [0, 0, 0],
    ...     "package": [0, 0, 0], "numa_node": [0, 0, 0],
    ... })
    >>> distances(Trace.from_tables({"cpus": cpus}, {"ncpu": 3})).head(3)
    shape: (3, 3)
    ┌──────────┬────────┬──────────┐
    │ from_cpu ┆ to_cpu ┆ distance │
    │ ---      ┆ ---    ┆ ---      │
    │ u16      ┆ u16    ┆ enum     │
    ╞══════════╪════════╪══════════╡
    │ 0        ┆ 1      ┆ smt      │
    │ 0        ┆ 2      ┆ llc      │
    │ 1        ┆ 0      ┆ smt      │
    └──────────┴────────┴──────────┘
    """
    numbers = pl.DataFrame({"cpu": cpus_of(trace)}, {"cpu": pl.UInt16})
    if pairs is None:
        ends = numbers.select(from_cpu="cpu").join(numbers.select(to_cpu="cpu"), how="cross")
        pairs = ends.filter(pl.col("from_cpu") != pl.col("to_cpu"))
    found = pairs.select("from_cpu", "to_cpu")
    for over in PLACES[1:]:
        place = places(trace, over)
        at = numbers.with_columns(
            pl.col("cpu").replace_strict(place, return_dtype=pl.Int64).alias(over)
        )
        for end in ("from", "to"):
            ending = at.rename({"cpu": f"{end}_cpu", over: f"{end}_{over}"})
            found = found.join(ending, on=f"{end}_cpu", how="left", maintain_order="left")
    core, llc, package, node = (
        pl.col(f"from_{over}") == pl.col(f"to_{over}") for over in PLACES[1:]
    )
    distance = (
        pl.when(core)
        .then(pl.lit("smt"))
        .when(llc)
        .then(pl.when(~core).then(pl.lit("llc")))
        .when(~package | ~node)
        .then(pl.lit("numa"))
        # The same package: without the caches it may be nearer than that.
        .when(package & ~llc)
        .then(pl.lit("package"))
    )
    return found.select("from_cpu", "to_cpu", distance=distance.cast(DISTANCE))


def cpu_list(text: str) -> list[int]:
    """The CPUs of a list as kernels write it.

    Raises `FormatError` if it is none, or names a CPU above 65535, more than a trace can number.

    >>> cpu_list("0-2,8"), cpu_list("")
    ([0, 1, 2, 8], [])
    """
    found: set[int] = set()
    for part in filter(None, text.replace(" ", "").split(",")):
        first, dash, last = part.partition("-")
        numbers = first.isdecimal() and (not dash or last.isdecimal())
        if not numbers or int(last or first) > _LAST_CPU:
            raise FormatError(
                f"{text!r} is not a list of CPUs", "numbers and ranges", "as in 0-3,8"
            )
        found.update(range(int(first), int(last or first) + 1))
    return sorted(found)


def cpu_text(cpus: Iterable[int]) -> str:
    """CPUs as a list of ranges.

    >>> cpu_text([8, 0, 1, 2])
    '0-2,8'
    """
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges)


def given_cpus(name: str, cpus: str | Collection[int]) -> list[int]:
    """The CPUs that an argument names, as numbers or as a list ("2-3,8").

    >>> given_cpus("cpus", "2-3,8"), given_cpus("cpus", [3, 2, 3])
    ([2, 3, 8], [2, 3])
    """
    try:
        if isinstance(cpus, str):
            return cpu_list(cpus)
        return sorted({index(cpu) for cpu in cpus})
    except (FormatError, TypeError):
        raise UsageError(f"{name}={cpus!r}", "a list of CPUs", "as in 2-3,8") from None
