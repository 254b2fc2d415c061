"""Transfers beyond their peers: the same place of the program on other links, in the same step.

A link is a communicator, or a pair of ranks in it. Where all ranks of a program share one link in a
place nobody else does the same, and only the usual transfer of that place is left to compare with:
a link that is slow from the first step to the last is its own usual there.
"""

from __future__ import annotations

import numpy as np

from comminsight.analysis.whatif_excess import Removed, beyond_each, beyond_own
from comminsight.analysis.whatif_grid import Grid


def transfers_beyond(grid: Grid, *, has_peers: bool = True) -> Removed:
    """What goes of ``grid.transfer_ns`` when every link becomes like the others; without
    ``has_peers`` every step like the usual one, which shows what all links have in common."""
    removed = Removed.nothing(grid.transfer_ns.shape)
    _, slot_of_op = np.unique(grid.link.T, axis=0, return_inverse=True)
    for slot in range(int(slot_of_op.max(initial=-1)) + 1):
        ops = np.flatnonzero(slot_of_op == slot)
        links, first, link_of_rank = np.unique(
            grid.link[:, ops[0]], return_index=True, return_inverse=True
        )
        transfer_ns = grid.transfer_ns[:, :, ops]
        if has_peers and len(links) > 1:  # members of a link are slow together: one speaks for them
            found = beyond_each(_per_link(transfer_ns, link_of_rank, len(first)))
            spread = Removed(*(level[:, link_of_rank] for level in found.levels()))
        else:
            spread = beyond_own(transfer_ns)
        capped = Removed(*(np.minimum(own, np.maximum(transfer_ns, 0)) for own in spread.levels()))
        removed.put((slice(None), slice(None), ops), capped)
    return removed


def _per_link(transfer_ns: np.ndarray, link_of_rank: np.ndarray, n_links: int) -> np.ndarray:
    means = [transfer_ns[:, link_of_rank == link].mean(axis=1) for link in range(n_links)]
    stacked: np.ndarray = np.stack(means, axis=1)
    return stacked
