"""The fault campaign in small: damage of every kind, and nothing wrong given as measured.

`python research/benchmarks/faults.py` runs the large one. A kind in FAILING gives something wrong
today; its test fails when that is mended, so that the line goes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from faults import (
    campaign,
    comparison,
    page,
    peers,
    perfdata,
    recording,
    story,
    tracedat,
    truth,
)
from faults.formats import formats_of
from faults.mutations import KINDS, Mutant

import schedscope as ss
from schedscope.analysis.recording.lost_events import losses_of_any_event

ROOT = Path(__file__).parents[2]

CAPTURES = ("linux-slice-default-4", "linux-ftrace-starved")
SEED = 1

FAILING = {
    kind: reason
    for reason, kinds in {
        "nothing says that events are missing, and what is left fits together": (
            "end of a CPU missing, unmarked",
            "hole on all CPUs, unmarked",
        ),
        "two switches that are missing together leave a chain that fits": (
            "10% of switch dropped",
        ),
    }.items()
    for kind in kinds
}


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[campaign.Case]]:
    work = tmp_path_factory.mktemp("cases")
    found = [campaign.load(ROOT / "fixtures" / f"{name}.capture", work) for name in CAPTURES]
    for case in found:
        case.recording.others = [other.recording for other in found if other is not case]
    yield found
    for case in found:
        case.recording.others = []


@pytest.mark.parametrize(
    ("kind", "capture"),
    [
        *(
            pytest.param(kind, None, marks=pytest.mark.xfail(strict=True, reason=reason))
            for kind, reason in FAILING.items()
        ),
        # The gate takes the captures in turn.
        *(
            pytest.param(kind, capture, marks=pytest.mark.release if (at + capture) % 2 else ())
            for at, kind in enumerate(KINDS)
            for capture in range(len(CAPTURES))
            if kind not in FAILING
        ),
    ],
)
def test_measured_values_equal_the_truth(
    kind: str, capture: int | None, cases: list[campaign.Case], tmp_path: Path
) -> None:
    """Measured waits and known states equal the truth; figures do, or are bounded or flagged.

    Of the figures of all questions, each kind of damage is judged by a twelfth.
    """
    numbers = 2 if "hole" in kind else 1
    chosen = cases if capture is None else [cases[capture]]
    results = campaign.run(chosen, [kind], numbers, SEED, tmp_path, parts=12)
    assert not any(map(page.wrong, results)), "\n" + "".join(
        story.failure(result) for result in results if page.wrong(result)
    )


def test_a_recording_written_again_is_the_same(cases: list[campaign.Case], tmp_path: Path) -> None:
    """In every format: the same records, the same waits; a marked hole is a loss in each."""
    whole = cases[0].recording
    again = recording.read(recording.write(whole, tmp_path / "again.capture"))
    assert again.cpus == whole.cpus
    hole = campaign.draw(cases[0], "hole, marked", 0, SEED)
    columns = ["ts_ready", "ts_run", "wait", "cpu"]
    tables, lost = [], {}
    for name in formats_of(whole):
        trace = campaign.opened(Mutant(whole, "nothing"), tmp_path, name)
        waits = trace.waits.filter(pl.col("censored") == "none").select(columns).collect()
        tables.append(waits.sort(pl.all()))
        losses = campaign.opened(hole, tmp_path, name).losses.collect()
        lost[name] = losses.filter(pl.col("cpu") == hole.holes[0][0])["reason"].to_list()
    assert all(table.equals(tables[0]) for table in tables)
    assert all("overrun" in reasons for reasons in lost.values()), lost


@pytest.mark.parametrize("name", ["lab/amd64-6.12-perf-4cpu.tar.xz", "freebsd-ule.capture"])
def test_recordings_of_perf_and_freebsd_written_again_are_the_same(
    name: str, tmp_path: Path
) -> None:
    case = campaign.load(ROOT / "fixtures" / name, tmp_path)
    source = ROOT / "fixtures" / name
    if source.suffix == ".xz":
        source = tmp_path / case.name / "lab.capture"
    written = case.undamaged(*formats_of(case.recording)).trace
    first, second = (
        trace.waits.filter(pl.col("censored") == "none")
        .select("cpu", "ts_ready", "ts_run")
        .collect()
        for trace in (ss.open(source, cache=tmp_path / "one"), written)
    )
    # A stretch of it, where something is missing elsewhere.
    assert second.height > 400
    assert second.join(first, on=first.columns, how="anti").is_empty()


def test_on_freebsd_a_waker_enqueues_what_it_wakes(tmp_path: Path) -> None:
    """One of two CPUs was recorded: a thread does not run on the other within that one call."""
    case = campaign.load(ROOT / "fixtures" / "freebsd-ule.capture", tmp_path)
    mutant = Mutant(case.recording.copy(), "one CPU")
    del mutant.recording.cpus[1]
    ours, theirs = (
        trace.waits.filter(pl.col("cause") == "wake", pl.col("censored") == "none")
        .select("cpu", "ts_run", "wait")
        .collect()
        for trace in (campaign.opened(mutant, tmp_path), case.undamaged("dtrace").trace)
    )
    assert ours.height > 100
    assert ours.join(theirs, on=ours.columns, how="anti").is_empty()


def test_events_outvote_a_count_of_cpus(cases: list[campaign.Case], tmp_path: Path) -> None:
    """A trace.dat that says "1 CPU", and whose threads move to a second one: that one is a hole."""
    for number, case in enumerate(cases):
        half = case.recording.copy()
        del half.cpus[1]
        half.stats.pop(1, None)
        opened = {}
        for name, made in (("whole", case.recording), ("half", half)):
            path = tmp_path / f"{name}{number}.dat"
            path.write_bytes(tracedat.encode(made))
            opened[name] = ss.open(path, cache=tmp_path / "cache")
        assert opened["half"].info["ncpu"] == opened["whole"].info["ncpu"] == 2
        lost = opened["half"].losses.filter(pl.col("cpu") == 1).collect()
        assert lost["reason"].to_list() == ["unrecorded"]
        columns = ["cpu", "ts_run", "wait"]
        true, measured = (
            opened[name].waits.filter(pl.col("censored") == "none").select(columns).collect()
            for name in ("whole", "half")
        )
        assert measured.join(true, on=columns, how="anti").is_empty()


def test_a_hole_that_nothing_reports_may_hide_any_event(
    cases: list[campaign.Case], tmp_path: Path
) -> None:
    """Broken chains of a whole recording are a habit of its kernel, those of a cut one are not."""
    for case in cases:
        for kind in ("nothing", "hole, unmarked"):
            mutants = (campaign.draw(case, kind, number, SEED) for number in range(8))
            traces = (campaign.opened(mutant, tmp_path) for mutant in mutants)
            told = {
                bool(trace.info["unreported_losses"]): losses_of_any_event(trace).collect()
                for trace in traces
            }
            assert (True in told) == (kind == "hole, unmarked")
            for unreported, losses in told.items():
                assert ("chain_break" in losses["reason"].to_list()) == unreported


def test_a_perf_file_is_edited_record_by_record(tmp_path: Path) -> None:
    """Taken apart and put together it is the same; without a CPU's records, that CPU is silent."""
    content = (ROOT / "fixtures" / "perf-sched.data").read_bytes()
    file = perfdata.read(content)
    assert file.encode(file.records) == content
    (tmp_path / "one.data").write_bytes(file.encode([r for r in file.records if r.cpu != 1]))
    switches = ss.open(tmp_path / "one.data", cache=tmp_path / "cache").switches.collect()
    assert switches["cpu"].unique().to_list() == [0]
    assert switches.height == sum(r.event == "sched_switch" and r.cpu == 0 for r in file.records)


