"""Probes on dispatch queues: whose are they, and who removes them?"""

from __future__ import annotations

import subprocess
from pathlib import Path

CLEAN = Path(__file__).parents[2] / "collectors/linux/clean.sh"


def test_only_probes_whose_capture_is_gone_are_removed(tmp_path: Path) -> None:
    """The kernel's own file takes `-:NAME` as the word to remove one."""
    (tmp_path / "instances/schedscope-7-0ab12").mkdir(parents=True)
    events = tmp_path / "kprobe_events"
    before = (
        "p:schedscope_7_0ab12/insert dispatch_enqueue pid=p->pid:s32\n"
        "p:schedscope_9_cd34/insert_local move_local_task_to_local_dsq\n"
        "p:somebody/remove task_unlink_from_dsq\n"
        "r8:schedscope_9_cd34_of_others/remove do_exit\n"
    )
    events.write_text(before)
    program = f'. "{CLEAN}"; removed() {{ echo "$*"; }}; clean_probes "{tmp_path}"'
    done = subprocess.run(["sh", "-uc", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "the probe schedscope_9_cd34/insert_local of a capture that was killed"
    ]
    assert events.read_text() == before + "-:schedscope_9_cd34/insert_local\n"


def test_a_host_without_probes_has_none_to_remove(tmp_path: Path) -> None:
    program = f'. "{CLEAN}"; clean_probes "{tmp_path}"'
    done = subprocess.run(["sh", "-uc", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
