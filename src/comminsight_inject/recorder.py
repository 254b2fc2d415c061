"""The C door of the recorder (``native/comminsight.h``) through ctypes.

Begin, launched and end never block and are called with the GIL held (PyDLL): giving it up for a
call of a quarter microsecond would cost more than the call. What may block gives it up (CDLL).
"""

from __future__ import annotations

import ctypes
from typing import Any, Optional

API_VERSION = 1
FLUSH_TIMEOUT_MS = 2000


class CiOp(ctypes.Structure):
    """``ci_op`` of the C door."""

    _fields_ = [
        ("count", ctypes.c_int64),
        ("size_bytes", ctypes.c_int64),
        ("user_tag", ctypes.c_int64),
        ("peer_or_root", ctypes.c_int32),
        ("group_id", ctypes.c_uint32),
        ("flags", ctypes.c_uint16),
        ("kind", ctypes.c_uint8),
        ("op", ctypes.c_uint8),
        ("dtype", ctypes.c_uint8),
        ("red_op", ctypes.c_uint8),
        ("n_folded", ctypes.c_uint16),
    ]


def _bind(library: Any, name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library, name)
    function.restype = result
    function.argtypes = arguments
    return function


class Recorder:
    """The recorder of this process: ``begin`` gives a handle (0: not tracked) for the others."""

    def __init__(self, path: str) -> None:
        quick, blocking = ctypes.PyDLL(path), ctypes.CDLL(path)
        if _bind(blocking, "ci_api_version", ctypes.c_int32)() != API_VERSION:
            raise OSError("the recorder library speaks another version of its C door")
        u8, u16, u32, u64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
        i32, i64, text = ctypes.c_int32, ctypes.c_int64, ctypes.c_char_p
        self.begin = _bind(
            quick, "ci_op_begin_args", u64, u32, u8, u8, u8, u8, i64, i64, i32, u16, u32
        )
        self.begin_op = _bind(quick, "ci_op_begin", u64, u32, ctypes.POINTER(CiOp))
        self.launched = _bind(quick, "ci_op_launched", None, u64)
        self.end = _bind(quick, "ci_op_end", i32, u64, u8, u8)
        self.loss = _bind(quick, "ci_loss", None, u32, u8, u32)
        self._identity = _bind(blocking, "ci_identity", None, text, text)
        self._register = _bind(
            blocking, "ci_comm_register", u32, u64, text, text, i32, i32, text, u8, u32
        )
        self.retire = _bind(blocking, "ci_comm_retire", None, u32)
        self._flush = _bind(blocking, "ci_flush", i32, i32)
        self._close = _bind(blocking, "ci_close", i32)

    def identity(self, key: str, value: str) -> None:
        """Add one string to the identity in the headers of box and segments."""
        self._identity(_text(key), _text(value))

    def register(
        self, comm_hash: int, name: str, desc: str, comm_rank: int, comm_size: int,
        members: Optional[str], backend: int,
    ) -> int:  # fmt: skip
        """comm_index of a new row of the communicator table, 0 when nothing is recorded."""
        members_text = None if members is None else _text(members)
        return int(
            self._register(
                comm_hash, _text(name), _text(desc), comm_rank, comm_size, members_text, backend, 0
            )
        )

    def close(self) -> None:
        """Write out what is recorded and seal it; the waits inside both calls are bounded.

        The box is closed even when the disk did not take everything: this is an orderly end, and
        the ring still holds the newest records.
        """
        self._flush(FLUSH_TIMEOUT_MS)
        self._close()


def _text(value: str) -> bytes:
    return value.encode("utf-8", "replace").replace(b"\0", b"?")