def test_tool_without_a_reference_answer_is_not_compared(tmp_path: Path) -> None:
    """A tool that fails there once would make every wait of the table look wrong."""
    good = peers.Said(waits=[((0, 1), 5)], by_order=[((0, 1), 5)])
    assert peers.reference("tool", lambda _: good, tmp_path) is good
    with pytest.raises(peers.NoReference, match="no waits for the undamaged file"):
        peers.reference("tool", lambda _: peers.Said(), tmp_path)
    answers = iter([good, peers.Said(waits=[((0, 1), 6)])])
    with pytest.raises(peers.NoReference, match="two different answers"):
        peers.reference("tool", lambda _: next(answers), tmp_path)
    path, later = tmp_path / "file", iter([good, good, peers.Said()])
    with pytest.raises(peers.NoReference, match="when asked again"):
        peers._rows([("nothing", 0, b"")], {"tool": lambda _: next(later)}, {0: b""}, path)


def test_the_truth_is_of_a_stretch_without_flaws(cases: list[campaign.Case]) -> None:
    """Threads of the recording host are hidden from tracing: where they ran is left out."""
    for case in cases:
        assert not case.truth.flaws
        assert case.truth.waits.height > 100
    whole = recording.read(ROOT / "fixtures" / "linux-ftrace-starved.capture")
    assert truth.of(whole).flaws


