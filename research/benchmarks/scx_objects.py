"""Which published schedulers of sched_ext run as policies, and what the others need.

An object is FOLDER/RELEASE/SCHEDULER.bpf.o, compiled from the release's sources and linked as the
release's own build does it (for several sources: libbpf's linker). Each is run on a recording of
two CPUs; `SETTINGS` has what its own user-space half would set there.

    python research/benchmarks/scx_objects.py FOLDER [--write]
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
RELEASES = {
    "v1.0.6": ("607dfab7e9d3", "6.12-rc2"),
    "v1.0.17": ("8d994512640f", "6.16"),
    "v1.1.1": ("0eedd05bc233", "7.0-rc2"),
}
"""Of sched-ext/scx: the commit, and the kernel whose vmlinux.h it brings along."""
FLAT = {"smt_enabled": "off"}
SLICE = {"slice_ns": "20ms"}
SETTINGS = {
    "scx_beerland": {**FLAT, "primary_all": "on"},
    "scx_central": {
        **SLICE,
        "nr_cpu_ids": "2",
        "cpu_gimme_task": "0,0",
        "cpu_started_at": "0,0",
    },
    "scx_bpfland": FLAT,
    "scx_cosmos": FLAT,
    "scx_flash": FLAT,
    "scx_flatcg": {"cgrp_slice_ns": "20ms", "nr_cpus": "2"},
    "scx_nest": {**SLICE, "nr_cpus": "2"},
    "scx_pandemonium": {"nr_cpu_ids": "2"},
    "scx_qmap": SLICE,
    "scx_rusty": {
        "nr_doms": "1",
        "nr_nodes": "1",
        "nr_cpu_ids": "2",
        "dom_cpumasks": "3",
        "numa_cpumasks": "3",
    },
    "scx_tickless": {**FLAT, "enable_primary_cpu": "0"},
}
"""What the schedulers' own halves would set for two CPUs, where that is not what the object has."""


def tried(path: Path, recording: ss.Trace) -> dict[str, str]:
    """What came of one object."""
    name = path.name.removesuffix(".bpf.o")
    settings, release = SETTINGS.get(name, {}), path.parent.name
    commit, headers = RELEASES.get(release, ("", ""))
    row = {
        "scheduler": name,
        "release": release,
        "commit": commit,
        "headers": headers,
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
        "callbacks_per_cpu_s": str(round(about["callbacks"] / spent / 1000) * 1000),
        "waited_s": f"{waited / 1e9:.2f}",
        "idle_while_waiting_ms": f"{(wasted + dispatch) / 1e6:.2f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
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
        keep("scx-published", [{column: row.get(column, "") for column in columns} for row in rows])


if __name__ == "__main__":
    main()
