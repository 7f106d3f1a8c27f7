"""Damaged traces through the public door: `open`, `check` and the analyses.

`python tests/fuzz_decoders.py [--seconds N] [--seed N]`; pytest runs it for
SCHEDSCOPE_FUZZ_SECONDS (10 by default) in tests/decode/test_fuzz.py. The decoders alone are
fuzzed a hundred times as fast, and with knowledge of their records, by
`cargo run --profile quick -p schedscope-fuzz` in native/; here the question is whether
what they make of damage is safe for all that reads it. Inputs are real and written
traces and captures with bits flipped, bytes and numbers overwritten by telling values,
parts cut, doubled or moved: an answer or one sentence, never else. The work is
done in a child with limited memory. What breaks is kept in `fuzz-findings/`.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parent.parent / "fixtures"
FINDINGS = Path("fuzz-findings")
# Numbers at which lengths, counts and offsets overflow.
TELLING = [0, 1, 3, 4, 7, 8, 28, 29, 30, 31, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF]
TELLING += [0x8000_0000, 0xC000_0000, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
MEMORY = 4 << 30
SLOW_SECONDS = 20

# A single file, or the files of a capture by name; the first one holds the events.
Case = dict[str, bytes]


def seeds(folder: Path) -> list[Case]:
    """Small traces of every kind."""
    from schedscope import _native

    flavours = [
        {"version": "7", "compression": "none"},
        {"version": "7", "compression": "zstd"},
        {"version": "7", "compression": "zlib", "endian": "big", "long_bits": "32"},
        {"version": "6", "absolute_every": "3", "discard_every": "5"},
        {"version": "6", "endian": "big", "buffer": "sub", "long_records": "1"},
    ]
    found: list[Case] = []
    for index, flavour in enumerate(flavours):
        path = folder / f"seed{index}.dat"
        _native.synthesize_trace_dat(path, 300, 2, 8, index + 1, flavour)
        found.append({"": path.read_bytes()})
    for path in sorted(FIXTURES.iterdir()):
        if path.is_file() and path.suffix in {".dat", ".data", ".pftrace", ".txt"}:
            # Fixtures of other formats are added unchanged: the format is recognised.
            found.append({"": path.read_bytes()})
        elif path.suffix == ".capture" and "slice" not in path.name:
            found.append(capture(path))
    return found


def capture(path: Path) -> Case:
    """A capture's files, with long ones shortened."""
    files = sorted(file for file in path.rglob("*") if file.is_file())
    files.sort(key=lambda file: file.name not in {"events.txt", "cpu0", "cpu0.zst"})
    case = {str(file.relative_to(path)): file.read_bytes() for file in files}
    if "events.txt" in case:
        lines = case["events.txt"].splitlines(keepends=True)
        case["events.txt"] = b"".join(lines[:400] + lines[-20:])
    return case


def mutate(case: Case, chance: random.Random) -> Case:
    """One to eight mutations, most of them where the events are."""
    names = list(case)
    injured = dict(case)
    for _ in range(chance.choice([1, 1, 1, 2, 3, 8])):
        name = names[0] if chance.random() < 0.8 else chance.choice(names)
        data = injured[name]
        numbers = chance.random() < 0.5 and data.isascii()
        injured[name] = injure_number(data, chance) if numbers else injure(data, chance)
    return injured


def injure_number(content: bytes, chance: random.Random) -> bytes:
    """A decimal number of the text becomes another."""
    begin = chance.randrange(len(content) + 1)
    if found := re.compile(rb"-?[0-9]+").search(content, begin):
        new = str(chance.choice([-1, 1]) * chance.choice(TELLING)).encode()
        content = content[: found.start()] + new + content[found.end() :]
    return content


