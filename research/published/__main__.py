"""Published scheduler experiments, repeated on the models, and the distances between both.

    python -m research.published                      every claim, as a table
    python -m research.published V06 V23              some of them
    python -m research.published --write              and keep the rows in research/data

Each row puts a published number beside the simulated one; the distance is
simulated less published. Nothing is tuned to come nearer: see `research/published`.
"""

from __future__ import annotations

import argparse
import sys
import time

from research import results
from research.published.claims import SOURCES, Claim
from research.published.counters import REAL
from research.published.every_claim import claims
from research.published.loops import LOOP

EXACT = {
    "V16": (
        "nice 0 has 19 to 20 times the CPU of nice 19 under Staircase",
        "tests/research/test_published.py",
        "test_v16_staircase_gives_nice_19_a_twentieth",
    ),
    "V18": (
        "35 published comparisons of means, digit by digit",
        "tests/analysis/test_ministat.py",
        "test_a_published_row",
    ),
    "V28": (
        "equal hogs take turns of 10 ms under Staircase",
        "native/sim/src/golden/linux_old.rs",
        "staircase_equal_hogs_take_turns_of_one_interval",
    ),
    "V29": (
        "slices of CFS 2.6.31 and 2.6.32 with k hogs on each of 2 CPUs",
        "native/sim/src/golden/linux_old.rs",
        "cfs_slices_on_two_cpus",
    ),
    "V31": (
        "a thread that runs 5 % reaches the full bonus of O(1) and preempts a hog",
        "native/sim/src/golden/linux_old.rs",
        "o1_a_sleeper_rises_to_the_full_bonus_and_preempts",
    ),
    "V32": (
        "under EEVDF no thread's lag exceeds a request and a tick",
        "native/sim/src/golden/linux_today.rs",
        "eevdf_lag_stays_within_a_request_and_a_tick",
    ),
    "V33": (
        "BFS and 4BSD never idle a CPU beside a waiting thread that may use it",
        "native/sim/src/invariants.rs",
        "every_policy_keeps_the_invariants_on_random_workloads",
    ),
    "V34": (
        "at nice 0 a thread is interactive under ULE below three eighths of a CPU",
        "native/sim/src/policy/ule_score.rs",
        "a_thread_is_interactive_below_three_eighths_of_cpu",
    ),
}
"""What is exact or derived: the claim, the file and the test that holds it."""

TABLE = "published"
"""Of research/data: every row of every claim."""


def rows(claim: Claim) -> results.Rows:
    """The rows of a claim as they are kept."""
    return [{"claim": claim.ids, **row} for row in results.parse(table(claim))]


def table(claim: Claim) -> list[str]:
    """The rows of a claim as Markdown."""
    lines = ["| what | published | simulated | distance | why |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(row.cells())} |" for row in claim.rows()]
    return lines


def section(claim: Claim, rows: list[str]) -> list[str]:
    """One claim: what, from where, how it is run, its rows, what the model cannot show."""
    lines = [f"### {claim.ids}. {claim.title}", ""]
    lines += [f"Source: {SOURCES[claim.source]}. Run: {claim.setting}.", "", *rows]
    if claim.limits:
        lines += ["", f"Not shown: {claim.limits}."]
    return [*lines, ""]


def main() -> int:
    """Run, print, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ids", nargs="*", help="claims, as in V06 (default: all)")
    parser.add_argument("--write", action="store_true", help="keep the rows")
    args = parser.parse_args()
    known = [*claims(), REAL, LOOP]
    unknown = set(args.ids) - {c.ids for c in known}
    if unknown or (args.ids and args.write):
        names = ", ".join(c.ids for c in known)
        print(f"known are {names}; --write needs all of them", file=sys.stderr)
        return 2
    kept: results.Rows = []
    for claim in known:
        if args.ids and claim.ids not in args.ids:
            continue
        begin = time.process_time()
        lines = section(claim, table(claim))
        kept += [{"claim": claim.ids, **row} for row in results.parse(lines)]
        print("\n".join(lines), f"({time.process_time() - begin:.1f} CPU s)\n", flush=True)
    if args.write:
        results.keep(TABLE, kept)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
