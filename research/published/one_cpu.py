"""Staircase against O(1), and nice under 4BSD, on one CPU (V11 to V16, V30)."""

from __future__ import annotations

from functools import cache

from research.published.claims import Claim, Row, per_cent
from research.published.measures import cpu_time, responses
from schedscope.analysis.sums.quantiles import quantile
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.generators import make, nice_hogs, requests
from schedscope.store.trace import Trace

O1, SERVER, DEFAULT, COMPUTE = "o1", "staircase-server", "staircase", "staircase-compute"


@cache
def _requests(policy: str, clients: int, each: int, service: str, switch: str = "0") -> Trace:
    load = requests(clients, requests=each, service=service, think=0)
    return simulate(load, policy=policy, costs={"switch": switch})


def apache(policy: str) -> Trace:
    """150 clients, 4050 requests of about 4.1 ms: ab -c 150 -n 4000 took 16.4 s."""
    return _requests(policy, 150, 27, "4ms")


def mysql(policy: str, switch: str = "0") -> Trace:
    """8 threads, 10,000 transactions of about 13.7 ms: 137 s."""
    return _requests(policy, 8, 1250, "13700us", switch)


@cache
def spread(policy: str) -> dict[str, float]:
    """Response times of the web server, ms: mean, p95 less min, max less min."""
    r = responses(apache(policy)) / 1e6
    least = float(r.min())  # type: ignore[arg-type]
    return {
        "mean": float(r.mean()),  # type: ignore[arg-type]
        "p95": (quantile(r.sort(), 0.95) or 0) - least,
        "max": float(r.max()) - least,  # type: ignore[arg-type]
    }


def _web() -> list[Row]:
    return [
        Row("completion, s: O(1)", 16.356, apache(O1).duration / 1e9),
        Row("completion, s: Staircase", 16.418, apache(SERVER).duration / 1e9),
        Row(
            "Staircase over O(1), completion",
            per_cent(16.418, 16.356),
            per_cent(apache(SERVER).duration, apache(O1).duration),
            unit="%",
        ),
        Row(
            "Staircase over O(1), longest less shortest response",
            -31.73,
            per_cent(spread(SERVER)["max"], spread(O1)["max"]),
            unit="%",
        ),
    ]


def _p95() -> list[Row]:
    policies = (O1, SERVER, DEFAULT, COMPUTE)
    order = sorted(policies, key=lambda p: spread(p)["p95"])
    stairs = [p for p in order if p != O1]
    longest = spread(COMPUTE)["max"] / spread(SERVER)["max"]
    return [
        Row("O(1): rank by p95 less shortest", 1.0, order.index(O1) + 1, whole=True),
        Row("compute mode: rank among Staircase's", 1.0, stairs.index(COMPUTE) + 1, whole=True),
        Row(
            "compute mode: longest response over the server mode's",
            None,
            longest,
            said="very bad",
            agrees=longest > 1,
        ),
    ]


def _database() -> list[Row]:
    r = {p: responses(mysql(p)) for p in (O1, DEFAULT, SERVER)}
    span = {p: float(s.max()) - float(s.min()) for p, s in r.items()}  # type: ignore[arg-type]
    costly = {p: mysql(p, "100us") for p in (O1, DEFAULT)}
    return [
        Row("total time, s: O(1)", 137.0962, mysql(O1).duration / 1e9),
        Row("total time, s: Staircase", 140.4485, mysql(DEFAULT).duration / 1e9),
        Row(
            "Staircase over O(1), total",
            per_cent(140.4485, 137.0962),
            per_cent(mysql(DEFAULT).duration, mysql(O1).duration),
            unit="%",
        ),
        Row(
            "the same with the cost model, switch=100us",
            per_cent(140.4485, 137.0962),
            per_cent(costly[DEFAULT].duration, costly[O1].duration),
            unit="%",
        ),
        Row("mean response, ms: O(1)", 109.6, float(r[O1].mean()) / 1e6),  # type: ignore[arg-type]
        Row("mean response, ms: Staircase", 112.3, float(r[DEFAULT].mean()) / 1e6),  # type: ignore[arg-type]
        Row(
            "Staircase over O(1), longest less shortest",
            -24.5,
            per_cent(span[SERVER], span[O1]),
            unit="%",
        ),
    ]


