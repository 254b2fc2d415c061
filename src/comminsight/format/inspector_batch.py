"""The Inspector's rows as op records and op numbers of one process each.

What the plugin does not say is not made up: there is no program order across functions, no global
rank, and mostly no time of an op (the stamp is that of a dump). Only lines of our own recorder
and verbose ones have a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.format.inspector_rows import Context
from comminsight.model.event import COMM_DTYPE, OP_DTYPE
from comminsight.model.ops import P2P_OPS, Backend, OpState, RecordKind
from comminsight.model.units import NS_PER_US

OWN_RECORDER = "comminsight"
Process = tuple[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class InspectorProcess:
    """One process: its ``rows`` (``ROW_DTYPE``, of all files), whose ``context`` is a place in
    ``contexts``."""

    host: str
    pid: int
    rows: np.ndarray
    contexts: tuple[Context, ...]


def by_process(rows: np.ndarray, contexts: Sequence[Context]) -> list[InspectorProcess]:
    """The rows of one file by process, in their order."""
    owners: dict[Process, list[int]] = defaultdict(list)
    for n, one in enumerate(contexts):
        owners[one.hostname, one.pid].append(n)
    found = []
    for (host, pid), own in sorted(owners.items()):
        places = np.full(len(contexts), -1, np.int32)
        places[own] = np.arange(len(own))
        mine = rows if len(owners) == 1 else rows[places[rows["context"]] >= 0]
        mine = mine.copy() if len(owners) == 1 else mine
        mine["context"] = places[mine["context"]]
        found.append(InspectorProcess(host, pid, mine, tuple(contexts[n] for n in own)))
    return found


def common_ranks(processes: Sequence[InspectorProcess]) -> tuple[dict[Process, int], int]:
    """Global ranks, inferred, and the size of the world: those of the largest communicator, if all
    processes are in it under ranks of their own and there are several. ({}, 0) where not."""
    largest: set[tuple[str, int]] = set()
    ranks: dict[Process, int] = {}
    for one in processes:
        top = max(one.contexts, key=lambda context: context.n_ranks)
        largest.add((top.id, top.n_ranks))
        ranks[one.host, one.pid] = top.rank
    is_one = len(largest) == 1 and len({*ranks.values()}) == len(processes) > 1
    return (ranks, largest.pop()[1]) if is_one else ({}, 0)


def timed_ops(process: InspectorProcess, global_rank: int) -> tuple[np.ndarray, np.ndarray]:
    """The ops that have a time, as ``OP_DTYPE`` by their start, and the communicators as
    ``COMM_DTYPE``. A communicator in which ops of one function only were seen is matched with
    other ranks by the plugin's numbers; any other has a hash of its own."""
    start_ns, end_ns = _times_ns(process)
    chosen = np.flatnonzero((start_ns > 0) & (end_ns >= start_ns))
    chosen = chosen[np.argsort(start_ns[chosen], kind="stable")]
    rows = process.rows[chosen]
    ops = np.zeros(len(rows), OP_DTYPE)
    is_p2p = np.isin(rows["op"], list(P2P_OPS))
    ops["seq"] = ops["seq_low"] = np.arange(1, len(rows) + 1)
    ops["enqueue_ns"] = ops["start_ns"] = start_ns[chosen]
    ops["end_ns"] = end_ns[chosen]
    ops["size_bytes"], ops["comm_index"] = rows["size_bytes"], rows["context"] + 1
    ops["peer_or_root"] = np.where(is_p2p, rows["peer"], -1)
    ops["func_seq"] = np.where(is_p2p, 0, np.maximum(rows["sn"], 0))
    ops["kind"] = np.where(is_p2p, RecordKind.P2P, RecordKind.COLLECTIVE)
    ops["op"], ops["algo"], ops["proto"] = rows["op"], rows["algo"], rows["proto"]
    ops["state"], ops["timing_source"] = OpState.DONE, rows["source"]
    comms = np.zeros(len(process.contexts), COMM_DTYPE)
    for n, context in enumerate(process.contexts):
        own = np.flatnonzero(rows["context"] == n)
        is_matched = _number(ops, own, rows["sn"][own])
        comms[n] = _comm_row(n, context, global_rank, is_matched=is_matched)
    return ops, comms


def _times_ns(process: InspectorProcess) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends on the host's wall clock; 0 where the line has no time of the op."""
    rows = process.rows
    start_ns, end_ns = rows["start_us"] * NS_PER_US, rows["stop_us"] * NS_PER_US
    is_own = np.array([one.mechanism == OWN_RECORDER for one in process.contexts], bool)
    is_ended = is_own[rows["context"]] & (rows["exec_us"] >= 0) & (rows["dump_us"] > 0)
    own_end = rows["dump_us"] * NS_PER_US
    own_start = own_end - np.maximum(rows["exec_us"], 0) * NS_PER_US
    return np.where(is_ended, own_start, start_ns), np.where(is_ended, own_end, end_ns)


def _number(ops: np.ndarray, own: np.ndarray, serials: np.ndarray) -> bool:
    """Numbers the ops of one communicator; True where other ranks number them alike."""
    order = np.arange(1, len(own) + 1)
    is_single = len(np.unique(ops["op"][own])) == 1 and not bool((serials < 0).any())
    is_matched = is_single and int(ops["kind"][own[0]]) == RecordKind.COLLECTIVE
    ops["op_seq"][own] = order
    ops["match_seq"][own] = serials + 1 if is_matched else order
    return is_matched


def _comm_row(index: int, context: Context, global_rank: int, *, is_matched: bool) -> np.ndarray:
    row = np.zeros((), COMM_DTYPE)
    known = int(context.id, 16) if _is_hash(context.id) else hash_of(context.id)
    own = hash_of(f"{context.hostname}/{context.pid}/{global_rank}/{index}/{context.id}")
    row["comm_hash"] = known if is_matched else own
    row["comm_index"], row["comm_rank"] = index + 1, context.rank
    row["comm_size"], row["n_nodes"], row["backend"] = context.n_ranks, context.nnodes, Backend.NCCL
    name = "" if context.comm_name == "unknown" else context.comm_name
    row["name"], row["desc"] = context.id.encode()[:64], name.encode()[:128]
    return row


def _is_hash(text: str) -> bool:
    digits = text.lower().removeprefix("0x")
    return 0 < len(digits) <= 16 and all(one in "0123456789abcdef" for one in digits)


def hash_of(text: str) -> int:
    """64 bits of a text, the same on every machine (FNV-1a)."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value
