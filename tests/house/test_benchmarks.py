"""Experiments are run by hand; this checks that they still start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(
    path for path in (ROOT / "research/benchmarks").glob("*.py") if "__main__" in path.read_text()
)
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("lab", "published")
    for path in (ROOT / "research" / folder).glob("*.py")
)
LOAD = """
import runpy, sys
from importlib import import_module
sys.path[:0] = ["research/benchmarks", "."]
for name in sys.argv[1:]:
    try:
        runpy.run_path(name, run_name="loaded") if name.endswith(".py") else import_module(name)
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] not in {"simso"}:  # installed by those who compare with it
            raise ImportError(name) from error
    except ImportError as error:
        raise ImportError(name) from error
"""


def test_every_experiment_finds_what_it_imports() -> None:
    """An import of a moved name would otherwise fail months later, at the next measurement."""
    assert len(PROGRAMS) > 20
    assert len(MODULES) > 20
    ran = subprocess.run(
        [sys.executable, "-c", LOAD, *map(str, PROGRAMS), *MODULES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
