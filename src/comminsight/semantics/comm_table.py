"""The communicators of one session as lookup arrays by ``comm_index``: role, hash, rank, size.

Roles come from names. Those that no name tells are inferred from ops whenever ``infer`` is called,
and stay as they are in between; what was inferred is part of the table's bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from comminsight.model.event import COMM_DTYPE
from comminsight.model.ops import CommRole
from comminsight.semantics.op_mix import op_mixes
from comminsight.semantics.role_clues import guess
from comminsight.semantics.role_inference import Place, session_clues
from comminsight.semantics.roles import role_of

ROLES = tuple(CommRole)
ROLE_CODE = {role: code for code, role in enumerate(ROLES)}
UNKNOWN_ROLE = ROLE_CODE[CommRole.UNKNOWN]
MAX_COMM_INDEX = 1 << 20  # larger numbers are corrupt and share the unknown row
_NOT_INFERRED = 0
_STORED_DTYPE = np.dtype([("row", COMM_DTYPE), ("inferred", "u1")])  # role code + 1


def row_text(field: Any) -> str:
    """Text of a fixed field of a communicator row; bytes that are no UTF-8 are replaced."""
    return bytes(field).split(b"\0")[0].decode("utf-8", "replace")


class CommTable:
    """Append-only table of one session; row 0 answers for every ``comm_index`` it does not know."""

    __slots__ = (
        "_inferred", "_named", "_rows", "_words", "hashes", "is_undecided", "ranks", "roles",
        "sizes", "world_size",
    )  # fmt: skip

    def __init__(self, world_size: int = -1) -> None:
        self.world_size = world_size
        self._rows: dict[int, np.ndarray] = {}
        self.roles = np.full(1, UNKNOWN_ROLE, np.uint8)
        self.ranks = np.full(1, -1, np.int32)
        self.sizes = np.zeros(1, np.int32)
        self.hashes: dict[int, int] = {}
        self._words = [CommRole.UNKNOWN.value]
        self._named: dict[int, CommRole] = {}
        self._inferred: dict[int, CommRole] = {}
        self.is_undecided = False  # whether ops that move data have no role yet

    def add(self, rows: np.ndarray) -> None:
        """Take rows (``COMM_DTYPE``); a row already known is not taken twice."""
        for place, index in enumerate(rows["comm_index"].tolist()):  # mostly of known ones
            if 0 < index < MAX_COMM_INDEX and index not in self._rows:
                self._rows[index] = rows[place].copy()
                self._put(index, self._rows[index])

    def clip(self, comm_index: np.ndarray) -> np.ndarray:
        """Indices into the arrays; unknown ones become 0."""
        if len(comm_index) and int(comm_index.max()) < len(self.roles):
            return comm_index
        return np.where(comm_index < len(self.roles), comm_index, 0)

    def role(self, comm_index: int) -> str:
        """Role of one communicator as its word."""
        return self._words[comm_index if comm_index < len(self._words) else 0]

    def infer(self, rows: np.ndarray, global_rank: int = -1) -> None:
        """Give roles to communicators that no name tells, as far as these ops (``OP_DTYPE``, in
        order of their start) single them out; what earlier ops seemed to tell is forgotten."""
        for index in self._inferred:
            self._set_role(index, self._role_by_row(index)[0])
        self._inferred.clear()
        self.is_undecided = False
        if len(self._named) == len(self._rows):
            return
        known = self.clip(np.ascontiguousarray(rows["comm_index"]))
        mixes = op_mixes(rows, known, self.sizes, self.ranks)
        clues = session_clues(mixes, Place(self.world_size, global_rank), self._named)
        for mix in (mix for mix in mixes if mix.comm_index in clues):
            role = guess(clues[mix.comm_index]).role
            if role is not CommRole.UNKNOWN:
                self._inferred[mix.comm_index] = role
                self._set_role(mix.comm_index, role)
            else:
                self.is_undecided |= not mix.is_control_only

    def to_bytes(self) -> bytes:
        """All rows and inferred roles, to be read back with ``from_bytes``."""
        stored = np.zeros(len(self._rows), _STORED_DTYPE)
        for place, (index, row) in enumerate(self._rows.items()):
            stored["row"][place] = row
            if index in self._inferred:
                stored["inferred"][place] = ROLE_CODE[self._inferred[index]] + 1
        return stored.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, world_size: int) -> CommTable:
        """The table that ``to_bytes`` wrote."""
        table = cls(world_size)
        stored = np.frombuffer(data, _STORED_DTYPE)
        table.add(stored["row"])
        for place in np.flatnonzero(stored["inferred"] != _NOT_INFERRED).tolist():
            index = int(stored["row"]["comm_index"][place])
            table._inferred[index] = ROLES[int(stored["inferred"][place]) - 1]
            table._set_role(index, table._inferred[index])
        return table

    def _put(self, index: int, row: np.ndarray) -> None:
        missing = index + 1 - len(self.roles)
        if missing > 0:
            self.roles = np.append(self.roles, np.full(missing, UNKNOWN_ROLE, np.uint8))
            self.ranks = np.append(self.ranks, np.full(missing, -1, np.int32))
            self.sizes = np.append(self.sizes, np.zeros(missing, np.int32))
            self._words += [CommRole.UNKNOWN.value] * missing
        role, is_inferred = self._role_by_row(index)
        if not is_inferred:
            self._named[index] = role
        self._set_role(index, role)
        self.ranks[index] = row["comm_rank"]
        self.sizes[index] = row["comm_size"]
        self.hashes[index] = int(row["comm_hash"])

    def _role_by_row(self, index: int) -> tuple[CommRole, bool]:
        row = self._rows[index]
        return role_of(
            row_text(row["name"]), row_text(row["desc"]), int(row["backend"]),
            int(row["comm_size"]), self.world_size,
        )  # fmt: skip

    def _set_role(self, index: int, role: CommRole) -> None:
        self.roles[index] = ROLE_CODE[role]
        self._words[index] = role.value
