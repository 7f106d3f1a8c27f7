"""`schedscope top` for as many tables as in a day: does it grow, and are its figures right at last?

    python research/benchmarks/top_day.py --every 1 --refreshes 86400
    python research/benchmarks/top_day.py --every 60 --refreshes 1440 --metrics

The command itself runs, but its recorder is made up and its clock passes by itself: a snapshot has
what a recorder would have written since the one before, as sub-buffers of ftrace, with stamps of a
whole day. Of two CPUs one goes off and on. A hundred threads a second come and go, each with a name
of its own, and reuse each other's numbers; others stay, or starve for five seconds; services come
and go; events are lost now and then. Every row of the last tables (with --metrics: the times of an
answer) is compared with what was made up. Prints memory, open files and time per table at certain
hours. Needs neither root nor Linux's tracing.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import socket
import struct
import sys
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from schedscope.cli import main as schedscope, top
from schedscope.live import metrics, recorder

TEMPLATE = Path(__file__).parents[2] / "fixtures" / "linux-ftrace-mixed.capture"
SECOND, PAGE, SLOTS = 10**9, 4096, 50
FIRST_TID, TIDS, HOG, STARVED = 2000, 30000, 900, 950
WOKEN = ("sched_waking", "sched_wakeup")
HOURS = (1, 2, 3, 6, 9, 12, 15, 18, 21, 24)
COMPARED = 60
"""Tables at the end."""


class World:
    """What happens, second by second: events, and the spells of threads that they tell."""

    def __init__(self, template: Path) -> None:
        self.ids = {
            path.parent.name: int(re.search(r"^ID: (\d+)$", path.read_text(), re.M)[1])  # type: ignore[index]
            for path in template.glob("events/sched/*/format")
        }
        self.spells: list[tuple[str, int, str, int, int]] = []
        self.compared = False
        self.made = 0

    def second(self, k: int) -> list[bytes]:
        """The sub-buffers of each CPU."""
        return [self._cpu(k, cpu) for cpu in (0, 1)]

    def off(self, k: int) -> bool:
        """Whether CPU 1 is offline."""
        return k % 300 < 5

    def _cpu(self, k: int, cpu: int) -> bytes:
        if cpu == 1 and self.off(k):
            return b""
        events: list[tuple[int, bytes]] = []
        hog = (f"hog{cpu}", HOG + cpu)
        idle = (f"swapper/{cpu}", 0)
        begin = k * SECOND
        # Without threads of the kernel it would look like a recording of selected threads.
        worker = (f"kworker/{cpu}:1", 40 + cpu)
        events += [
            *self._woken_at(begin + 50_000, worker, cpu),
            (begin + 60_000, self._switch(idle, 0, worker)),
            (begin + 90_000, self._switch(worker, 1, idle)),
        ]
        spells = [
            (*worker, "waiting", begin + 50_000, begin + 60_000),
            (*worker, "running", begin + 60_000, begin + 90_000),
        ]
        if cpu == 0 and k % 10 == 3:
            events += self._woken_at(begin + 100_000, ("starved", STARVED), cpu)
        if cpu == 0 and k % 10 == 8:
            starved = ("starved", STARVED)
            events.append((begin + 200_000, self._switch(idle, 0, starved)))
            events.append((begin + 400_000, self._switch(starved, 1, idle)))
            spells.append((*starved, "waiting", begin - 5 * SECOND + 100_000, begin + 200_000))
            spells.append((*starved, "running", begin + 200_000, begin + 400_000))
        for slot in range(SLOTS):
            at = begin + slot * (SECOND // SLOTS)
            self.made += 1
            child = (f"j{self.made}", FIRST_TID + self.made % TIDS)
            ran = at + 2_000_000 + (1 + (7 * k + slot) % 9) * 500_000
            events += [
                *self._woken_at(at + 500_000, hog, cpu),
                (at + 1_000_000, self._switch(idle, 0, hog)),
                (at + 2_000_000, self._woken("sched_wakeup_new", child, cpu, hog[1])),
                (ran, self._switch(hog, 1, child)),
                (ran + 2_999_000, self._exit(child)),
                (ran + 3_000_000, self._switch(child, 32, idle)),
            ]
            spells += [
                (*hog, "waiting", at + 500_000, at + 1_000_000),
                (*hog, "running", at + 1_000_000, ran),
                (*child, "waiting", at + 2_000_000, ran),
                (*child, "running", ran, ran + 3_000_000),
            ]
        if self.compared:
            self.spells += spells
        return _pages(events)

    def _common(self, event: str, pid: int) -> bytes:
        return struct.pack("<HBBi", self.ids[event], 0, 0, pid)

    def _woken_at(self, ts: int, who: tuple[str, int], cpu: int) -> list[tuple[int, bytes]]:
        return [(ts + i * 1000, self._woken(event, who, cpu)) for i, event in enumerate(WOKEN)]

    def _woken(self, event: str, who: tuple[str, int], cpu: int, by: int = 0) -> bytes:
        return self._common(event, by) + struct.pack("<16siii", who[0].encode(), who[1], 120, cpu)

    def _exit(self, who: tuple[str, int]) -> bytes:
        fields = struct.pack("<16siiBxxx", who[0].encode(), who[1], 120, 1)
        return self._common("sched_process_exit", who[1]) + fields

    def _switch(self, prev: tuple[str, int], state: int, to: tuple[str, int]) -> bytes:
        fields = (prev[0].encode(), prev[1], 120, state, to[0].encode(), to[1], 120)
        return self._common("sched_switch", prev[1]) + struct.pack("<16siiq16sii", *fields)

    def truth(self, begin: int, end: int) -> dict[tuple[str, int], list[int]]:
        """Waiting, running and ended waits of every thread in an interval."""
        found: dict[tuple[str, int], list[int]] = {}
        for comm, tid, kind, start, stop in self.spells:
            inside = min(stop, end) - max(start, begin)
            if inside > 0:
                row = found.setdefault((comm, tid), [0, 0, 0])
                row[kind == "running"] += inside
                row[2] += kind == "waiting" and begin < stop <= end
        return found


def _pages(events: list[tuple[int, bytes]]) -> bytes:
    """Sub-buffers with these events."""
    content, page = bytearray(), bytearray()
    first = last = 0
    for ts, payload in sorted(events):
        if page and (len(page) + 4 + len(payload) > PAGE - 16 or ts - last >= 1 << 27):
            content += struct.pack("<QQ", first, len(page)) + page.ljust(PAGE - 16, b"\0")
            page.clear()
        if not page:
            first = last = ts
        page += struct.pack("<I", len(payload) // 4 | ts - last << 5) + payload
        last = ts
    if page:
        content += struct.pack("<QQ", first, len(page)) + page.ljust(PAGE - 16, b"\0")
    return bytes(content)


class Clock:
    """Passes where it is waited for."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    process_time = staticmethod(time.process_time)


