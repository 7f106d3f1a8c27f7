"""Flip bits of a file, one at a time, and count the waits that are then measured and wrong.

    python research/benchmarks/flipped_bits.py FILE [FILE ...] [--flips 300] [--seed 1]
    python research/benchmarks/flipped_bits.py --lines FILE        cut a piece out of a line instead

The truth is what schedscope finds in the undamaged file: a wait measured in a damaged one is right
if the whole file has it, of the same thread, at the same instant and of the same length, within 1
us. One that the whole file does not measure (its kernel did not report a switch) is not judged. For
a damaged Perfetto file the numbers of the enclosing fields show what the bit belonged to.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import polars as pl

import schedscope as ss

SLACK = 1_000
MESSAGES = {(1,), (1, 1), (1, 1, 2), (1, 1, 4), (1, 2), (1, 2, 1), (1, 2, 2), (1, 6), (1, 6, 1)}
"""Paths of fields, beside the events themselves, that hold messages."""


def main() -> int:
    """Damage each file this many times, and print what was wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--flips", type=int, default=300, help="of all files together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lines", action="store_true", help="cut a piece out of a line")
    parser.add_argument(
        "--compact", action="store_true", help="first, write full switches and wakings compactly"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what gave wrong waits")
    parser.add_argument("--only", type=int, metavar="N", help="damage of this number alone")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flipped-") as name:
        return _campaign(args, Path(name))


def _campaign(args: argparse.Namespace, work: Path) -> int:
    whole = {}
    for file in args.files:
        content = _compact(_bytes(file)) if args.compact else _bytes(file)
        whole[file] = (content, _waits(_write(file, content, work), work))
    rng = random.Random(args.seed)
    tally: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    refused = bad = wrong_waits = measured = true = 0
    for number in range(args.flips):
        file = args.files[number % len(args.files)]
        content, truth = whole[file]
        at, bit, length = rng.randrange(len(content)), rng.randrange(8), rng.randint(1, 30)
        if args.only is not None and number != args.only:
            continue
        if args.lines:
            changed, where = _cut(content, at, length), "line"
        else:
            changed = content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
            where = _place(content, at) if content[:1] == b"\n" else "file"
        damaged = _write(file, changed, work)
        tally[where][0] += 1
        try:
            waits = _waits(damaged, work)
        except ss.SchedscopeError:
            refused += 1
            continue
        wrong, right = _judged(waits, truth)
        measured += right
        true += truth.filter(censored="none").height
        if wrong.height:
            bad += 1
            wrong_waits += wrong.height
            tally[where][1] += 1
            longest = wrong.get_column("wait").max()
            print(
                f"{number}: {file.name} byte {at} bit {bit} ({where}): {wrong.height} wrong waits, "
                f"longest {longest / 1e6:.3f} ms"  # type: ignore[operator]
            )
            if args.keep:
                args.keep.mkdir(parents=True, exist_ok=True)
                (args.keep / f"{number}{file.suffix}").write_bytes(changed)
        if sys.stderr.isatty():
            print(f"\r{number + 1}/{args.flips}", end="", file=sys.stderr)
    print(f"{args.flips} damaged, {refused} refused, {bad} with wrong waits ({wrong_waits})")
    if true:
        print(f"{measured / true:.1%} of the true waits still measured in those that were read")
    for where, (n, wrong_n) in sorted(tally.items(), key=lambda item: -item[1][1]):
        if wrong_n or n > 1:
            print(f"  {where}: {wrong_n} of {n}")
    return 1 if bad else 0


def _bytes(file: Path) -> bytes:
    return (file / "events.txt" if file.is_dir() else file).read_bytes()


def _write(file: Path, content: bytes, work: Path) -> Path:
    """The damaged file; of a capture's folder, without its list of checksums."""
    target = work / file.name
    if not file.is_dir():
        target.write_bytes(content)
        return target
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(file, target, ignore=shutil.ignore_patterns("checksums*"))
    (target / "events.txt").write_bytes(content)
    return target


def _cut(content: bytes, at: int, length: int) -> bytes:
    """Without up to `length` bytes at `at`, of one line."""
    end = content.find(b"\n", at)
    return content[:at] + content[min(at + length, len(content) if end < 0 else end) :]


def _waits(file: Path, work: Path) -> pl.DataFrame:
    """Waits that ended in a run, with the threads' numbers."""
    shutil.rmtree(work / "cache", ignore_errors=True)
    trace = ss.open(file, cache=work / "cache")
    found = trace.waits.filter(pl.col("ts_run").is_not_null())
    found = found.join(trace.threads.select("utid", "tid"), on="utid")
    found = found.select("tid", "ts_run", "wait", pl.col("censored").cast(pl.String))
    return found.sort("ts_run").collect()


def _judged(waits: pl.DataFrame, truth: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """The wrong ones of the measured waits, and how many are right."""
    measured = waits.filter(censored="none").drop("censored")
    near = measured.join_asof(
        truth.select("tid", "ts_run", true_wait="wait", known=pl.col("censored") == "none"),
        on="ts_run", by="tid", strategy="nearest", tolerance=SLACK, check_sortedness=False,
    )  # fmt: skip
    judged = near.filter(pl.col("known").fill_null(True))
    right = ((pl.col("true_wait") - pl.col("wait")).abs() <= SLACK).fill_null(False)
    return judged.filter(~right), judged.filter(right).height


def _place(content: bytes, at: int) -> str:
    """Numbers of the fields that a byte of a Perfetto file lies in, and which part of it."""
    path: tuple[int, ...] = ()
    begin, end = 0, len(content)
    while True:
        for start, number, kind, head, stop in _fields(content, begin, end):
            if not start <= at < stop:
                continue
            path = (*path, number)
            said = ".".join(map(str, path))
            if at < head:
                return f"{said} {'tag' if at == start else 'length'}" if kind == 2 else said
            event = len(path) == 4 and path[:3] == (1, 1, 2)
            if kind == 2 and (path in MESSAGES or event):
                begin, end = head, stop
                break
            return said
        else:
            return ".".join(map(str, path)) + " ?"


def _fields(content: bytes, at: int, end: int) -> list[tuple[int, int, int, int, int]]:
    """Start, number, wire type, start of the value's bytes and end of each field of a message."""
    found = []
    while at < end:
        start = at
        tag, at = _varint(content, at)
        head = at
        if tag & 7 == 0:
            _, at = _varint(content, at)
            found.append((start, tag >> 3, 0, at, at))
            continue
        if tag & 7 == 2:
            length, head = _varint(content, at)
            at = head + length
        else:
            at += 8 if tag & 7 == 1 else 4
        found.append((start, tag >> 3, tag & 7, head, at))
    return found


TRACK_EVENT, TRACK_DESCRIPTOR = 11, 60
BATCH = 400
"""Events of a compact bundle: what traced_probes reads of a CPU in a quarter of a second."""


def _compact(content: bytes) -> bytes:
    """A Perfetto trace with its full switches and wakings in the compact form, others left out.

    Adds what the export's writer leaves out: when each CPU's previous bundle ended.
    """
    out, events = [], defaultdict(list)
    for _, number, _, head, stop in _fields(content, 0, len(content)):
        packet = _fields(content, head, stop)
        if any(part[1] in (TRACK_EVENT, TRACK_DESCRIPTOR) for part in packet):
            continue
        bundles = [part for part in packet if part[1] == 1]
        if number != 1 or not bundles:
            out.append(_field(number, content[head:stop]))
            continue
        parts = _fields(content, *bundles[0][3:])
        cpu = next(_number(content, part[0]) for part in parts if part[1] == 1)
        for part in parts:
            if part[1] == 2:
                fields = {field: (at, a, b) for at, field, _, a, b in _fields(content, *part[3:])}
                if 4 in fields or 20 in fields:
                    events[cpu].append((_number(content, fields[1][0]), fields))
    for cpu, found in events.items():
        previous = 0
        for at in range(0, len(found), BATCH):
            bundle = _put(8) + _put(cpu) + _put(10 << 3) + _put(previous)
            bundle += _field(4, _columns(content, found[at : at + BATCH]))
            previous = found[at : at + BATCH][-1][0]
            out.append(_field(1, _field(1, bundle)))
    return b"".join(out)


def _columns(content: bytes, events: list[tuple[int, dict[int, tuple[int, int, int]]]]) -> bytes:
    columns: dict[int, list[int]] = {number: [] for number in (1, 2, 3, 4, 6, *range(7, 13))}
    names: dict[bytes, int] = {}
    last = {1: 0, 7: 0}
    for ts, values in events:
        switch = 4 in values
        inner = {
            f: (a, b, c) for a, f, _, b, c in _fields(content, *values[4 if switch else 20][1:])
        }
        comm = content[slice(*inner[5 if switch else 1][1:])]
        by, fields = ((1, 2, 3, 4, 6), (4, 6, 7)) if switch else ((7, 8, 9, 10, 11), (2, 5, 3))
        said = [_number(content, inner[f][0]) if f in inner else 0 for f in fields]
        row = [ts - last[by[0]], *said, names.setdefault(comm, len(names))]
        last[by[0]] = ts
        for column, value in zip(by, row, strict=True):
            columns[column].append(value)
        if not switch:
            columns[12].append(_number(content, values[5][0]) if 5 in values else 0)
    packed = b"".join(_field(5, text) for text in names)
    for column, found in columns.items():
        packed += _field(column, b"".join(map(_put, found)))
    return packed


def _number(content: bytes, at: int) -> int:
    return _varint(content, _varint(content, at)[1])[0]


def _field(number: int, value: bytes) -> bytes:
    return _put(number << 3 | 2) + _put(len(value)) + value


def _put(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
