"""Communication of a profiler's trace as op records of our own layout.

An op begins with its kernel and ends with it: when the host called, the trace does not say here.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from comminsight.model.activity import Activity, ActivityKind
from comminsight.model.event import COMM_DTYPE, OP_DTYPE
from comminsight.model.imported import ImportClock, ImportedRank
from comminsight.model.ops import P2P_OPS, OpState, RecordKind, TimingSource
from comminsight.model.ranges import MAX_MEMBERS, range_expand

INFERRED = ("enqueue_ns", "op_seq", "match_seq")
NOT_AN_OP = "unknown_op"  # a kernel of communication whose op nothing tells
OPEN_END = "no_end"
_LABEL = re.compile(r"(?:(?P<desc>.*):)?(?P<name>[^:]*) \((?P<members>[\d,: -]*)\)")


def ops_by_rank(
    activities: Iterable[Activity], *, world_size: int, sources: dict[int, str]
) -> tuple[ImportedRank, ...]:
    """One per rank that is known, by rank; ``sources`` names its file."""
    by_rank: dict[int, list[Activity]] = defaultdict(list)
    for one in activities:
        if one.kind is ActivityKind.COMMUNICATION and one.global_rank >= 0:
            by_rank[one.global_rank].append(one)
    return tuple(
        _rank(rank, own, world_size, sources.get(rank, "")) for rank, own in sorted(by_rank.items())
    )


def _rank(rank: int, own: Sequence[Activity], world_size: int, source: str) -> ImportedRank:
    known = [one for one in own if one.op and one.end_ns > one.start_ns]
    dropped = Counter(
        NOT_AN_OP if not one.op else OPEN_END for one in own if not one.op or not one.end_ns
    )
    known.sort(key=lambda one: (one.start_ns, one.end_ns))
    labels = {label: at + 1 for at, label in enumerate(dict.fromkeys(c.comm_label for c in known))}
    return ImportedRank(
        global_rank=rank,
        ops=_ops(known, labels),
        comms=_comms(labels, known, rank, world_size),
        source=source,
        world_size=world_size,
        clock=ImportClock.TRACE,
        clock_error_ns=0,
        n_read=len(own),
        n_bad=len(own) - len(known) - dropped.total(),
        dropped=dict(dropped),
        inferred=INFERRED,
    )


def _ops(known: Sequence[Activity], labels: dict[str, int]) -> np.ndarray:
    """The records in order of their start."""
    ops = np.zeros(len(known), OP_DTYPE)
    if not known:
        return ops
    comm = np.array([labels[one.comm_label] for one in known], np.uint32)
    kinds = np.array([one.op for one in known], np.uint8)
    is_p2p = np.isin(kinds, [int(op) for op in P2P_OPS])
    ops["seq"] = ops["seq_low"] = np.arange(1, len(known) + 1)
    for name in ("enqueue_ns", "start_ns", "gpu_start_ns"):
        ops[name] = [one.start_ns for one in known]
    for name in ("end_ns", "gpu_end_ns"):
        ops[name] = [one.end_ns for one in known]
    ops["size_bytes"] = [one.size_bytes for one in known]
    ops["dtype"] = [one.dtype for one in known]
    ops["stream_id"] = [one.stream & 0xFFFFFFFF for one in known]
    ops["comm_index"], ops["op"], ops["peer_or_root"] = comm, kinds, -1
    ops["kind"] = np.where(is_p2p, RecordKind.P2P, RecordKind.COLLECTIVE)
    ops["state"], ops["timing_source"] = OpState.DONE, TimingSource.GPU
    ops["op_seq"] = _numbered(comm)
    ops["match_seq"] = _numbered(comm.astype(np.int64) << 8 | np.where(is_p2p, kinds, 0))
    return ops


def _numbered(keys: np.ndarray) -> np.ndarray:
    """For each row the number of rows of its key up to it, from 1."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    begins = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    lengths = np.diff(np.r_[begins, len(keys)])
    numbers = np.empty(len(keys), np.int64)
    numbers[order] = np.arange(len(keys)) - np.repeat(begins, lengths) + 1
    return numbers


def _comms(
    labels: dict[str, int], known: Sequence[Activity], rank: int, world_size: int
) -> np.ndarray:
    rows = np.zeros(len(labels), COMM_DTYPE)
    first_ns = {one.comm_label: one.start_ns for one in reversed(known)}
    for row, (label, index) in zip(rows, labels.items(), strict=True):
        name, desc, text, members = _named(label, world_size)
        row["comm_index"], row["comm_hash"] = index, _hash(label)
        row["created_ns"] = row["first_op_ns"] = first_ns[label]
        row["name"], row["desc"] = name.encode()[:64], desc.encode()[:64]
        row["comm_size"] = len(members)
        row["comm_rank"] = members.index(rank) if rank in members else -1
        row["members"] = text.encode() if len(text) <= 304 else b""
    return rows


def _named(label: str, world_size: int) -> tuple[str, str, str, list[int]]:
    """(name, description, members as ranges, members) of a communicator."""
    found = _LABEL.fullmatch(label)
    text = found["members"] if found else ""
    if not label and 0 < world_size <= MAX_MEMBERS:
        text = f"0-{world_size - 1}" if world_size > 1 else "0"
        return "world", "default_pg", text, list(range(world_size))
    members = range_expand(text) if text else []
    name, desc = (found["name"], found["desc"] or "") if found else (label, "")
    return name, desc, text, members


def _hash(label: str) -> int:
    """The same for equal labels on all ranks."""
    return int.from_bytes(hashlib.blake2b(label.encode(), digest_size=8).digest(), "little") or 1