def _compute_mode() -> list[Row]:
    load = make(4, io="10ms")
    built = {p: simulate(load, policy=p).duration for p in (O1, SERVER, COMPUTE)}
    worst = built[COMPUTE] >= max(built[O1], built[SERVER])
    slower = per_cent(built[COMPUTE], built[SERVER])
    longer = spread(COMPUTE)["mean"] / spread(SERVER)["mean"]
    return [
        Row("a build that waits for the disk, over server mode", None, slower, "%", "worst", worst),
        Row(
            "mean response over server mode's",
            None,
            longer,
            said="raised by ten times the slice",
            agrees=longer > 1,
        ),
    ]


def _scalability() -> list[Row]:
    def grows(policy: str, few: int, many: int) -> float:
        t = {n: _requests(policy, n, 20, "4ms").duration for n in (few, many)}
        return (t[many] / t[few]) / (many / few)

    def differs(a: str, b: str, few: int, many: int) -> float:
        return per_cent(grows(a, few, many), grows(b, few, many))

    return [
        Row("web server, 16 to 256: Staircase over O(1)", -0.34, differs(SERVER, O1, 16, 256), "%"),
        Row("database, 8 to 64: Staircase over O(1)", -2.0, differs(DEFAULT, O1, 8, 64), "%"),
        Row(
            "modes of Staircase, at most apart",
            0.7,
            max(abs(differs(DEFAULT, SERVER, 16, 256)), abs(differs(COMPUTE, SERVER, 16, 256))),
            "%",
        ),
    ]


def nice_19_under_staircase() -> float:
    """CPU time of nice 0 over that of nice 19."""
    trace = simulate(nice_hogs("0 19", time="60s"), policy="staircase", until="40s")
    share = cpu_time(trace)
    return share["nice0"] / share["nice19"]


def share_under_4bsd(nices: str) -> float:
    """The share of the first of two hogs at the blank-separated `nices`, at load average 2."""
    load = nice_hogs(nices, time="200s")
    trace = simulate(load, policy="4bsd", until="100s", set={"load_average": 2})
    ran = cpu_time(trace, since=20_000_000_000)
    return ran[f"nice{nices.split()[0]}"] / sum(ran.values())


def _nice() -> list[Row]:
    return [
        Row("nice 0 beside nice 10", 63.4, 100 * share_under_4bsd("0 10"), "%"),
        Row("nice -1 beside nice 19", 74.9, 100 * share_under_4bsd("-1 19"), "%"),
    ]


NO_WASTE = (
    "neither scheduler idles a CPU that has work, so without costs both take the same time: what "
    "the article measured beyond that is cost of switches and caches"
)
CLAIMS = [
    Claim(
        "V11",
        "Apache, 150 clients: the same speed, a smaller spread under Staircase",
        "staircase",
        "1 CPU, 150 closed-loop clients, 4050 requests of 2 to 6 ms, `o1` and `staircase-server`",
        NO_WASTE + ". The client, in reality one process, has a thread for each connection here",
        _web,
    ),
    Claim(
        "V12",
        "Apache: O(1) first at 95 %, compute mode the best of Staircase there",
        "staircase",
        "the same, all modes",
        "order only; the article's table is lost",
        _p95,
    ),
    Claim(
        "V13",
        "MySQL, 8 threads: O(1) 2.4 % faster, Staircase's spread 24.5 % smaller",
        "staircase",
        "1 CPU, 8 closed-loop clients, 10,000 requests of 7 to 21 ms",
        NO_WASTE + ". The database's locks and disk are not modelled",
        _database,
    ),
    Claim(
        "V14",
        "Compute mode: worst for what waits for the disk, longest latency",
        "staircase",
        "1 CPU, make -j4 with waits of 10 ms; and the requests of V11",
        "sign only",
        _compute_mode,
    ),
    Claim(
        "V15",
        "Scalability (T_B / T_A) / (B / A) from A to B threads",
        "staircase",
        "1 CPU, closed-loop clients with 20 requests each",
        NO_WASTE,
        _scalability,
    ),
    Claim(
        "V30",
        "Shares by nice under 4BSD",
        "tick",
        "1 CPU, two hogs, 20 to 100 s, load average 2",
        "",
        _nice,
    ),
]
