"""A user's policy in every question and on the command line, and what it may forget."""

from __future__ import annotations

import json
import re
from collections import deque
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import schedscope as ss
from schedscope.cli import main
from schedscope.errors import UsageError
from schedscope.simulator.closeness.fidelity import fidelity
from schedscope.simulator.policies.file import policy_in_file
from schedscope.simulator.policies.policy import Policy
from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.builder import Builder
from schedscope.store.trace import Trace

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"
PAGE = ROOT / "docs" / "policies" / "writing.md"
MS = 1_000_000


class Fifo(Policy):
    """One queue, first come first served."""

    name = "my-fifo"

    def init(self, w: Any) -> None:
        self.queue: deque[int] = deque()

    def enqueue(self, w: Any, cpu: int, t: int, how: str) -> None:
        self.queue.append(t)

    def dequeue(self, w: Any, cpu: int, t: int) -> None:
        self.queue.remove(t)

    def pick_next(self, w: Any, cpu: int) -> int | None:
        return self.queue.popleft() if self.queue else None


@pytest.fixture(scope="module")
def hogs() -> Trace:
    """Three threads of 20 ms on one CPU, round robin at 5 ms."""
    return simulate(ss.workload.hogs(3, time="20ms"), policy="rr", cpus=1, set={"quantum": "5ms"})


def test_whatif_of_a_policy_object_equals_the_native_policy(hogs: Trace) -> None:
    mine, native = (ss.whatif(hogs, policy=policy, by="name") for policy in (Fifo(), "fifo"))
    assert mine.equals(native)
    # The recording is one of round robin, whose replay says nothing of a model of FIFO.
    assert mine.filter(configuration="changed")["verdict"].to_list() == ["doubtful"]
    assert mine.filter(configuration="changed")["waiting_high"].item() > 60 * MS


def test_fidelity_compares_policy_objects_by_their_names(hogs: Trace) -> None:
    rows = fidelity(hogs, policies=[Fifo(), "fifo", "rr"])
    assert rows["against"].to_list() == ["real", "my-fifo", "fifo", "rr"]
    assert rows.row(1)[1:] == rows.row(2)[1:]
    assert fidelity(hogs, policies=Fifo()).height == 2
    with pytest.raises(UsageError, match="two policies called 'my-fifo'"):
        fidelity(hogs, policies=[Fifo(), Fifo()])
    with pytest.raises(UsageError, match="the class Fifo; expected an instance"):
        fidelity(hogs, policies=[Fifo])  # type: ignore[list-item]


def test_each_replay_uses_a_new_policy_object(hogs: Trace) -> None:
    """State that one run leaves in the object does not reach the next."""

    class Once(Fifo):
        runs = 0

        def init(self, w: Any) -> None:
            super().init(w)
            assert self.runs == 0
            self.runs = 1

    assert ss.whatif(hogs, policy=Once(), replays=3).height == 9


def test_options_unsupported_by_a_policy_object_are_refused(hogs: Trace) -> None:
    for asked, said in (
        ({"slice": "5ms"}, "an attribute of the policy object"),
        ({"set": {"x": 1}}, "attributes of the policy object"),
        ({"quota": {"hog-0": "50%"}}, "control groups and sessions under my-fifo"),
        ({"set_slice": {"hog-0": "5ms"}}, "slices of threads under my-fifo"),
    ):
        with pytest.raises(UsageError, match=said):
            ss.whatif(hogs, policy=Fifo(), **asked)  # type: ignore[arg-type]


def test_policy_that_drops_a_thread_is_reported_with_hook_thread_and_instant() -> None:
    class Forgetful(Fifo):
        hz = 250

        def tick(self, w: Any, cpu: int) -> None:
            w.resched(cpu, "slice_end")

        def put_prev(self, w: Any, cpu: int, t: int, why: str) -> None:
            pass

    said = (
        r"put_prev \(slice_end\) of the policy 'my-fifo' was given thread 0 \('hog-0'\) at 4.00 ms,"
        " and pick_next has not returned it since"
    )
    with pytest.raises(UsageError, match=said):
        simulate(ss.workload.hogs(2, time="20ms"), policy=Forgetful(), cpus=1)


def test_policy_that_loses_one_of_many_threads_is_reported() -> None:
    """The others run to the end, so that there are always events left."""

    class Deaf(Fifo):
        def enqueue(self, w: Any, cpu: int, t: int, how: str) -> None:
            if not (t == 0 and how == "wakeup"):
                self.queue.append(t)

    b = Builder()
    b.thread("lost").run("1ms").sleep("9ms").repeat(10)
    b.thread("beat").run("1ms").sleep("3ms").repeat(100)
    said = r"enqueue \(wakeup\) of the policy 'my-fifo' was given thread 0 \('lost'\) at 10.0 ms"
    with pytest.raises(UsageError, match=said):
        simulate(b.workload(), policy=Deaf(), cpus=1, until="200ms")
    assert simulate(b.workload(), policy=Fifo(), cpus=1, until="200ms").duration > 100 * MS


