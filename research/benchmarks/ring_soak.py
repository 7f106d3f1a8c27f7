"""A flight recorder under faults for minutes: does it hold its ceilings, and leave nothing behind?

    sudo python3 research/benchmarks/ring_soak.py --minutes 30

`capture --ring` records into a small file system of its own (a tmpfs) while, one after another at
random, snapshots are asked for, a file appears, threads storm (`perf bench sched messaging`), the
disk fills up, and the recorder, its watchdog or its bpftrace is killed. After each step:

* every finished snapshot is a complete capture, the last one is read by schedscope, and each CPU
  holds what capture.json says;
* all snapshots together are no larger than --keep, and the disk keeps its --min-free;
* the ring has the size that was asked for, and the recorder's processes stay below a ceiling;
* after a recorder's end there is no trace instance, no process and no unfinished folder of it.

It prints what was done and the highest figures, and exits with 1 if a rule was broken.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CAPTURE = ROOT / "collectors" / "capture"
INSTANCES = Path("/sys/kernel/tracing/instances")
MARK = "SCHEDSCOPE_SOAK"
KEEP_MB, DISK_MB, RING_MB, MIN_FREE_MB = 96, 192, 16, 32
STORM = ["perf", "bench", "sched", "messaging", "-g", "10", "-l", "400"]


class Soak:
    """One run: a recorder that is started again whenever it was ended."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.ring = folder / "soak.ring"
        self.flag = folder / "flag"
        self.random = random.Random(seed)
        self.cache = tempfile.mkdtemp(prefix="ring-soak-cache-")
        self.done: Counter[str] = Counter()
        self.highest: Counter[str] = Counter()
        self.broken: list[str] = []
        self.process: subprocess.Popen[bytes] | None = None
        self.said = open(folder.parent / f"{folder.name}.log", "wb")  # noqa: SIM115

    def start(self, trigger: str = "wait > 30ms", path: str = "") -> None:
        """A recorder, once it records."""
        words = ["--ring", f"{RING_MB}M", "-o", str(self.ring), "--keep", f"{KEEP_MB}M"]
        words += ["--trigger", f"file {self.flag}", "--trigger", trigger, "--pause", "2"]
        words += ["--min-free", f"{MIN_FREE_MB}M"]
        self.process = subprocess.Popen(
            ["sh", str(CAPTURE), *words],
            stderr=self.said,
            env={**os.environ, "PATH": path + os.environ["PATH"], MARK: self.folder.name},
            start_new_session=True,
        )
        end = time.monotonic() + 180
        while not (self.ring / ".scratch" / "armed").exists():
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the recorder did not start; see {self.said.name}")
            time.sleep(0.1)

    def ended(self, what: str) -> None:
        """What remains of it; then the next one."""
        self.nothing_left(what)
        self.start()

    def nothing_left(self, what: str) -> None:
        """Checks that nothing remains of a recorder that ends."""
        assert self.process
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.rule(False, f"{what}: the recorder did not end within a minute")
            self.process.kill()
        pid = self.process.pid
        end = time.monotonic() + 30
        while time.monotonic() < end and (self.processes() or self.instances(pid)):
            time.sleep(0.2)
        self.rule(not self.processes(), f"{what}: processes stayed: {self.processes()}")
        if self.instances(pid):
            subprocess.run(["sh", str(CAPTURE), "--clean"], check=False, capture_output=True)
        self.rule(not self.instances(pid), f"{what}: a trace instance stayed")
        for one in self.ring.glob("*.partial"):
            self.rule(
                (one / "capture.json").exists(), f"{what}: {one.name} does not tell of itself"
            )
            self.highest["folders of killed snapshots"] += 1
            subprocess.run(["rm", "-rf", str(one)], check=False)

    def instances(self, pid: int) -> list[Path]:
        """Trace instances of one recorder."""
        return list(INSTANCES.glob(f"schedscope-{pid}-*"))

    def processes(self) -> dict[int, str]:
        """The processes that belong to the recorder, with their command lines."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARK}={self.folder.name}".encode() in (entry / "environ").read_bytes().split(
                    b"\0"
                ):
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found[int(entry.name)] = line[:80]
            except OSError:
                continue
        return found

    def rule(self, held: bool, sentence: str) -> None:
        """What must be true."""
        if not held:
            self.broken.append(sentence)
            print(f"BROKEN: {sentence}", flush=True)

    # ---------------------------------------------------------------- steps

    def asked(self) -> None:
        """A snapshot by signal."""
        assert self.process
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(2)

    def appeared(self) -> None:
        """A file that --trigger names."""
        self.flag.touch()
        time.sleep(2)
        self.flag.unlink()

    def storm(self) -> None:
        """More switches than the ring holds for a second."""
        load = subprocess.Popen(STORM, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1)
        self.asked()
        load.wait()

    def full(self) -> None:
        """Another program fills the disk: a snapshot is refused or cut, and recording goes on."""
        filler = self.folder / "filler"
        with open(filler, "wb") as file:
            try:
                while True:
                    file.write(bytes(1 << 20))
            except OSError:
                pass
        self.asked()
        filler.unlink(missing_ok=True)
        assert self.process
        self.rule(self.process.poll() is None, "disk full: the recorder ended")

    def killed(self) -> None:
        """SIGKILL, often in the middle of a snapshot."""
        assert self.process
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(self.random.uniform(0, 0.5))
        os.kill(self.process.pid, signal.SIGKILL)
        self.ended("kill -9")

    def terminated(self) -> None:
        """The end as a service manager makes it."""
        assert self.process
        self.process.terminate()
        self.ended("TERM")

    def watchdog_killed(self) -> None:
        """The process that holds the trace instance is killed."""
        assert self.process
        for pid in self.processes():
            # The leader of a session of its own, but the recorder leads one here, too.
            with contextlib.suppress(ProcessLookupError):
                if pid != self.process.pid and os.getsid(pid) == pid:
                    os.kill(pid, signal.SIGKILL)
        self.ended("watchdog killed")

    def predicate_killed(self) -> None:
        """The process that watches for waits dies: the recorder reports it and ends."""
        for pid, line in self.processes().items():
            if line.startswith("bpftrace"):
                os.kill(pid, signal.SIGKILL)
        self.ended("bpftrace killed")

    # ---------------------------------------------------------------- rules

    def check(self) -> None:
        """After every step."""
        snapshots = sorted(self.ring.glob("*.capture"))
        used = sum(self.kb(one) for one in snapshots)
        self.highest["snapshots on disk, MiB"] = max(
            self.highest["snapshots on disk, MiB"], used // 1024
        )
        self.rule(used <= KEEP_MB * 1024, f"snapshots take {used} KiB of --keep {KEEP_MB}M")
        assert self.process
        for instance in self.instances(self.process.pid):
            kb = int((instance / "buffer_total_size_kb").read_text().split()[0])
            self.highest["ring, KiB"] = max(self.highest["ring, KiB"], kb)
            self.rule(kb <= RING_MB * 1024 + 64, f"the ring has {kb} KiB")
        memory = Counter[str]()
        for pid, line in self.processes().items():
            try:
                for row in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    if row.startswith("Pss:"):
                        memory["bpftrace" if line.startswith("bpftrace") else "sh"] += int(
                            row.split()[1]
                        )
            except OSError:
                continue
        for name, kb in memory.items():
            key = f"memory of {name}, KiB"
            self.highest[key] = max(self.highest[key], kb)
        self.rule(memory["sh"] < 65536, f"the recorder's shells take {memory['sh']} KiB")
        for one in snapshots[-1:]:
            self.read(one)

    def kb(self, folder: Path) -> int:
        """Disk space."""
        du = subprocess.run(["du", "-sk", str(folder)], capture_output=True, text=True, check=False)
        return int(du.stdout.split()[0]) if du.stdout else 0

    def read(self, snapshot: Path) -> None:
        """One snapshot as a user would."""
        import schedscope

        try:
            about = json.loads((snapshot / "capture.json").read_text())
            if not about["complete"]:
                self.highest["snapshots cut by a full disk"] += 1
                return
            trace = schedscope.open(str(snapshot), cache=self.cache)
            found = dict(schedscope.check(trace).select("check", "level").iter_rows())
        except FileNotFoundError:
            return  # The oldest went away meanwhile.
        self.rule("violated" not in found.values(), f"{snapshot.name}: {found}")
        self.highest["snapshots read and checked"] += 1


def put_away(soak: Soak, folder: Path) -> None:
    """Ends the recorder, and removes the disk and the cache of its user."""
    if soak.process and soak.process.poll() is None:
        soak.process.kill()
    time.sleep(1)
    subprocess.run(["umount", "-l", str(folder)], check=False)
    folder.rmdir()
    shutil.rmtree(soak.cache)


def result(soak: Soak, seconds: float) -> int:
    """Prints what was done and the largest of each measure; 1 if a rule was broken."""
    print(f"{seconds:.0f} s; steps: {dict(sorted(soak.done.items()))}")
    for name, value in sorted(soak.highest.items()):
        print(f"{name}: {value}")
    print(f"rules broken: {len(soak.broken)}")
    return 1 if soak.broken else 0


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=17)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ring-soak-"))
    size = f"size={DISK_MB}m,mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], check=True)
    soak = Soak(folder, args.seed)
    steps: list[Callable[[], None]] = [soak.asked, soak.appeared, soak.storm, soak.full]
    steps += [soak.killed, soak.terminated, soak.watchdog_killed, soak.predicate_killed]
    begin = time.monotonic()
    try:
        soak.start()
        while time.monotonic() - begin < args.minutes * 60:
            step = soak.random.choice([*steps, soak.asked, soak.storm])
            step()
            soak.done[step.__name__] += 1
            soak.check()
        assert soak.process
        soak.process.terminate()
        soak.process.wait(60)
    finally:
        put_away(soak, folder)
    return result(soak, time.monotonic() - begin)


if __name__ == "__main__":
    sys.exit(main())
