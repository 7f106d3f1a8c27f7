"""The viewer's server: its answers, its access control, and its questions called directly."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from view_server import TOKEN, server

import schedscope as ss
from schedscope import units
from schedscope.cli import main
from schedscope.errors import StorageError, UsageError
from schedscope.timelines import sql, visitors
from schedscope.timelines.difference import differences
from schedscope.timelines.places import listed, view_at
from schedscope.timelines.questions import Questions
from schedscope.timelines.sql import query

FIXTURES = Path(__file__).parents[2] / "fixtures"

ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "fixtures/linux-ftrace-mixed.capture"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> ss.Trace:
    return ss.open(FIXTURE, cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def port(trace: ss.Trace) -> Iterator[int]:
    with server(trace) as number:
        yield number


def http_of(
    port: int, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    connection.close()
    return found


def ask(port: int, request: Any) -> tuple[dict[str, Any], bytes]:
    code, _, body = http_of(port, "POST", f"/{TOKEN}/ask", json.dumps(request).encode())
    assert code == 200, body
    (length,) = struct.unpack("<I", body[:4])
    return json.loads(body[4 : 4 + length]), body[4 + length :]


def test_page_is_self_contained_and_fetches_only_answers(port: int) -> None:
    code, headers, body = http_of(port, "GET", f"/{TOKEN}/")
    assert code == 200
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "connect-src 'self'" in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    # The namespace of a language is not an address that is fetched.
    body = body.replace(b'xmlns="http://www.w3.org/2000/svg"', b"")
    assert b"http:" not in body
    assert b"https:" not in body


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", f"/{TOKEN}"),
        ("GET", "/other/"),
        ("POST", "/other/ask"),
        ("GET", f"/{TOKEN}/ask"),
        ("POST", f"/{TOKEN}/"),
        ("GET", f"/{TOKEN}/trace.json"),
        ("GET", f"/{TOKEN}/../../../../etc/passwd"),
        ("GET", f"/{TOKEN}/%2e%2e/%2e%2e/etc/passwd"),
        ("GET", "/etc/passwd"),
        ("OPTIONS", f"/{TOKEN}/ask"),
    ],
)
def test_request_without_the_token_is_refused(port: int, method: str, path: str) -> None:
    code, headers, body = http_of(port, method, path, b"{}" if method == "POST" else None)
    assert code == 403
    assert body == b"Refused: open the address that was printed.\n"
    assert "set-cookie" not in headers


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("127.0.0.1:80", 200),
        ("localhost:8118", 200),  # the other end of `ssh -L 8118:...`
        ("localhost", 200),
        ("[::1]:9", 200),
        ("evil.example:80", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example:80", 403),
        ("", 403),
    ],
)
def test_request_with_another_host_header_is_refused(port: int, host: str, code: int) -> None:
    assert http_of(port, "GET", f"/{TOKEN}/", Host=host)[0] == code


def test_request_from_another_origin_is_refused(port: int) -> None:
    body = json.dumps({"kind": "schema"}).encode()
    ours = {"Host": "127.0.0.1:5", "Origin": "http://127.0.0.1:5"}
    assert http_of(port, "POST", f"/{TOKEN}/ask", body, **ours)[0] == 200
    for origin in ("http://evil.example", "null", "http://127.0.0.1:6", "https://127.0.0.1:5"):
        strange = {**ours, "Origin": origin}
        assert http_of(port, "POST", f"/{TOKEN}/ask", body, **strange)[0] == 403


def test_invalid_request_gets_an_error_sentence(port: int) -> None:
    assert http_of(port, "POST", f"/{TOKEN}/ask", b"{")[0] == 400
    assert http_of(port, "POST", f"/{TOKEN}/ask", rb'{"kind": "\ud800"}')[0] == 400
    assert http_of(port, "POST", f"/{TOKEN}/ask", b"x" * 4_000_001)[0] == 413
    for wrong in (
        [], {"kind": "files"}, {"kind": "_answer"}, {"kind": ["lanes"]},
        {"kind": "lanes"}, {"kind": "slice", "lane": "cpu:x", "at": 1},
        {"kind": "slice", "lane": "cpu:0", "at": 1.5}, {"kind": "slice"},
        {"kind": "range", "begin": 5, "end": 5}, {"kind": "range", "begin": -1, "end": 1 << 52},
        {"kind": "path", "utid": 1 << 40, "begin": 0, "end": 10},
        {"kind": "threads", "text": "x" * 300}, {"kind": "threads", "utids": ["1"]},
        {"kind": "notes", "rows": "x"}, {"kind": "notes", "rows": [{"at": "x", "text": ""}]},
        {"kind": "notes", "rows": [{"at": 1, "text": "x" * 3000}]},
    ):  # fmt: skip
        answer, rest = ask(port, wrong)
        assert answer["kind"] == "error", wrong
        assert answer["text"]
        assert "Traceback" not in answer["text"]
        assert rest == b""


def test_lanes_equal_those_of_the_widget(port: int, trace: ss.Trace) -> None:
    request = {"kind": "lanes", "lanes": ["cpu:0"], "first": 0, "bins": 100, "scale": 10_000_000}
    answer, data = ask(port, request)
    expected, buffers = Questions(trace).reply(request)
    assert answer == {**expected, "sizes": [len(part) for part in buffers]}
    assert data == b"".join(buffers)


def test_thread_is_found_by_name_tid_process_and_command(trace: ss.Trace) -> None:
    questions = Questions(trace)

    def found(text: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = questions.reply({"kind": "threads", "text": text})[0]["rows"]
        return rows

    threads = trace.threads.filter(pl.col("utid") >= trace.ncpu).collect()
    assert len(found("")) == threads.height
    named = threads.filter(pl.col("comm").str.contains("(?i)hog"))["utid"].to_list()
    assert named
    assert {row["utid"] for row in found("HOG")} >= set(named)
    some = threads.row(7, named=True)
    assert some["utid"] in {row["utid"] for row in found(str(some["tid"]))}
    assert found("no such thread") == []
    worst = ss.worst_waits(trace, n=1).row(0, named=True)
    (row,) = questions.reply({"kind": "threads", "utids": [worst["utid"]]})[0]["rows"]
    assert row["longest"] == [worst["ts_ready"] - trace.window[0], worst["wait"]]
    ran = (
        trace.states.filter(pl.col("utid") == worst["utid"], pl.col("state") == "running")
        .select(pl.col("dur").sum())
        .collect()
        .item()
    )
    assert row["run"] == ran


def test_interval_shows_its_facts(trace: ss.Trace) -> None:
    """The longest wait: its parts are those of wait_breakdown, its neighbours those of states."""
    worst = ss.wait_breakdown(trace, by="wait", top=1).row(0, named=True)
    begin = worst["ts"] - trace.window[0]
    own = trace.states.filter(pl.col("utid") == worst["utid"]).sort("ts").collect()
    here = own.filter(pl.col("ts") <= worst["ts"])[-1].row(0, named=True)
    questions = Questions(trace)
    lane = f"utid:{worst['utid']}"
    answer = questions.reply({"kind": "slice", "lane": lane, "at": begin})[0]
    assert (answer["state"], answer["begin"]) == ("runnable", begin)
    assert answer["end"] == begin + here["dur"]
    parts = dict(answer["wait"]["parts"])
    assert sum(parts.values()) == here["dur"]
    assert answer["thread"]["pid"] is not None
    i = own["ts"].to_list().index(here["ts"])
    assert answer["before"]["begin"] == own["ts"][i - 1] - trace.window[0]
    assert answer["after"]["begin"] == own["ts"][i + 1] - trace.window[0]
    (ran,) = answer["tables"]
    shown = eval(ran["python"], {"ss": ss, "trace": trace, "pl": pl})
    assert ran["rows"][0][0] == shown["comm"][0], "the line of Python gives the same"
    # The same interval through the CPU's lane: the thread that ran there.
    cpu = questions.reply({"kind": "slice", "lane": f"cpu:{worst['cpu']}", "at": begin + 1000})[0]
    assert cpu["state"] in ("running", "idle")
    assert cpu["utid"] != worst["utid"]


def test_interval_links_to_waker_woken_and_critical_path(trace: ss.Trace) -> None:
    wait = (
        trace.waits.filter(
            pl.col("waker_utid").is_not_null() & (pl.col("censored") == "none"),
            pl.col("waker_utid") >= trace.ncpu,
        )
        .sort("wait", descending=True)
        .head(1)
        .collect()
        .row(0, named=True)
    )
    questions, begin = Questions(trace), trace.window[0]
    at = wait["ts_ready"] - begin
    lane = f"utid:{wait['utid']}"
    answer = questions.reply({"kind": "slice", "lane": lane, "at": at})[0]
    assert answer["waker"] == wait["waker_utid"]
    assert str(wait["waker_utid"]) in answer["names"]
    waker = questions.reply({"kind": "slice", "lane": f"utid:{wait['waker_utid']}", "at": at})[0]
    assert waker["state"] == "running"
    *delayed, woke = waker["tables"]
    assert [at, wait["wait"], lane] in woke["links"]
    span = {"utid": wait["utid"], "begin": at, "end": at + wait["wait"]}
    (path,) = questions.reply({"kind": "path", **span})[0]["tables"]
    frame = eval(path["python"], {"ss": ss, "trace": trace})
    assert len(path["rows"]) == min(200, frame.height)
    assert path["links"][0][0] == frame["ts"][-1] - begin
    # And forwards: the threads that the waker woke, and those that they woke.
    span = {"utid": wait["waker_utid"], "begin": waker["begin"], "end": waker["end"]}
    (chain,) = questions.reply({"kind": "chain", **span})[0]["tables"]
    assert [at, wait["wait"], lane] in chain["links"]
    frame = eval(chain["python"], {"ss": ss, "trace": trace})
    assert len(chain["rows"]) == min(100, frame.height)
    assert not delayed or delayed[0]["title"].startswith("Who waited for its CPU")


def test_run_lists_the_threads_it_delayed(trace: ss.Trace) -> None:
    """Threads on the queue of its CPU, for the time of both."""
    states = trace.states.select("ts", "cpu", "utid", "state", until=pl.col("ts") + pl.col("dur"))
    runs = states.filter(pl.col("state") == "running", pl.col("utid") >= trace.ncpu).collect()
    run = runs.sort(pl.col("until") - pl.col("ts")).row(-1, named=True)
    middle = (run["ts"] + run["until"]) // 2 - trace.window[0]
    request = {"kind": "slice", "lane": f"cpu:{run['cpu']}", "at": middle}
    delayed = Questions(trace).reply(request)[0]["tables"][0]
    assert delayed["title"].startswith("Who waited for its CPU")
    frame = eval(delayed["python"], {"ss": ss, "trace": trace, "pl": pl})
    both = pl.min_horizontal("until", pl.lit(run["until"])) - pl.max_horizontal(
        "ts", pl.lit(run["ts"])
    )
    queued = states.filter(
        pl.col("state") == "runnable", pl.col("cpu") == run["cpu"], both > 0
    ).select("utid", time=both)
    wanted = dict(queued.collect().group_by("utid").agg(pl.col("time").sum()).iter_rows())
    assert dict(frame.select("victim_utid", "time").iter_rows()) == wanted
    assert len(delayed["rows"]) == min(50, len(wanted)) > 1


def test_range_is_answered_by_analyses_of_that_part(trace: ss.Trace) -> None:
    questions = Questions(trace)
    answer = questions.reply({"kind": "range", "begin": 200_000_000, "end": 300_000_000})[0]
    assert answer["missing"] == []
    ran, waits, interference = answer["tables"]
    cut = trace.between("200ms", "300ms")
    total = cut.states.filter(pl.col("state") == "running", pl.col("utid") >= trace.ncpu)
    most = total.group_by("utid").agg(pl.col("dur").sum()).sort("dur").collect()[-1]
    assert ran["links"][0][2] == f"utid:{most['utid'][0]}"
    frame = ss.latency(cut, by=["comm", "tid", "utid"]).sort("total", descending=True)
    assert waits["rows"][0][:2] == [frame["comm"][0], str(frame["tid"][0])]
    top = ss.interference(cut, together=True).row(0, named=True)
    assert interference["rows"][0][0] == top["comm"]
    for data in answer["tables"]:
        assert eval(data["python"], {"ss": ss, "trace": trace, "pl": pl}).height


def test_range_has_both_bounds(tmp_path: Path) -> None:
    trace = ss.open(FIXTURES / "linux-ftrace-lossy.capture", cache=tmp_path)
    request = {"kind": "range", "begin": 0, "end": trace.duration}
    _, waits, ran = Questions(trace).reply(request)[0]["tables"]
    frame = ss.latency(trace, by=["comm", "tid", "utid"]).sort("total", descending=True)
    column = [title for title, _ in waits["heads"]].index("total")
    assert [row[column] for row in waits["rows"]] == [
        units.interval(*both) for both in frame["total", "total_high"].rows()[: len(waits["rows"])]
    ]
    assert any(" to " in row[column] for row in waits["rows"])
    assert any(" to " in text or "<= " in text for row in ran["rows"] for text in row)


def test_sql_reads_tables_and_its_rows_link_to_instants(trace: ss.Trace) -> None:
    text = "SELECT ts_ready, utid, wait FROM waits WHERE censored = 'none' ORDER BY wait DESC"
    data = query(trace, text + " LIMIT 3;  -- the worst")
    frame = eval(data["python"], {"pl": pl, "trace": trace})
    assert frame.height == 3
    begin = trace.window[0]
    first = frame.row(0, named=True)
    assert data["links"][0] == [first["ts_ready"] - begin, first["wait"], f"utid:{first['utid']}"]
    long = query(trace, "select * from states")
    assert len(long["rows"]) == 1000
    assert long["title"] == "the first 1,000 rows"


def test_invalid_sql_is_reported_without_plan_or_paths(trace: ss.Trace) -> None:
    for text, said in (
        ("select foo from states", 'unable to find column "foo"; valid columns'),
        ("delete from states", "begins with 'delete'; expected SELECT or WITH"),
        ("-- nothing", "no query; expected SELECT or WITH"),
    ):
        with pytest.raises(UsageError) as refused:
            query(trace, text)
        message = str(refused.value)
        assert said in message
        assert str(trace.path) not in message
        assert "plan" not in message
        assert "\n" not in message


@pytest.mark.parametrize(
    "text",
    [
        "select * from read_csv('/etc/passwd')",
        "select * from \"read_csv\"('/etc/passwd')",
        "SELECT * FROM READ_PARQUET('x')",
        "select * from read_csv/**/('/etc/passwd')",
        "with a as (select * from read_ndjson('/etc/passwd')) select * from a",
        "select * from '/etc/passwd'",
        "select * from `/etc/passwd`",
        "copy waits to '/tmp/x'",
        "create table x as select * from waits",
        "drop table waits",
        "show tables",
        "select 1; drop table waits",
        "select * from nothing",
        "selec",
        "",
        " " * 20_000,
    ],
)
def test_sql_reads_only_the_tables(trace: ss.Trace, text: str) -> None:
    with pytest.raises(UsageError):
        query(trace, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 'a/*b*/c' AS t", "a/*b*/c"),
        ("SELECT 'a--b' AS t -- a comment", "a--b"),
        ("SELECT 'it''s /* in */' AS t /* a comment */", "it's /* in */"),
        ("/* it's one */ SELECT 'a' AS t -- it's one, too", "a"),
        ("SELECT 'a' AS \"t--t\"", "a"),
        ("SELECT 'read_csv' AS t", "read_csv"),
        ("SELECT count(*) FROM (SELECT * FROM waits LIMIT 1200) x", "1,200"),
    ],
)
def test_sql_keeps_text_that_looks_like_a_comment(
    trace: ss.Trace, text: str, expected: str
) -> None:
    assert query(trace, text)["rows"] == [[expected]]


def test_sql_reads_a_part_and_a_trace_in_memory(trace: ss.Trace) -> None:
    middle = trace.duration / 2e9
    for asked in (trace.between(middle), trace.in_memory("waits")):
        n = asked.waits.select(pl.len()).collect().item()
        assert query(asked, "SELECT count(*) FROM waits")["rows"] == [[f"{n:,}"]]


ENDLESS = "SELECT 1" + " UNION ALL SELECT 1" * 500


def eventually(condition: Callable[[], Any], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(condition())


def children() -> set[int]:
    """Processes of `sql_child` that are ours."""
    mine = str(os.getpid())
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            pid, _, rest = path.read_text().partition(" (")
            if rest.rpartition(") ")[2].split()[1] == mine:
                words = path.with_name("cmdline").read_bytes()
                found |= {int(pid)} if b"sql_child" in words else set()
    return found


@pytest.mark.needs("linux")
def test_a_query_that_needs_too_much_memory_is_ended(
    trace: ss.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "MEMORY", 64 << 20)
    with pytest.raises(UsageError, match=r"more than 64\.0 MiB of memory"):
        query(trace, "SELECT rpad('a', 2000000000) AS t FROM threads LIMIT 1")
    assert not children()


@pytest.mark.needs("linux")
def test_a_query_that_takes_too_long_is_ended(
    trace: ss.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "SECONDS", 0)
    with pytest.raises(UsageError, match="takes more than 0 s"):
        query(trace, ENDLESS)
    assert not children()


@pytest.mark.needs("linux")
def test_other_requests_are_answered_while_a_query_runs(trace: ss.Trace) -> None:
    questions, stop, said = Questions(trace), threading.Event(), []
    asked = {"kind": "sql", "text": ENDLESS}
    thread = threading.Thread(target=lambda: said.append(questions.reply(asked, stop)))
    thread.start()
    try:
        assert eventually(children)
        assert questions.reply({"kind": "threads", "text": ""})[0]["rows"]
        assert questions.reply({"kind": "schema"})[0]["schema"]
    finally:
        stop.set()
        thread.join(20)
    assert said[0][0]["text"] == "the query was cancelled"
    assert not children()


@pytest.mark.needs("linux")
def test_a_closed_tab_ends_its_query(trace: ss.Trace) -> None:
    body = json.dumps({"kind": "sql", "text": ENDLESS}).encode()
    head = f"POST /{TOKEN}/ask HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    with server(trace) as port:
        with socket.create_connection(("127.0.0.1", port)) as tab:
            tab.sendall(head.encode() + body)
            assert eventually(children)
        assert eventually(lambda: not children())


@pytest.mark.needs("linux")
def test_query_ends_with_the_viewer() -> None:
    """The kernel closes the pipe of a killed process, also after SIGKILL."""
    request = {"text": ENDLESS, "used": [], "info": {"window": [0, 1]}, "path": None, "folder": ""}
    request |= {"written": [], "part": None, "limits": [60, 2 << 30, 1 << 20]}
    reading, writing = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-m", "schedscope.timelines.sql_child", str(reading)],
        stdin=subprocess.PIPE, pass_fds=[reading],
    )  # fmt: skip
    os.close(reading)
    assert child.stdin is not None
    with child.stdin:
        child.stdin.write(json.dumps(request).encode())
    os.close(writing)
    try:
        assert child.wait(60) in (1, -signal.SIGIO)
    finally:
        child.kill()


# ------------------------------------------------------------------ other users of the machine


def stranger(port: int) -> socket.socket:
    """A connection that never sends the token."""
    found = socket.create_connection(("127.0.0.1", port), timeout=30)
    found.sendall(b"GET /x/ HTTP/1.1\r\n")
    return found


def ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_connections_without_the_token_do_not_block_the_owner(
    trace: ss.Trace, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(visitors, "MOST", 4)
    with server(trace) as port, contextlib.ExitStack() as opened:
        strangers = [opened.enter_context(stranger(port)) for _ in range(12)]
        assert ask(port, {"kind": "schema"})[0]["schema"]
        assert all(map(ended, strangers[:8]))
        assert len(visitors._strangers) <= 4
    assert eventually(lambda: not visitors._strangers)
    assert "Traceback" not in capfd.readouterr().err


def test_connection_without_the_token_is_closed_soon(
    trace: ss.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server(trace) as port:
        owner = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        owner.request("GET", f"/{TOKEN}/")
        assert owner.getresponse().read()
        monkeypatch.setattr(visitors, "SECONDS", 0.05)
        with stranger(port) as late:
            assert ended(late)
        used = owner.sock
        owner.request("GET", f"/{TOKEN}/")
        assert owner.getresponse().status == 200
        assert owner.sock is used
        owner.close()


def test_browser_gets_the_address_from_a_private_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every user of the machine can see its command line."""
    from schedscope.cli import view

    seen: list[str] = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("webbrowser.open", seen.append)
    address = f"http://127.0.0.1:1/{TOKEN}/#view=1-2"
    with view._opened(address):
        assert eventually(lambda: seen)
        assert TOKEN not in seen[0]
        page = Path(seen[0].removeprefix("file://"))
        assert page.stat().st_mode & 0o777 == 0o600
        assert address in page.read_text()
    assert not page.exists()


