"""Short constructors of records and communicator rows.

A constructor gives a batch of one record; ``ops`` joins batches. ``Stream`` numbers records as the
recorder does, for longer inputs:

    rank0 = Stream()
    rank0.allreduce(at_ms=10, ms=2, comm=1)
    rank0.send(at_ms=13, ms=1, comm=2, peer=1)
    batch = rank0.batch()
"""

from __future__ import annotations

import zlib
from functools import partial, partialmethod
from typing import Any

import numpy as np

from comminsight.model.event import COMM_DTYPE, NET_DTYPE, NOTICE_DTYPE, OP_DTYPE
from comminsight.model.ops import (
    P2P_OPS,
    Backend,
    DType,
    EndReason,
    NoticeReason,
    Op,
    OpFlag,
    OpState,
    RecordKind,
    RedOp,
    TimingSource,
)
from comminsight.model.ranges import range_compress, range_expand
from comminsight.model.topology import SessionIdentity

MS = 1_000_000


def record(**fields: Any) -> np.ndarray:
    """A batch of one record with these fields; all others 0, ``peer_or_root`` -1."""
    row = np.zeros(1, OP_DTYPE)
    row["peer_or_root"] = -1
    for name, value in fields.items():
        row[name] = value
    row["seq_low"] = row["seq"] & 0xFFFFFFFF
    return row


def _ended(op: Op, seq: int, start_ms: float, ms: float = 1.0, **fields: Any) -> np.ndarray:
    """An op that has ended; ``op_seq``, ``match_seq`` default to ``seq``, ``comm`` is short for
    ``comm_index`` (1), ``size`` for ``size_bytes`` (1 MiB), ``peer`` for ``peer_or_root``."""
    start_ns = round(start_ms * MS)
    size = fields.pop("size", 0 if op is Op.BARRIER else 1 << 20)
    given = {
        "seq": seq,
        "enqueue_ns": start_ns,
        "start_ns": start_ns,
        "end_ns": start_ns + round(ms * MS),
        "count": size // 4,
        "size_bytes": size,
        "comm_index": fields.pop("comm", 1),
        "peer_or_root": fields.pop("peer", -1),
        "op_seq": seq,
        "match_seq": seq,
        "kind": RecordKind.P2P if op in P2P_OPS else RecordKind.COLLECTIVE,
        "op": op,
        "dtype": DType.FLOAT32,
        "red_op": RedOp.SUM if op in {Op.ALL_REDUCE, Op.REDUCE_SCATTER} else RedOp.UNKNOWN,
        "state": OpState.DONE,
        "timing_source": TimingSource.HOST_FUTURE,
    }
    return record(**(given | fields))


allreduce = partial(_ended, Op.ALL_REDUCE)
allgather = partial(_ended, Op.ALL_GATHER)
reducescatter = partial(_ended, Op.REDUCE_SCATTER)
broadcast = partial(_ended, Op.BROADCAST)
barrier = partial(_ended, Op.BARRIER)
send = partial(_ended, Op.SEND)
recv = partial(_ended, Op.RECV)


def open_marker(of: np.ndarray, seq: int) -> np.ndarray:
    """The marker that op ``of`` is still in flight, written as record ``seq``."""
    return _marker(of, seq, OpState.OPEN)


def overdue_marker(of: np.ndarray, seq: int) -> np.ndarray:
    """The marker that op ``of`` reached the overdue limit, written as record ``seq``."""
    return _marker(of, seq, OpState.OVERDUE)


def _marker(of: np.ndarray, seq: int, state: OpState) -> np.ndarray:
    row = of.copy()
    row["seq"] = row["seq_low"] = seq
    row["end_ns"] = 0
    row["state"] = state
    row["timing_source"] = TimingSource.UNKNOWN
    return row


def net_summary(of: np.ndarray, seq: int, **fields: Any) -> np.ndarray:
    """The network summary of op ``of``, written as record ``seq``; fields as in ``NET_DTYPE``."""
    row = np.zeros(1, NET_DTYPE)
    given = {
        "seq": seq, "seq_low": seq, "kind": RecordKind.NET, "op": of["op"], "state": of["state"],
        "comm_index": of["comm_index"], "op_seq": of["op_seq"], "match_seq": of["match_seq"],
        "start_ns": of["start_ns"], "first_event_ns": of["start_ns"], "last_event_ns": of["end_ns"],
    }  # fmt: skip
    for name, value in (given | fields).items():
        row[name] = value
    return row.view(OP_DTYPE)


def notice(
    seq: int, at_ms: float, reason: NoticeReason = NoticeReason.CONTROL, **fields: Any
) -> np.ndarray:
    """A notice written as record ``seq``; fields as in ``NOTICE_DTYPE``."""
    row, at_ns = np.zeros(1, NOTICE_DTYPE), round(at_ms * MS)
    given = {
        "seq": seq, "seq_low": seq, "kind": RecordKind.NOTICE, "state": OpState.DONE,
        "reason": reason, "enqueue_ns": at_ns, "start_ns": at_ns, "end_ns": at_ns,
    }  # fmt: skip
    for name, value in (given | fields).items():
        row[name] = value
    return row.view(OP_DTYPE)


