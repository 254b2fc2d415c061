"""The last ops of the committed stream: the batch at hand and what is held of those before it."""

from __future__ import annotations

import msgspec
import numpy as np

from comminsight.model.event import OP_DTYPE
from comminsight.model.ops import P2P_OPS, OpFlag
from comminsight.model.step import StepEvidence
from comminsight.semantics.comm_table import CommTable

# a view of the record with the few fields that evidence needs, in the order in which `op` reads
_EVIDENCE_DTYPE = OP_DTYPE[[
    "seq", "start_ns", "end_ns", "size_bytes", "comm_index", "peer_or_root", "op_seq", "match_seq",
    "func_seq", "flags", "op",
]]  # fmt: skip
_GRAPH = int(OpFlag.GRAPH)  # plain: a flag enumeration answers slowly
_NO_OPS = np.empty(0, OP_DTYPE)


class OpAt(msgspec.Struct, frozen=True, gc=False):
    """An op of the committed stream: its position, what it proves, and its end."""

    position: int
    evidence: StepEvidence
    end_ns: int


class HeldOps:
    """Ops by position; ``position`` is that of the first op of the batch at hand."""

    __slots__ = ("_comms", "_evidence", "_rows", "_seen", "position", "tail")

    def __init__(self, comms: CommTable) -> None:
        self.position = 0
        self.tail = _NO_OPS  # of the batches before
        self._comms = comms
        self._seen: dict[int, OpAt] = {}  # of this batch: one op may be First, Anchor and Close
        self.take(_NO_OPS)

    def take(self, rows: np.ndarray) -> None:
        """The batch at hand is now this one (``OP_DTYPE``)."""
        self._rows, self._evidence = rows, rows.view(_EVIDENCE_DTYPE)
        self._seen.clear()

    @property
    def until(self) -> int:
        """The position behind the batch at hand."""
        return self.position + len(self._rows)

    def keep(self, n: int) -> None:
        """Go on behind the batch at hand; of all ops so far hold the last ``n``."""
        rows = self._rows
        joined = rows if len(rows) >= n else np.concatenate([self.tail, rows])
        self.tail = joined[-n:].copy()
        self.position += len(rows)
        self.take(_NO_OPS)

    def between(self, first: int, until: int) -> np.ndarray:
        """The ops from one position up to another."""
        first, until = first - self.position, until - self.position
        if first >= 0:
            return self._rows[first:until]
        return np.concatenate(
            [self.tail[first : min(until, 0) or None], self._rows[: max(until, 0)]]
        )

    def op(self, position: int) -> OpAt:
        """The op at a position."""
        if position in self._seen:
            return self._seen[position]
        index, rows = position - self.position, self._evidence
        if index < 0:
            rows = self.tail.view(_EVIDENCE_DTYPE)
        (seq, start_ns, end_ns, size_bytes, comm_index, peer_or_root, op_seq, match_seq, func_seq,
         flags, op) = rows.item(index)  # fmt: skip
        evidence = StepEvidence(
            comm_hash=self._comms.hashes.get(comm_index, 0), comm_index=comm_index,
            role=self._comms.role(comm_index), op=op, op_seq=op_seq, match_seq=match_seq,
            func_seq=func_seq, size_bytes=size_bytes, start_ns=start_ns, seq=seq,
            peer=peer_or_root if op in P2P_OPS else -1, is_replay=bool(flags & _GRAPH),
        )  # fmt: skip
        self._seen[position] = found = OpAt(position, evidence, end_ns)
        return found

    def restore(self, position: int, tail: bytes) -> None:
        """Go on from a position, with the ops held before it (``OP_DTYPE``)."""
        self.position, self.tail = position, np.frombuffer(tail, OP_DTYPE)
