"""Which threads ran outside their mask, or on isolated CPUs?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from schedscope.analysis.asking.needs import needs
from schedscope.analysis.cpus.topology import cpu_list, cpu_text, cpus_of, given_cpus
from schedscope.analysis.residency import masked, time_spent
from schedscope.errors import UsageError

if TYPE_CHECKING:
    from schedscope.store.trace import Trace


@needs("switches", "affinity")
def runs_outside_affinity(trace: Trace, *, where: pl.Expr | None = None) -> pl.DataFrame:
    """One row per thread and CPU on which it ran although its recorded mask does not allow it.

    * `utid`, `tid`, `pid`, `comm`, `kernel`, `affinity`: the thread and its mask; `cpu`;
    * `running` (ns), `runs`; `ts_first`, `ts_last`: when the first and the last of them began.

    A mask is recorded once, but threads may change theirs: a run before such a change is listed,
    too, and is not an error. Threads without a recorded mask are not listed. Longest first.
    """
    spent = masked(trace, time_spent(trace, where)).filter("outside")
    threads = trace.threads.select("utid", "tid", "pid", "comm", "kernel").collect()
    return (
        spent.join(threads, on="utid", how="left")
        .sort(["running", "utid", "cpu"], descending=[True, False, False])
        .select(
            *("utid", "tid", "pid", "comm", "kernel", "affinity", "cpu"),
            *("running", "runs", "ts_first", "ts_last"),
        )
    )


@needs("switches")
def isolation_leaks(
    trace: Trace, isolated: str | Sequence[int] | None = None, *, where: pl.Expr | None = None
) -> pl.DataFrame:
    """One row per thread and isolated CPU on which it ran.

    `isolated` are the CPUs, as numbers or as a list ("2-3"); without it, those that the capture
    reports (`isolated_cpus`).

    * `cpu`, `utid`, `tid`, `pid`, `comm`, `kernel`, `affinity`: the CPU, the thread and its mask;
    * `leak`: false if the mask holds only isolated CPUs: the thread was put there on purpose, or it
      is the kernel's own thread of that CPU; true if the thread could have run elsewhere; null if
      its mask is not known: none was recorded, or the recorded one does not allow this CPU, so
      that it was changed;
    * `running` (ns), `runs`; `cpu_frac`: `running` as a share of the window; `ts_first`, `ts_last`:
      when the first and the last run began.

    Leaks first, longest first. Empty if no CPU is isolated. Raises `UsageError` if neither the
    caller nor the capture says which CPUs are isolated, or if the trace does not have one of them.
    """
    chosen = isolated_cpus(trace) if isolated is None else given_cpus("isolated", isolated)
    if chosen is None:
        raise UsageError(
            "the capture does not report which CPUs were isolated",
            "the CPUs that are",
            'name them, as in isolated="2-3"',
        )
    strange = sorted(set(chosen) - set(cpus_of(trace)))
    if strange and isolated is not None:
        raise UsageError(
            f"isolated={isolated!r} has CPU {strange[0]}",
            "CPUs of this trace",
            f"one of {cpu_text(cpus_of(trace))}",
        )
    spent = masked(trace, time_spent(trace, where)).filter(pl.col("cpu").is_in(chosen))
    masks = spent["affinity"].unique().drop_nulls()
    bound = [mask for mask in masks if set(cpu_list(mask)) <= set(chosen)]
    threads = trace.threads.select("utid", "tid", "pid", "comm", "kernel").collect()
    length = trace.duration
    return (
        spent.join(threads, on="utid", how="left")
        .with_columns(
            leak=pl.when(pl.col("affinity").is_not_null() & ~pl.col("outside")).then(
                ~pl.col("affinity").is_in(bound)
            ),
            cpu_frac=pl.col("running") / length,
        )
        .sort(
            ["leak", "running", "utid", "cpu"],
            descending=[True, True, False, False],
            nulls_last=[True, False, False, False],
        )
        .select(
            *("cpu", "utid", "tid", "pid", "comm", "kernel", "affinity", "leak"),
            *("running", "runs", "cpu_frac", "ts_first", "ts_last"),
        )
    )


def isolated_cpus(trace: Trace) -> list[int] | None:
    """The CPUs that the capture says were isolated; None if it does not say.

    From /sys/devices/system/cpu/isolated (`isolcpus=`, and isolated cpusets of newer kernels) and
    nohz_full there, and from the command line where that was recorded.
    """
    known = trace.metadata("scheduler", "tunables")
    if not isinstance(known, dict):
        return None
    lists = [
        str(known[f"/sys/devices/system/cpu/{name}"])
        for name in ("isolated", "nohz_full")
        if f"/sys/devices/system/cpu/{name}" in known
    ]
    for word in str(known.get("/proc/cmdline", "")).split():
        name, _, value = word.partition("=")
        if name in ("isolcpus", "nohz_full"):
            # isolcpus=managed_irq,domain,2-3: flags come first.
            lists.append(",".join(part for part in value.split(",") if part[:1].isdecimal()))
    if not lists and "/proc/cmdline" not in known:
        return None
    # nohz_full reads "  (null)" where it is built in and not used.
    told = [text for text in lists if text.strip() != "(null)"]
    return sorted({cpu for text in told for cpu in cpu_list(text)})
