"""Bytes that each table and column of a `.sched` folder takes, per event.

    python research/benchmarks/disk.py TRACE.sched ...
    python research/benchmarks/disk.py [--events N] [--cpus N] [--threads N]  of a made trace

Of every column of every table: its bytes as they are in the file, compressed, divided by the
number of the trace's events, and in bits for each row of its table. Columns below `--least` bytes
an event are summed up. What is in no column, checksums and metadata, is `else`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import schedscope as ss
from schedscope import _native


class Compact:
    """Reads Thrift's compact protocol, in which Parquet files say what is in them."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def signed(self) -> int:
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def value(self, kind: int) -> Any:
        match kind:
            case 1 | 2:
                return kind == 1
            case 3:
                self.at += 1
            case 4 | 5 | 6:
                return self.signed()
            case 7:
                self.at += 8
            case 8:
                length = self.varint()
                self.at += length
                return self.data[self.at - length : self.at]
            case 9 | 10:
                head = self.data[self.at]
                self.at += 1
                count = self.varint() if head >> 4 == 15 else head >> 4
                return [self.value(head & 15) for _ in range(count)]
            case 12:
                return self.struct()
        return None

    def struct(self) -> dict[int, Any]:
        """The values of a struct by the numbers of its fields."""
        fields, number = {}, 0
        while (head := self.data[self.at]) != 0:
            self.at += 1
            number = number + (head >> 4) if head >> 4 else self.signed()
            fields[number] = self.value(head & 15)
        self.at += 1
        return fields


def columns(path: Path) -> tuple[int, dict[str, int]]:
    """Rows of a Parquet file, and the bytes of each of its columns."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer = Compact(data[-8 - length : -8]).struct()
    sizes: dict[str, int] = defaultdict(int)
    for group in footer[4]:
        for chunk in group[1]:
            about = chunk[3]
            sizes[about[3][0].decode()] += about[7]
    return footer[3], dict(sizes)


def lines(folder: Path, least: float) -> Iterator[str]:
    """The table of one trace."""
    events = ss.Trace.read(folder).events
    tables, total = [], 0
    for path in folder.iterdir():
        total += path.stat().st_size
        if path.suffix == ".parquet":
            rows, sizes = columns(path)
            tables.append((sum(sizes.values()), path.stem, rows, sizes))
    yield f"{folder.name}: {events:,} events, {total / events:.2f} bytes an event"
    yield f"{'table':<16}{'column':<14}{'rows/event':>11}{'bytes/event':>13}{'bits/row':>10}"
    small = 0
    for size, name, rows, sizes in sorted(tables, reverse=True):
        if size < least * events:
            small += size
            continue
        sizes_of = f"{rows / events:>11.3f}{size / events:>13.2f}{8 * size / rows:>10.1f}"
        yield f"{name:<30}{sizes_of}"
        shown = {column: count for column, count in sizes.items() if count >= least * events}
        for column, count in sorted(shown.items(), key=lambda item: -item[1]):
            yield f"{'':<16}{column:<25}{count / events:>13.2f}{8 * count / rows:>10.1f}"
        if rest := size - sum(shown.values()):
            yield f"{'':<16}{'(the others)':<25}{rest / events:>13.2f}{8 * rest / rows:>10.1f}"
    known = sum(size for size, *_ in tables)
    yield f"{'other tables':<41}{small / events:>13.2f}"
    yield f"{'else':<41}{(total - known) / events:>13.2f}"


def main() -> None:
    """Print the table of each trace given, or of one that is made."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--cpus", type=int, default=64)
    parser.add_argument("--threads", type=int, default=20_000)
    parser.add_argument("--least", type=float, default=0.05, metavar="BYTES")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="disk-") as scratch:
        traces = arguments.traces
        if not traces:
            source = Path(scratch) / "generated.dat"
            many = (arguments.events, arguments.cpus, arguments.threads)
            _native.synthesize_trace_dat(source, *many)
            # Not what `convert` writes, which has more columns for others to read.
            traces = [ss.open(source, cache=Path(scratch)).path]
        for folder in traces:
            print(*lines(folder, arguments.least), sep="\n")


if __name__ == "__main__":
    main()
