"""Real step times of three Megatron runs: their three slow episodes, and nothing else.

Values before the first judgement are warm-up; of the 15B run there is one value per 100 iterations.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from comminsight.analysis.fail_slow import episodes_of

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = Path(os.environ.get("COMMINSIGHT_SAMPLES", ROOT.parent / "shared" / "samples"))
FOLDER = SAMPLES / "megatron-step-times"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason=f"no sample at {FOLDER}")

H100, GB200, LARGE = "gpt3_weekly_tp2pp2_h100", "gpt3_weekly_tp2pp2_gb200", "gpt3_15b_8t_h100"
REAL = {  # (onset, end, how much longer) as read off the plotted series
    H100: [],
    GB200: [(212, 242, 0.19), (1404, 1430, 1.32)],
    LARGE: [(270, 356, 0.063)],
}
N_OFFSETS = 10


@cache
def series(name: str) -> np.ndarray:
    values = json.loads((FOLDER / f"{name}.json").read_text())["iteration-time"]["values"]
    times = np.array([np.nan if value in ("nan", None) else value for value in values.values()])
    kept: np.ndarray = times[~np.isnan(times)]
    return kept


@pytest.mark.parametrize("name", REAL)
def test_each_real_episode_is_told_once_and_nothing_else(name: str) -> None:
    found = episodes_of(series(name))
    assert len(found) == len(REAL[name])
    for episode, (onset, end, ratio) in zip(found, REAL[name], strict=True):
        assert abs(episode.onset - onset) <= 2
        assert abs(episode.end - end) <= 10
        assert episode.ratio > 0.9 * ratio


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize(("ratio", "within"), [(0.05, 50), (0.10, 20)])
def test_a_planted_slowdown_is_found(name: str, ratio: float, within: int) -> None:
    calm = series(name)
    random = np.random.default_rng(11)
    taken = [(onset - 60, end + 80) for onset, end, _ in REAL[name]]
    places = [
        int(place)
        for place in random.permutation(np.arange(60, len(calm) - within))
        if not any(first <= place <= last for first, last in taken)
    ][:N_OFFSETS]
    n_found = 0
    for place in places:
        slowed = calm[: place + within + 1].copy()
        slowed[place:] *= 1 + ratio
        n_found += any(place <= found.told_at for found in episodes_of(slowed))
    assert len(places) == N_OFFSETS
    assert n_found >= 9