class Recorder:
    """In place of the process of `capture --ring`."""

    def __init__(self, place: Path, clock: Clock, world: World, held: float) -> None:
        self.ring = place / "top.ring"
        self.ring.mkdir()
        self.clock, self.world, self.held = clock, world, held
        self.pid = os.getpid()
        self.taken = self.first = 0
        self.upto = int(clock.now)
        self.about = json.loads((TEMPLATE / "capture.json").read_text())
        self.about["ftrace"]["sub_buffer_bytes"] = PAGE

    def poll(self) -> None:
        """It is there."""

    def send_signal(self, _number: int) -> None:
        """A snapshot of all that came since the one before, or as far back as the ring goes."""
        self.taken += 1
        end = int(self.clock.now)
        begin = max(self.upto, end - int(self.held))
        late = begin > self.upto
        self.first = self.first or end - begin
        folder = self.ring / f"{self.taken}.partial"
        (folder / "raw").mkdir(parents=True)
        (folder / "stats").mkdir()
        shutil.copytree(TEMPLATE / "events", folder / "events")
        for cpu, pages in enumerate(zip(*map(self.world.second, range(begin, end)), strict=True)):
            (folder / f"raw/cpu{cpu}").write_bytes(b"".join(pages))
            (folder / f"stats/cpu{cpu}").write_text(
                "entries: 0\noverrun: 0\ncommit overrun: 0\ndropped events: 0\nread events: 600\n"
                f"now ts: {end}.000000\n"
            )
        self._tables(folder, end)
        wall = 1_800_000_000 * SECOND
        about = self.about
        about["window"] = {"begin": begin * SECOND, "end": end * SECOND}
        about["clock"]["pairs"] = [[end * SECOND, wall + end * SECOND]] * 2
        about["ring"] = {
            "trigger": "asked for", "at": end * SECOND, "seconds": self.held, "memory": "",
            "snapshot": self.taken, "skipped": 0,
            "cpus": [
                {"cpu": cpu, "begin": begin * SECOND if late else None,
                 "held_ns": (end - begin) * SECOND, "overwritten": 0}
                for cpu in (0, 1)
            ],
        }  # fmt: skip
        about["lost"] = [
            {"cpu": 0, "count": 7, "reason": "commit_overrun", "ts_begin": None, "ts_end": None}
        ] * (self.taken % 997 == 500)
        (folder / "capture.json").write_text(json.dumps(about))
        folder.rename(self.ring / f"{self.taken}.capture")
        self.upto = end

    def _tables(self, folder: Path, end: int) -> None:
        rows = [("hog0", HOG), ("hog1", HOG + 1), ("starved", STARVED)]
        rows += [
            (f"j{n}", FIRST_TID + n % TIDS)
            for n in range(max(1, self.world.made - 20), self.world.made + 1)
        ]
        text = "tid\tpid\tppid\tpolicy\tprio\tnice\taffinity\tkernel\treservation\tslice\tcomm\n"
        workers = [(f"kworker/{cpu}:1", 40 + cpu) for cpu in (0, 1)]
        text += "".join(
            f"{tid}\t{tid}\t1\tother\t120\t0\t0-1\t{int(tid < 100)}\t\t\t{comm}\n"
            for comm, tid in [*workers, *rows]
        )
        (folder / "threads.tsv").write_text(text)
        group = f"/system.slice/svc-{end // 30}.service"
        text = "seen\tpid\tppid\tcreated\tcgroup\tautogroup\tcmdline\n"
        for seen in ("start", "end"):
            text += "".join(f"{seen}\t{tid}\t1\t{tid}\t{group}\t\t{comm}\n" for comm, tid in rows)
        (folder / "processes.tsv").write_text(text)
        text = "seen\tcgroup\tweight\tquota\tperiod\tusage\t"
        text += "periods\tn_throttled\tthrottled\tpressure\n"
        throttled = end * 1000
        text += f"start\t/fixed.service\t100\t50000\t100000\t0\t{end}\t{end}\t{throttled}\t\n"
        text += f"start\t{group}\t100\t\t100000\t0\t0\t0\t0\t\n"
        (folder / "groups.tsv").write_text(text)
        head, *lines = (TEMPLATE / "cpus.tsv").read_text().splitlines()
        off = self.world.off(end - 1)
        lines = [re.sub(r"^1\t1", "1\t0", line) if off else line for line in lines]
        (folder / "cpus.tsv").write_text("\n".join([head, *lines]) + "\n")


