"""How fast the lines of the DTrace scripts become events and tables, FreeBSD's and Linux's.

`python research/benchmarks/dtrace.py [--lines N]` repeats the fixtures' lines, later and later, to
files of N lines, and reads each in a process of its own. CPU seconds are user plus system,
the best of three; RSS is the peak of the reading process. Columns as in decode.py:

* events: decoded and counted, no tables
* facts: the fact tables in memory, nothing inferred
* memory: all fact tables, states and waits in memory
* convert: the same, to Parquet on disk
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "research/benchmarks"))

from decode import HOWS, measure  # noqa: E402

FIXTURES = {
    "FreeBSD, ULE": "freebsd-ule-synthetic",
    "FreeBSD, 4BSD": "freebsd-4bsd-synthetic",
    "Linux": "linux-dtrace",
}


def repeat(source: Path, target: Path, lines: int) -> int:
    """Writes at least so many event lines, `source` over and over; answers how many."""
    header, *rest = source.read_bytes().splitlines(keepends=True)
    events = []
    for line in rest:
        letter, _, more = line.partition(b"\t")
        if len(letter) == 1 and letter.isalpha():
            ts, _, columns = more.partition(b"\t")
            events.append((letter, int(ts), columns))
    first, last = (choose(ts for _, ts, _ in events) for choose in (min, max))
    span, written, later = last - first + 1000, 0, 0
    with target.open("wb") as out:
        out.write(header)
        while written < lines:
            out.writelines(b"%b\t%d\t%b" % (a, ts + later, columns) for a, ts, columns in events)
            written, later = written + len(events), later + span
        out.write(b"#end\t%d\t%d\n" % (last + later, last + later))
    return written


def main() -> None:
    """Print a table: a row for each system."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=2_000_000)
    arguments = parser.parse_args()
    print(f"{arguments.lines:,} lines; millions of lines per CPU-second")
    heads = "".join(f"{how:>9}" for how in HOWS)
    print(f"{'system':<15}{'MB':>6}{heads}{'RSS, MB':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for system, name in FIXTURES.items():
            path = Path(folder) / "events.txt"
            source = ROOT / "fixtures" / f"{name}.capture" / "events.txt"
            lines = repeat(source, path, arguments.lines)
            size = path.stat().st_size / 1e6
            found = [measure(how, path, 3) for how in HOWS]
            rates = "".join(f"{lines / reading.cpu / 1e6:>9.1f}" for reading in found)
            print(f"{system:<15}{size:>6.0f}{rates}{found[-1].rss / 1e6:>10.0f}")


if __name__ == "__main__":
    main()
