"""What a replay of a real trace costs, step by step, against the time the trace took.

Extraction and simulation in CPU time of this process, each the least of three;
reading the trace comes before, as for every command.

    python research/benchmarks/simulator_replay.py CAPTURE... [--policies eevdf-6.17,ule-14,rr]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from schedscope import open as open_trace
from schedscope.simulator.recorded.extract import extract
from schedscope.simulator.runs.run import simulate
from schedscope.store.trace import Trace


def events(trace: Trace) -> int:
    """Rows of switches, wakeups and migrations."""
    rows = trace.info["rows"]
    return int(rows["switches"] + rows["wakeups"] + rows["migrations"])


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    """The result, and the least CPU seconds of three runs."""
    spent = []
    for _ in range(3):
        begin = time.process_time()
        result = action()
        spent.append(time.process_time() - begin)
    return result, min(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("captures", nargs="+")
    parser.add_argument("--policies", default="eevdf-6.17,ule-14,rr")
    args = parser.parse_args()
    heads = ("trace", "seconds", "events", "policy", "extract", "simulate", "engine", "both")
    print("{:>20} {:>8} {:>10} {:>12} {:>8} {:>9} {:>8} {:>8}".format(*heads))
    for path in args.captures:
        trace = open_trace(path)
        lasted = trace.duration / 1e9
        load, extracting = timed(partial(extract, trace, cut="extend"))
        for policy in args.policies.split(","):
            until = f"{trace.duration + 1}ns"
            _, simulating = timed(partial(simulate, load, policy=policy, until=until))
            # As a fraction of the trace's wall time: 1/N.
            engine, both = lasted / simulating, lasted / (extracting + simulating)
            print(
                f"{trace.name[:20]:>20} {lasted:>8.2f} {events(trace):>10,} {policy:>12} "
                f"{extracting:>7.2f}s {simulating:>8.2f}s {f'1/{engine:.0f}':>8} "
                f"{f'1/{both:.0f}':>8}"
            )


if __name__ == "__main__":
    main()