class Measured:
    """Memory and the like at certain hours."""

    def __init__(self, every: float) -> None:
        self.every, self.tables, self.since = every, 0, time.monotonic()
        self.cpu = time.process_time()
        self.due = [10, *(round(hour * 3600 / every) for hour in HOURS)]
        self.before = 0

    def table(self, fake: Recorder, clock: Clock) -> None:
        """One more."""
        self.tables += 1
        hours = (clock.now - 1000) / 3600
        if self.tables in self.due or self.tables % 5000 == 0:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            now, cpu = time.monotonic(), time.process_time()
            many = self.tables - self.before
            print(
                f"table {self.tables}, {hours:.2f} h: {pages * 4 / 1024:.1f} MiB,"
                f" {len(os.listdir('/proc/self/fd'))} files, {threading.active_count()} threads,"
                f" {(now - self.since) / many * 1000:.1f} ms and"
                f" {(cpu - self.cpu) / many * 1000:.1f} ms of CPU a table since;"
                f" {len(os.listdir(fake.ring.parent))} entries in its folder",
                file=sys.stderr, flush=True,
            )  # fmt: skip
            self.since, self.cpu, self.before = now, cpu, self.tables


class Tables(io.TextIOBase):
    """In place of stdout."""

    def __init__(self, done: Callable[[], None]) -> None:
        self.done, self.last = done, deque[str](maxlen=COMPARED)

    def write(self, text: str) -> int:
        self.last.append(text)
        self.done()
        return len(text)

    def isatty(self) -> bool:
        return False


