"""The tunables of its own scheduler that a trace recorded, as tunables of a policy.

A recorder notes what the kernel shows of them: files of `/sys/kernel/debug/sched` (of
`/proc/sys/kernel` up to Linux 5.12), and its list of features, in which a feature that is off
begins with `NO_`. The kernel shows times after it has scaled them by its number of CPUs; a policy
scales them itself.

Of FreeBSD it is `kern.sched`, whose slice counts ticks of the statistics clock, and the release,
which says what its bands of priorities are (sys/sys/priority.h).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from schedscope.simulator.policies.policy import tunables
from schedscope.store.trace import Trace

_TIMES = {
    "base_slice_ns": "base_slice",
    "latency_ns": "sched_latency",
    "min_granularity_ns": "sched_min_granularity",
    "wakeup_granularity_ns": "sched_wakeup_granularity",
}
"""The last part of a file's name, without `sched_`: times that the kernel scales."""
_MIGRATION_COST = "migration_cost_ns"
_FEATURES = {
    "RUN_TO_PARITY": "run_to_parity",
    "PLACE_LAG": "place_lag",
    "PLACE_DEADLINE_INITIAL": "place_deadline_initial",
    "PLACE_REL_DEADLINE": "place_rel_deadline",
    "DELAY_DEQUEUE": "delay_dequeue",
    "DELAY_ZERO": "delay_zero",
    "SIS_UTIL": "sis_util",
    "WA_WEIGHT": "wa_weight",
    "NI_RANDOM": "newidle_by_success",
    "HRTICK": "hrtick",
    "GENTLE_FAIR_SLEEPERS": "gentle_fair_sleepers",
    "START_DEBIT": "start_debit",
    "BASE_SLICE": "least_slice",
    "RT_RUNTIME_SHARE": "rt_runtime_share",
}
_WAKEUP_PREEMPTION = "WAKEUP_PREEMPTION"
_RT_RUNTIME, _RT_PERIOD = "rt_runtime", "rt_period"
_RT_GROUPS = "CONFIG_RT_GROUP_SCHED"
_FAIR_SERVER = "/fair_server/cpu0/"
_MOST_SCALED = 8
_FREEBSD = ("slice", "preempt_thresh", "interact", "steal_thresh")
_ON_OR_OFF = ("steal_idle", "static_boost")
_BANDS = {
    1_400_000: {"min_realtime": 16, "min_timeshare": 88, "interact_levels": 48},
    0: {"min_realtime": 48, "min_timeshare": 120, "interact_levels": 32},
}
"""By the first `kern.osreldate`: the best real-time and timeshare priorities, and how many of the
latter ULE gives to interactive threads."""
_OTHER_BANDS = 1_500_000
"""From here on there is a list for each priority, which no policy models."""
_LAZY = {"lazy": "on", "full": "off"}
"""By the kernel's preemption model."""


def recorded_tunables(trace: Trace, policy: str) -> dict[str, Any]:
    """The tunables of `policy` that `trace` has recorded, as `simulate(set=...)` takes them.

    What the trace does not say, and what `policy` has no tunable for, is left out: a trace
    without tunables gives an empty dict.
    """
    known = dict(tunables(policy).select("name", "default").iter_rows())
    told = (trace.info.get("scheduler") or {}).get("tunables") or {}
    found = dict(_found({str(path): str(text) for path, text in told.items()}, trace.ncpu))
    for clock in ("hz", "stathz"):
        if hz := trace.info.get(clock):
            found[clock] = int(hz)
    if trace.info.get("os") == "FreeBSD":
        found |= dict(_found_of_freebsd({str(name): str(text) for name, text in told.items()}))
    # What older kernels call voluntary has become lazy: it does not carry over to a newer one.
    model = str(trace.info.get("preempt")).removesuffix(" (dynamic)").removeprefix("rt, ")
    if model in _LAZY:
        found["lazy_preemption"] = _LAZY[model]
    # In releases without this limit, only kernels with real-time group scheduling have it.
    if known.get(_RT_RUNTIME) == "0" and told.get(_RT_GROUPS) != "y":
        found.pop(_RT_RUNTIME, None)
    return {name: value for name, value in found.items() if name in known}


def _found_of_freebsd(told: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for name in _FREEBSD:
        if told.get(f"kern.sched.{name}", "").isdigit():
            yield name, int(told[f"kern.sched.{name}"])
    for name in _ON_OR_OFF:
        if told.get(f"kern.sched.{name}", "").isdigit():
            yield name, "on" if int(told[f"kern.sched.{name}"]) else "off"
    if told.get("kern.sched.balance") == "0":
        yield "balance", "off"
    yield from freebsd_bands(told)


def freebsd_bands(told: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """The priorities of a FreeBSD by its release; nothing where they are not modelled."""
    release = told.get("kern.osreldate", "")
    if release.isdigit() and int(release) < _OTHER_BANDS:
        yield from next(bands for first, bands in _BANDS.items() if int(release) >= first).items()


def _found(told: Mapping[str, str], ncpu: int) -> Iterator[tuple[str, Any]]:
    named = {path.rsplit("/", 1)[-1].removeprefix("sched_"): text for path, text in told.items()}
    # By the logarithm, as the policies do and as is usual; else times are taken as they are.
    way = named.get("tunable_scaling", "1")
    if "tunable_scaling" in named:
        yield "scaling", "on" if way == "1" else "off"
    scale = min(ncpu, _MOST_SCALED).bit_length() if way == "1" else 1
    if _is_number(named, "latency_ns") and _is_number(named, "min_granularity_ns"):
        yield "sched_nr_latency", -(-int(named["latency_ns"]) // int(named["min_granularity_ns"]))
    for name, tunable in _TIMES.items():
        if _is_number(named, name):
            yield tunable, round(int(named[name]) / scale)
    if _is_number(named, _MIGRATION_COST):
        for tunable in ("migration_cost", "sched_migration_cost"):
            yield tunable, int(named[_MIGRATION_COST])
    # In us; -1, which is no number, switches the limit off.
    if named.get("rt_runtime_us") == "-1":
        yield _RT_RUNTIME, 0
    for name in (_RT_RUNTIME, _RT_PERIOD):
        if _is_number(named, f"{name}_us"):
            yield name, int(named[f"{name}_us"]) * 1000
    for path, text in told.items():
        if _FAIR_SERVER in path and text.isdigit():
            yield f"fair_server_{path.rsplit('/', 1)[-1]}", int(text)
    for word in named.get("features", "").split():
        feature, state = (word[3:], "off") if word.startswith("NO_") else (word, "on")
        if feature == _WAKEUP_PREEMPTION:
            yield "wakeup_preemption", state
            yield "wakeup_preempt", state
        elif feature in _FEATURES:
            yield _FEATURES[feature], state


def _is_number(named: Mapping[str, str], name: str) -> bool:
    return named.get(name, "").isdigit()
