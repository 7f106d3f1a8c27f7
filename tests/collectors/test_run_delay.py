"""How long processes waited for a CPU, compared with the kernel's count for each."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_accounts import accounts

ROUNDING = 1_000_000
"""Between reading the clock and the kernel's file, and at each switch (ns)."""


@pytest.mark.needs("root", "tracefs")
def test_waits_of_each_thread_equal_the_kernels_run_delay(tmp_path: Path) -> None:
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this kernel has no /proc/PID/schedstat (CONFIG_SCHED_INFO)")
    _, rows = accounts(tmp_path, 0.5)
    assert rows.height >= 3
    for what, pid, kernel, ours, unknown in rows.iter_rows():
        doubt = ROUNDING + kernel // 50
        # Where the kernel omitted a switch the time is unknown, not guessed.
        assert ours - doubt <= kernel <= ours + unknown + doubt, (what, pid, kernel, ours, unknown)
    # Three to a CPU, so that there are waits to compare.
    assert rows["kernel"].sum() > 300_000_000
    assert rows["ours"].sum() > rows["unknown"].sum()
