"""Damaged traces of every format: an error or a reading, never a crash (see fuzz_decoders)."""

from __future__ import annotations

import os

from fuzz_decoders import run


def test_no_damaged_input_breaks_a_decoder() -> None:
    """Bounded by SCHEDSCOPE_FUZZ_SECONDS; SCHEDSCOPE_FUZZ_SEED repeats a run."""
    seconds = float(os.environ.get("SCHEDSCOPE_FUZZ_SECONDS", "10"))
    seed = int(os.environ.get("SCHEDSCOPE_FUZZ_SEED", "1"))
    broken = run(seconds, seed)
    assert broken is None, broken