def test_a_plan_that_reads_another_file_is_refused(trace: ss.Trace, tmp_path: Path) -> None:
    """A second check: whatever SQL may gain, the plan shows which files it reads."""
    pl.DataFrame({"secret": [1]}).write_parquet(tmp_path / "x.parquet")
    pl.DataFrame({"secret": [1]}).write_csv(tmp_path / "x.csv")
    for lazy in (pl.scan_parquet(tmp_path / "x.parquet"), pl.scan_csv(tmp_path / "x.csv")):
        with pytest.raises(UsageError, match="other files"):
            sql._only_ours(lazy.filter(pl.col("secret") > 0), trace)
    sql._only_ours(trace.waits, trace)


def test_overtaken_request_does_not_restore_old_notes(tmp_path: Path) -> None:
    questions = Questions(ss.open(FIXTURE, cache=tmp_path))
    new, old = ([{"at": 1, "lane": None, "text": text}] for text in ("new", "old"))
    for rows, page, turn in ((new, "a", 2), (old, "a", 1)):
        found, _ = questions.reply({"kind": "notes", "rows": rows, "from": page, "turn": turn})
        assert found["rows"] == new
    # Another page has its own turns.
    found, _ = questions.reply({"kind": "notes", "rows": old, "from": "b", "turn": 1})
    assert found["rows"] == old


