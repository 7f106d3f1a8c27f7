"""Are waits given as throttled when the kernel throttled, and only those?

Probes in the kernel of a quota cell print when it throttles its one limited group, which has one
thread that runs, and when it lets it go (`quota.txt`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import polars as pl

import schedscope as ss

LIMITED = "/limited"
_LINE = re.compile(r"\s*\S.*-\d+\s+\[\d+\] \S+\s+(\d+)\.(\d+): (throttle|unthrottle): ")


@dataclass(frozen=True)
class Quota:
    """Sums over the window of the recording, ns."""

    ours: int
    """The limited group's waits that are given as throttled."""
    kernels: int
    """Its waits while the kernel held it back."""
    unseen: int
    """How long the kernel held it back while its thread was not known to wait: before it was seen
    first, and from the tick that throttles to the switch that follows."""
    others: int
    """What is given as throttled of threads of other groups."""
    counted: int
    """What the group's cpu.stat counted from the recorder's first reading to its last."""
    probed: int
    """The same by the probes: as many stretches as cpu.stat counted, from the first on that ended
    after that reading."""

    def __str__(self) -> str:
        """For people."""
        return (
            f"throttled {self.ours / 1e6:.2f} ms, kernel {self.kernels / 1e6:.2f} ms "
            f"(+ {self.unseen / 1e6:.2f} ms not waiting), others {self.others / 1e6:g} ms; "
            f"cpu.stat {self.counted / 1e6:.2f} ms, probes {self.probed / 1e6:.2f} ms"
        )


def quota(trace: ss.Trace, text: Path) -> Quota:
    """Compare what a trace says of throttling with the kernel's text."""
    found = ss.wait_breakdown(trace, by="cgroup").select("cgroup", pl.col("throttled").fill_null(0))
    limited = pl.col("cgroup").eq_missing(LIMITED)
    stretches = _stretches(text, trace.window[1])
    begin, end = trace.window
    held = stretches.filter(pl.col("since") < end, pl.col("until") > begin).select(
        pl.col("since").clip(lower_bound=begin), pl.col("until").clip(upper_bound=end)
    )
    group = next(one for one in trace.info["groups"] if one["cgroup"] == LIMITED)
    read = (trace.info.get("counters_read") or trace.window)[0]
    probed = stretches.filter(pl.col("until") > read).head(group["n_throttled"])
    waits = (
        trace.states.filter(pl.col("state") == "runnable")
        .join(trace.threads.filter(cgroup=LIMITED), on="utid", how="semi")
        .select(begin="ts", end=pl.col("ts") + pl.col("dur"))
        .collect()
    )
    both = held.join_where(
        waits, pl.col("begin") < pl.col("until"), pl.col("end") > pl.col("since")
    )
    overlap = pl.min_horizontal("end", "until") - pl.max_horizontal("begin", "since")
    kernels = int(both.select(overlap.sum()).item())
    return Quota(
        ours=int(found.filter(limited)["throttled"].sum()),
        kernels=kernels,
        unseen=int(held.select((pl.col("until") - pl.col("since")).sum()).item()) - kernels,
        others=int(found.filter(~limited)["throttled"].sum()),
        counted=group["throttled"],
        probed=int(probed.select((pl.col("until") - pl.col("since")).sum()).item()),
    )


def _stretches(text: Path, end: int) -> pl.DataFrame:
    """When any CPU's part of the group was held back: `since`, `until`; the last until `end`."""
    held: list[tuple[int, int]] = []
    now, begun = 0, 0
    with text.open(errors="replace") as lines:
        for match in map(_LINE.match, lines):
            if match is None:
                continue
            ts = int(match[1]) * 1_000_000_000 + int(match[2].ljust(9, "0"))
            if match[3] == "throttle":
                begun = begun if now else ts
                now += 1
            elif now:
                now -= 1
                held += [] if now else [(begun, ts)]
    held += [(begun, end)] if now else []
    return pl.DataFrame(held, schema={"since": pl.Int64, "until": pl.Int64}, orient="row")
