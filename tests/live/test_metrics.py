"""`top --metrics`: what Prometheus reads equals the tables."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from live_intervals import interval

from schedscope.cli import main
from schedscope.live import recorder
from schedscope.live.metrics import EDGES, Metrics, grafana

pytest.importorskip("prometheus_client")
COSTS = {"recorder": 0.5, "reader": 0.25}
SECOND = 10**9
IDLE = [(0, "running", 0, SECOND), (1, "running", 0, SECOND)]
WAITED = [(2, "runnable", 0, 2_000_000), (2, "running", 2_000_000, SECOND), *IDLE[1:]]


def read(metrics: Metrics) -> dict[str, float]:
    """The served text, read as OpenMetrics by the official parser."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.openmetrics.exposition import generate_latest
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    text = generate_latest(registry).decode()
    return {
        sample.name
        + "".join(
            f" {value}" for _, value in sorted(sample.labels.items(), reverse=True)
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_wait_of_two_ms_is_in_the_buckets_from_3_ms() -> None:
    metrics = Metrics()
    metrics.add(interval(WAITED, (0, SECOND)), COSTS)
    found = read(metrics)
    ranges = {edge: found[f"schedscope_wait_seconds_bucket /a {edge}"] for edge in EDGES}
    assert ranges == {edge: float(edge >= 0.003) for edge in EDGES}
    assert found["schedscope_wait_seconds_count /a"] == 1
    assert found["schedscope_wait_seconds_sum /a"] == pytest.approx(0.002)
    assert found["schedscope_waiting_seconds_total /a"] == pytest.approx(0.002)
    assert found["schedscope_running_seconds_total /a"] == pytest.approx(0.998)
    assert found["schedscope_runnable_threads /a"] == pytest.approx(0.002)
    assert found["schedscope_busy_ratio"] == pytest.approx(0.499)
    assert found["schedscope_cpus"] == 2
    assert found["schedscope_observed_seconds_total"] == 1
    assert found["schedscope_cpu_seconds_total recorder"] == 0.5


def test_intervals_add_up_and_gaps_are_counted() -> None:
    metrics = Metrics()
    metrics.add(interval(WAITED, (0, SECOND)), COSTS)
    metrics.add(interval(WAITED, (0, SECOND), gap=3 * SECOND), COSTS)
    found = read(metrics)
    assert found["schedscope_wait_seconds_count /a"] == 2
    assert found["schedscope_observed_seconds_total"] == 2
    assert found["schedscope_unobserved_seconds_total"] == 3


def test_mostly_unknown_interval_is_not_counted() -> None:
    metrics = Metrics()
    metrics.add(interval([(2, "runnable", 0, 100), (2, "running", 100, 200)], (0, SECOND)), COSTS)
    found = read(metrics)
    assert found["schedscope_unknown_ratio"] > 0.99
    assert found["schedscope_unobserved_seconds_total"] == 1
    assert not [name for name in found if "wait" in name]


def test_throttled_time_is_the_kernels_count_since_the_interval_before() -> None:
    """A new group has a count that started before our first reading."""
    metrics = Metrics()
    first, second = {"/a.service": 5 * SECOND}, {"/a.service": 7 * SECOND, "/b.service": SECOND}
    for groups in (first, second):
        metrics.add(replace(interval(IDLE, (0, SECOND)), throttled=groups), COSTS)
    throttled = {name: value for name, value in read(metrics).items() if "throttled" in name}
    assert throttled == {"schedscope_throttled_seconds_total a.service": 2}


def test_lost_events_are_counted() -> None:
    loss = {"cpu": 0, "reason": "overrun", "count": 42, "ts_begin": 10, "ts_end": 20}
    metrics = Metrics()
    metrics.add(interval(IDLE, (0, SECOND), losses=[loss]), COSTS)
    assert read(metrics)["schedscope_lost_events_total"] == 42


def test_the_kernels_counts_are_read_from_a_snapshot(tmp_path: Path) -> None:
    (tmp_path / "groups.tsv").write_text(
        "seen\tcgroup\tweight\tquota\tthrottled\nstart\t/a\t100\t\t1500\nstart\t/b\t100\t\t\n"
    )
    assert recorder._throttled(tmp_path) == {"/a": 1_500_000}


def test_dashboard_uses_only_served_metrics() -> None:
    metrics = Metrics()
    metrics.add(interval(WAITED, (0, SECOND)), COSTS)
    metrics.add(replace(interval(IDLE, (0, SECOND)), throttled={}), COSTS)
    served = {name.partition(" ")[0] for name in read(metrics)} | {
        "schedscope_throttled_seconds_total"
    }
    board = grafana()
    asked: set[str] = set()
    for panel in board["panels"]:
        for target in panel["targets"]:
            asked |= set(re.findall(r"schedscope_\w+", target["expr"]))
    assert asked <= served
    assert {"schedscope_wait_seconds_bucket", "schedscope_unknown_ratio"} <= asked


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "schedscope", "top", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_dashboard_is_printed_without_root_or_a_recorder() -> None:
    assert json.loads(run("--grafana").stdout) == grafana()


@pytest.mark.needs("linux")
def test_missing_client_library_is_reported_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert main(["top", "--metrics", "127.0.0.1:9184"]) == 1
    said = capsys.readouterr().err
    assert "prometheus_client is not installed" in said
    assert "prometheus-client>=" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("address", ["9184", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999"])
def test_invalid_address_is_reported_in_one_sentence(address: str) -> None:
    done = run("--metrics", address)
    assert done.returncode == 2
    assert "127.0.0.1:9184" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.records
@pytest.mark.needs("linux", "root", "tracefs")
def test_a_scrape_of_this_host_has_its_services() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "schedscope", "top", "--metrics", f"127.0.0.1:{port}"]
    with subprocess.Popen([*words, "--every", "1s"], stderr=subprocess.PIPE, text=True) as top:
        try:
            assert top.stderr is not None
            assert "serving" in top.stderr.readline()
            text = ""
            while "schedscope_wait_seconds_count" not in text:
                assert top.poll() is None
                time.sleep(0.2)
                text = scrape(port)
        finally:
            top.send_signal(signal.SIGINT)
    assert top.returncode == 0
    assert f"schedscope_cpus {float(os.cpu_count() or 0)}" in text
    assert text.rstrip().endswith("# EOF")


def scrape(port: int) -> str:
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}/metrics",
        headers={"Accept": "application/openmetrics-text; version=1.0.0"},
    )
    with urllib.request.urlopen(asked, timeout=30) as answer:
        found: Any = answer.read().decode()
    return str(found)
