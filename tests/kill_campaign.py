"""Kill recorders with SIGKILL at random moments and count what they leave behind.

    sudo python tests/kill_campaign.py --kills 60 --recorders ftrace perf bpftrace

Every other kill comes while it records, the others at any time of its start.
Kinds: `program` is capture alone, `group` its whole process group, `parent` the Python program
that runs it. A leftover is a trace instance, or a process that capture started, SETTLE seconds
after the kill. Prints one line per recorder and kind; exits 1 if anything was left.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from collector_runs import CAPTURE, INSTANCES, MARK

SETTLE = 20.0
LATEST = {"ftrace": 1.6, "perf": 2.5, "bpftrace": 4.0, "dtrace": 25.0}


def main() -> int:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60, metavar="N")
    parser.add_argument("--recorders", nargs="+", default=["ftrace", "perf", "bpftrace"])
    parser.add_argument("--kinds", nargs="+", default=["program", "group", "parent"])
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    bad = 0
    for recorder in args.recorders:
        for kind in args.kinds:
            left = salvaged = 0
            for number in range(args.kills):
                delay = chance.uniform(0, LATEST[recorder] if number % 2 else 1.0)
                leftovers, kept = kill_once(recorder, kind, delay, recording=number % 2 == 0)
                salvaged += kept
                left += bool(leftovers)
                for line in leftovers:
                    print(f"  left behind: {line}")
            bad += left
            print(f"{recorder} {kind}: {args.kills} kills, {left} left something, ", end="")
            print(f"{salvaged} kept a recording", flush=True)
    return 1 if bad else 0


def kill_once(recorder: str, kind: str, delay: float, *, recording: bool) -> tuple[list[str], bool]:
    """What one kill left behind within SETTLE seconds, and whether a recording was kept.

    The delay counts from the start, or from when it is `recording`.
    """
    mark = uuid.uuid4().hex
    folder = Path(tempfile.mkdtemp(prefix="kill-campaign-"))
    words = ["-t", recorder, "-b", "1024K", "-o", "x", "-d", "60"]
    program = ["sh", str(CAPTURE)]
    if kind == "parent":
        program = [sys.executable, "-m", "schedscope", "capture"]
        delay += 0.3
    process = subprocess.Popen(
        [*program, *words],
        cwd=folder,
        env={**os.environ, MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until = time.monotonic() + 60
    while recording and not any(folder.glob("*/capture.json")) and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(delay)
    ours = {process.pid, *(int(line.split()[0]) for line in leftovers(mark))}
    with contextlib.suppress(ProcessLookupError):
        (os.killpg if kind == "group" else os.kill)(process.pid, signal.SIGKILL)
    process.wait()
    end = time.monotonic() + SETTLE
    while (left := [*leftovers(mark), *instances(ours)]) and time.monotonic() < end:
        time.sleep(0.2)
    kept = any(folder.glob("x.capture*/capture.json"))
    # A watchdog that is still working may write during the removal.
    shutil.rmtree(folder, ignore_errors=True)
    return left, kept


def instances(pids: set[int]) -> list[str]:
    """Trace instances created by captures with these pids."""
    return [path.name for pid in pids for path in INSTANCES.glob(f"schedscope-{pid}-*")]


def leftovers(mark: str) -> list[str]:
    """Processes with the mark in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                line = (entry / "cmdline").read_text(errors="replace").replace("\0", " ")
                found.append(f"{entry.name} {line[:100]}")
    return found


if __name__ == "__main__":
    sys.exit(main())
