"""Machines of more CPUs than a page has room for: the worst first, in groups."""

from __future__ import annotations

import base64
import gzip
import json
import re
from typing import Any

import numpy as np
import polars as pl
import pytest

import schedscope as ss
from schedscope.analysis.cpus.many_cpus import grouping, most_waited_cpus
from schedscope.errors import UsageError
from schedscope.parsers.schema import conform
from schedscope.report.machine import cpus, time
from schedscope.report.subject import Subject
from schedscope.timelines.answer import Timeline
from schedscope.timelines.threads import thread_list

NCPU = 72
NODES = 8


def machine(ncpu: int = NCPU, nodes: int = NODES) -> ss.Trace:
    """`ncpu` CPUs; on CPU n a thread waits n us from 1 us on and then runs for 1 us.

    CPU 5 alone has a second wait, of 100 us, behind a thread of its own.
    """
    numbers = range(ncpu)
    ready = pl.DataFrame([{"cpu": n, "utid": ncpu + n, "wait": 1000 * n} for n in numbers])
    ready = pl.concat([ready, pl.DataFrame({"cpu": [5], "utid": [2 * ncpu], "wait": [100_000]})])
    ran = ready.select("cpu", "utid", ts=1000 + pl.col("wait"), dur=1000, state=pl.lit("running"))
    waiting = ready.filter(pl.col("wait") > 0).select(
        "cpu", "utid", ts=1000, dur="wait", state=pl.lit("runnable")
    )
    shared = (nodes and ncpu // nodes) or 1
    tables = {
        "states": pl.concat(
            [
                part.with_columns(pl.col("ts", "dur").cast(pl.Int64), end=pl.lit("switched"))
                for part in (ran, waiting)
            ]
        ),
        "waits": ready.select(
            "cpu", "utid", "wait", ts_ready=1000, ts_run=1000 + pl.col("wait"), queue_cpu="cpu",
            cause=pl.lit("wake"), censored=pl.lit("none"),
        ),
        "threads": pl.DataFrame(
            {"utid": range(2 * ncpu + 1), "tid": range(2 * ncpu + 1)}
        ).with_columns(comm=pl.lit("t"), comm_first=pl.lit("t")),
        "cpus": pl.DataFrame(
            {
                "cpu": numbers,
                "llc": [cpu // 2 if nodes else None for cpu in numbers],
                "numa_node": [cpu // shared if nodes else None for cpu in numbers],
            }
        ),
    }  # fmt: skip
    return ss.Trace.from_tables(
        {name: conform(name, frame) for name, frame in tables.items()},
        {"ncpu": ncpu, "window": [0, 200_000]},
    )


def test_the_cpu_that_was_waited_for_longest_is_the_first() -> None:
    assert most_waited_cpus(machine())[:3] == [5, 71, 70]
    assert most_waited_cpus(machine())[-1] == 0


def test_cpus_are_grouped_by_the_fewest_places() -> None:
    assert grouping(machine()) == "numa_node"
    assert grouping(machine(nodes=0)) is None
    assert grouping(machine(nodes=1)) == "llc", "one node is no grouping"


def test_a_timeline_of_many_cpus_begins_with_the_worst() -> None:
    about = Timeline(machine()).about()
    lanes = [lane for lane in about["lanes"] if lane.startswith("cpu:")]
    assert lanes == ["cpu:5", *(f"cpu:{cpu}" for cpu in range(71, 40, -1))]
    assert about["by"] == "node"
    assert about["places"]["node"]["5"] == "node 0, CPUs 0-8"
    assert about["few"].startswith("32 of 72 CPUs")
    assert about["cpus"] == list(range(NCPU)), "all of them can be asked for"
    plain = Timeline(machine(nodes=0)).about()
    assert "by" not in plain
    few = Timeline(machine(64)).about()
    assert few["lanes"][:64] == [f"cpu:{cpu}" for cpu in range(64)]
    assert not {"by", "few"} & few.keys()


def test_lanes_of_other_cpus_are_read_on_request() -> None:
    source = Timeline(machine())
    for cpu in (71, 3):
        (lane,) = source.lanes.get([f"cpu:{cpu}"])
        assert lane.starts.tolist() == [1000 + 1000 * cpu]


def test_nodes_have_lanes_of_busy_and_waiting_threads() -> None:
    source = Timeline(machine())
    nodes = [0, *range(7, 3, -1), *range(1, 4)]
    lanes = [f"{kind}:node{node}" for node in nodes for kind in ("busy", "waiting")]
    assert source.groups == lanes, "the worst node first, then those of the other CPUs"
    assert source.about()["lanes"] == [*lanes, *source.first]
    answer, buffers = source.answer({"lanes": lanes, "first": 0, "bins": 1, "scale": 1})

    def numbers(row: dict[str, Any], name: str) -> Any:
        number, dtype = row[name]
        return np.frombuffer(buffers[number], f"<{dtype}")

    for row in answer["lanes"]:
        node = int(row["key"].rpartition("node")[2])
        own = range(9 * node, 9 * node + 9)
        assert row["bins"] * row["scale"] >= 200_000
        assert len(numbers(row, "sum")) == row["bins"]
        extra = int(node == 0)
        if row["key"].startswith("busy"):
            busy = (len(own) + extra) * 1000
            assert numbers(row, "sum").sum() == numbers(row, "known").sum() == busy
            assert row["top"] == 1
        else:
            assert numbers(row, "sum").sum() == sum(own) * 1000 + extra * 100_000
            assert numbers(row, "known").sum() == 200_000, "of the time that passed"
            assert row["top"] == 9, "alike for all nodes: in one of them nine threads wait at once"
    with pytest.raises(UsageError, match="node8"):
        source.answer({"lanes": ["busy:node8"], "first": 0, "bins": 1, "scale": 1})
    assert Timeline(machine(nodes=0)).groups == [] == Timeline(machine(64)).groups
    page = ss.timeline_html(machine())
    data = json.loads(page.split('type="application/json">')[1].split("</script>")[0])
    carried = [row["key"] for answer in data["answers"] for row in answer["lanes"]]
    assert [key for key in carried if "node" in key] == lanes, "once each"


def test_a_node_that_is_offline_has_no_lanes() -> None:
    """The host lists its CPUs, and none of them was recorded."""
    trace = machine(80)
    trace.info["per_cpu"] = [{"cpu": cpu} for cpu in range(70)]
    source = Timeline(trace)
    assert source.groups
    assert not [lane for lane in source.groups if lane.endswith("node7")]
    source.answer({"lanes": source.groups, "first": 0, "bins": 1, "scale": 1})
    with pytest.raises(UsageError, match="node7"):
        source.answer({"lanes": ["busy:node7"], "first": 0, "bins": 1, "scale": 1})


@pytest.mark.parametrize(("section", "first"), [(time, 5), (cpus, 5)])
def test_tables_of_the_report_have_the_worst_cpus_and_sums_of_nodes(
    section: object, first: int
) -> None:
    body = section(Subject(machine())).body  # type: ignore[operator]
    tables = re.findall(r"<table.*?</table>", body, re.DOTALL)
    assert len(tables) == 2
    by_node, by_cpu = tables
    assert by_node.count("<tr>") == 1 + NODES
    assert by_cpu.count("<tr>") == 1 + 32
    assert f"32 of {NCPU} CPUs" in body
    assert re.search(rf"<tbody><tr><td[^>]*>\s*{first}\s*<", by_cpu)
    without = section(Subject(machine(64))).body  # type: ignore[operator]
    assert "CPUs, those" not in without


def test_a_page_lists_the_first_threads_and_counts_all() -> None:
    trace = machine()
    whole = thread_list(trace)
    some = thread_list(trace, most=10, also=[NCPU])
    assert some["utid"].to_list() == [*whole["utid"].to_list()[:10], NCPU]
    assert thread_list(trace, most=1000).equals(whole)
    text = re.search(r'type="application/json">(.*?)</script>', ss.timeline_html(trace), re.DOTALL)
    assert text
    data = json.loads(text[1])
    threads = data["about"]["threads"]
    assert len(threads["rows"]) + threads["more"] == NCPU + 1
    assert gzip.decompress(base64.b64decode(data["data"]))


def test_page_has_each_name_once() -> None:
    page = ss.timeline_html(machine())
    data = json.loads(page.split('type="application/json">')[1].split("</script>")[0])
    assert all(answer["names"] == {} for answer in data["answers"])
    assert data["about"]["names"][str(2 * NCPU)] == f"t {2 * NCPU}"