def fold(seq: int, start_ms: float, n: int, ms: float = 1.0, **fields: Any) -> np.ndarray:
    """One record of ``n`` P2P calls of one group call."""
    given = {"kind": RecordKind.P2P, "flags": OpFlag.COALESCED, "n_folded": n, "red_op": 0}
    return _ended(Op.ALL_TO_ALL, seq, start_ms, ms, **(given | fields))


def unseen_end(of: np.ndarray, reason: EndReason) -> np.ndarray:
    """Op ``of`` as the NCCL door ends it where it cannot see the end."""
    row = of.copy()
    row["end_ns"], row["state"], row["reason"] = 0, OpState.UNOBSERVABLE, reason
    row["flags"] |= np.uint16(OpFlag.END_UNSEEN)
    row["timing_source"] = TimingSource.UNKNOWN
    return row


def drain(seq: int, at_ms: float) -> np.ndarray:
    """The marker of a forced drain."""
    at_ns = round(at_ms * MS)
    return record(seq=seq, start_ns=at_ns, enqueue_ns=at_ns, end_ns=at_ns, kind=RecordKind.DRAIN)


def ops(*rows: np.ndarray) -> np.ndarray:
    """One batch of all ``rows`` in the given order."""
    return np.concatenate(rows) if rows else np.zeros(0, OP_DTYPE)


class Stream:
    """Records of one process, numbered in the order of the calls as the recorder numbers them."""

    def __init__(self) -> None:
        self._rows: list[np.ndarray] = []
        self._op_seq: dict[int, int] = {}
        self._match_seq: dict[tuple[int, ...], int] = {}

    def add(self, op: Op, at_ms: float, ms: float = 1.0, **fields: Any) -> np.ndarray:
        """Append one ended op; fields as for ``allreduce`` and friends."""
        comm = fields.get("comm", 1)
        stream = (comm, op, fields["peer"]) if op in P2P_OPS else (comm,)
        self._op_seq[comm] = self._op_seq.get(comm, 0) + 1
        self._match_seq[stream] = self._match_seq.get(stream, 0) + 1
        numbers = {"op_seq": self._op_seq[comm], "match_seq": self._match_seq[stream]}
        return self.append(_ended(op, len(self._rows) + 1, at_ms, ms, **(numbers | fields)))

    allreduce = partialmethod(add, Op.ALL_REDUCE)
    allgather = partialmethod(add, Op.ALL_GATHER)
    reducescatter = partialmethod(add, Op.REDUCE_SCATTER)
    broadcast = partialmethod(add, Op.BROADCAST)
    barrier = partialmethod(add, Op.BARRIER)
    send = partialmethod(add, Op.SEND)
    recv = partialmethod(add, Op.RECV)

    def append(self, row: np.ndarray) -> np.ndarray:
        """Append a record as the next arrival."""
        row["seq"] = row["seq_low"] = len(self._rows) + 1
        self._rows.append(row)
        return row

    def batch(self) -> np.ndarray:
        """All records in arrival order."""
        return ops(*self._rows)


def comm_row(
    comm_index: int = 1, members: str | list[int] = "0-3", me: int = 0, **fields: Any
) -> np.ndarray:
    """The row of global rank ``me`` for one communicator; the hash follows from the members."""
    text = members if isinstance(members, str) else range_compress(members)
    ranks = range_expand(text)
    given = {
        "comm_hash": 0xC0FFEE00_00000000 + zlib.crc32(text.encode()),
        "created_ns": MS,
        "first_op_ns": 2 * MS,
        "comm_index": comm_index,
        "comm_rank": ranks.index(me),
        "comm_size": len(ranks),
        "backend": Backend.GLOO,
        "members": text.encode(),
    }
    row = np.zeros(1, COMM_DTYPE)
    for name, value in (given | fields).items():
        row[name] = value
    return row


def comm_rows(*rows: np.ndarray) -> np.ndarray:
    """The communicator table of one process."""
    return np.concatenate(rows) if rows else np.zeros(0, COMM_DTYPE)


def identity(global_rank: int = 0, world_size: int = 4, **fields: Any) -> SessionIdentity:
    """A session: pid 1000 + rank on one host, born at 1 s of the boot."""
    pid = fields.pop("pid", 1000 + global_rank)
    boot_id = fields.pop("boot_id", "b007b007-1111-4222-8333-444455556666")
    ticks = fields.pop("pid_start_ticks", 100 + global_rank)
    given: dict[str, Any] = {
        "run_id": "run-1",
        "host": "node0",
        "local_rank": global_rank,
        "created_mono_ns": 1_000 * MS,
        "created_real_ns": 1_700_000_000_000 * MS,
        "versions": {"comminsight": "0.1.0"},
    }
    return SessionIdentity(
        session_id=f"{boot_id[:8]}-{pid}-{ticks}",
        boot_id=boot_id,
        pid=pid,
        pid_start_ticks=ticks,
        global_rank=global_rank,
        world_size=world_size,
        **(given | fields),
    )
