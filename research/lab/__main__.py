"""Boot kernels, record, compare. `python -m research.lab --help`."""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from research.lab import page
from research.lab.boots import Cell, Run, boot, cores, earlier, pack
from research.lab.guests import HERE, Kernel
from research.lab.judges import Verdict, judge
from research.lab.packages import Absent


def matrix() -> tuple[dict[str, Kernel], list[Cell]]:
    """Kernels by `ARCH-NAME`, and cells, of matrix.toml.

    A cell's `before` may be the name of one of `scripts`.
    """
    document = tomllib.loads((HERE / "matrix.toml").read_text())
    scripts = document["scripts"]
    for row in document["cell"]:
        if row.get("before") in scripts:
            row["before"] = scripts[row["before"]]
    kernels = [Kernel(**{**row, "packages": tuple(row["packages"])}) for row in document["kernel"]]
    return {f"{k.arch}-{k.name}": k for k in kernels}, [Cell(**row) for row in document["cell"]]


def default_cache() -> Path:
    """SCHEDSCOPE_LAB, or a folder of the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("SCHEDSCOPE_LAB") or f"{home}/schedscope-lab")


def one(cache: Path, cell: Cell, kernel: Kernel, *, again: bool, timeout: float) -> Run:
    """The cell's run: an earlier one if it still counts, or a new one; if that hangs, another."""
    run = None if again else earlier(cache, cell)
    if run is not None:
        return run
    try:
        run = boot(cache, cell, kernel, timeout=timeout)
        return boot(cache, cell, kernel, timeout=timeout) if run.hung else run
    except Absent as error:
        return Run(cell.name, cache / "runs" / cell.name, failed=str(error))


def told(cell: Cell, run: Run, verdict: Verdict | None) -> str:
    """A line for people."""
    if verdict is None:
        return f"{cell.name:26} FAILED: {run.failed}"
    more = "".join(f" {one};" for one in (verdict.quota, verdict.queues, verdict.steal) if one)
    return (
        f"{cell.name:26} {verdict.events} events, {verdict.differing} differing; "
        f"queue time {verdict.queue_error:+.2%};{more} check: {verdict.data}; {run.cpu:.0f} CPU s"
    )


def main() -> int:
    """Run the cells asked for; exit code 1 if one failed or decoded an event wrongly."""
    parser = argparse.ArgumentParser(prog="python -m research.lab", description=__doc__)
    parser.add_argument("cells", nargs="*", metavar="CELL", help="names of cells (default: all)")
    parser.add_argument("--list", action="store_true", help="list the cells")
    parser.add_argument("--again", action="store_true", help="boot cells that ran before, too")
    parser.add_argument("--ci", action="store_true", help="the cells that CI boots")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="default: %(default)s")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for each boot")
    parser.add_argument("--jobs", type=int, help="boots at a time (default: 1 for each 2 CPUs)")
    parser.add_argument("--write", action="store_true", help="keep the results in research/data")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep each run as an archive")
    arguments = parser.parse_args()
    kernels, cells = matrix()
    if unknown := set(arguments.cells) - {cell.name for cell in cells}:
        parser.error(f"no cell {', '.join(sorted(unknown))}; --list shows them")
    if arguments.list:
        for cell in cells:
            print(f"{cell.name:26} {cell.kernel:18} {cell.smp:4} {cell.work}")
        return 0
    chosen = [c for c in cells if not arguments.cells or c.name in arguments.cells]
    chosen = [c for c in chosen if c.ci] if arguments.ci else chosen
    results = []

    def run(cell: Cell) -> Run:
        given = {"again": arguments.again, "timeout": arguments.timeout}
        return one(arguments.cache, cell, kernels[cell.kernel], **given)

    with ThreadPoolExecutor(arguments.jobs or max(1, cores() // 2)) as pool:
        for n, (cell, done) in enumerate(zip(chosen, pool.map(run, chosen), strict=True), 1):
            verdict = None if done.failed else judge(done.folder)
            results.append((cell, done, verdict))
            print(f"[{n}/{len(chosen)}] {told(cell, done, verdict)}", flush=True)
            if arguments.keep and verdict:
                print(f"    kept as {pack(done, arguments.keep)}")
            for example in verdict.examples[:5] if verdict else []:
                print(f"    {example}")
    if arguments.write:
        page.keep(results)
    return int(any(v is None or v.differing for _, _, v in results))


if __name__ == "__main__":
    sys.exit(main())