def test_notes_are_kept_beside_the_trace(tmp_path: Path) -> None:
    trace = ss.open(FIXTURE, cache=tmp_path)
    questions = Questions(trace)
    rows = [{"at": 5, "lane": "cpu:0", "text": "é <b>"}, {"at": 7, "lane": None, "text": ""}]
    assert questions.reply({"kind": "notes", "rows": rows})[0]["rows"] == rows
    assert trace.path is not None
    path = trace.path.with_suffix(".notes.json")
    assert json.loads(path.read_text("utf-8")) == rows
    # A part of the trace, opened again, has the same.
    again = Questions(trace.between("1s", "1.2s"), whole=ss.open(FIXTURE, cache=tmp_path))
    assert again.about()["notes"] == rows
    half = {"at": 1, "lane": None, "text": "\ud800"}
    with pytest.raises(UsageError, match="can be written as UTF-8"):
        questions.notes.keep([half])
    assert questions.notes.rows == rows
    path.write_text("{}")
    with pytest.raises(UsageError, match="notes"):
        Questions(trace)
    path.write_text("{")
    with pytest.raises(StorageError, match="holds no notes"):
        Questions(trace)


def test_notes_are_not_written_through_a_link(tmp_path: Path) -> None:
    """Another user put a link in the place of the notes."""
    trace = ss.open(FIXTURE, cache=tmp_path)
    questions = Questions(trace)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    assert trace.path is not None
    path = tmp_path / f"{trace.path.stem}.notes.json"
    path.symlink_to(victim)
    rows = [{"at": 5, "lane": None, "text": "note"}]
    questions.reply({"kind": "notes", "rows": rows})
    assert victim.read_text() == "mine"
    assert json.loads(path.read_text("utf-8")) == rows
    assert not path.is_symlink()


