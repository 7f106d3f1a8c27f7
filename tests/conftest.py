"""What every test shares: `needs(...)`, the mark of tests that need a real tool.

`@pytest.mark.needs("perf", "root")` skips by name where something is absent, and
the run's last lines count what was not tested for want of what. With
SCHEDSCOPE_REQUIRE_TOOLS=1 an absent tool is a failure: CI must not go quiet, except
about the names in SCHEDSCOPE_ABSENT, which it has named itself.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings
from tools import tool

# Times on shared runners say nothing about the code. For a hunt:
# pytest --hypothesis-profile=thorough
settings.register_profile("default", deadline=None, max_examples=40)
settings.register_profile("thorough", deadline=None, max_examples=5000)
settings.load_profile("default")

_TRACEFS = [Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing")]
_RECORDS = {"root", "tracefs", "perf", "bpftrace", "dtrace", "traced", "trace-cmd"}


def _is_root() -> bool:
    return os.geteuid() == 0


def tracefs() -> Path | None:
    """Where a tracefs that we may write to is mounted."""
    for path in _TRACEFS:
        if (path / "events" / "sched").is_dir() and os.access(path / "instances", os.W_OK):
            return path
    return None


def present(need: str) -> bool:
    """Is `need` here? One of these words, else a program's name."""
    match need:
        case "root":
            return _is_root()
        case "tracefs":
            return tracefs() is not None
        case "axe-core":
            return "SCHEDSCOPE_AXE" in os.environ
        case "judge":
            return "SCHEDSCOPE_JUDGE" in os.environ
        case "linux" | "freebsd":
            return os.uname().sysname.lower() == need
        case program:
            return tool(program) is not None


def pytest_configure(config: pytest.Config) -> None:
    # `make test` must be as pytest by hand: another make that a test starts reads these.
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"):
        os.environ.pop(name, None)
    # Where a copy lies is what some tests are about.
    os.environ.pop("SCHEDSCOPE_CACHE", None)
    config.addinivalue_line(
        "markers", "needs(*names): programs, or root / tracefs / linux / freebsd, the test needs"
    )
    config.addinivalue_line("markers", "records: in a file with tests that record this host")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the files that record, so that everything else can run beside them (`.ci/run`).

    What a host does meanwhile is in what they record, so they are run up to three times until they
    pass; pytest's last lines name each that was run again.
    """
    files = {
        item.path
        for item in items
        for mark in item.iter_markers("needs")
        if _RECORDS.intersection(mark.args)
    }
    for item in items:
        if item.path in files:
            item.add_marker(pytest.mark.records)
            item.add_marker(pytest.mark.flaky(reruns=2))


def pytest_runtest_setup(item: pytest.Item) -> None:
    names = {str(name): None for mark in item.iter_markers("needs") for name in mark.args}
    absent = [name for name in names if not present(name)]
    if not absent:
        return
    reason = f"needs {', '.join(absent)}"
    excused = set(os.environ.get("SCHEDSCOPE_ABSENT", "").split())
    if os.environ.get("SCHEDSCOPE_REQUIRE_TOOLS") == "1" and not excused.issuperset(absent):
        pytest.fail(f"{reason}, and SCHEDSCOPE_REQUIRE_TOOLS=1 forbids skipping", pytrace=False)
    pytest.skip(reason)


# Tables would fit a terminal that is not there.
os.environ.pop("COLUMNS", None)

# A shell without job control starts background jobs with these two ignored, and a shell
# script cannot trap what it inherited as ignored: the tests of signals want the default.
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Outermost wrapper, so that the line comes after pytest's own summaries.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, None, None]:
    yield
    skips: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        _, found, names = str(report.longrepr[2]).partition("Skipped: needs ")
        skips.update(names.split(", ") if found else [])
    if skips:
        counts = ", ".join(f"{name} ({count})" for name, count in sorted(skips.items()))
        terminalreporter.write_line(f"tests skipped for want of: {counts}", yellow=True)
