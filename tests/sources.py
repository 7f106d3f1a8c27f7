"""The package's source files, including those behind links to the top-level folders."""

from __future__ import annotations

import os
from pathlib import Path

import schedscope

ROOT = Path(schedscope.__file__).parent


def sources() -> list[Path]:
    """`Path.rglob` does not follow links, and half of the package is behind them."""
    walk = os.walk(ROOT, followlinks=True)
    return sorted(Path(at) / name for at, _, names in walk for name in names if name[-3:] == ".py")