def example(tmp_path: Path) -> Path:
    """The file in docs/policies/writing.md, and its test."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    path = tmp_path / "front.py"
    path.write_text(blocks[0])
    (tmp_path / "test_front.py").write_text(blocks[1])
    return path


def test_the_example_passes_its_own_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    names: dict[str, Any] = {}
    exec((tmp_path / "test_front.py").read_text(), names)
    names["test_who_wakes_up_comes_first"]()


def test_every_command_takes_a_policy_by_its_file(
    tmp_path: Path, hogs: Trace, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, trace = f"{example(tmp_path)}:Front", str(tmp_path / "hogs.sched")
    hogs.to_sched(trace)
    assert main(["whatif", trace, "--policy", policy, "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["policy"], answer["change"]) == ("front", ["policy front"])
    assert main(["fidelity", trace, "--policy", f"{policy},rr", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["against"] for row in rows] == ["real", "front", "rr"]
    for source in (trace, "hogs:3,time=20ms"):
        assert main(["simulate", source, "--policy", policy, "--format", "json"]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert rows[-1]["policy"] == "front"


def test_file_without_a_policy_is_reported_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = example(tmp_path)
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import schedscope as ss\n\n\nclass Half(ss.Policy):\n    x = 1 +\n")
    greedy = tmp_path / "greedy.py"
    greedy.write_text(
        own.read_text() + "\n\nclass Greedy(Front):\n    def __init__(self, n):\n        pass\n\n\n"
        "class Broken(Front):\n    def tick(self, w, cpu):\n        return self.left['x']\n"
    )
    line = greedy.read_text().splitlines().index("        return self.left['x']") + 1
    for text, said in (
        (f"{tmp_path}/none.py:Front", "no file"),
        (f"{own}:Back", "defines no policy 'Back'"),
        (str(greedy), "names no class; expected"),
        (f"{wrong}:Half", "does not run: SyntaxError in line 5"),
        (f"{greedy}:Greedy", "a class that is made without arguments"),
        (
            f"{greedy}:Broken",
            f"tick of Broken, called at 4000000 ns with 0, raised KeyError in line {line}: 'x'",
        ),
    ):
        assert main(["simulate", "hogs:3,time=20ms", "--policy", text]) == 2
        found = capsys.readouterr().err
        assert said in found, text
        assert found.count("\n") == 1
    assert policy_in_file("rr") is None
    made = policy_in_file(str(own))
    assert made is not None
    assert made.name == "front"


def test_simulate_whatif_and_fidelity_replay_selected_threads_alike(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """This recording is closest if the others are replayed, too."""
    path = FIXTURES / "linux-slice-default-1.capture"
    real, where = ss.open(path), pl.col("comm") == "beat"
    run = simulate(real, where=where)
    assert run.info["workload"]["others"] == "replay"
    waits = ss.latency(run, where=where)["n"].item()
    assert fidelity(real, policies=["eevdf"], where=where)["n_waits"][1] == waits
    frame = ss.whatif(real, set_nice={"beat": 0}, where=where, replays=1)
    assert frame.filter(configuration="replayed")["n_waits"].item() == waits
    said, found = [], []
    for words in (["simulate"], ["fidelity", "--policy", "eevdf"], ["whatif", "--slice", "3ms"]):
        asked = [words[0], str(path), "--comm", "beat", *words[1:]]
        assert main(asked) == 0
        said += re.findall(r"^other threads: .*$", capsys.readouterr().out, re.MULTILINE)
        assert main([*asked, "--format", "json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert len(said) == 3
    assert len(set(said)) == 1
    assert "--others replay, closest to the recording" in said[0]
    assert found[0]["rows"][1]["n_waits"] == found[1]["rows"][1]["n_waits"] == waits
    recorded = ss.latency(real, where=where)["n"].item()
    assert found[0]["rows"][0]["n_waits"] == found[1]["rows"][0]["n_waits"] == recorded


def test_selection_of_a_workload_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "hogs:3,time=5ms", "--comm", "hog-0"]) == 2
    assert "--comm hog-0 with a generator" in capsys.readouterr().err
    with pytest.raises(UsageError, match="a workload with where or others"):
        simulate(ss.workload.hogs(3, time="5ms"), where=pl.col("comm") == "hog-0")
