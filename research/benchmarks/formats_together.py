"""The same seconds recorded by every recorder at once: what does each of them see?

    # python research/benchmarks/formats_together.py [--seconds 1] [--packed FILE.tar.xz]

Starts ftrace, perf, bpftrace, DTrace (collectors/capture) and Perfetto, runs one small
load under all of them, reads the five traces and compares them with ftrace's: switches in
common, only in one, and waits that differ by more than 1 µs. With --packed: the traces of an
earlier run, as fixtures/together.tar.xz. SCHEDSCOPE_TOOLS may name a tree with newer tools
(tests/tools.py); it must have /tmp mounted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import polars as pl

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from archives import unpacked  # noqa: E402
from together import PROGRAMS, TRACES, compare, opened, record  # noqa: E402
from tools import tool  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--packed", type=Path)
    arguments = parser.parse_args()
    absent = [name for name in PROGRAMS if tool(name) is None]
    if absent and not arguments.packed:
        sys.exit(f"formats_together: needs {', '.join(absent)}")
    with tempfile.TemporaryDirectory(prefix="together-", dir="/tmp") as name:
        folder = Path(name)
        if arguments.packed:
            paths = unpacked(arguments.packed, folder, TRACES)
        else:
            paths = record(folder, arguments.seconds)
        table = compare(opened(paths, folder / "cache"))
        with pl.Config(tbl_cols=-1, tbl_width_chars=240, tbl_hide_dataframe_shape=True):
            print(table)


if __name__ == "__main__":
    main()