def injure(content: bytes, chance: random.Random) -> bytes:
    """Bits, bytes, words and stretches."""
    data = bytearray(content)
    if not data:
        return content
    # Headers are short and important: half of the mutations are there.
    limit = len(data) if chance.random() < 0.5 else min(len(data), 600)
    at = chance.randrange(limit)
    match chance.randrange(7):
        case 0:
            data[at] ^= 1 << chance.randrange(8)
        case 1:
            data[at] = chance.randrange(256)
        case 2:
            size = chance.choice([1, 2, 4, 8])
            value = chance.choice(TELLING) & ((1 << 8 * size) - 1)
            data[at : at + size] = value.to_bytes(size, chance.choice(["little", "big"]))
        case 3:
            del data[at:]
        case 4:
            del data[at : at + chance.randrange(1, 64)]
        case 5:
            data[at:at] = data[at : at + chance.randrange(1, 4096)]
        case _:
            other = chance.randrange(len(data))
            size = chance.randrange(1, 64)
            data[at : at + size] = data[other : other + size]
    return bytes(data)


def write(case: Case, folder: Path) -> Path:
    """Writes the case below `folder`, in place of the one before."""
    if "" in case:
        path = folder / "input"
        path.write_bytes(case[""])
        return path
    path = folder / "input.capture"
    shutil.rmtree(path, ignore_errors=True)
    for name, content in case.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def questions() -> list[Callable[[Any], object]]:
    """Questions for a trace that could be opened."""
    import schedscope as ss

    return [
        ss.latency,
        ss.queue_depth_summary,
        ss.fairness,
        ss.lag,
        ss.off_cpu,
        ss.wakers,
        ss.starvation,
        ss.idle_episodes,
        ss.work_conservation,
        ss.worst_waits,
        ss.migration_summary,
        ss.survival,
        ss.virtual_lag,
        ss.efficiency,
        ss.slowdown,
        ss.findings,
        ss.interference,
        ss.run_lengths,
        ss.residency,
        ss.affinity,
        lambda trace: ss.critical_path(trace, utid=trace.threads.collect()["utid"].max() or 0),
        lambda trace: ss.wake_chain(trace, utid=trace.threads.collect()["utid"].max() or 0),
    ]


def child(seconds: float, seed: int, folder: Path) -> int:
    """Tries mutated inputs until the time is over; returns how many there were."""
    import schedscope as ss
    from schedscope.errors import SchedscopeError

    corpus = seeds(folder)
    asked = questions()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    chance = random.Random(seed)
    end = time.monotonic() + seconds
    tried = 0
    while time.monotonic() < end:
        path = write(mutate(chance.choice(corpus), chance), folder)
        options = chance.choice([{}, {}, {"salvage": "1"}])
        question = chance.choice(asked)
        begin = time.process_time()
        try:
            trace = ss.open(path, cache=folder / "cache", refresh=True, options=options)
            ss.check(trace)
            (folder / "question").write_text(getattr(question, "__name__", ""))
            question(trace)
        except SchedscopeError as error:
            if "\n" in str(error) or not str(error):
                raise
        shutil.rmtree(folder / "cache", ignore_errors=True)
        if time.process_time() - begin > SLOW_SECONDS:
            raise TimeoutError(f"{time.process_time() - begin:.0f} s for one small input")
        tried += 1
    return tried


def run(seconds: float, seed: int) -> str | None:
    """Fuzzes in a child; returns what broke, or None."""
    with tempfile.TemporaryDirectory(prefix="schedscope-fuzz-") as name:
        folder = Path(name)
        words = [sys.executable, __file__, "--child", name]
        words += ["--seconds", str(seconds), "--seed", str(seed)]
        # Threads of Polars cost more than they gain here.
        environment = {**os.environ, "POLARS_MAX_THREADS": "1"}
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
        if done.returncode == 0:
            print(f"seed {seed}: {done.stdout.strip()} damaged inputs, none broke anything")
            return None
        kept = FINDINGS / f"seed{seed}"
        for part in ("input", "input.capture"):
            source = folder / part
            if source.is_dir():
                shutil.copytree(source, kept / part, dirs_exist_ok=True)
            elif source.exists():
                kept.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, kept / part)
        return f"seed {seed}, input kept in {kept}:\n{done.stderr[-3000:]}"


def main() -> int:
    """Fuzzes with one seed, or acts as the child."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(child(arguments.seconds, arguments.seed, arguments.child))
        return 0
    broken = run(arguments.seconds, arguments.seed)
    if broken:
        print(broken, file=sys.stderr)
    return int(broken is not None)


if __name__ == "__main__":
    sys.exit(main())
