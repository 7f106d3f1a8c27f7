"""Shared by tests of recorders: nothing keeps running after a failed test."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from collector_runs import Run


@pytest.fixture(autouse=True)
def _no_recorder_outlives_its_test() -> Generator[None]:
    """A failed test must not break the next ones: they record the same host."""
    Run.started.clear()
    yield
    for run in Run.started:
        run.end()