def test_trace_without_events_is_answered() -> None:
    empty = ss.Trace.from_tables({}, {"ncpu": 2, "window": [0, 0]})
    questions = Questions(empty)
    assert questions.reply({"kind": "threads"})[0]["rows"] == []
    assert questions.reply({"kind": "slice", "lane": "cpu:0", "at": 0})[0]["state"] is None


@pytest.mark.parametrize("name", ["mixed", "placement", "lossy", "starved"])
def test_every_finding_has_a_lane_and_a_range(name: str, tmp_path: Path) -> None:
    """Its worst case; else its thread's longest wait; else the whole, as for missing events."""
    trace = ss.open(ROOT / f"fixtures/linux-ftrace-{name}.capture", cache=tmp_path)
    begin = trace.window[0]
    rows = Questions(trace).reply({"kind": "findings"})[0]["rows"]
    found = ss.findings(trace).to_dicts()
    assert [row["topic"] for row in rows] == [row["topic"] for row in found]
    for row, finding in zip(rows, found, strict=True):
        since, until = row["shown"]
        assert 0 <= since < until <= trace.duration
        at = finding["ts"]
        if at is None and finding["utid"] is not None:
            waits = trace.waits.filter(pl.col("utid") == finding["utid"])
            at = waits.sort("wait").last().collect()["ts_ready"][0]
        if at is None:
            assert (since, until) == (0, trace.duration)
            continue
        assert since <= at - begin <= until
        if finding["utid"] is not None:
            assert row["lane"] == f"utid:{finding['utid']}"
            assert at - begin <= row["at"] <= until
    # A shown part keeps the numbers of the whole.
    part = trace.between(trace.duration // 2 / 1e9, None)
    inside = listed(part, ss.findings(trace))
    assert {row["n"] for row in inside} <= {row["n"] for row in rows}
    for row in inside:
        assert 0 <= row["shown"][0] < row["shown"][1] <= part.duration


def test_a_trace_without_switches_has_no_findings() -> None:
    empty = ss.Trace.from_tables({}, {"ncpu": 2, "window": [0, 0]})
    assert Questions(empty).reply({"kind": "findings"})[0]["rows"] == []


# -- the command ----------------------------------------------------------------------------


def start(*words: str, **environ: str) -> subprocess.Popen[str]:
    pytest.importorskip("uvicorn")
    return subprocess.Popen(
        [sys.executable, "-m", "schedscope", "view", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environ},
    )  # fmt: skip


def test_the_command_prints_its_address_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    process = start(str(FIXTURE), "--no-browser", "--cache", str(tmp_path), "--at", "view=1-2")
    assert process.stdout is not None
    address, hint = (process.stdout.readline().strip() for _ in range(2))
    try:
        assert address.startswith("http://127.0.0.1:")
        assert address.endswith("/#view=1-2")
        port, token = address[len("http://127.0.0.1:") :].split("/")[:2]
        assert len(token) >= 32
        assert http_of(int(port), "GET", f"/{token}/")[0] == 200
        assert http_of(int(port), "GET", f"/{token[:-1]}x_/")[0] == 403
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")
    assert hint == "Ctrl-C ends it."
    with pytest.raises(ConnectionRefusedError):
        http_of(int(port), "GET", "/")


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("garbage", "expected a time as tables print it, as in 2.5, or a time of day"),
        ("-1", "expected a time as tables print it"),
        ("5.2", "expected 0.000000 s to 1.661549 s"),
        ("view=2", "expected view=BEGIN-END in ns"),
        ("12:61", "is not a time of day"),
    ],
)
@pytest.mark.parametrize("command", ["view --no-browser", "timeline -o T", "report -o T"])
def test_invalid_time_is_refused(
    command: str, at: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *options = command.replace("T", str(tmp_path / "page.html")).split()
    if name != "view" and at.startswith("view="):
        said = "expected a time as tables print it"
    words = [name, str(FIXTURE), *options, "--at", at, "--cache", str(tmp_path.parent / "cache")]
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "page.html").exists()


