"""The viewer on a long trace, as a person meets it: first picture, zoom steps, memory.

    python research/benchmarks/view.py TRACE
    python research/benchmarks/view.py --events 16000000

Runs `schedscope view` and a headless Chromium that draws in software. Times are those of a clock
on the wall, from the key to the finished picture, and the CPU time of the server; a busy host makes
the former longer. A generated trace has as many intervals (rows of `states`) as events, about.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import polars as pl

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import browser as driver
import driven
from analyses import generated

HANDLE = "document.querySelector('.sst-picture canvas').timeline"
PANEL = "document.querySelector('.sst-body').innerText"
_FIND = "document.querySelector('.sst-find')"
STEPS = (
    ("the longest wait (n)", f"{HANDLE}.picture.strokes.n()", f"{HANDLE}.state().wait === 0"),
    (
        "all about it, selected",
        f"(w => {HANDLE}.picture.select(`utid:${{w.utid}}`, w.ready + w.wait / 2))"
        f"({HANDLE}.about.waits[0])",
        f"{PANEL}.includes('Who ran meanwhile')",
    ),
    (
        "a range of 0.1 s",
        f"(w => {HANDLE}.picture.setRange([w.ready, w.ready + 1e8]))({HANDLE}.about.waits[0])",
        f"{PANEL}.includes('share of all waiting')",
    ),
    (
        "the first search",
        f"{_FIND}.focus(), {_FIND}.value = '1', {_FIND}.dispatchEvent(new Event('input'))",
        "document.querySelector('.sst-found [role=option]')",
    ),
)
LEVELS = "['depth:all', 'depth:0', 'depth:1', 'rate:all', 'rate:0']"
ZOOM = "wwwwwwwwwwwwssssdddaaawwww"


class Server:
    """`schedscope view`, and what it has used."""

    def __init__(self, trace: Path) -> None:
        begin = time.monotonic()
        words = [sys.executable, "-m", "schedscope", "view", str(trace), "--no-browser"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        print(f"{'address printed':<28}{time.monotonic() - begin:8.2f} s  {self.memory()}")

    def cpu(self) -> float:
        text = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(text[11]) + int(text[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> str:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        found = {line.split(":")[0]: int(line.split()[1]) >> 10 for line in lines if "VmR" in line
                 or "VmHWM" in line}  # fmt: skip
        return f"{found['VmRSS']} MiB, at most {found['VmHWM']}"


def drawn(page: driver.Browser) -> None:
    page.wait("document.querySelector('.sst-picture canvas')?.timeline")
    page.wait(f"{HANDLE}.state().frames > 0 && !{HANDLE}.state().asking")


def zoom(page: driver.Browser, server: Server, what: str) -> None:
    steps = []
    for key in ZOOM:
        begin = time.monotonic()
        page.key(key)
        page.run("new Promise(done => requestAnimationFrame(done))")
        page.wait(f"!{HANDLE}.state().asking")
        steps.append(time.monotonic() - begin)
    figures = f"{median(steps) * 1e3:5.0f} / {max(steps) * 1e3:.0f} ms"
    print(f"{what + ', median / most':<36}{figures}  {server.memory()}")


def measure(trace: Path) -> None:
    rows = pl.scan_parquet(trace / "states.parquet").select(pl.len()).collect().item()
    print(f"{rows:,} intervals; load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs")
    server = Server(trace)
    driven.PATIENCE = 600
    try:
        with driver.Browser() as page:
            for what in ("first picture", "the page again"):
                begin, before = time.monotonic(), server.cpu()
                page.open(f"{server.address}#view=all")
                drawn(page)
                spent = server.cpu() - before
                seconds = time.monotonic() - begin
                print(f"{what:<28}{seconds:8.2f} s  CPU {spent:.2f} s  {server.memory()}")
                page.wait(f"{HANDLE}.state().exact")
                refined, spent = time.monotonic() - begin, server.cpu() - before
                print(
                    f"{'  until exact':<28}{refined:8.2f} s  CPU {spent:.2f} s  {server.memory()}"
                )
                page.open("about:blank")
            page.open(f"{server.address}#view=all")
            drawn(page)
            zoom(page, server, "zoom or pan")
            page.key("0")
            begin, before = time.monotonic(), server.cpu()
            page.run(f"{HANDLE}.picture.arrange({{chosen: {LEVELS}}})")
            levels = f"{HANDLE}.state().kinds.every(kind => kind === 'levels')"
            page.wait(f"{levels} && {HANDLE}.state().exact && !{HANDLE}.state().refining")
            spent = server.cpu() - before
            print(f"{'queue depth, switches':<28}{time.monotonic() - begin:8.2f} s  "
                  f"CPU {spent:.2f} s  {server.memory()}")  # fmt: skip
            zoom(page, server, "zoom or pan of these")
            page.open("about:blank")
            page.open(f"{server.address}#view=all")
            drawn(page)
            for what, act, done in STEPS:
                begin, before = time.monotonic(), server.cpu()
                page.run(act)
                page.wait(done)
                drawn(page)
                seconds, spent = time.monotonic() - begin, server.cpu() - before
                print(f"{what:<28}{seconds:8.2f} s  CPU {spent:.2f} s  {server.memory()}")
    finally:
        server.process.terminate()
        server.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trace", nargs="?", type=Path)
    parser.add_argument("--events", type=int, default=16_000_000, help="of the generated trace")
    args = parser.parse_args()
    if args.trace:
        measure(args.trace)
        return
    with tempfile.TemporaryDirectory() as scratch:
        measure(generated(Path(scratch), args.events))


if __name__ == "__main__":
    main()
