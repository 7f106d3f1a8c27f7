"""What every test shares: the three tiers, and `needs(...)`, the mark of tests that need a tool.

A test without a mark runs in `make test`: the same input gives the same result, whatever else
the host does. `records` marks tests that record the host; `make test-host` runs them alone, one
after the other. `release` marks what takes long or needs a browser, an emulator or the network;
`make test-all` runs it too. `research` marks tests of the
experiments in research/ (`make research`). A test that needs a recorder has the mark `records` by
itself, and one that needs a browser the mark `release`.

`@pytest.mark.needs("perf", "root")` skips by name where something is absent, and
the run's last lines count what was not tested for lack of which tool. With
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

# A few examples, the same in every run. `make test-all` takes more, new ones each time (`random`),
# and a hunt many: pytest --hypothesis-profile=thorough
few = settings(deadline=None, max_examples=25, derandomize=True, database=None)
settings.register_profile("default", few)
settings.register_profile("random", deadline=None, max_examples=200)
settings.register_profile("thorough", deadline=None, max_examples=5000)
settings.load_profile("default")

_TRACEFS = [Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing")]
_RECORDERS = {"tracefs", "perf", "bpftrace", "dtrace", "traced"}
_OF_A_RELEASE = {
    "chromium",
    "firefox-esr",
    "axe-core",
    "debootstrap",
    "judge",
    "trace_processor_shell",
}


def _is_root() -> bool:
    return os.geteuid() == 0


def tracefs() -> Path | None:
    """The mount point of a tracefs that we may write to."""
    for path in _TRACEFS:
        if (path / "events" / "sched").is_dir() and os.access(path / "instances", os.W_OK):
            return path
    return None


def present(need: str) -> bool:
    """Whether `need` is available: one of these words, or a program's name."""
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
    # pytest under `make test` must behave as by hand: a make that a test starts reads these.
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"):
        os.environ.pop(name, None)
    # Some tests are about where a copy is stored.
    os.environ.pop("SCHEDSCOPE_CACHE", None)
    config.addinivalue_line(
        "markers", "needs(*names): programs, or root / tracefs / linux / freebsd, the test needs"
    )
    config.addinivalue_line("markers", "records: records this host, so it runs alone")
    config.addinivalue_line("markers", "research: about an experiment, not the product")
    config.addinivalue_line("markers", "release: takes long, or needs a browser or an emulator")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks each test that needs a recorder or a browser with the tier in which it runs."""
    for item in items:
        needs = {name for mark in item.iter_markers("needs") for name in mark.args}
        if needs & _OF_A_RELEASE:
            item.add_marker(pytest.mark.release)
        elif needs & _RECORDERS:
            item.add_marker(pytest.mark.records)


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


# Otherwise tables would fit a terminal that does not exist.
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
