"""The index of formats is the decoders' own declaration."""

from __future__ import annotations

from pathlib import Path

import pytest

import schedscope as ss

FIXTURES = Path(__file__).parents[2] / "fixtures"


def test_each_format_says_what_wrote_it_and_what_it_can_be_told() -> None:
    frame = ss.formats()
    assert frame["format"].is_unique().all()
    for row in frame.to_dicts():
        assert len(row["about"]) > 20
        assert all(option["about"] for option in row["options"])


def test_an_unknown_option_is_refused_and_the_known_ones_are_listed(tmp_path: Path) -> None:
    with pytest.raises(ss.UsageError, match='no option "bufer"') as caught:
        ss.open(FIXTURES / "linux-trace-cmd-yield.dat", cache=tmp_path, options={"bufer": "x"})
    options = ss.formats().filter(format="trace.dat")["options"].item()
    assert all(f"{option['name']} ({option['about']})" in str(caught.value) for option in options)
    assert not list(tmp_path.iterdir())


def test_a_hint_names_the_real_option(tmp_path: Path) -> None:
    with pytest.raises(ss.UsageError, match=r"name it with -O buffer=NAME"):
        ss.open(
            FIXTURES / "linux-trace-cmd-yield.dat", cache=tmp_path, options={"buffer": "nosuch"}
        )
