"""The communicators of one session as lookup arrays by ``comm_index``: role, hash, rank, size."""

from __future__ import annotations

from typing import Any

import numpy as np

from comminsight.model.event import COMM_DTYPE
from comminsight.model.ops import CommRole
from comminsight.semantics.roles import role_of

ROLES = tuple(CommRole)
ROLE_CODE = {role: code for code, role in enumerate(ROLES)}
UNKNOWN_ROLE = ROLE_CODE[CommRole.UNKNOWN]
MAX_COMM_INDEX = 1 << 20  # larger numbers are corrupt and share the unknown row


def row_text(field: Any) -> str:
    """Text of a fixed field of a communicator row; bytes that are no UTF-8 are replaced."""
    return bytes(field).split(b"\0")[0].decode("utf-8", "replace")


class CommTable:
    """Append-only table of one session; row 0 answers for every ``comm_index`` it does not know."""

    __slots__ = ("_rows", "_words", "hashes", "ranks", "roles", "sizes", "world_size")

    def __init__(self, world_size: int = -1) -> None:
        self.world_size = world_size
        self._rows: dict[int, np.ndarray] = {}
        self.roles = np.full(1, UNKNOWN_ROLE, np.uint8)
        self.ranks = np.full(1, -1, np.int32)
        self.sizes = np.zeros(1, np.int32)
        self.hashes: dict[int, int] = {}
        self._words = [CommRole.UNKNOWN.value]

    def add(self, rows: np.ndarray) -> None:
        """Take rows (``COMM_DTYPE``); a row already known is not taken twice."""
        for row in rows:
            index = int(row["comm_index"])
            if 0 < index < MAX_COMM_INDEX and index not in self._rows:
                self._rows[index] = row.copy()
                self._put(index, row)

    def clip(self, comm_index: np.ndarray) -> np.ndarray:
        """Indices into the arrays; unknown ones become 0."""
        if len(comm_index) and int(comm_index.max()) < len(self.roles):
            return comm_index
        return np.where(comm_index < len(self.roles), comm_index, 0)

    def role(self, comm_index: int) -> str:
        """Role of one communicator as its word."""
        return self._words[comm_index if comm_index < len(self._words) else 0]

    def to_bytes(self) -> bytes:
        """All rows, to be read back with ``from_bytes``."""
        return b"".join(row.tobytes() for row in self._rows.values())

    @classmethod
    def from_bytes(cls, data: bytes, world_size: int) -> CommTable:
        """The table that ``to_bytes`` wrote."""
        table = cls(world_size)
        table.add(np.frombuffer(data, COMM_DTYPE))
        return table

    def _put(self, index: int, row: np.ndarray) -> None:
        missing = index + 1 - len(self.roles)
        if missing > 0:
            self.roles = np.append(self.roles, np.full(missing, UNKNOWN_ROLE, np.uint8))
            self.ranks = np.append(self.ranks, np.full(missing, -1, np.int32))
            self.sizes = np.append(self.sizes, np.zeros(missing, np.int32))
            self._words += [CommRole.UNKNOWN.value] * missing
        name, desc = row_text(row["name"]), row_text(row["desc"])
        size = int(row["comm_size"])
        role, _ = role_of(name, desc, int(row["backend"]), size, self.world_size)
        self.roles[index] = ROLE_CODE[role]
        self._words[index] = role.value
        self.ranks[index] = row["comm_rank"]
        self.sizes[index] = size
        self.hashes[index] = int(row["comm_hash"])
