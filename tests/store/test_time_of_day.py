"""Times of day: a recording's two clocks, the forms people write, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import schedscope as ss
from schedscope.cli import main
from schedscope.errors import UsageError

FIXTURE = Path(__file__).parents[2] / "fixtures/linux-ftrace-mixed.capture"
S = 1_000_000_000
NOON = 1_795_867_200 * S
"""2026-11-28 12:00:00 UTC."""


@pytest.fixture(autouse=True)
def _berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The test's time zone is an hour ahead of UTC, in November."""
    monkeypatch.setenv("TZ", "CET-1")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def recorded(
    *pairs: tuple[int, int], window: tuple[int, int] = (100 * S, 700 * S), error: int | None = 0
) -> ss.Trace:
    """Ten minutes from 100 s of the recorder's clock on."""
    clock: dict[str, Any] = {"name": "mono", "pair_error_ns": error, "pairs": list(pairs)}
    return ss.Trace.from_tables({}, {"ncpu": 1, "window": list(window), "clock": clock})


EXACT = ((100 * S, NOON), (700 * S, NOON + 600 * S))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("13:03", 180),
        ("13:03:05.25", 185.25),
        ("13:03:05.000000001", 185.000000001),
        ("12:03 UTC", 180),
        ("12:03Z", 180),
        ("14:03 +02:00", 180),
        ("17:33+0530", 180),
        ("2026-11-28 13:03", 180),
        ("2026-11-28T12:03:00Z", 180),
        ("12:59", -60),
        ("2026-11-29 13:00", 86400),
    ],
)
def test_common_forms_of_a_time_of_day_are_read(text: str, seconds: float) -> None:
    trace = recorded(*EXACT)
    assert trace.instant(text) == trace.origin + round(seconds * S)


def test_a_part_is_cut_by_times_of_day() -> None:
    part = recorded(*EXACT).between("13:03", "13:04:30")
    assert part.window == (280 * S, 370 * S)
    # In a part, too: its clock is the recording's.
    assert part.between("13:04").window == (340 * S, 370 * S)
    outside = r"since 14:00 .* 0 ns to 600 s after its start, 13:00:00 to 13:10:00 \+0100"
    with pytest.raises(UsageError, match=outside):
        recorded(*EXACT).between("14:00", "14:05")


def test_time_without_a_date_is_found_across_midnight() -> None:
    # From 23:55 to 0:05 in the test's time zone.
    late = NOON + (10 * 60 + 55) * 60 * S
    trace = recorded((100 * S, late), (700 * S, late + 600 * S))
    assert trace.seconds(trace.instant("23:58")) == 180
    assert trace.seconds(trace.instant("0:01")) == 360


def test_time_is_interpolated_between_two_pairs() -> None:
    """The host's clock gained 100 parts in a million, as clock steering does."""
    trace = recorded((100 * S, NOON), (700 * S, NOON + 600 * S + 60_000_000))
    assert trace.instant("13:05:00.03") == 400 * S
    there = trace.time_of_day(400 * S)
    assert there is not None
    assert there.isoformat() == "2026-11-28T13:05:00.030000+01:00"


def test_close_pairs_do_not_set_the_clock_rate() -> None:
    """Perfetto reads its clocks twice within 86 us, and 0.1 us between them."""
    trace = recorded((100 * S, NOON), (100 * S + 86_000, NOON + 85_900))
    assert trace.instant("13:05") == 400 * S


def test_a_clock_that_was_set_is_refused() -> None:
    trace = recorded((100 * S, NOON), (700 * S, NOON + 600 * S + 7 * S))
    with pytest.raises(UsageError, match=r"time of day was set while .* was recorded, by 7\.00 s"):
        trace.instant("13:03")
    # Not if it is known only to half a minute.
    half_a_minute = recorded(*trace.info["clock"]["pairs"], error=30 * S)
    assert half_a_minute.instant("13:00") == 100 * S


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("13:60", "not a time of day"),
        ("25:00", "not a time of day"),
        ("13:03 CET", "as in 12:03"),
        ("2026-13-01 12:00", "not a time of day"),
        ("12:00 +99:00", "not a zone"),
        (":", "not a time of day"),
    ],
)
def test_invalid_time_of_day_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        recorded(*EXACT).instant(text)


def test_trace_without_a_wall_clock_refuses_times_of_day() -> None:
    trace = ss.Trace.from_tables({}, {"ncpu": 1, "window": [0, S]})
    assert trace.time_of_day(0) is None
    with pytest.raises(UsageError, match=r"does not say what time of day.*as in 2\.5"):
        trace.between("12:03")


def test_commands_take_and_show_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    cache = ["--cache", str(tmp_path)]
    assert main(["info", str(FIXTURE), *cache]) == 0
    shown = "time of day 2026-11-21 11:56:11.234 to 11:56:12.896 +0100 (± 424 µs)"
    assert shown in " ".join(capsys.readouterr().out.split())
    # Half a second, written either way.
    trace = ss.open(FIXTURE, cache=tmp_path)
    times = ("11:56:11.5", "11:56:12")
    seconds = [f"{trace.seconds(trace.instant(text)):.9f}" for text in times]
    answers = []
    for since, until in (times, seconds):
        main(
            ["latency", str(FIXTURE), *cache, "--since", since, "--until", until, "--format", "csv"]
        )
        answers.append(capsys.readouterr().out)
    assert answers[0].count("\n") > 10
    assert answers[0] == answers[1]
