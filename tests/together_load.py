"""The innermost part of tests/together.py: a small load, recorded by Perfetto.

    # python tests/together_load.py TRACE SECONDS

traced and traced_probes run on sockets of their own beside TRACE. Standard library only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tools import tool

LOAD = """
for i in 1 2 3 4; do /bin/true & done; wait
for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.01 & sleep 0.005; done; wait
"""
CONFIG = """
buffers { size_kb: 32768 fill_policy: DISCARD }
data_sources { config { name: "linux.ftrace" ftrace_config {
  ftrace_events: "sched/sched_switch" ftrace_events: "sched/sched_waking"
  ftrace_events: "sched/sched_wakeup" ftrace_events: "sched/sched_wakeup_new"
  ftrace_events: "sched/sched_migrate_task" ftrace_events: "task/task_newtask"
  compact_sched { enabled: false }
  buffer_size_kb: 8192 drain_period_ms: 250 } } }
data_sources { config { name: "linux.system_info" } }
"""


def main(trace: Path, seconds: float) -> None:
    """All recorders are on when the load begins; the trace is complete when this returns."""
    folder = trace.parent
    config = folder / "config"
    config.write_text(CONFIG)
    environment = {
        **os.environ,
        "PERFETTO_PRODUCER_SOCK_NAME": str(folder / "producer"),
        "PERFETTO_CONSUMER_SOCK_NAME": str(folder / "consumer"),
    }
    started = []
    try:
        for name in ("traced", "traced_probes"):
            words = tool(name) or (name,)
            null = subprocess.DEVNULL
            started.append(subprocess.Popen(words, env=environment, stdout=null, stderr=null))
            time.sleep(0.3)
        # Returns the session's process id once every data source has started.
        words = (*(tool("perfetto") or ("perfetto",)), "--background-wait", "--txt")
        begun = subprocess.run(
            [*words, "-c", str(config), "-o", str(trace)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        session = int(begun.stdout)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            subprocess.run(["sh", "-c", LOAD], check=False)
        os.kill(session, signal.SIGTERM)
        while _alive(session):
            time.sleep(0.02)
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(30)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
