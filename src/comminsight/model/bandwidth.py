"""Measured bandwidth, one row per population of ops, as rules see it."""

from __future__ import annotations

import msgspec

from comminsight.model.ops import Op


class BandwidthRow(msgspec.Struct, frozen=True, kw_only=True):
    """Bus bandwidth of like ops: of one function, size and set of ranks, in one window of time.

    ``busbw_gbs`` is the median over ``n_ops``; ``low_gbs`` and ``high_gbs`` hold the middle 90 %
    (0: not told). ``run`` tells runs that are compared with each other apart. ``hosts`` and
    ``devices`` name what the traffic used where it is known. ``n_ranks`` is how many there were
    where they are none of the job: those of a test count from 0 whoever runs it.
    """

    op: int  # Op
    size_bytes: int
    busbw_gbs: float
    run: str = ""
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()  # network devices, "host/device"
    comm_label: str = ""
    algorithm: str = ""
    protocol: str = ""
    transport: str = ""
    chunk_bytes: int = 0
    n_ops: int = 1
    low_gbs: float = 0.0
    high_gbs: float = 0.0
    ceiling_gbs: float = 0.0  # what the ports or the topology allow, 0 unknown
    first_step: int = -1
    last_step: int = -1
    n_ranks: int = 0

    @property
    def n_members(self) -> int:
        """How many ranks the ops joined, 0 unknown."""
        return self.n_ranks or len(self.ranks)


def bus_factor(op: int, n_ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth, as in the performance notes of nccl-tests."""
    if n_ranks < 1:
        return 1.0
    if op == Op.ALL_REDUCE:
        return 2 * (n_ranks - 1) / n_ranks
    if op in {Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.ALL_TO_ALL, Op.GATHER, Op.SCATTER}:
        return (n_ranks - 1) / n_ranks
    return 1.0
