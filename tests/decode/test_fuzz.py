"""Damaged traces and extreme simulations: an answer or one sentence, never a crash."""

from __future__ import annotations

import os
from types import ModuleType

import fuzz_decoders
import fuzz_simulator
import pytest


@pytest.mark.parametrize("door", [fuzz_decoders, fuzz_simulator])
@pytest.mark.release
def test_random_damage_breaks_no_decoder(door: ModuleType) -> None:
    """Bounded by SCHEDSCOPE_FUZZ_SECONDS; SCHEDSCOPE_FUZZ_SEED repeats a run."""
    seconds = float(os.environ.get("SCHEDSCOPE_FUZZ_SECONDS", "10"))
    seed = int(os.environ.get("SCHEDSCOPE_FUZZ_SEED", "1"))
    broken = door.run(seconds, seed)
    assert broken is None, broken
