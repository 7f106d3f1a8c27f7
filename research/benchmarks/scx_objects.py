"""Which published schedulers of sched_ext run as policies, and what the others need.

An object is FOLDER/RELEASE/SCHEDULER.bpf.o, compiled from the release's sources and linked as the
release's own build does it (for several sources: libbpf's linker). Each is run on a recording of
two CPUs; `SETTINGS` has what its own user-space half would set there.

    python research/benchmarks/scx_objects.py FOLDER [--kernel TEXT] [--write]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import schedscope as ss
from schedscope.errors import SchedscopeError

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from research.results import keep  # noqa: E402

RECORDING = ROOT / "fixtures" / "linux-ftrace-mixed.capture"
SETTINGS = {
    "scx_central": {
        "nr_cpu_ids": "2",
        "cpu_gimme_task": "0,0",
        "cpu_started_at": "0,0",
    },
    "scx_nest": {"nr_cpus": "2"},
    "scx_tickless": {"enable_primary_cpu": "0"},
}
"""Of the schedulers that need them, for two CPUs."""


def tried(path: Path, recording: ss.Trace) -> dict[str, str]:
    """What came of one object."""
    name = path.name.removesuffix(".bpf.o")
    settings = SETTINGS.get(name, {})
    row = {
        "scheduler": name,
        "release": path.parent.name,
        "settings": " ".join(f"{key}={value}" for key, value in settings.items()),
    }
    begin = time.process_time()
    try:
        trace = ss.simulate(recording, policy=ss.scx(path, rodata=settings))
    except SchedscopeError as error:
        said = str(error).split("; expected")[0].removeprefix(f"{path}: ")
        return {**row, "result": said.removesuffix(", which is not simulated")}
    spent = time.process_time() - begin
    about = trace.info["scheduler"]
    if "exit" in about:
        # The path of its source is where it was compiled.
        said = about["exit"]["message"].rsplit(".bpf.c:", 1)[-1]
        return {**row, "result": f"ends: {about['exit']['reason']}: {said}"}
    (waited,) = ss.latency(trace)["total"]
    (wasted,), (dispatch,) = ss.work_conservation(trace).select("wasted", "dispatch")
    return {
        **row,
        "result": "runs",
        "callbacks": str(about["callbacks"]),
        "callbacks_per_cpu_s": str(round(about["callbacks"] / spent, -3)),
        "waited_s": f"{waited / 1e9:.2f}",
        "idle_while_waiting_ms": f"{(wasted + dispatch) / 1e6:.2f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kernel", default="", help="whose types the objects were compiled with")
    parser.add_argument("--write", action="store_true", help="keep the table in research/data")
    args = parser.parse_args()
    recording = ss.open(RECORDING)
    rows = [tried(path, recording) for path in sorted(args.folder.glob("*/*.bpf.o"))]
    if not rows:
        raise SystemExit(f"no RELEASE/SCHEDULER.bpf.o in {args.folder}")
    for row in rows:
        print("  ".join(value for value in row.values() if value))
    if args.write:
        columns = dict.fromkeys(column for row in rows for column in row)
        keep("scx-objects", [{column: row.get(column, "") for column in columns} for row in rows])


if __name__ == "__main__":
    main()
