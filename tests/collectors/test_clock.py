"""The recorder's clock and the time of day on Linux come from files that users cannot enlarge."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from collector_runs import ROOT

SHELLS = [["dash"], ["bash"], ["busybox", "sh"], ["posh"], ["yash"], ["mksh"]]
CLOCK = ROOT / "collectors" / "linux" / "clock.sh"
STATS = "entries: 7\noldest event ts:  4424.000001\nnow ts:  4424.347721\ndropped events: 0\n"
pytestmark = pytest.mark.needs("linux")


@pytest.fixture(params=SHELLS, ids=lambda words: words[0])
def shell(request: pytest.FixtureRequest) -> list[str]:
    words: list[str] = request.param
    if shutil.which(words[0]) is None:
        pytest.skip(f"no {words[0]} here")
    return words


def said(shell: list[str], code: str, folder: Path) -> str:
    done = subprocess.run(
        [*shell, "-uc", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout


def test_clock_is_that_of_a_trace_instance(shell: list[str], tmp_path: Path) -> None:
    (tmp_path / "stats").write_text(STATS)
    (tmp_path / ".scratch").mkdir()
    (tmp_path / ".scratch" / "clock").write_text("stats\n")
    code = f'. {CLOCK}; host_clock; echo "$clock_ns $clock_step"'
    assert said(shell, code, tmp_path) == "4424347721000 1000\n"


def test_clock_falls_back_to_hundredths_since_boot(shell: list[str], tmp_path: Path) -> None:
    """After a suspend the fallback would be another clock, so the time is unknown."""
    before = float(Path("/proc/uptime").read_text().split()[0])
    clock, step, slept = said(
        shell,
        f"""
        . {CLOCK}
        host_clock; echo "${{clock_ns:-none}}"; echo "$clock_step"
        for clock_slept in /sys/power/suspend_stats/success /sys/kernel/debug/suspend_stats; do
            [ ! -r "$clock_slept" ] || head -n 1 "$clock_slept"
        done | grep -c '[1-9]' || :""",
        tmp_path,
    ).split()
    after = float(Path("/proc/uptime").read_text().split()[0])
    if slept != "0":
        assert clock == "none"
        return
    assert step == "10000000"
    assert before * 1e9 - 1 <= int(clock) <= after * 1e9 + 1


def pair(shell: list[str], clocks: list[int], date: str, folder: Path) -> str:
    """The result of clock_pair if the clock returns these values, one reading after the other."""
    return said(
        shell,
        f"""
        . {ROOT}/collectors/metadata.sh
        clock_pairs='' clock_error='' clock_step=10 clocks='{" ".join(map(str, clocks))}'
        host_clock() {{ clock_ns=${{clocks%% *}} clocks=${{clocks#* }}; }}
        date() {{ {date}; }}
        clock_pair; echo "$clock_pairs ${{clock_error:-none}}" """,
        folder,
    )


def test_the_pair_with_the_smallest_error_is_kept(shell: list[str], tmp_path: Path) -> None:
    """The second pair: the clock was read 190 ns apart, and the true time may be 10 later."""
    date = "echo 1700000000000000005"
    clocks = [1000, 2000, 3000, 3190, 4000, 6000]
    assert pair(shell, clocks, date, tmp_path) == "[3100, 1700000000000000005] 100\n"


@pytest.mark.parametrize("nanoseconds", ["1700000000%N", "1700000000N", "1700000000"])
def test_a_date_of_whole_seconds_is_half_a_second_wrong(
    nanoseconds: str, shell: list[str], tmp_path: Path
) -> None:
    date = f"case $1 in *N*) echo {nanoseconds} ;; *) echo 1700000000 ;; esac"
    clocks = [1000, 1190] * 3
    assert pair(shell, clocks, date, tmp_path) == "[1100, 1700000000500000000] 500000100\n"


def test_recorder_reads_no_file_that_users_can_enlarge() -> None:
    """The kernel's timer list takes minutes where a user has armed ten thousand timers."""
    for path in (ROOT / "collectors").glob("**/*"):
        if path.suffix in ("", ".sh") and path.is_file():
            text = path.read_text()
            for name in ("timer_list", "sched_debug", "sched/debug"):
                assert name not in text, path


@pytest.mark.needs("root", "tracefs", "linux")
def test_clock_instance_is_removed_after_its_last_reader(tmp_path: Path) -> None:
    """The kernel refuses to remove an instance while a process has a file of it open."""
    script = (
        'watch_nap=0.1; mkdir .scratch; . "$1"; host_clock_open "$$"; ls -d "$clock_dir"\n'
        '(exec 8<"$clock_file"; : >held; sleep 0.5) >/dev/null &\n'
        "until [ -e held ]; do :; done\n"
        'host_clock_close; ! ls -d "$clock_dir" 2>/dev/null'
    )
    words = ["sh", "-uc", script, "sh", str(ROOT / "collectors/linux/clock.sh")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, done.stdout.count("-clock")) == (0, "", 1)
