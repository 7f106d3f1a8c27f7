"""ULE against 4BSD: how N hogs spread over the CPUs (V01 to V05, V35)."""

from __future__ import annotations

from functools import cache
from statistics import mean, median

import polars as pl

from research.published.claims import Claim, Row, data, per_cent
from research.published.measures import cpu_time
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.generators import hogs

V890 = 16
XEON = "1x4x2"
GRID = (1, 8, 15, 16, 17, 18, 20, 24, 28, 31, 32, 33, 36, 40, 48, 56, 64)
TIME = 4_000_000_000
REFILL, SMALL = "32ms", "4ms"
"""To read 32 MiB and 4 MiB at 1 GiB/s, about what memory of that time gave one CPU."""


@cache
def spread_ratio(policy: str, n: int, cpus: int | str) -> float:
    """Wall clock over CPU time of `n` equal hogs of 4 s, for its share of the CPUs."""
    trace = simulate(hogs(n, time=TIME), policy=policy, machine=str(cpus), seed=n)
    return trace.duration / (TIME * max(1, n / trace.ncpu))


def static_split(n: int, cpus: int) -> float:
    """The ratio if no process ever moves: one CPU has ceil(n / cpus) of them."""
    return -(-n // cpus) * cpus / max(n, cpus)


def _4bsd() -> list[Row]:
    ratios = {n: spread_ratio("4bsd", n, V890) for n in GRID}
    return [
        Row("4BSD, N to 16: largest ratio", 1.0, max(r for n, r in ratios.items() if n <= 16)),
        Row("4BSD, N = 17 to 64: largest ratio", 1.0, max(r for n, r in ratios.items() if n > 16)),
    ]


def _ule_2011() -> list[Row]:
    ratios = {n: spread_ratio("ule-2011", n, V890) for n in GRID}
    peak = max(ratios, key=lambda n: ratios[n])
    below = all(r <= static_split(n, V890) + 0.01 for n, r in ratios.items())
    return [
        Row("N to 16: largest ratio", 1.0, max(r for n, r in ratios.items() if n <= 16)),
        Row("peak at N", 18.0, float(peak), whole=True),
        Row(
            "ratio there",
            None,
            ratios[peak],
            said=f"at most {static_split(peak, V890):.2f}",
            agrees=below,
        ),
        Row("ratio at 32", 1.0, ratios[32]),
        Row("ratio at 33", None, ratios[33], said="a jump up", agrees=ratios[33] > ratios[32]),
        Row("ratio at 48", 1.0, ratios[48]),
    ]


def _ule_later() -> list[Row]:
    grid = (8, 9, 10, 12, 15, 16, 17, 24)
    peak = {p: max(spread_ratio(p, n, XEON) for n in grid) for p in ("4bsd", "ule-14", "ule-2011")}
    return [
        Row(
            "ULE of 14, peak ratio",
            None,
            peak["ule-14"],
            said="far weaker than in 2011",
            agrees=peak["ule-14"] - 1 < 0.6 * (peak["ule-2011"] - 1),
        ),
        Row("ULE of 2011 on this machine, peak ratio", None, peak["ule-2011"]),
        Row("ULE of 14 less 4BSD, at the peak", 0.0, peak["ule-14"] - peak["4bsd"]),
    ]


@cache
def _cpu_per_task(policy: str, n: int, machine: str, *costs: tuple[str, str]) -> float:
    trace = simulate(
        hogs(n, time="2s"), policy=policy, machine=machine, seed=n, costs=dict(costs) or None
    )
    ran = cpu_time(trace)
    return sum(ran.values()) / n / 2e9


def _cpu_time() -> list[Row]:
    free = [_cpu_per_task(p, n, V890) for p in ("4bsd", "ule-2011") for n in (1, 16, 24)]
    smt = ("smt_speed", "0.6")
    alone = _cpu_per_task("ule-14", 1, XEON, smt)
    rows = [Row("16 CPUs, no costs: CPU time per task, any N over N = 1", 1.0, max(free))]
    rows += [
        Row(
            f"8 hardware threads, smt_speed=0.6: N = {n} over N = 1",
            2.0,
            _cpu_per_task("ule-14", n, XEON, smt) / alone,
        )
        for n in (12, 16)
    ]
    return rows


def _large_sets() -> list[Row]:
    # An incoming process reads its set again, wherever it ran last.
    costs = (("switch", REFILL),)
    per_task = {
        (p, n): _cpu_per_task(p, n, V890, *costs)
        for p in ("4bsd", "ule-2011")
        for n in (8, 16, 20, 32)
    }
    rows = [
        Row(f"{p}: CPU time per task at N = {n} over N = 8", 60.0, 100 * (r - 1), unit="%")
        for p in ("4bsd", "ule-2011")
        for n in (20, 32)
        for r in [per_task[p, n] / per_task[p, 8]]
    ]
    for n in (20, 32):
        less = per_cent(per_task["ule-2011", n], per_task["4bsd", n])
        rows.append(Row(f"N = {n}: ULE's CPU time over 4BSD's", None, less, "%", "less", less < 0))
    return rows + [_small_set(n, said) for n, said in FOUR.items()]


FOUR = {8: "slightly more", 16: "the same", 20: "significantly less", 32: "less", 56: "more"}
"""What the wiki says of the CPU time under ULE with 4 MiB, beside that under 4BSD."""


def _small_set(n: int, said: str) -> Row:
    ran = {p: _cpu_per_task(p, n, V890, ("switch", SMALL)) for p in ("ule-2011", "4bsd")}
    more = per_cent(ran["ule-2011"], ran["4bsd"])
    agrees = (
        abs(more) < 1 if said == "the same" else (more < -0.1 if "less" in said else more > 0.1)
    )
    why = "what caches still hold, and share, is not in the model" * (not agrees)
    return Row(
        f"4 MiB, N = {n}: ULE's CPU time over 4BSD's", None, more, "%", said, agrees, why=why
    )


def _genuine() -> list[Row]:
    """The last of N to end, over its share of 4 CPUs: two real runs and ten seeds."""
    real = pl.read_csv(data("fixtures/published/ule-4bsd-13.2.csv"))
    rows = []
    for scheduler, policy in (("ULE", "ule-13"), ("4BSD", "4bsd-13")):
        for n in (4, 5, 6, 7, 9, 12):
            runs = real.filter((pl.col("scheduler") == scheduler) & (pl.col("n") == n))
            ratios = [_spread_of_a_second(policy, n, seed) for seed in range(1, 11)]
            rows.append(Row(f"{scheduler}, N = {n}", mean(runs["efficiency"]), median(ratios)))
    return rows


def _spread_of_a_second(policy: str, n: int, seed: int) -> float:
    trace = simulate(hogs(n, time="1s"), policy=policy, cpus=4, seed=seed)
    return trace.duration / (1e9 * max(1, n / 4))


CLAIMS = [
    Claim(
        "V01",
        "4BSD: wall clock is CPU time, whatever N",
        "wiki",
        "16 CPUs, N hogs of 4 s, `4bsd`",
        "the wiki has figures without numbers: `about 1`, then a small step and smooth",
        _4bsd,
    ),
    Claim(
        "V02",
        "ULE of 2011: the saw-tooth",
        "wiki",
        "16 CPUs, N hogs of 4 s, `ule-2011`",
        "the height of the teeth is in a figure only; the static split is their upper bound",
        _ule_2011,
    ),
    Claim(
        "V03",
        "ULE of 2013 and later: the teeth are gone",
        "wiki",
        "4 cores of 2 hardware threads, N hogs of 4 s, `ule-14`",
        "hardware threads run at full speed here: no costs",
        _ule_later,
    ),
    Claim(
        "V04",
        "CPU time per task is independent of N; twice that with busy hardware threads",
        "wiki",
        "hogs of 2 s; the second with the cost model: smt_speed=0.6",
        "a policy model has no caches and no pipelines: without a cost the CPU time is the "
        "program's. 0.6 is a usual speed, not the Xeon's; the wiki's doubling means 0.5",
        _cpu_time,
    ),
    Claim(
        "V05",
        "32 MiB sets: 60 % more CPU time above 16 processes, ULE less than 4BSD",
        "wiki",
        f"16 CPUs, hogs of 2 s, cost model: switch={REFILL} (32 MiB at 1 GiB/s), {SMALL} for 4 MiB",
        "every switch is charged as a whole refill, also if the cache would still be warm in "
        "part; contention for memory is not modelled",
        _large_sets,
    ),
    Claim(
        "V35",
        "The saw-tooth of a real FreeBSD 13.2",
        "freebsd",
        "4 CPUs, N hogs of 1 s, `ule-13` and `4bsd-13`; medians of 10 seeds",
        "the real kernel runs other threads, too, which move hogs between CPUs. Two real runs of "
        "ULE at N = 5 gave 1.17 and 1.27",
        _genuine,
    ),
]