def compare(tables: Tables, fake: Recorder, every: float) -> int:
    """How many of the last tables differ from what was made up."""
    wrong = 0
    for text in tables.last:
        document = json.loads(text)
        begin, end = document["begin"], document["end"]
        truth = fake.world.truth(begin, end)
        # A wait that has not ended is no spell yet.
        k = end // SECOND
        found = {
            (row["comm"], row["tid"]): [row["waiting"], row["running"], row["n_waits"]]
            for row in document["rows"]
        }
        if (k - 4) % 10 < 5 and k % 10 != 3:
            start = ((k - 4) // 10 * 10 + 3) * SECOND + 100_000
            if start < end:
                truth[("starved", STARVED)] = [end - max(begin, start), 0, 0]
        if found != truth or end - begin != every * SECOND:
            wrong += 1
            differ = [(key, found.get(key), truth.get(key)) for key in {*found, *truth}
                      if found.get(key) != truth.get(key)]  # fmt: skip
            print(f"[{begin}, {end}): {len(found)} rows, {len(truth)} expected:", differ[:3])
    print(f"of the last {len(tables.last)} tables {wrong} differ from what was made up")
    return wrong


@contextmanager
def replaced(clock: Clock, fakes: list[Recorder], held: float) -> Iterator[None]:
    """The clock of what `top` calls, and the recorder."""

    @contextmanager
    def made_up(place: Path, _seconds: float) -> Iterator[Recorder]:
        fakes.append(Recorder(place, clock, World(TEMPLATE), held))
        yield fakes[0]

    before = recorder.time, metrics.time, recorder.recorder, top.os.geteuid
    recorder.time = metrics.time = clock  # type: ignore[assignment]
    recorder.recorder = made_up  # type: ignore[assignment]
    top.os.geteuid = lambda: 0
    try:
        yield
    finally:
        recorder.time, metrics.time, recorder.recorder, top.os.geteuid = before


class Ended(Exception):
    """Enough tables."""


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--every", type=int, default=1, metavar="SECONDS")
    parser.add_argument("--refreshes", type=int, default=86400, metavar="N")
    parser.add_argument("--minutes", type=float, default=1e9, help="of the host's time, at most")
    parser.add_argument("--metrics", action="store_true", help="top --metrics, scraped")
    args = parser.parse_args()
    clock, fakes = Clock(), list[Recorder]()
    measured = Measured(args.every)
    until = time.monotonic() + args.minutes * 60
    words = ["top", "--every", f"{args.every}s"]
    last = args.refreshes

    def done() -> None:
        nonlocal last
        measured.table(fakes[0], clock)
        if time.monotonic() > until:
            last = min(last, measured.tables + COMPARED)
        # The first of them was asked for already.
        fakes[0].world.compared = measured.tables >= last - COMPARED - 1
        if measured.tables >= last:
            os.kill(os.getpid(), 2)

    if args.metrics:
        return _metrics(args, clock, fakes, words, done, measured)
    tables = Tables(done)
    stdout, sys.stdout = sys.stdout, tables  # type: ignore[assignment]
    try:
        with replaced(clock, fakes, 4 * args.every):
            status = schedscope([*words, "--format", "json"])
    finally:
        sys.stdout = stdout
    print(f"{measured.tables} tables, {(clock.now - 1000) / 3600:.2f} h; it ended with {status}")
    return bool(compare(tables, fakes[0], args.every) or status)


def _metrics(
    args: argparse.Namespace, clock: Clock, fakes: list[Recorder], words: list[str],
    done: Callable[[], None], measured: Measured,
) -> int:  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    add, texts = metrics.Metrics.add, deque[str](maxlen=1)

    def added(self: Any, interval: Any, *rest: Any) -> None:
        add(self, interval, *rest)
        if measured.tables % 15 == 0:
            with urllib.request.urlopen(f"http://{address}/metrics") as answer:
                texts.append(answer.read().decode())
        done()

    metrics.Metrics.add = added  # type: ignore[method-assign]
    try:
        with replaced(clock, fakes, 1.5 * args.every + 1):
            status = schedscope([*words, "--metrics", address])
    finally:
        metrics.Metrics.add = add  # type: ignore[method-assign]
    lines = [line.rsplit(" ", 1) for line in texts[-1].splitlines() if line[0] != "#"]
    values = {name: float(value) for name, value in lines}
    services = sum(name.startswith("schedscope_waiting_seconds_total{") for name in values)
    print(f"{measured.tables} intervals, {(clock.now - 1000) / 3600:.2f} h; it ended with {status}")
    print(f"the last answer: {len(texts[-1])} bytes, {services} services")
    # What the scrape is of: the recorder's own count of throttled time, a thousandth of all.
    named = "schedscope_throttled_seconds_total{"
    throttled = sum(value for name, value in values.items() if name.startswith(named))
    observed = values["schedscope_observed_seconds_total"]
    unobserved = values["schedscope_unobserved_seconds_total"]
    print(
        f"observed {observed:.3f} s, not observed {unobserved:.3f} s, throttled {throttled:.3f} s"
    )
    wrong = abs(throttled * 1000 + fakes[0].first - observed - unobserved) > 0.5
    # An hour's services, one for each table or each half minute.
    wrong |= services > 3600 / max(30, args.every) + 10
    print("as made up" if not wrong else "NOT as made up")
    return bool(status or wrong)


if __name__ == "__main__":
    sys.exit(main())
