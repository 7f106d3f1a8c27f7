"""As many rounds of a flight recorder's loops as in a day: does it grow, and is its account true?

    sudo python3 research/benchmarks/ring_day.py --hours 24

One recorder, without faults. Processes, threads and control groups come and go, storms exceed the
ring, and triggers fire. Once it records, its `sleep` takes a fiftieth of the time, and counts how
often it was called for a second (by the watchdog) or half of one (by what watches files and logs):
the hours are those of the watchdog. The kernel's time is the host's. After each step the rules of
ring_soak.py are checked; at the end also that its memory and open files did not grow, that nothing
is left, and that what it said is true. Needs a C compiler.
"""

from __future__ import annotations

import argparse
import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from ring_soak import DISK_MB, Soak, put_away, result

SLEEP = r"""
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
/* How many times shorter, and how often it was called for N ms. */
int main(int count, char **words) {
    int file = open(COUNTS, O_RDWR | O_CLOEXEC);
    uint64_t *counts = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (counts == MAP_FAILED || count != 2)
        return 1;
    double seconds = atof(words[1]);
    if (seconds < 2)
        __atomic_add_fetch(counts + (int)(seconds * 1000 + 0.5), 1, __ATOMIC_RELAXED);
    seconds /= counts[0];
    struct timespec t = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    return nanosleep(&t, NULL) != 0;
}
"""
GROUPS = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/cpu")]


class Day(Soak):
    """One recorder, whose time passes faster."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self.tools = Path(tempfile.mkdtemp(prefix="ring-day-"))
        self.log = self.tools / "log"
        self.log.touch()
        counts = self.tools / "counts"
        counts.write_bytes(struct.pack("q", 1) + bytes(16376))
        with counts.open("r+b") as file:
            self.counts = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
        words = ["cc", "-O2", "-x", "c", f'-DCOUNTS="{counts}"', "-o", str(self.tools / "sleep")]
        subprocess.run([*words, "-"], input=SLEEP, text=True, check=True)
        self.asked_for = 0
        self.sizes: list[dict[int, tuple[int, int]]] = []

    def hours(self) -> float:
        """Of the watchdog's loop, a round for each second."""
        return self.counts[1000] / 3600

    def added(self) -> None:
        """A line of the log that --trigger names."""
        with self.log.open("a") as lines:
            lines.write("an ERROR came\n")
        time.sleep(2)

    def churn(self) -> None:
        """Processes, threads and a control group come and go."""
        group = next(one for one in GROUPS if (one / "cgroup.procs").exists())
        group /= f"ring day {os.getpid()}\t{self.done['churn']}"
        group.mkdir()
        inside = 'echo $$ >"$1/cgroup.procs"; for n in 1 2 3 4 5 6 7 8; do sleep 0.2 & done; wait'
        process = subprocess.Popen(["sh", "-c", inside, "sh", str(group)])
        threads = [threading.Thread(target=time.sleep, args=[0.1]) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        process.wait()
        group.rmdir()

    def measure(self) -> None:
        """Private memory, KiB, and open files of each of the recorder's processes."""
        sizes = {}
        for pid in self.processes():
            try:
                rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                memory = sum(int(row.split()[1]) for row in rows if row.startswith("Pss_Anon:"))
                sizes[pid] = memory, len(os.listdir(f"/proc/{pid}/fd"))
            except OSError:
                continue
        self.sizes.append(sizes)

    def account(self, hours: float) -> None:
        """The end, and what it said."""
        assert self.process
        self.counts[0] = 1
        self.process.send_signal(signal.SIGTERM)
        self.nothing_left("TERM")
        self.rule(self.process.returncode == 0, f"it ended with {self.process.returncode}")
        said = Path(self.said.name).read_text().splitlines()
        made = sum(line.startswith("capture: snapshot ") for line in said)
        print(f"{self.asked_for} snapshots asked for, {made} reported; it said last: {said[-1]}")
        kept = {path.name for path in self.ring.glob("*.capture")}
        self.rule(made == self.asked_for, f"{made} snapshots of {self.asked_for}")
        self.rule(said[-1] == f"capture: {made} snapshots in {self.ring}", "the last line is wrong")
        self.rule(set(os.listdir(self.ring)) == kept, "something else is in the folder")
        print(f"{hours:.2f} h of the watchdog; half seconds: {self.counts[500]}; kept: {len(kept)}")
        # Others come and go.
        stayed = set.intersection(*map(set, self.sizes))
        for number, name in enumerate(["private memory, KiB", "open files"]):
            column = [sum(sizes[pid][number] for pid in stayed) for sizes in self.sizes]
            print(f"{name} of {len(stayed)} processes: {column[0]} at first, {column[-1]} at last,")
            print(f"  {max(column)} at most")
            self.rule(column[-1] <= column[0] * 1.1, f"{name} grew")


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--minutes", type=float, default=1e9, help="of the host's time, at most")
    parser.add_argument("--faster", type=int, default=50)
    parser.add_argument("--seed", type=int, default=17)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ring-day-"))
    size = f"size={DISK_MB}m,mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], check=True)
    day = Day(folder, args.seed)
    steps = [day.asked, day.appeared, day.added, day.storm, *[day.churn] * 4]
    begin = time.monotonic()
    try:
        day.start(f"log {day.log} ERROR", f"{day.tools}:")
        before, day.counts[0] = day.counts[1000], args.faster
        while day.hours() < args.hours and time.monotonic() - begin < args.minutes * 60:
            step = day.random.choice(steps)
            step()
            day.done[step.__name__] += 1
            day.asked_for += step != day.churn
            day.check()
            day.measure()
            # The recorder leaves out what comes within --pause.
            time.sleep(2)
        day.account((day.counts[1000] - before) / 3600)
    finally:
        put_away(day, folder)
        shutil.rmtree(day.tools)
    return result(day, time.monotonic() - begin)


if __name__ == "__main__":
    sys.exit(main())