def test_printed_time_is_the_first_view(tmp_path: Path) -> None:
    trace = ss.open(FIXTURE, cache=tmp_path)
    for text in ("0.9", "0.900000 s", "900ms"):
        assert view_at(trace, text) == "view=800000000-1000000000"
    assert view_at(trace, "0") == "view=0-100000000"
    at = trace.time_of_day(trace.origin + 900_000_000)
    assert at is not None
    view = view_at(trace, at.isoformat(sep=" "))
    assert abs(int(view.split("=")[1].split("-")[0]) - 800_000_000) < 2_000_000
    assert view_at(trace, "#view=1-2&select=u3@1") == "view=1-2&select=u3@1"


def test_two_servers_have_different_tokens(tmp_path: Path) -> None:
    ss.open(FIXTURE, cache=tmp_path)
    both = [start(str(FIXTURE), "--no-browser", "--cache", str(tmp_path)) for _ in range(2)]
    tokens = {process.stdout.readline().split("/")[3] for process in both if process.stdout}
    for process in both:
        process.terminate()
        process.communicate(timeout=30)
    assert len(tokens) == 2


def test_two_traces_are_served(tmp_path: Path) -> None:
    second = ROOT / "fixtures/linux-ftrace-starved.capture"
    process = start(str(FIXTURE), str(second), "--no-browser", "--cache", str(tmp_path))
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    try:
        port, token = address[len("http://127.0.0.1:") :].split("/")[:2]
        page = http_of(int(port), "GET", f"/{token}/")[2].decode()
        assert page.count('<div class="schedscope-timeline" data-served=') == 2
        assert "<title>Timeline of linux-ftrace-mixed.capture and linux-ftrace-starved" in page
    finally:
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[1] == ""


