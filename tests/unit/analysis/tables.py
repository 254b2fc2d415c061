"""Small steps as tables: (rank, comm_id, kind, op, match_seq, start, end[, peer]) in ns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from comminsight.analysis.columns import OpColumns
from comminsight.analysis.matching import Instances, match_ops
from comminsight.model.ops import Op, RecordKind
from comminsight.model.topology import Communicator

AR = (RecordKind.COLLECTIVE, Op.ALL_REDUCE)
SEND = (RecordKind.P2P, Op.SEND)
RECV = (RecordKind.P2P, Op.RECV)
Row = (
    tuple[int, int, tuple[int, int], int, int, int]
    | tuple[int, int, tuple[int, int], int, int, int, int]
)


def communicators(*members: Sequence[int]) -> tuple[Communicator, ...]:
    return tuple(
        Communicator(comm_id=i, comm_hash=i + 1, ordinal=0, members=tuple(m))
        for i, m in enumerate(members)
    )


def columns(
    rows: Sequence[Row], comms: Sequence[Communicator], **overrides: Sequence[int]
) -> OpColumns:
    """Rows sorted by (rank, start); peers are comm-local; ``overrides`` replace whole columns."""
    rows = sorted(rows, key=lambda row: (row[0], row[4]))
    n = len(rows)
    values = {
        "rank": [r[0] for r in rows],
        "row": list(range(n)),
        "comm_id": [r[1] for r in rows],
        "comm_rank": [comms[r[1]].members.index(r[0]) for r in rows],
        "peer": [r[6] if len(r) > 6 else -1 for r in rows],
        "match_seq": [r[3] for r in rows],
        "size_bytes": [4096] * n,
        "kind": [r[2][0] for r in rows],
        "op": [r[2][1] for r in rows],
        "dtype": [10] * n,
        "red_op": [1] * n,
        "is_end_bound": [False] * n,
        "is_folded": [False] * n,
        "is_peerless": [False] * n,
        "is_untimed": [False] * n,
        "is_replay": [False] * n,
        "enqueue_ns": [r[4] for r in rows],
        "start_ns": [r[4] for r in rows],
        "end_ns": [r[5] for r in rows],
        "clock_domain": [-1] * n,
    } | overrides
    flags = {"is_end_bound", "is_folded", "is_peerless", "is_untimed", "is_replay"}
    return OpColumns(
        **{k: np.array(v, bool if k in flags else np.int64) for k, v in values.items()}
    )


def match(
    rows: Sequence[Row], n_ranks: int, *members: Sequence[int], **overrides: Sequence[int]
) -> Instances:
    comms = communicators(*members)
    return match_ops(columns(rows, comms, **overrides), n_ranks, comms)
