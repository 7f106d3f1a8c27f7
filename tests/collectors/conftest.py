"""What tests of recorders share: nothing runs on after a test that failed."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from collector_runs import Run


@pytest.fixture(autouse=True)
def _no_recorder_outlives_its_test() -> Generator[None]:
    """A test that failed must not take others along: they record the same host."""
    Run.started.clear()
    yield
    for run in Run.started:
        run.end()