def about_of(address: str) -> list[dict[str, object]]:
    """What the page at the printed address knows of each trace before its first request."""
    port, token = address[len("http://127.0.0.1:") :].split("/")[:2]
    page = http_of(int(port), "GET", f"/{token}/")[2].decode()
    texts = re.findall(r'<script type="application/json">(.*?)</script>', page)
    return [{**json.loads(text), "title": page.split("<title>")[1]} for text in texts]


def test_view_of_selected_threads_starts_with_them(tmp_path: Path) -> None:
    """Their lanes beside whole CPUs, their longest waits; the others can be searched."""
    trace = ss.open(FIXTURE, cache=tmp_path)
    comm = ss.latency(trace, by="comm").filter(pl.col("n") > 2)["comm"][-1]
    utids = set(trace.threads.filter(comm=comm).collect()["utid"])
    process = start(str(FIXTURE), "--no-browser", "--cache", str(tmp_path), "--comm", comm)
    assert process.stdout is not None
    try:
        (about,) = about_of(process.stdout.readline().strip())
        cpus = [f"cpu:{cpu}" for cpu in about["cpus"]]
        assert about["lanes"][: len(cpus)] == cpus
        assert set(about["lanes"][len(cpus) :]) <= {f"utid:{utid}" for utid in utids} != set()
        assert {wait["utid"] for wait in about["waits"]} <= utids
        longest = trace.waits.filter(pl.col("utid").is_in(list(utids)))
        assert about["waits"][0]["wait"] == longest.collect()["wait"].max()
        assert about["title"].startswith(f"Timeline of linux-ftrace-mixed.capture: --comm {comm}<")
    finally:
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[1] == ""


