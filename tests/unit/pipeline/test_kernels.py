"""The native sweep has the results of the numpy one, and numpy stands in where it is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comminsight.analysis.waits import Sweep, numpy_sweep
from comminsight.pipeline.kernels import LIBRARY_NAME, pair_sweep
from comminsight.pipeline.native_folder import native_folder


@pytest.fixture(scope="module")
def native() -> Sweep:
    if not (native_folder() / LIBRARY_NAME).exists():
        pytest.skip("the native library is not built: make native")
    found = pair_sweep()
    assert found is not numpy_sweep
    return found


@st.composite
def steps(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Columns in any order: nested and crossing groups, ties, a rank twice, any distance of
    instance numbers."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_ranks, n_rows = draw(st.integers(1, 40)), draw(st.integers(0, 400))
    spread, origin_ns = draw(st.sampled_from([1, 1000])), draw(st.integers(-(10**18), 10**18))
    rank = random.integers(0, n_ranks, n_rows)
    instance = random.integers(0, draw(st.integers(1, 60)), n_rows) * spread
    start_ns = origin_ns + random.integers(0, draw(st.sampled_from([3, 50, 10**9])), n_rows)
    order = np.lexsort((start_ns, rank)) if draw(st.booleans()) else np.arange(n_rows)
    return rank[order], instance[order], start_ns[order], n_ranks


@settings(max_examples=400, deadline=None)
@given(steps())
def test_it_equals_the_reference(
    native: Sweep, step: tuple[np.ndarray, np.ndarray, np.ndarray, int]
) -> None:
    found, expected = native(*step), numpy_sweep(*step)
    assert found.caused_ns.tolist() == expected.caused_ns.tolist()
    assert found.n_pairs.tolist() == expected.n_pairs.tolist()


@pytest.mark.parametrize(
    ("rank", "instance", "start_ns"),
    [
        ([0, 9], [0, 0], [1, 2]),
        ([0, -1], [0, 0], [1, 2]),
        ([0, 1], [0, -1], [1, 2]),
        ([0, 1], [0, 0], [0, 1 << 62]),
    ],
)
def test_what_is_no_step_is_an_error(
    native: Sweep, rank: list[int], instance: list[int], start_ns: list[int]
) -> None:
    with pytest.raises(ValueError, match="not one step on one clock"):
        native(*(np.array(column, np.int64) for column in (rank, instance, start_ns)), 2)


def test_without_the_library_numpy_does_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMINSIGHT_NATIVE_DIR", str(tmp_path))
    assert pair_sweep() is numpy_sweep


def test_a_library_that_is_none_of_ours_is_not_used(
    native: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = native_folder()
    shutil.copy(folder / "libnccl-profiler-comminsight.so", tmp_path / LIBRARY_NAME)
    monkeypatch.setenv("COMMINSIGHT_NATIVE_DIR", str(tmp_path))
    assert pair_sweep() is numpy_sweep
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / LIBRARY_NAME).write_bytes(b"\x7fELF and no more")
    monkeypatch.setenv("COMMINSIGHT_NATIVE_DIR", str(tmp_path / "other"))
    assert pair_sweep() is numpy_sweep
