"""What is missing from a trace, as facts; how they are worded is in the tests of each."""

from __future__ import annotations

from ledgers import played

from schedscope.analysis.gaps import Gap, gaps
from schedscope.present import headline


def test_nothing_is_missing_from_a_whole_recording() -> None:
    trace = played("10 cpu0: idle -> a\n20 cpu0: a S -> idle", ncpu=1, window=(10, 30))
    assert gaps(trace) == []
    assert headline.gaps(trace) == []


def test_a_loss_is_missing_events_and_unknown_time() -> None:
    """Unknown are 60 to 80, where the thread has its next event; the loss is not counted."""
    trace = played(
        """
        0 cpu0: idle -> a
        60 loss cpu0 until 70 overrun
        80 cpu0: a S -> idle
        """,
        ncpu=1,
        window=(0, 100),
    )
    assert gaps(trace) == [Gap("loss", n=1, reason="overrun"), Gap("unknown", share=0.2)]
    assert headline.gaps(trace) == [
        "events may be missing in 1 place",
        "20.0 % of CPU time unknown",
    ]
