"""What this host can record with and analyse with, what is missing, and how to get it.

Needs the standard library only, so that it also answers where nothing else is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from schedscope.extras import PURPOSES, absent, declared, installing

__all__ = ["Finding", "clean", "findings", "main"]


@dataclass(frozen=True)
class Finding:
    """One line of the answer.

    `state` is `yes`, `no` or `note`; `area` is `record` (what can be recorded with), `host` (what
    limits or influences a recording) or `analyse` (what can be done with one here).
    """

    area: str
    subject: str
    state: str
    text: str


def findings() -> list[Finding]:
    """Everything worth knowing, recorders first."""
    return [*_recorders(), *_host(), *_analysis()]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the findings; 0 if something here can record, else 1."""
    parser = argparse.ArgumentParser(
        prog="schedscope doctor",
        description="What this host can record with, what is missing, and how to get it.",
    )
    parser.add_argument("--format", choices=["table", "json"], default="table")
    parser.add_argument(
        "--clean",
        action="store_true",
        help="remove what captures left behind when they were killed (needs root)",
    )
    args = parser.parse_args(argv)
    if args.clean:
        return clean()
    found = findings()
    if args.format == "json":
        print(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        print("\n".join(_lines(found)))
    able = any(finding.area == "record" and finding.state == "yes" for finding in found)
    return 0 if able else 1


def _lines(found: list[Finding]) -> Iterator[str]:
    width = max(len(finding.subject) for finding in found)
    for finding in found:
        yield f"{finding.state:<4}  {finding.subject:<{width}}  {finding.text}"


# ------------------------------------------------------------------ recording


def _recorders() -> Iterator[Finding]:
    """What `capture --list` says: the program that records is the one to ask."""
    program = Path(__file__).parent / "collectors" / "capture"
    try:
        done = subprocess.run(
            ["sh", str(program), "--list"],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding("record", "capture", "no", f"cannot run {program}: {error}")
        return
    for line in done.stdout.splitlines():
        subject, _, rest = line.partition(": ")
        state, _, text = rest.partition(": ")
        if state in ("yes", "no"):
            yield Finding("record", subject, state, text)
    if done.returncode != 0:
        yield Finding("record", "capture", "no", done.stderr.strip().removeprefix("capture: "))
    if os.geteuid() == 0:
        yield Finding("host", "root", "yes", "recording needs it")
    else:
        yield Finding("host", "root", "no", "recording needs it: sudo schedscope capture ...")


# ------------------------------------------------------------------ the host


def _host() -> Iterator[Finding]:
    release = f"{platform.system()} {platform.release()}, {platform.machine()}"
    yield Finding("host", "system", "note", f"{release}, {os.cpu_count()} CPUs")
    if platform.system() == "Linux":
        yield from _linux()
    if platform.system() == "FreeBSD":
        yield _freebsd(platform.release(), platform.machine())
    free = shutil.disk_usage(Path.cwd()).free
    text = f"{free / 1e9:.1f} GB free here; a busy CPU fills up to 40 MB per second"
    yield Finding("host", "disk", "yes" if free > 2e9 else "note", text)


def _freebsd(release: str, machine: str) -> Finding:
    """Where the collectors have really been run (docs/capturing-on-freebsd.md)."""
    if release.startswith("13.2-") and machine == "amd64":
        text = "the collectors have been run on this release, in an emulator"
    else:
        text = (
            f"the collectors have been run on 13.2 for amd64, in an emulator, and not on {release}"
            f" for {machine}: sh capture --self-test shows whether they work here"
        )
    return Finding("host", "tried on", "note", text)


def _linux() -> Iterator[Finding]:
    try:
        instances = sorted(Path("/sys/kernel/tracing/instances").glob("schedscope-*"))
    except OSError:
        instances = []
    for path in instances:
        if _abandoned(path):
            text = f"{path.name} was left by a capture that was killed; doctor --clean removes it"
            yield Finding("host", "instance", "note", text)
    if not Path("/sys/kernel/debug/sched").is_dir():
        text = (
            "scheduler tunables are not readable; "
            "mount -t debugfs nodev /sys/kernel/debug to include them in captures"
        )
        yield Finding("host", "debugfs", "note", text)
    ops = _first_line(Path("/sys/kernel/sched_ext/root/ops"))
    if ops:
        yield Finding("host", "sched_ext", "note", f"the BPF scheduler {ops} is in control")


def _abandoned(instance: Path) -> bool:
    """A capture holds its instance open as long as it lives; then the kernel frees its buffers.

    Whether it is still held is only known by removing it, which `clean` does. One for the clock
    alone never has events.
    """
    if instance.name.endswith("-clock"):
        return not Path("/proc", instance.name.split("-")[1]).exists()
    size = _first_line(instance / "buffer_size_kb")
    if not _first_line(instance / "set_event"):
        return True
    return _first_line(instance / "tracing_on") == "0" and size.isdigit() and int(size) < 256


def clean() -> int:
    """Remove what killed captures left behind, naming it; the exit code of `capture --clean`."""
    program = Path(__file__).parent / "collectors" / "capture"
    return subprocess.run(["sh", str(program), "--clean"], check=False).returncode


def _first_line(path: Path) -> str:
    try:
        return path.read_text(errors="replace").partition("\n")[0]
    except OSError:
        return ""


# ------------------------------------------------------------------ analysis


def _analysis() -> Iterator[Finding]:
    if lacking := absent(""):
        text = f"missing {', '.join(lacking)}: {installing(lacking)}"
        yield Finding("analyse", "packages", "no", text)
    else:
        yield Finding("analyse", "packages", "yes", "those that every command needs")
    engine = importlib.util.find_spec("schedscope._native") is not None
    yield Finding("analyse", "engine", _yes(engine), "" if engine else _without_engine())
    for extra in declared():
        if not extra:
            continue
        purpose = f"for {PURPOSES.get(extra, extra)}"
        lacking = absent(extra)
        text = f"{purpose}; to add it: {installing(lacking)}" if lacking else purpose
        yield Finding("analyse", extra, _yes(not lacking), text)


def _without_engine() -> str:
    root = Path(__file__).resolve().parents[2]
    if (root / "native").is_dir():
        return f"not compiled: make -C {root} build"
    return "missing: install schedscope again from where it came"


def _yes(present: bool) -> str:
    return "yes" if present else "no"


if __name__ == "__main__":
    sys.exit(main())
