"""Byte fuzzer over the decoders: damaged inputs must end in an error or be read, never else.

`python tests/fuzz_decoders.py [--seconds N] [--seed N]`; pytest runs it for
SCHEDSCOPE_FUZZ_SECONDS (10 by default) in tests/test_fuzz.py. Inputs are real and
written traces with bits flipped, bytes overwritten by telling values, parts cut, doubled or
moved. The work is done in a child with limited memory, so that a length
field that is believed shows as an allocation failure. What breaks is kept
in `fuzz-findings/` beside the working directory.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FIXTURES = Path(__file__).parent.parent / "fixtures"
FINDINGS = Path("fuzz-findings")
# Numbers that lengths, counts and offsets trip over.
TELLING = [0, 1, 3, 4, 7, 8, 28, 29, 30, 31, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF]
TELLING += [0x8000_0000, 0xC000_0000, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
MEMORY = 2 << 30
SLOW_SECONDS = 20


def seeds(folder: Path) -> list[bytes]:
    """Small traces of every kind that a single file can hold."""
    from schedscope import _native

    flavours = [
        {"version": "7", "compression": "none"},
        {"version": "7", "compression": "zstd"},
        {"version": "7", "compression": "zlib", "endian": "big", "long_bits": "32"},
        {"version": "6", "absolute_every": "3", "discard_every": "5"},
        {"version": "6", "endian": "big", "buffer": "sub", "long_records": "1"},
    ]
    found = []
    for index, flavour in enumerate(flavours):
        path = folder / f"seed{index}.dat"
        _native.synthesize_trace_dat(path, 300, 2, 8, index + 1, flavour)
        found.append(path.read_bytes())
    # Other formats' fixtures join in as they are: the recogniser decides.
    files = [path for path in FIXTURES.iterdir() if path.is_file() and path.suffix != ".md"]
    found += [path.read_bytes() for path in sorted(files) if path.stat().st_size < 400_000]
    return found


def mutate(content: bytes, chance: random.Random) -> bytes:
    """One to eight injuries."""
    data = bytearray(content)
    for _ in range(chance.choice([1, 1, 1, 2, 3, 8])):
        if not data:
            break
        # Headers are short and matter: half of the injuries go there.
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


def child(seconds: float, seed: int, folder: Path) -> int:
    """Try injured inputs until the time is over; returns how many there were."""
    from schedscope import _native
    from schedscope.errors import SchedscopeError

    corpus = seeds(folder)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    chance = random.Random(seed)
    path = folder / "input"
    end = time.monotonic() + seconds
    tried = 0
    while time.monotonic() < end:
        path.write_bytes(mutate(chance.choice(corpus), chance))
        options = chance.choice([{}, {}, {"salvage": "1"}])
        begin = time.monotonic()
        try:
            _native.decode(path, options)
        except SchedscopeError as error:
            if "\n" in str(error) or not str(error):
                raise
        if time.monotonic() - begin > SLOW_SECONDS:
            raise TimeoutError(f"{time.monotonic() - begin:.0f} s for one small input")
        tried += 1
    return tried


def run(seconds: float, seed: int) -> str | None:
    """Fuzz in a child; returns what broke, or None."""
    with tempfile.TemporaryDirectory(prefix="schedscope-fuzz-") as name:
        folder = Path(name)
        words = [sys.executable, __file__, "--child", name]
        words += ["--seconds", str(seconds), "--seed", str(seed)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            print(f"seed {seed}: {done.stdout.strip()} damaged inputs, none broke a decoder")
            return None
        FINDINGS.mkdir(exist_ok=True)
        kept = FINDINGS / f"seed{seed}"
        if (folder / "input").exists():
            kept.write_bytes((folder / "input").read_bytes())
        return f"seed {seed}, input kept in {kept}:\n{done.stderr[-2000:]}"


def main() -> int:
    """Fuzz with one seed, or act as the child."""
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
