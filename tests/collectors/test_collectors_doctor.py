"""`doctor` reports what the host can do, and the commands to enable the rest."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from collector_runs import INSTANCES, ROOT

from schedscope import doctor


def test_doctor_prints_one_line_for_each_finding(capsys: pytest.CaptureFixture[str]) -> None:
    doctor.main([])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(doctor.findings())
    assert {line.split()[0] for line in lines} <= {"yes", "no", "note"}


@pytest.mark.needs("linux")
def test_every_recorder_of_the_system_is_named_with_its_reason() -> None:
    recorders = {f.subject: f for f in doctor.findings() if f.area == "record"}
    program = (ROOT / "collectors" / "capture").read_text()
    listed = re.search(r"^recorders_linux='(.*)'$", program, re.MULTILINE)
    assert listed is not None
    assert set(recorders) == set(listed[1].split())
    assert all(finding.text for finding in recorders.values())


@pytest.mark.needs("root", "tracefs", "linux")
def test_doctor_offers_ftrace_and_exits_with_0(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert doctor.main(["--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"area": "record", "subject": "ftrace", "state": "yes"}.items() <= found[0].items()


@pytest.mark.needs("root", "tracefs", "linux", "unshare")
def test_doctor_names_remedies_without_tracefs_and_tools(tmp_path: Path) -> None:
    """Nothing can record: exit status 1, and each line ends in a remedy."""
    only = tmp_path / "bin"
    only.mkdir()
    for tool in ("sh", "uname", "id", "dirname", "cat", "grep", "head", "sleep", "rm", "mount"):
        (only / tool).symlink_to(f"/usr/bin/{tool}")
    hide = "umount -l /sys/kernel/debug/tracing /sys/kernel/tracing /sys/kernel/debug 2>/dev/null; "
    code = "import sys; from schedscope import doctor; sys.exit(doctor.main([]))"
    run = f'{hide} PATH={only} exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", run, sys.executable, code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "mount -t tracefs nodev /sys/kernel/tracing" in done.stdout
    assert "install the package bpftrace" in done.stdout


@pytest.mark.needs("root", "tracefs", "linux")
def test_an_instance_left_by_a_dead_capture_is_found() -> None:
    for _ in range(5):
        dead = subprocess.Popen(["true"])
        dead.wait()
        instance = INSTANCES / f"schedscope-{dead.pid}-1"
        instance.mkdir()
        found = any(instance.name in finding.text for finding in doctor.findings())
        # A capture that another test starts meanwhile may remove it: then try once more.
        with suppress(OSError):
            instance.rmdir()
            break
    assert found


def test_doctor_imports_only_the_standard_library() -> None:
    code = (
        "import sys; import schedscope.doctor; "
        "sys.exit('polars' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
