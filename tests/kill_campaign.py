"""End recorders at random moments in every way, and count what they leave behind.

    sudo python tests/kill_campaign.py --ends 1000 --recorders ftrace perf bpftrace dtrace ring

A third of the ends come at any time of the start, a third while it records, a third while it drains
(a flight recorder: while it writes a snapshot). The ways are SIGKILL of the program, of its process
group or of the Python program that runs it, a hang-up of its terminal, and TERM, INT, HUP and QUIT.
A third of the recordings run a COMMAND, some of them with a second trace instance (ftrace).

Left behind is what only the next capture, or a person, would remove: a trace instance or probe when
no process of the recorder lives any more, a process that records without its watchdog, or is still
there SETTLE seconds after the end, a file in TMPDIR, a folder without a recording, or anything but
the finished recording after an end that it could hear. Captures beside it may remove things before
they are looked for a second time, so they count at once. A folder that SIGKILL left before there
was a watchdog, or with `.scratch` in it while capture finished it, or while the recording was
converted, is counted by itself: that it goes is not promised (SECURITY.md). Prints a line for each
recorder and way; `--write FILE` keeps them as CSV. Exits with 1 if anything was left. Since most of
the time goes by waiting, `--at-once` runs several ends beside each other. 80 % of dtrace's start on
Linux goes into freeing the kernel's types, one list for each; `--keep-types` leaves that to the end
of its process, which needs a C compiler.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from collector_runs import CAPTURE, INSTANCES, MARK
from tools import tool

SETTLE = {"dtrace": 120.0}
# How long the start takes: at first this, then what it took before, as on a busy host. The end
# takes as long until more is known.
STARTS = {"ftrace": 1.2, "perf": 2.0, "bpftrace": 3.0, "dtrace": 15.0, "ring": 1.5}
ENDS: dict[str, float] = {}
MOMENTS = ["start", "recording", "draining"]
KILLS = ["program", "group", "parent"]
WAYS = [*KILLS, "terminal", "TERM", "INT", "HUP", "QUIT"]
COMMAND = ["sleep", "61.25"]
KEEP_TYPES = "void ctf_dict_close(void *d) { (void)d; }"
KEPT_TYPES = "SCHEDSCOPE_KILLED_DTRACE"
COLUMNS = ["recorder", "way", "ends", "left something", "folder not promised to go"]
COLUMNS += ["hung", "kept a recording"]


def main() -> int:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ends", type=int, default=100, metavar="N", help="for each recorder")
    parser.add_argument("--recorders", nargs="+", default=["ftrace", "perf", "bpftrace", "ring"])
    parser.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS)
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="beside each other")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, help="stop then, for each recorder")
    parser.add_argument("--write", type=Path, metavar="FILE", help="kept up to date")
    parser.add_argument("--keep-types", action="store_true", help="so that dtrace starts faster")
    args = parser.parse_args()
    if args.keep_types:
        # Another root's dtrace sees what is below /tmp.
        os.environ[KEPT_TYPES] = f"/tmp/kill-campaign-{os.getpid()}.so"
        words = ["cc", "-shared", "-fPIC", "-x", "c", "-o", os.environ[KEPT_TYPES], "-"]
        subprocess.run(words, input=KEEP_TYPES, text=True, check=True)
    try:
        return _run(args)
    finally:
        if args.keep_types:
            os.unlink(os.environ[KEPT_TYPES])


def _run(args: argparse.Namespace) -> int:
    found: dict[tuple[str, str], Counter[str]] = {}
    with ProcessPoolExecutor(args.at_once) as pool:
        for recorder in args.recorders:
            until = time.monotonic() + 60 * (args.minutes or 1e9)
            calls = (
                (recorder, args.ways[number % len(args.ways)], f"{args.seed} {recorder} {number}")
                for number in range(args.ends)
            )
            done = 0
            running = {pool.submit(_one, *call) for call in islice(calls, args.at_once)}
            while running:
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for one in ended:
                    way, counted, lines = one.result()
                    found.setdefault((recorder, way), Counter()).update(counted)
                    print("".join(f"  {recorder} {way} {line}\n" for line in lines), end="")
                    done += 1
                    if done % 50 == 0:
                        print(f"  {recorder}: {done} ends", flush=True)
                if args.write:
                    _write(args.write, found)
                if time.monotonic() < until:
                    running |= {pool.submit(_one, *call) for call in islice(calls, len(ended))}
    for (recorder, way), counts in found.items():
        print(f"{recorder} {way}: {dict(counts)}", flush=True)
    return any(counts["left something"] or counts["hung"] for counts in found.values())


def _one(recorder: str, way: str, seed: str) -> tuple[str, Counter[str], list[str]]:
    """In a process of its own: how one recording ended, and what it left, a line for each."""
    chance = random.Random(seed)
    one = End(recorder, way, chance.choice(MOMENTS), chance)
    one.happen()
    return way, one.counted, [f"{one.moment}: {line}" for line in one.lines]


def _write(path: Path, found: dict[tuple[str, str], Counter[str]]) -> None:
    rows = [[*key, *(counts[name] for name in COLUMNS[2:])] for key, counts in found.items()]
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


@dataclass
class End:
    """One recording, ended in one way at one moment."""

    recorder: str
    way: str
    moment: str
    chance: random.Random
    counted: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)

    def happen(self) -> None:
        """Start, end, wait, look."""
        self.mark = uuid.uuid4().hex
        self.folder = Path(tempfile.mkdtemp(prefix="kill-campaign-", dir="/tmp"))
        self.place, self.temporary = self.folder / "place", self.folder / "temporary"
        self.place.mkdir()
        self.temporary.mkdir()
        self.process, self.terminal = self._start()
        try:
            self._reach()
            ours = {self.process.pid, *(pid for pid, _ in self._processes())}
            started = self._watched()
            self._end()
            begin = time.monotonic()
            try:
                self.process.wait(90)
                if self.moment == "recording" and self.way not in KILLS:
                    took = time.monotonic() - begin
                    ENDS[self.recorder] = (ENDS.get(self.recorder, took) + took) / 2
            except subprocess.TimeoutExpired:
                self._say("hung", "it did not end within 90 s")
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            self._look(ours, started)
        finally:
            for pid, _ in self._processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if self.terminal is not None:
                with contextlib.suppress(OSError):
                    os.close(self.terminal)
            shutil.rmtree(self.folder, ignore_errors=True)
        self.counted["ends"] += 1

    def _start(self) -> tuple[subprocess.Popen[bytes], int | None]:
        words, program = self._words(), CAPTURE
        environment = {**os.environ, MARK: self.mark, "TMPDIR": str(self.temporary)}
        if self.recorder == "dtrace" and (dtrace := tool("dtrace")):
            # Another root's dtrace reads the scripts by a path below /tmp.
            program = shutil.copytree(CAPTURE.parent, self.folder / "collectors") / "capture"
            run = list(dtrace)
            if library := environment.pop(KEPT_TYPES, None):
                last = max(i for i, word in enumerate(run) if Path(word).name == "dtrace")
                run[last:last] = ["env", f"LD_PRELOAD={library}"]
            environment["DTRACE"] = " ".join(run)
            if self.way == "parent":
                package = self.folder / "src" / "schedscope"
                package.mkdir(parents=True)
                for path in (CAPTURE.parents[1] / "src" / "schedscope").iterdir():
                    target = program.parent if path.name == "collectors" else path
                    (package / path.name).symlink_to(target)
                environment["PYTHONPATH"] = str(package.parent)
        called = ["sh", str(program)]
        if self.way == "parent":
            called = [sys.executable, "-m", "schedscope", "capture"]
        terminal = stdin = None
        if self.way == "terminal":
            terminal, stdin = os.openpty()
        with open(self.folder / "said", "wb") as said:
            process = subprocess.Popen(
                [*called, *words],
                cwd=self.place,
                env=environment,
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
                preexec_fn=_ready(stdin is not None),
            )
        if stdin is not None:
            os.close(stdin)
        return process, terminal

    def _words(self) -> list[str]:
        if self.recorder == "ring":
            words = ["--ring", "4M", "--keep", "60M", "-o", "x"]
            words += ["--trigger", f"file {self.folder}/flag"]
            if self.chance.random() < 0.2:
                words += ["--trigger", "wait > 20s"]
        else:
            words = ["-t", self.recorder, "-b", "1024K", "-o", "x", "-d", "60"]
        drawn = self.chance.random()
        if self.recorder == "ftrace" and drawn < 0.2:
            words += ["--with", "syscalls"]
        return [*words, "--", *COMMAND] if drawn < 0.4 else words

    def _reach(self) -> None:
        """Wait until the moment comes."""
        if self.moment == "start":
            late = STARTS[self.recorder] + (0.4 if self.way == "parent" else 0)
            time.sleep(self.chance.uniform(0, late))
            return
        until = time.monotonic() + 90
        begin = time.monotonic()
        while not self._records() and self.process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        if self._records():
            STARTS[self.recorder] = (STARTS[self.recorder] + time.monotonic() - begin) / 2
        time.sleep(self.chance.uniform(0, 0.5))
        if self.moment == "draining":
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(
                    signal.SIGUSR1
                    if self.recorder == "ring" and self.way != "parent"
                    else signal.SIGINT
                )
            time.sleep(self.chance.uniform(0, ENDS.get(self.recorder, STARTS[self.recorder])))

    def _records(self) -> bool:
        return any(self.place.glob("*/capture.json")) or any(self.place.glob("*/.scratch/armed"))

    def _watched(self) -> bool:
        """Whether there is a watchdog, or the folder is finished."""
        return any("schedscope-watchdog" in line for _, line in self._processes()) or any(
            self.place.glob("x.capture")
        )

    def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.terminal is not None:
                os.close(self.terminal)
                self.terminal = None
            elif self.way == "group":
                os.killpg(self.process.pid, signal.SIGKILL)
            elif self.way in KILLS:
                self.process.kill()
            else:
                self.process.send_signal(getattr(signal, f"SIG{self.way}"))

    def _look(self, ours: set[int], started: bool) -> None:
        # Until its watchdog has started, capture does not learn that its parent was killed.
        end = time.monotonic() + SETTLE.get(self.recorder, 30.0) + STARTS[self.recorder]
        alone: dict[int, float] = {}
        while True:
            # In this order: what has no process now has none later.
            processes = self._recorders()
            objects = self._objects(ours)
            now = time.monotonic()
            for pid, line in processes:
                if self._watchdog_is_gone(pid) and now - alone.setdefault(pid, now) > 2:
                    self.lines.append(f"left process {pid} {line} without a watchdog")
                    end = now
            if not processes or now >= end:
                break
            time.sleep(0.1)
        self.lines += [f"left {one}" for one in [*map(str, processes), *objects]]
        if not processes:
            self.lines += [f"left {one}" for one in self._folders(started)]
        if self.lines:
            self.counted["left something"] += 1

    def _recorders(self) -> list[tuple[int, str]]:
        """Its processes; a COMMAND is its user's, and SIGKILL of the recorder does not end it."""
        return [
            (pid, line)
            for pid, line in self._processes()
            if self.way not in KILLS or line.split() != COMMAND
        ]

    def _watchdog_is_gone(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            if b"SCHEDSCOPE_RECORDER=" in Path(f"/proc/{pid}/environ").read_bytes():
                session = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3]
                return not Path(f"/proc/{session}").exists()
        return False

    def _objects(self, ours: set[int]) -> list[str]:
        """Of the kernel."""
        found = []
        for pid in ours:
            found += [f"instance {path.name}" for path in INSTANCES.glob(f"schedscope-{pid}-*")]
        with contextlib.suppress(OSError):
            probes = (INSTANCES.parent / "kprobe_events").read_text()
            found += [f"probe of {pid}" for pid in ours if f":schedscope_{pid}_" in probes]
        return found

    def _folders(self, started: bool) -> list[str]:
        """What is wrong with what is on disk."""
        found = [f"temporary {path.name}" for path in self.temporary.iterdir()]
        for path in self.place.rglob("*"):
            name = str(path.relative_to(self.place))
            unfinished = name.endswith((".partial", ".scratch", ".reserve", ".new"))
            kept = name.endswith(".capture.partial") and (path / "capture.json").exists()
            if self.way in KILLS and kept:
                continue
            if not unfinished or (
                ".scratch/" in name or (".partial/" in name and path.parent.name == ".scratch")
            ):
                continue
            finishing = self.way in KILLS and (
                (path.parent / "capture.json").exists() or name.endswith(".sched.partial")
            )
            if finishing or (self.way in KILLS and not started):
                self.counted["folder not promised to go"] += 1
                return []
            found.append(
                f"{name} with {sorted(p.name for p in path.iterdir())[:9]}"
                if path.is_dir()
                else name
            )
        for path in self.place.glob("*/**/capture.json"):
            try:
                json.loads(path.read_bytes())
                self.counted["kept a recording"] += 1
            except ValueError:
                found.append(f"{path.relative_to(self.place)}, which is not JSON")
        return found

    def _say(self, what: str, line: str) -> None:
        self.counted[what] += 1
        self.lines.append(f"{what}: {line}")

    def _processes(self) -> list[tuple[int, str]]:
        """Processes with the mark in their environment; a zombie has none."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                # Not more of it: a process can show an environment of any length.
                with (entry / "environ").open("rb") as file:
                    environment = file.read(1 << 18)
                if f"{MARK}={self.mark}".encode() in environment:
                    line = (entry / "cmdline").read_text(errors="replace").replace("\0", " ")
                    # The watchdog's name follows its text.
                    shown = f"{line[:100]} {line[-40:]}" if len(line) > 140 else line
                    found.append((int(entry.name), shown.strip()))
        return found


def _ready(terminal: bool) -> Callable[[], None]:
    def ready() -> None:
        # A shell cannot trap what it inherited as ignored, as everything under nohup does.
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        if terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    return ready


if __name__ == "__main__":
    sys.exit(main())
