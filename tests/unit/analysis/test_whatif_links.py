from __future__ import annotations

import numpy as np
import pytest

from comminsight.analysis.whatif_grid import Grid
from comminsight.analysis.whatif_idle import idle_of
from comminsight.analysis.whatif_links import transfers_beyond

STEPS, RANKS = 20, 4
PAIRED = np.array([[1, 1, 9], [1, 1, 9], [2, 2, 9], [2, 2, 9]])  # two groups of two, then all


def grid(transfer_ns: np.ndarray, work_ns: np.ndarray | None = None) -> Grid:
    n_ops = transfer_ns.shape[2]
    rows = np.arange(RANKS * n_ops).reshape(RANKS, n_ops)
    work = np.zeros(transfer_ns.shape) if work_ns is None else work_ns
    return Grid(np.arange(RANKS), ((0, rows),), work, transfer_ns, PAIRED[:, :n_ops])


def transfers() -> np.ndarray:
    """About 1000 each, the same for the members of a group."""
    rng = np.random.default_rng(5)
    groups = 1000 + 20 * rng.standard_normal((STEPS, 2, 3))
    return groups[:, [0, 0, 1, 1]]


@pytest.mark.parametrize("slow", [1, 2])
def test_a_slow_group_loses_what_it_is_slower_on_all_its_members(slow: int) -> None:
    transfer = transfers()
    members = PAIRED[:, 0] == slow
    transfer[:, members, :2] += 500
    goes = transfers_beyond(grid(transfer)).expected.mean(axis=0)
    assert goes[members, :2] == pytest.approx(500, rel=0.1)
    assert goes[~members, :2].max() < 10
    assert goes[:, 2].max() < 30


def test_a_group_of_all_is_compared_with_its_usual_time() -> None:
    transfer = transfers()
    transfer[14:, :, 2] += 500
    goes = transfers_beyond(grid(transfer)).expected
    assert goes[14:, :, 2].mean() == pytest.approx(500, rel=0.15)
    assert goes[:14, :, 2].mean() < 10


def test_what_all_links_have_in_common_shows_only_against_their_past() -> None:
    transfer = transfers()
    transfer[12:, :, :2] += 500
    assert transfers_beyond(grid(transfer)).expected[:, :, :2].mean() < 20
    goes = transfers_beyond(grid(transfer), has_peers=False).expected
    assert goes[12:, :, :2].mean() == pytest.approx(500, rel=0.15)


def test_no_more_goes_than_there_is() -> None:
    transfer = transfers()
    transfer[:, :2, 0] += 10_000
    removed = transfers_beyond(grid(transfer))
    assert (removed.high <= transfer).all()


@pytest.mark.parametrize(
    ("work", "idle"),
    [
        ((100, 100, 100, 100), (0, 0, 0, 0)),
        ((100, 100, 100, 400), (0, 0, 0, 0)),  # one is slow: nothing unexplained
        ((400, 400, 400, 100), (300, 300, 300, 0)),  # one does without what all others need
        ((130, 130, 130, 100), (0, 0, 0, 0)),  # too little of a step of 1000
    ],
)
def test_idle_time_is_what_most_need_and_one_does_without(
    work: tuple[int, ...], idle: tuple[int, ...]
) -> None:
    own = np.broadcast_to(np.array(work, float)[None, :, None], (STEPS, RANKS, 1))
    found = idle_of(grid(np.zeros((STEPS, RANKS, 1)), own), 1000.0)
    assert found[0, :, 0].tolist() == list(idle)
