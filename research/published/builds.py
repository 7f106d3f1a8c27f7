"""ULE against 4BSD on FreeBSD 5.2.1: builds, benchmarks and an encoder (V17)."""

from __future__ import annotations

from functools import cache

import polars as pl

from research.published.claims import Claim, Row, data, per_cent
from research.published.measures import cpu_time
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.generators import hogs, make, nice_hogs
from schedscope.simulator.workloads.workload import Workload

ULE, BSD = "ule-2003", "4bsd"
PENTIUM = "1x1x2"
"""One core of two hardware threads; the Athlons have one."""
SMT = {"smt_speed": "0.6"}
ONE = "on one CPU neither policy idles beside a waiting thread: what differed is caches and kernel"
BOTH = "neither policy idles a hardware thread; which pairs share a core changes nothing here"
USER = "a program takes the CPU time that it asks for, whatever the policy"
NEAR = 0.5
"""Per cent by which a row may be off without a reason."""
KERNEL = "the model has no time in the kernel"


@cache
def _ran(what: str, policy: str, machine: str) -> tuple[int, int]:
    """How long it took, and the CPU time in it, ns."""
    costs = SMT if machine == PENTIUM else None
    trace = simulate(_load(what), policy=policy, machine=machine, costs=costs)
    return trace.duration, sum(cpu_time(trace).values())


def _load(what: str) -> Workload:
    """A build of so many jobs, processes that compute (ubench), or one (oggenc)."""
    if what.startswith("-j"):
        return make(int(what.removeprefix("-j")), tasks=128)
    return hogs(4 if what == "ubench" else 1, time="5s")


def _jem() -> list[Row]:
    """Every published row, beside the same of the model."""
    rows = []
    for row in pl.read_csv(data("fixtures/published/ule-4bsd-builds.csv")).iter_rows(named=True):
        # The Apache build does not say how many jobs it had.
        what = row["test"] if row["test"] in ("ubench", "oggenc") else row["jobs"] or "-j1"
        machine = PENTIUM if row["machine"] == "Pentium4" else "1"
        name = f"{row['machine']}, {row['test']} {row['jobs'] or ''}".strip()
        figure = row["metric"].removesuffix("_s")
        real = per_cent(row["ule_mean"], row["4bsd_mean"])
        (ule, ule_cpu), (bsd, bsd_cpu) = (_ran(what, p, machine) for p in (ULE, BSD))
        model: float | None
        why = BOTH if machine == PENTIUM else ONE
        if figure == "system":
            model, why = None, KERNEL
        elif figure == "user":
            model, why = per_cent(ule_cpu, bsd_cpu), USER
        elif figure == "score":
            # So much work in less time is a higher score.
            model = per_cent(bsd, ule)
        else:
            model = per_cent(ule, bsd)
        near = model is not None and abs(model - real) < NEAR
        rows.append(
            Row(f"{name}: {figure}, ULE over 4BSD", real, model, "%", why="" if near else why)
        )
    return rows


def _more_jobs() -> list[Row]:
    """What hardware threads add to the CPU time of a build of more jobs."""
    builds = pl.read_csv(data("fixtures/published/ule-4bsd-builds.csv")).filter(
        (pl.col("machine") == "Pentium4") & (pl.col("metric") != "real_s")
    )
    rows = []
    for name, column, policy in (("ULE", "ule_mean", ULE), ("4BSD", "4bsd_mean", BSD)):
        real = {
            jobs: float(builds.filter(pl.col("jobs") == jobs)[column].sum())
            for jobs in ("-j2", "-j4")
        }
        ran = {jobs: _ran(jobs, policy, PENTIUM)[1] for jobs in real}
        rows.append(
            Row(
                f"Pentium4, {name}: CPU time of -j4 over -j2",
                per_cent(real["-j4"], real["-j2"]),
                per_cent(ran["-j4"], ran["-j2"]),
                "%",
            )
        )
    return rows


def _crawl() -> list[Row]:
    ule, bsd = (_share_of_nice_19(policy) for policy in (ULE, BSD))
    slow = "a build at nice 19 beside a program at nice 0: its share under"
    return [
        Row(f"{slow} ULE", None, ule, "%", "slows to a crawl", agrees=ule < 1),
        Row(f"{slow} 4BSD", None, bsd, "%", "goes on", agrees=bsd > 10),
    ]


def _share_of_nice_19(policy: str) -> float:
    trace = simulate(nice_hogs("0 19", time="100s"), policy=policy, until="40s")
    return cpu_time(trace, since=10_000_000_000)["nice19"] / 3e8


CLAIMS = [
    Claim(
        "V17",
        "Builds, ubench and oggenc: a few per cent either way; ULE slows to a crawl",
        "jem",
        f"1 CPU, or for the Pentium 4 one core of two hardware threads with smt_speed=0.6; 128 "
        f"compilers, four or one that compute; `{ULE}` and `{BSD}`. The crawl, of which the "
        "source names no load: two programs that compute",
        "what differed is cache and kernel work. The published rows serve as golden data of "
        "`ministat` (V18)",
        lambda: [*_jem(), *_more_jobs(), *_crawl()],
    ),
]
