"""Well-mixed numbers without a random generator (SplitMix64): the same ones in every run."""

from __future__ import annotations

import numpy as np


def splitmix64(counter: np.ndarray) -> np.ndarray:
    """The numbers that SplitMix64 with seed 0 gives at these places, the first at 1; u8."""
    state = counter.astype(np.uint64, copy=False) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = state ^ (state >> np.uint64(31))
    return mixed