def test_view_of_one_cpu_starts_with_it(tmp_path: Path) -> None:
    process = start(str(FIXTURE), "--no-browser", "--cache", str(tmp_path), "--cpu", "1")
    assert process.stdout is not None
    try:
        (about,) = about_of(process.stdout.readline().strip())
        assert [lane for lane in about["lanes"] if lane.startswith("cpu:")] == ["cpu:1"]
        assert {wait["queue"] for wait in about["waits"]} == {1}
        assert about["cpus"] == [0, 1]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def test_selection_matching_one_of_two_traces_is_accepted(tmp_path: Path) -> None:
    """The other trace starts with its CPUs; a selection that matches neither is refused before
    serving.
    """
    second = ROOT / "fixtures/linux-ftrace-starved.capture"
    one, two = (ss.open(path, cache=tmp_path) for path in (FIXTURE, second))
    names = [set(each.threads.collect()["comm"].drop_nulls()) for each in (one, two)]
    only = sorted(name for name in names[1] - names[0] if name.isalnum())[0]
    both = (str(FIXTURE), str(second), "--no-browser", "--cache", str(tmp_path))
    process = start(*both, "--comm", only)
    assert process.stdout is not None
    try:
        first, other = about_of(process.stdout.readline().strip())
        assert all(lane.startswith("cpu:") for lane in first["lanes"])
        assert any(lane.startswith("utid:") for lane in other["lanes"])
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    out, err = start(*both, "--comm", "nobody").communicate(timeout=60)
    assert (out, len(err.splitlines())) == ("", 1)
    assert "matches --comm nobody" in err


