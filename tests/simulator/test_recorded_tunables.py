"""A trace's recorded scheduler tunables, translated to those of a policy."""

from __future__ import annotations

from typing import Any

import pytest

from schedscope.simulator.recorded.tunables import recorded_tunables
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder
from schedscope.store.trace import Trace


def recorded(cpus: int, hz: int | None = None, **tunables: str) -> Trace:
    """A trace of `cpus` whose recorder found these files."""
    build = Builder()
    build.thread("a").run(1000)
    trace = simulate(build.workload(), policy="fifo", cpus=cpus)
    files = {f"/sys/kernel/debug/sched/{name}": text for name, text in tunables.items()}
    trace.info.update({"scheduler": {"tunables": files}, "hz": hz})
    return trace


# Values of Debian's 6.12 on two CPUs: 0.7 ms, doubled.
EEVDF = {
    "base_slice_ns": "1400000",
    "migration_cost_ns": "500000",
    "tunable_scaling": "1",
    "features": "PLACE_LAG NO_DELAY_ZERO WAKEUP_PREEMPTION NO_HRTICK NI_RANDOM NO_WA_WEIGHT ",
}
# Values of Debian's 6.1 on two CPUs: 6, 0.75 and 1 ms, doubled.
CFS = {
    "latency_ns": "12000000",
    "min_granularity_ns": "1500000",
    "wakeup_granularity_ns": "2000000",
    "tunable_scaling": "1",
    "features": "GENTLE_FAIR_SLEEPERS NO_START_DEBIT BASE_SLICE NO_WAKEUP_PREEMPTION",
}


def test_recorded_slice_is_the_unscaled_one() -> None:
    assert recorded_tunables(recorded(2, 250, **EEVDF), "eevdf-6.12") == {
        "scaling": "on",
        "base_slice": 700_000,
        "migration_cost": 500_000,
        "place_lag": "on",
        "delay_zero": "off",
        "wakeup_preemption": "on",
        "hrtick": "off",
        "newidle_by_success": "on",
        "wa_weight": "off",
        "hz": 250,
    }
    assert recorded_tunables(recorded(2, 250, **CFS), "cfs-6.1") == {
        "scaling": "on",
        "sched_latency": 6_000_000,
        "sched_min_granularity": 750_000,
        "sched_nr_latency": 8,
        "sched_wakeup_granularity": 1_000_000,
        "gentle_fair_sleepers": "on",
        "start_debit": "off",
        "least_slice": "on",
        "wakeup_preempt": "off",
        "hz": 250,
    }


@pytest.mark.parametrize(
    ("cpus", "scaling", "expected"),
    [
        (1, "1", ("on", 2_800_000)),
        (3, "1", ("on", 1_400_000)),
        (4, "1", ("on", 933_333)),
        (16, "1", ("on", 700_000)),  # no more than eight count
        (4, "0", ("off", 2_800_000)),
        (4, "2", ("off", 2_800_000)),  # in proportion: a policy scales by the logarithm
    ],
)
def test_the_kernel_scales_by_the_logarithm_of_the_cpus(
    cpus: int, scaling: str, expected: tuple[str, int]
) -> None:
    trace = recorded(cpus, base_slice_ns="2800000", tunable_scaling=scaling)
    found = recorded_tunables(trace, "eevdf-6.12")
    assert (found["scaling"], found["base_slice"]) == expected


def test_policy_gets_only_its_own_tunables() -> None:
    assert recorded_tunables(recorded(2, 250, **CFS), "fifo") == {}
    assert "sched_latency" not in recorded_tunables(recorded(2, 250, **CFS), "eevdf-6.12")


@pytest.mark.parametrize(
    ("groups", "policy", "runtime"),
    [
        ("", "cfs-6.1", 900_000_000),
        ("", "eevdf-6.6", 900_000_000),
        ("", "eevdf-6.18", None),  # the deadline server has replaced it
        ("n", "eevdf-6.18", None),
        ("y", "eevdf-6.18", 900_000_000),
    ],
)
def test_real_time_threads_have_the_recorded_limit_where_the_release_has_one(
    groups: str, policy: str, runtime: int | None
) -> None:
    files = {"rt_runtime_us": "900000", "rt_period_us": "1000000"}
    trace = recorded(2, **files)
    server = "/sys/kernel/debug/sched/fair_server/cpu0/runtime"
    more = {server: "30000000"} | ({"CONFIG_RT_GROUP_SCHED": groups} if groups else {})
    trace.info["scheduler"]["tunables"].update(more)
    found = recorded_tunables(trace, policy)
    assert found.get("rt_runtime") == runtime
    assert found["rt_period"] == 1_000_000_000
    has_server = policy.startswith("eevdf")
    assert found.get("fair_server_runtime") == (30_000_000 if has_server else None)


def test_real_time_threads_have_no_limit_where_it_was_switched_off() -> None:
    assert recorded_tunables(recorded(2, rt_runtime_us="-1"), "cfs-6.1") == {"rt_runtime": 0}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("lazy", "on"),
        ("lazy (dynamic)", "on"),
        ("rt, lazy", "on"),
        ("full", "off"),
        ("voluntary", None),
        ("rt", None),
        (None, None),
    ],
)
def test_lazy_preemption_follows_the_recorded_model(
    model: str | None, expected: str | None
) -> None:
    trace = recorded(2)
    trace.info["preempt"] = model
    assert recorded_tunables(trace, "eevdf-7.2").get("lazy_preemption") == expected
    assert "lazy_preemption" not in recorded_tunables(trace, "cfs-6.1")


@pytest.mark.parametrize("text", ["", "(null)", "fast", "-1"])
def test_non_numeric_tunable_is_ignored(text: str) -> None:
    assert recorded_tunables(recorded(2, base_slice_ns=text), "eevdf-6.12") == {}


def test_recorded_tunables_can_be_simulated() -> None:
    for policy, files in {"eevdf-6.12": EEVDF, "cfs-6.1": CFS}.items():
        trace = recorded(2, 1000, **files)
        found: dict[str, Any] = recorded_tunables(trace, policy)
        ran = simulate(trace, policy=policy, set=found)
        assert ran.duration > 0
