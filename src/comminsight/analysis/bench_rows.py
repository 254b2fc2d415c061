"""Rows of a benchmark's record as bandwidth, one for each repeat: what cost models are made of."""

from __future__ import annotations

import math
from collections.abc import Iterator

from comminsight.model.bandwidth import BandwidthRow, bus_factor
from comminsight.model.bench import BenchRecord, BenchRow, Decision
from comminsight.model.ops import Op

# a pair of collectives that stand for one has no op of its own, and is left out
OPS = {
    "all_reduce": Op.ALL_REDUCE, "reduce_scatter": Op.REDUCE_SCATTER, "all_gather": Op.ALL_GATHER,
    "broadcast": Op.BROADCAST, "all_to_all": Op.ALL_TO_ALL, "send_recv": Op.SEND,
}  # fmt: skip
WHOLE_RESULT = frozenset({Op.ALL_GATHER})  # whose size is that of all ranks' parts (nccl-tests)
ASKED_ONLY = "?"


def bench_bandwidth(record: BenchRecord) -> tuple[BandwidthRow, ...]:
    """One row for each repeat of each payload; none of a record that is to be discarded.

    The algorithm is the one that was asked for where the record confirms it, with ``?`` where
    nothing does, and ``not ALGORITHM`` where another one was seen.
    """
    if record.decision is Decision.DISCARD or record.world_size < 1:
        return ()
    return tuple(row for measured in record.metrics.rows for row in _rows(record, measured))


def _rows(record: BenchRecord, measured: BenchRow) -> Iterator[BandwidthRow]:
    op = OPS.get(measured.collective)
    if op is None:
        return
    n_ranks = record.world_size
    size = measured.payload_bytes_per_rank * (n_ranks if op in WHOLE_RESULT else 1)
    for time_ms in measured.max_rank_ms:
        if math.isfinite(time_ms) and time_ms > 0:
            yield BandwidthRow(
                op=op,
                size_bytes=size,
                busbw_gbs=size * bus_factor(op, n_ranks) / (time_ms * 1e6),
                algorithm=_algorithm(record),
                n_ranks=n_ranks,
            )


def _algorithm(record: BenchRecord) -> str:
    asked = record.name_requested
    if record.decision is Decision.USE_ALGORITHM:
        return asked
    is_other = record.decision is Decision.NOT_HONOURED
    return f"not {asked}" if is_other else f"{asked}{ASKED_ONLY}"
