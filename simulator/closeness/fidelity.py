"""How accurate a simulation is: a real trace compared with its replay.

The workload is extracted from a real trace and replayed on the same machine for
the same time (`schedscope.simulator.runs.replay`). Each row of the result compares one
replay, or a second capture of the same workload, with the real trace:

* `cpu_time_err`: half the sum over threads of |share of the CPU time there - here|:
  how much went to other threads (for a second capture: by names of threads);
* `wait_distance`: Wasserstein distance of the distributions of waits, ns;
  `wait_p50`, `wait_p99`: the quantiles, ns; `*_ratio`: replay divided by real;
* `waits_ratio`, `switches_ratio`, `preemptions_ratio`, `migrations_ratio`: counts;
* `elapsed_ratio`: the time from the first run of a thread to the last block or end
  of one: how long the workload took;
* `depth_ratio`: mean number of threads waiting for a CPU;
* `order`: Kendall's tau over the instants at which threads blocked, matched as
  the k-th block of a thread: 1 if every pair came in the same order. Pairs closer
  in the real trace than two captures are to each other have no order to keep and
  do not count; null if none is left;
* `shift`: median distance in time between matched blocks, ns.

Ratios are null where the real figure is 0. The threads of a second capture are
matched by name and by their place among those of that name; its `shift` is about
the median lateness, since the captures began at different moments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from schedscope.analysis.asking.arguments import by_name, check_traces
from schedscope.analysis.asking.policies import declaration, names
from schedscope.analysis.threads.of_threads import Where, where_in
from schedscope.errors import UsageError
from schedscope.simulator.closeness.figures import Figures, compared_threads
from schedscope.simulator.policies.policy import Policy, anew, called
from schedscope.simulator.recorded.scheduler import policy_asked
from schedscope.simulator.runs.nearest_way import nearest_way
from schedscope.simulator.runs.run import Progress, simulate
from schedscope.simulator.workloads.machine import Costs
from schedscope.store.trace import Trace

Policies = str | Policy | Iterable[str | Policy]
"""Names of policies, and objects of your own classes."""

SCHEMA = pl.Schema(
    {
        "against": pl.String(),
        "cpu_time_err": pl.Float64(),
        "n_waits": pl.Int64(),
        "wait_p50": pl.Int64(),
        "wait_p50_ratio": pl.Float64(),
        "wait_p99": pl.Int64(),
        "wait_p99_ratio": pl.Float64(),
        "wait_distance": pl.Int64(),
        "waits_ratio": pl.Float64(),
        "switches_ratio": pl.Float64(),
        "preemptions_ratio": pl.Float64(),
        "migrations_ratio": pl.Float64(),
        "elapsed_ratio": pl.Float64(),
        "depth_ratio": pl.Float64(),
        "order": pl.Float64(),
        "shift": pl.Int64(),
    }
)


def fidelity(
    trace: Trace,
    *,
    again: Trace | None = None,
    policies: Policies | None = None,
    set: Mapping[str, Mapping[str, Any]] | None = None,
    costs: Costs | None = None,
    where: Where = None,
    others: str | None = None,
    external: str = "relative",
    cut: str = "extend",
    seed: int = 1,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """One row per policy, and one for `again`, a second capture of the same workload.

    The first row, `against = "real"`, has the real trace's own figures. The columns are described
    at the top of the module.

    * `policies`: by default the model of the recorded scheduler, then all its other releases, then
      the baselines, which know nothing of threads. Policies of your own are objects, or
      "path/to/file.py:Class";
    * `set`: tunables by policy. Those that the recording shows (`hz`, `base_slice`) have its values
      by default;
    * `costs`: None means those measured in the trace;
    * `where`: an expression by columns of `threads`, or a function of a trace that makes one. Only
      these threads are replayed and compared, for a host on which others ran, too;
    * `others`: how the other threads take the CPU time that they took, as in `whatif`; "drop": not
      at all;
    * `cut`, as in `extract`: by default a thread that wants a CPU when the window ends continues to
      want one.

    Raises `UsageError` for an unknown policy, and for `set` of one that is not replayed.
    """
    check_traces([trace] if again is None else [trace, again], "fidelity")
    way = nearest_way(
        trace,
        where_in(trace, where),
        others,
        external=external,
        cut=cut,
        costs=costs,
    )
    if policies is None:
        family = declaration(way.policy)["family"]
        policies = [
            way.policy,
            *names(lambda row: row["family"] == family),
            *names(lambda row: row["role"] == "baseline"),
        ]
    chosen, given = asked_policies(trace, policies, set)
    real = Figures(trace, compared_threads(trace, where))
    # Threads of a workload are numbered after the idle ones; background load belongs to no recorded
    # thread.
    replayed = way.utids.is_not_null().arg_true() + trace.ncpu if where is not None else None
    rows = [{"against": "real", **real.absolute()}]
    apart = 0
    if again is not None:
        second = Figures(again, compared_threads(again, where)).against(
            real, matched=False, apart=0
        )
        apart = second["shift"] or 0
        rows.append({"against": "again", **second})
    for policy in chosen:
        name = called(policy)
        simulated = simulate(
            way.workload,
            policy=anew(policy),
            set=way.settings(policy, given.get(name)),
            costs=way.costs,
            seed=seed,
            until=way.until,
            progress=progress,
        )
        figures = Figures(simulated, replayed).against(real, matched=True, apart=apart)
        rows.append({"against": name, **figures})
    return pl.DataFrame(rows, schema=SCHEMA)


def asked_policies(
    trace: Trace, policies: Policies, set: Mapping[str, Mapping[str, Any]] | None
) -> tuple[list[str | Policy], dict[str, Mapping[str, Any]]]:
    """The policies by their resolved names, each once, and the tunables by these names, for
    `trace`.
    """
    example = '{"eevdf-6.18": {"base_slice": "3ms"}}'
    by_name("set", set, example)
    for values in (set or {}).values():
        by_name("set", values, example)
    asked = [policies] if isinstance(policies, (str, Policy)) else policies
    chosen = list(dict.fromkeys(policy_asked(trace, one) for one in asked))
    names = [called(one) for one in chosen]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two policies called {name!r}", "a name of its own for each")
    given = {called(policy_asked(trace, name)): values for name, values in (set or {}).items()}
    for name in given:
        if name not in names:
            raise UsageError(
                f"a tunable of {name}, which is not replayed",
                f"one of {', '.join(names)}",
                "also name it among the policies",
            )
    return chosen, given
