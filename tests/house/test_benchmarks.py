"""Benchmarks run by hand only; that they still begin is seen here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(
    path for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text()
)
LOAD = """
import runpy, sys
sys.path.insert(0, "benchmarks")
for path in sys.argv[1:]:
    try:
        runpy.run_path(path, run_name="loaded")
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] not in {"simso"}:  # installed by who compares with it
            raise ImportError(path) from error
    except ImportError as error:
        raise ImportError(path) from error
"""


def test_every_benchmark_finds_what_it_imports() -> None:
    """A name that has gone to another module is missing when somebody measures, months later."""
    assert len(PROGRAMS) > 20
    ran = subprocess.run(
        [sys.executable, "-c", LOAD, *map(str, PROGRAMS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
