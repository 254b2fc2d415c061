"""One entry of a PyTorch Flight Recorder dump: a call on a process group, as its rank recorded it.

Entries differ by version (``seq_id`` before ``collective_seq_id``, microseconds before
nanoseconds) and by backend: gloo never says completed, only retired. What a version does not
write is 0, "" or -1 here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from typing import Any

import msgspec

from comminsight.model.ops import DTYPE_SIZE_BYTES, P2P_OPS, DType, Op

MAX_TENSORS = 1 << 16  # of one entry: a list form over a large group
MAX_DIMS = 64
MAX_FRAMES = 12
MAX_TEXT = 512
MAX_INT = 1 << 63

_P2P = re.compile(r"(send|recv)\s+(\d{1,7})(?:->|<-)(\d{1,7})", re.ASCII)
_NOISE = re.compile(r"_coalesced|_base|_oop|_into_tensor|_tensor|_sparse|_|single$")
_OPS = {
    "allreduce": Op.ALL_REDUCE, "allgather": Op.ALL_GATHER, "reducescatter": Op.REDUCE_SCATTER,
    "broadcast": Op.BROADCAST, "reduce": Op.REDUCE, "gather": Op.GATHER, "scatter": Op.SCATTER,
    "alltoall": Op.ALL_TO_ALL, "alltoallv": Op.ALL_TO_ALL, "barrier": Op.BARRIER,
    "monitoredbarrier": Op.BARRIER, "allreducebarrier": Op.BARRIER, "send": Op.SEND,
    "recv": Op.RECV, "recvanysource": Op.RECV, "recvany": Op.RECV,
}  # fmt: skip
_DTYPES = {
    "Float": DType.FLOAT32, "Double": DType.FLOAT64, "Half": DType.FLOAT16,
    "BFloat16": DType.BFLOAT16, "Long": DType.INT64, "Int": DType.INT32, "Short": DType.INT16,
    "Char": DType.INT8, "Byte": DType.UINT8, "Bool": DType.BOOL, "UInt32": DType.UINT32,
    "UInt64": DType.UINT64, "ComplexFloat": DType.COMPLEX64, "ComplexDouble": DType.COMPLEX128,
    "Float8_e4m3fn": DType.FLOAT8_E4M3, "Float8_e5m2": DType.FLOAT8_E5M2,
}  # fmt: skip


_LISTS = (list, tuple)


class FlightState(StrEnum):
    """How far a call came, as told when the dump was written."""

    SCHEDULED = "scheduled"
    STARTED = "started"
    COMPLETED = "completed"
    UNKNOWN = "unknown"


class FlightEntry(msgspec.Struct, frozen=True, gc=False):
    """``seq`` counts the launches of its kind (collectives, P2P) in the group from 1. ``peer`` and
    ``place`` are ranks inside the group, -1 unknown. ``is_end`` closes a group of coalesced calls,
    whose entries share its ``seq``. Elements and bytes are those of the inputs, of the outputs
    where there are none."""

    record_id: int
    pg_id: int
    seq: int
    p2p_seq: int
    op_id: int
    timeout_ms: int
    created_ns: int
    group: str
    desc: str
    backend: str
    call: str
    op: Op
    is_p2p: bool
    is_end: bool
    place: int
    peer: int
    n_in: int
    n_out: int
    shape: tuple[int, ...]  # of the first tensor
    dtype: DType
    state: FlightState
    is_retired: bool
    is_over: bool  # it has ended well
    frames: tuple[str, ...]

    @property
    def count(self) -> int:
        """Elements that this rank put in."""
        return self.n_in or self.n_out

    @property
    def size_bytes(self) -> int:
        """Bytes that this rank put in; 0 where the element type is not known."""
        return self.count * DTYPE_SIZE_BYTES.get(self.dtype, 0)


class BadEntryError(Exception):
    """What is wrong with an entry, and in which of its fields."""


class EntryReader:
    """Reads the entries of one dump. ``document`` must live as long as the reader.

    What entries share is looked at once: a list in a pickle costs two bytes wherever it stands
    again, and so would make a small file take hours.
    """

    def __init__(self) -> None:
        self._totals: dict[int, int] = {}  # by the identity of a list of shapes
        self._products: dict[int, int] = {}  # by that of a shape
        self._dtypes: dict[int, DType] = {}
        self._frames: dict[int, tuple[str, ...]] = {}

    def read(self, raw: Any) -> FlightEntry:
        """The entry; raises BadEntryError naming the field that is not of its kind."""
        if type(raw) is FlightEntry:
            return raw
        if type(raw) is not dict:
            raise BadEntryError(f"is no table but a {type(raw).__name__}")
        backend, call, op, place, peer, is_end = _call(_text(raw, "profiling_name"))
        group, desc = _group(raw)
        is_p2p = raw.get("is_p2p") is True or op in P2P_OPS
        record_id, pg_id, seq, p2p_seq, op_id, timeout_ms, created_ns = _numbers(raw)
        state = _STATES.get(_text(raw, "state"), FlightState.UNKNOWN)
        is_retired = raw.get("retired") is True
        is_over = _is_over(state, backend, is_retired=is_retired)
        return FlightEntry(
            record_id=record_id,
            pg_id=pg_id,
            group=group,
            desc=desc,
            seq=p2p_seq if is_p2p and "p2p_seq_id" in raw else seq,
            p2p_seq=p2p_seq,
            op_id=op_id,
            backend=backend,
            call=call,
            op=op,
            is_p2p=is_p2p,
            is_end=is_end,
            place=place,
            peer=peer,
            n_in=self._elements(raw, "input_sizes"),
            n_out=self._elements(raw, "output_sizes"),
            shape=_shape(raw),
            dtype=self._dtype(raw),
            state=state,
            is_retired=is_retired,
            is_over=is_over,
            created_ns=created_ns,
            timeout_ms=timeout_ms,
            frames=() if is_over else self._stack(raw),
        )

    def _elements(self, raw: Mapping[str, Any], key: str) -> int:
        """Elements of all tensors of one side."""
        shapes = raw.get(key) or ()
        total = self._totals.get(id(shapes))
        if total is None:
            if type(shapes) not in _LISTS or len(shapes) > MAX_TENSORS:
                raise BadEntryError(f"{key} is no list of at most {MAX_TENSORS} shapes")
            total = min(sum(self._product(shape, key) for shape in shapes), MAX_INT - 1)
            self._totals[id(shapes)] = total
        return total

    def _product(self, shape: Any, key: str) -> int:
        known = self._products.get(id(shape))
        if known is None:
            if type(shape) not in _LISTS or len(shape) > MAX_DIMS:
                raise BadEntryError(f"{key} holds what is no shape")
            if not all(type(extent) is int and 0 <= extent < MAX_INT for extent in shape):
                raise BadEntryError(f"{key} holds a shape of no numbers")
            known = self._products[id(shape)] = math.prod(shape)
        return known

    def _dtype(self, raw: Mapping[str, Any]) -> DType:
        """The one element type of the call; UNKNOWN where there are several."""
        names = raw.get("input_dtypes") or raw.get("output_dtypes") or ()
        known = self._dtypes.get(id(names))
        if known is None:
            if type(names) not in _LISTS:
                raise BadEntryError("input_dtypes is no list")
            are_texts = set(map(type, names)) == {str}
            told = set(names) if are_texts else set()
            known = _DTYPES.get(told.pop(), DType.UNKNOWN) if len(told) == 1 else DType.UNKNOWN
            self._dtypes[id(names)] = known
        return known

    def _stack(self, raw: Mapping[str, Any]) -> tuple[str, ...]:
        """The innermost frames as text, innermost first; what is no frame is left out."""
        frames = raw.get("frames") or ()
        known = self._frames.get(id(frames))
        if known is None:
            if type(frames) not in _LISTS:
                raise BadEntryError("frames is no list")
            tables = (frame for frame in frames if type(frame) is dict)
            known = self._frames[id(frames)] = tuple(map(_frame, islice(tables, MAX_FRAMES)))
        return known


Numbers = tuple[int, ...]
Pick = Callable[[Numbers], tuple[Any, ...]]
Make = Callable[[Numbers], FlightEntry | None]


def entry_maker(row: dict[Any, Any], keys: tuple[str, ...]) -> Make | None:
    """What makes entries that differ from ``row`` in the numbers under ``keys``, given in this
    order: the same that EntryReader reads; None, now or then, where only it can tell."""
    if any(type(row.get(name)) is not int for name in _NUMBER_KEYS) or not _ONCE.isdisjoint(keys):
        return None
    try:
        entry = EntryReader().read(row)
    except BadEntryError:
        return None
    places = {name: len(keys) + k for k, name in enumerate(_NUMBER_KEYS)}
    places |= {name: k for k, name in enumerate(keys) if name in places}
    if entry.is_p2p:
        places["collective_seq_id"] = places["p2p_seq_id"]
    return _made_like(entry, itemgetter(*places.values()), _NUMBERS(row))


def _made_like(entry: FlightEntry, pick: Pick, fixed: Numbers) -> Make:
    alike: tuple[Any, ...] = msgspec.structs.astuple(entry)[len(_NUMBER_KEYS) :]

    def make(numbers: Numbers) -> FlightEntry | None:
        if -MAX_INT in numbers:
            return None
        return FlightEntry(*pick((*numbers, *fixed)), *alike)

    return make


# what is looked at once for all entries that are alike
_ONCE = frozenset({
    "process_group", "profiling_name", "state", "retired", "is_p2p", "input_sizes", "output_sizes",
    "input_dtypes", "output_dtypes", "frames",
})  # fmt: skip
_STATES = {state.value: state for state in FlightState}


def _is_over(state: FlightState, backend: str, *, is_retired: bool) -> bool:
    """Completed; NCCL also retires what timed out, the others only what ended."""
    return state is FlightState.COMPLETED or (is_retired and backend != "nccl")


_NUMBER_KEYS = (  # in the order of the fields
    "record_id", "pg_id", "collective_seq_id", "p2p_seq_id", "op_id", "timeout_ms",
    "time_created_ns",
)  # fmt: skip
_NUMBERS = itemgetter(*_NUMBER_KEYS)


def _numbers(raw: Mapping[str, Any]) -> tuple[int, ...]:
    """The numbers of an entry; most have them all."""
    try:
        numbers: tuple[int, ...] = _NUMBERS(raw)
        if set(map(type, numbers)) == {int} and -MAX_INT < min(numbers) <= max(numbers) < MAX_INT:
            return numbers
    except KeyError:
        pass
    seq = _int(raw, "collective_seq_id" if "collective_seq_id" in raw else "seq_id")
    return (
        _int(raw, "record_id", -1), _int(raw, "pg_id", -1), seq, _int(raw, "p2p_seq_id"),
        _int(raw, "op_id"), _int(raw, "timeout_ms"), _created_ns(raw),
    )  # fmt: skip


def _int(raw: Mapping[str, Any], key: str, default: int = 0) -> int:
    value = raw.get(key)
    if value is None:
        return default
    if type(value) is not int or abs(value) >= MAX_INT:
        raise BadEntryError(f"{key} is no number of 64 bits")
    return value


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key, "")
    if type(value) is not str:
        raise BadEntryError(f"{key} is no text")
    return value[:MAX_TEXT]


def _group(raw: Mapping[str, Any]) -> tuple[str, str]:
    pair = raw.get("process_group", ("", ""))
    if type(pair) in _LISTS and len(pair) == 2:
        name, desc = pair
        if type(name) is str and type(desc) is str:
            return name[:MAX_TEXT], desc[:MAX_TEXT]
    raise BadEntryError("process_group is no pair of name and description")


@lru_cache(maxsize=1024)
def _call(name: str) -> tuple[str, str, Op, int, int, bool]:
    """(backend, call, op, own place, peer, is the end of a coalesced group) by the name."""
    backend, _, call = name.rpartition(":")
    if p2p := _P2P.match(call):
        op = Op.SEND if p2p[1] == "send" else Op.RECV
        return backend, call, op, int(p2p[2]), int(p2p[3]), False
    word = _NOISE.sub("", call.lower())
    is_end = call.lower().endswith("coalesced")
    return backend, call, _OPS.get(word, Op.UNKNOWN), -1, -1, is_end


def _shape(raw: Mapping[str, Any]) -> tuple[int, ...]:
    """Of the first tensor put in, or given out where none is; both sides were looked through."""
    shapes = raw.get("input_sizes") or raw.get("output_sizes")
    return tuple(shapes[0]) if shapes else ()


def _created_ns(raw: Mapping[str, Any]) -> int:
    if "time_created_ns" in raw:
        return _int(raw, "time_created_ns")
    return _int(raw, "time_created_us") * 1000


def _frame(frame: Mapping[str, Any]) -> str:
    place, line, name = (plain_text(frame.get(key)) or "?" for key in _FRAME_KEYS)
    return f"{name} ({place}:{line})"


def plain_text(value: Any, max_chars: int = MAX_TEXT) -> str:
    """A text or a number as text; "" for anything else, which may unfold without end."""
    return str(value)[:max_chars] if type(value) in {str, int} else ""


_FRAME_KEYS: Sequence[str] = ("filename", "line", "name")
