"""Compiled schedulers of sched_ext as policies; native/scx/tests has the rest."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import schedscope as ss
from schedscope.cli import main
from schedscope.errors import StorageError, UsageError
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder
from schedscope.simulator.workloads.generators import hogs

ROOT = Path(__file__).parents[2]
OBJECTS = ROOT / "native" / "scx" / "objects"
FIXTURES = ROOT / "fixtures"


def switches(trace: ss.Trace) -> pl.DataFrame:
    return trace.switches.select("ts", "cpu", "prev_utid", "next_utid").collect()


@pytest.mark.parametrize(
    "fixture", ["linux-ftrace-mixed", "linux-ftrace-pool", "linux-ftrace-placement", "linux-dtrace"]
)
def test_the_vtime_object_decides_as_scx_simple_on_recordings(fixture: str) -> None:
    recording = ss.open(FIXTURES / f"{fixture}.capture")
    model = simulate(recording, policy="scx-simple")
    real = simulate(recording, policy=ss.scx(OBJECTS / "vtime.bpf.o"))
    assert switches(model).equals(switches(real))
    assert real.info["scheduler"]["callbacks"] > 1000
    assert real.info["scheduler"]["sched_ext_ops"] == "vtime"
    assert "exit" not in real.info["scheduler"]


def test_rodata_and_set_are_variables_of_the_object() -> None:
    """Two hogs alternate at every tick of 4 ms, with either way of setting it, instead of 24."""
    turns = simulate(
        hogs(2, time="40ms"), policy=ss.scx(OBJECTS / "fifo.bpf.o", rodata={"slice_ns": "3ms"})
    )
    again = simulate(
        hogs(2, time="40ms"), policy=str(OBJECTS / "fifo.bpf.o"), set={"slice_ns": 3_000_000}
    )
    assert switches(turns).equals(switches(again))
    assert switches(turns).height > 15


def test_whatif_and_fidelity_take_objects() -> None:
    recording = ss.open(FIXTURES / "linux-ftrace-mixed.capture")
    frame = ss.whatif(recording, policy=str(OBJECTS / "steal.bpf.o"))
    assert {"recorded", "changed"} <= set(frame["configuration"])
    table = ss.fidelity(recording, policies=["fifo", str(OBJECTS / "vtime.bpf.o")])
    assert "vtime" in {str(name) for name in table["against"]}


def test_scheduler_exit_is_a_warning() -> None:
    trace = simulate(
        hogs(2, time="40ms"), policy=ss.scx(OBJECTS / "hostile.bpf.o", rodata={"deed": 8})
    )
    exit = trace.info["scheduler"]["exit"]
    assert (exit["at"], exit["reason"]) == (0, "scx_bpf_error")
    (warning,) = [one for one in trace.info["warnings"] if "scheduler ended" in one]
    assert "cannot go on with hog" in warning


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (OBJECTS / "none.bpf.o", "no file"),
        (OBJECTS / "missing.bpf.o:needs=3", "ops.running needs the map pages"),
        (FIXTURES / "perf-sched.data", "is no ELF file"),
    ],
)
def test_an_object_that_cannot_be_run_is_refused_in_one_sentence(
    policy: Path, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _, setting = str(policy).partition(":")
    copy = tmp_path / "x.bpf.o"
    if Path(path).exists():
        copy.write_bytes(Path(path).read_bytes())
    words = ["simulate", "hogs:2,time=10ms", "--policy", str(copy)]
    assert main([*words, *(["--set", setting] if setting else [])]) != 0
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") <= 2


def test_unknown_variable_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="slice_ns"):
        simulate(hogs(1, time="1ms"), policy=ss.scx(OBJECTS / "fifo.bpf.o", rodata={"slice": 1}))
    with pytest.raises(UsageError, match="rodata slice_ns"):
        simulate(
            hogs(1, time="1ms"), policy=ss.scx(OBJECTS / "fifo.bpf.o", rodata={"slice_ns": 0.5})
        )
    with pytest.raises(StorageError):
        ss.scx(OBJECTS / "none.bpf.o")


def test_each_insertion_into_a_dispatch_queue_can_be_recorded() -> None:
    """Two hogs of 30 ms on one CPU: each is inserted when it is new and after its first slice."""
    policy = ss.scx(OBJECTS / "vtime.bpf.o")
    trace = simulate(hogs(2, time="30ms"), policy=policy, record=True)
    rows = ss.policy_series(trace).pivot("series", index=["ts", "utid"], values="value")
    assert rows["dsq"].to_list() == [0.0] * rows.height
    assert rows["slice"].to_list() == [20e6] * rows.height
    assert rows.filter(pl.col("ts") > 0)["vtime"].to_list() == [20e6, 20e6]


def test_a_scheduler_of_groups_hears_of_them_but_for_quotas() -> None:
    b = Builder()
    b.group("/heavy", weight=300, quota="20ms")
    b.thread("a", group="/heavy").run("40ms")
    told = simulate(b.workload(), policy=ss.scx(OBJECTS / "groups.bpf.o"))
    assert [one for one in told.info["warnings"] if "group" in one] == [
        "a quota of a control group ignored: groups keeps none"
    ]
    other = simulate(b.workload(), policy=ss.scx(OBJECTS / "fifo.bpf.o"))
    assert "1 control group ignored: fifo has none" in other.info["warnings"]


def test_a_program_of_the_schedulers_own_half_is_called_by_a_setting() -> None:
    """The timer gives the CPU to two layers in turn, every 10 ms or as the program says."""
    b = Builder()
    b.thread("a").run("40ms")
    b.thread("b").run("40ms")
    plain = simulate(b.workload(), policy=ss.scx(OBJECTS / "layers.bpf.o"), cpus=1)
    object_ = ss.scx(OBJECTS / "layers.bpf.o", rodata={"set_turn": 4})
    often = simulate(b.workload(), policy=object_, cpus=1)
    assert switches(often).height > 2 * switches(plain).height