def test_the_same_name_draws_the_same_damage(cases: list[campaign.Case]) -> None:
    for kind in KINDS:
        first, second = (campaign.draw(cases[0], kind, 3, SEED) for _ in range(2))
        assert first.what == second.what
        assert first.recording.cpus == second.recording.cpus
        assert first.file == second.file


def test_an_invented_wait_and_state_are_found(cases: list[campaign.Case], tmp_path: Path) -> None:
    """The judge itself: a wait made 2 us longer, and a sleep called running, are wrong."""
    case = cases[0]
    trace = campaign.opened(Mutant(case.recording, "nothing"), tmp_path)
    measured = (pl.col("censored") == "none") & (pl.col("wait") > 10_000)
    waits = trace.waits.collect()
    at = waits.with_row_index().filter(measured)["index"][0]
    longer = pl.when(pl.int_range(pl.len()) == at).then(pl.col("wait") + 2_000)
    states = trace.states.collect()
    asleep = (pl.col("state") == "sleeping") & (pl.col("dur") > 1_000_000)
    slept = states.with_row_index().filter(asleep)["index"][0]
    awake = pl.when(pl.int_range(pl.len()) == slept).then(pl.lit("running"))
    changed = ss.Trace.from_tables(
        {
            "waits": waits.with_columns(longer.otherwise("wait").alias("wait")),
            "states": states.with_columns(
                awake.otherwise(pl.col("state").cast(pl.String))
                .cast(states.schema["state"])
                .alias("state")
            ),
            "threads": trace.threads.collect(),
        },
        trace.info,
    )
    found = comparison.judge(
        changed, case.truth, Mutant(case.recording, "nothing"), comparison.Doubt()
    )
    assert [wait["wait"] - wait["true"] for wait in found.wrong_waits] == [2_000]
    assert found.wrong_state_time == states["dur"][int(slept)]


def test_a_campaign_goes_on_where_it_was(cases: list[campaign.Case], tmp_path: Path) -> None:
    """Results in the journal are not made again, and a half-written line is."""
    journal = tmp_path / "journal"
    first = campaign.run(cases[:1], ["nothing", "CPU empty"], 1, SEED, tmp_path, journal)
    lines = journal.read_text().splitlines()
    journal.write_text(lines[0] + "\n" + lines[1][:40] + "\n")
    made: list[str] = []
    again = campaign.run(
        cases[:1], ["nothing", "CPU empty"], 1, SEED, tmp_path, journal,
        lambda *progress: made.append(progress[2]["kind"]),
    )  # fmt: skip
    assert made == ["CPU empty"]

    def plain(results: list[campaign.Result]) -> list[str]:
        return [json.dumps(result | {"seconds": 0}) for result in results]

    assert plain(first) == plain(again)
