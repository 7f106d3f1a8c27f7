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
KEEP_IDLE = "SCX_OPS_KEEP_BUILTIN_IDLE"
CPUS = {"nr_cpu_ids": "2"}
P2DQ = {
    **CPUS,
    "arena_task": "task_p2dq",
    "topo_config.nr_cpus": "2",
    "topo_config.nr_llcs": "1",
    "topo_config.nr_nodes": "1",
    "topo_config.smt_enabled": "off",
    "dsq_time_slices": "500us,2500us,5ms",
    "timeline_config.autoslice": "off",
    "timeline_config.deadline": "off",
    "timeline_config.max_exec_ns": "10ms",
    "ops.flags": KEEP_IDLE,
}
LAVD = {
    "is_smt_active": "off",
    "cpdom_ctxs.0.__cpumask": "3",
    "cpdom_ctxs.0.is_big": "1",
    "ops.flags": f"{KEEP_IDLE}|SCX_OPS_ENQ_LAST|SCX_OPS_ENQ_EXITING",
}
LAVD_NEWER = {
    **LAVD,
    "nr_llcs": "1",
    "cpdom_ctxs.0.is_valid": "1",
    "cpu_capacity": "1024,1024",
    "cpu_big": "1,1",
    "nr_pco_states": "1",
    "pco_bounds": "1024",
    "pco_nr_primary": "2",
    "pco_table.0": "0,1",
}
RUSTY = {
    **CPUS,
    "nr_doms": "1",
    "nr_nodes": "1",
    "dom_cpumasks": "3",
    "numa_cpumasks": "3",
}
SETTINGS = {
    "scx_beerland": {**FLAT, "primary_all": "on"},
    "scx_cake": {**CPUS, "arena_task": "64", "nr_cpus": "2", "nr_llcs": "1"},
    "scx_central": {
        **SLICE,
        **CPUS,
        "cpu_gimme_task": "0,0",
        "cpu_started_at": "0,0",
    },
    "scx_bpfland": FLAT,
    "scx_chaos": P2DQ,
    "scx_cosmos": FLAT,
    "scx_flash": FLAT,
    "scx_flatcg": {"cgrp_slice_ns": "20ms", "nr_cpus": "2"},
    "scx_lavd v1.0.6": {
        **LAVD,
        **CPUS,
        "cpdom_ctxs.0.is_active": "1",
        "cpu_order_performance": "0,1",
        "cpu_order_powersave": "0,1",
        "__cpu_capacity_hint": "1024,1024",
    },
    "scx_lavd v1.0.17": {**LAVD_NEWER, "__nr_cpu_ids": "2"},
    "scx_lavd v1.1.1": {**LAVD_NEWER, **CPUS},
    # One open layer of all threads.
    "scx_layered v1.0.6": {
        **SLICE,
        **FLAT,
        "nr_possible_cpus": "2",
        "all_cpus": "3",
        "nr_llcs": "1",
        "nr_nodes": "1",
        "numa_cpumasks.0": "3",
        "nr_layers": "1",
        "layers.0.nr_match_ors": "1",
        "layers.0.cpus": "3",
        "layers.0.nr_cpus": "2",
        "layers.0.refresh_cpus": "1",
        "layers.0.slice_ns": "20ms",
        "layers.0.weight": "100",
        "layers.0.node_mask": "1",
        "layers.0.cache_mask": "1",
    },
    "scx_mitosis v1.0.17": {**SLICE, **FLAT, "nr_possible_cpus": "2", "all_cpus": "3"},
    "scx_mitosis v1.1.1": {**SLICE, **FLAT, "nr_possible_cpus": "2", "all_cpus": "3"},
    "scx_nest": {**SLICE, "nr_cpus": "2"},
    "scx_p2dq": P2DQ,
    "scx_pandemonium": CPUS,
    "scx_qmap": SLICE,
    "scx_rusty v1.0.6": RUSTY,
    "scx_rusty": {**RUSTY, **SLICE},
    "scx_wd40": {**CPUS, **SLICE, "nr_nodes": "1", "nr_doms": "1", "wd40_setup": "0"},
    "scx_tickless": {**FLAT, "enable_primary_cpu": "0"},
}
"""What the schedulers' own halves would set for two CPUs, where that is not what the object has."""


def tried(path: Path, recording: ss.Trace) -> dict[str, str]:
    """What came of one object."""
    name = path.name.removesuffix(".bpf.o")
    release = path.parent.name
    settings = SETTINGS.get(f"{name} {release}", SETTINGS.get(name, {}))
    commit, headers = RELEASES.get(release, ("", ""))
    row = {
        "scheduler": name,
        "release": release,
        "commit": commit,
        "headers": headers,
        "settings": " ".join(f"{key}={value}" for key, value in settings.items()),
    }

    def run(until: str | None = None) -> tuple[ss.Trace, float]:
        begin = time.process_time()
        trace = ss.simulate(recording, policy=ss.scx(path, rodata=settings), until=until)
        return trace, time.process_time() - begin

    try:
        trace, _ = run()
    except SchedscopeError as error:
        said = str(error).split("; expected")[0].removeprefix(f"{path}: ")
        return {**row, "result": said.removesuffix(", which is not simulated")}
    about = trace.info["scheduler"]
    if "exit" in about:
        # The path of its source is where it was compiled.
        said = about["exit"]["message"].rsplit(".bpf.c:", 1)[-1]
        return {**row, "result": f"ends: {about['exit']['reason']}: {said}"}
    (waited,) = ss.latency(trace)["total"]
    (wasted,), (dispatch,) = ss.work_conservation(trace).select("wasted", "dispatch")
    # What a run of nothing takes is the start: the workload, the object, the tables. The least of
    # three is that of the program itself.
    start = min(run(until="1us")[1] for _ in range(3))
    spent = min(run()[1] for _ in range(3)) - start
    # Of less the clock of the process says too little.
    rate = str(round(about["callbacks"] / spent / 1000) * 1000) if spent > 0.02 else ""
    return {
        **row,
        "result": "runs",
        "callbacks": str(about["callbacks"]),
        "start_cpu_ms": f"{start * 1e3:.0f}",
        "callbacks_per_cpu_s": rate,
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