def test_the_selected_threads_come_first_in_the_list_and_have_the_findings(trace: ss.Trace) -> None:
    threads = Questions(trace).reply({"kind": "threads"})[0]["rows"]
    chosen = [threads[-1]["utid"], threads[-2]["utid"]]
    some = Questions(trace, chosen=chosen)
    listed = some.reply({"kind": "threads"})[0]["rows"]
    assert {row["utid"] for row in listed[:2]} == set(chosen)
    assert len(listed) == len(threads)
    affected = ss.findings(trace, where=pl.col("utid").is_in(chosen))
    found = some.reply({"kind": "findings"})[0]["rows"]
    assert [row["topic"] for row in found] == affected["topic"].to_list()
    assert len(found) < len(Questions(trace).reply({"kind": "findings"})[0]["rows"])


def test_differences_of_two_traces_are_those_of_their_states(trace: ss.Trace) -> None:
    other = ss.open(ROOT / "fixtures/linux-ftrace-starved.capture")
    one, two = Questions(trace), Questions(other)
    spans = [[0, trace.duration], [0, other.duration]]
    answer = differences(one, two, {"spans": spans})[0]
    (data,) = answer["tables"]
    sums = []
    for each in (trace, other):
        frame = each.states.filter(pl.col("state") == "runnable", pl.col("utid") >= each.ncpu)
        sums.append(frame.select(pl.col("dur").sum()).collect().item())
    assert data["rows"][0][0] == "all threads"
    assert data["rows"][0][1:3] == [units.duration(ns) for ns in sums]
    for wrong in (None, [[0, 1]], [[0, 1], [0]], [[0, 1], ["a", 2]], [[0, 1], [0, 1.5]], "xy"):
        assert differences(one, two, {"spans": wrong})[0]["kind"] == "error"


def test_used_port_is_reported_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("uvicorn")
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        assert main(["view", str(FIXTURE), "--no-browser", "--port", str(port)]) == 2
    err = capsys.readouterr().err
    assert f"port {port}: address already in use" in err
    assert len(err.splitlines()) == 1
    assert main(["view", str(FIXTURE), "--no-browser", "--port", "70000"]) == 2
    assert "expected a free port" in capsys.readouterr().err


def test_missing_trace_is_reported_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("uvicorn")
    assert main(["view", "no-such.capture", "--no-browser"]) == 1
    err = capsys.readouterr().err
    assert "no-such.capture" in err
    assert len(err.splitlines()) == 1
