"""Records as the JSON lines of NCCL's Inspector plugin, format v4.0, for tools that read those.

Every line is an object of ``header`` (communicator), ``metadata`` (process) and ``coll_perf`` or
``p2p_perf``. The format says less than our records and means some things differently:

- only ops that have ended can be written, and only functions that NCCL has (no barrier);
- ``rank`` is the rank in the communicator, there is no global rank and no start of the op;
  ``dump_timestamp_us`` holds the wall time of the end of the op instead of the time of a dump;
- ``coll_sn`` is the library's own counter per function where the records hold it (``func_seq``),
  and otherwise counted here the same way, from 0; ``p2p_sn`` is counted here;
- message sizes are those of nccl-tests (all_gather: the whole output), not the bytes of the call;
- without device stamps the time is the host's (``collective_cpu``) and includes waiting;
- there is no event trace: the verbose fields need device stamps per channel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np

from comminsight.model.bandwidth import bus_factor
from comminsight.model.ops import Op, OpState, RecordKind, TimingSource
from comminsight.model.topology import SessionIdentity
from comminsight.model.units import NS_PER_US

FORMAT_VERSION = "v4.0"
NAMES: dict[int, str] = {
    Op.ALL_REDUCE: "AllReduce",
    Op.ALL_GATHER: "AllGather",
    Op.REDUCE_SCATTER: "ReduceScatter",
    Op.BROADCAST: "Broadcast",
    Op.REDUCE: "Reduce",
    Op.GATHER: "Gather",
    Op.SCATTER: "Scatter",
    Op.ALL_TO_ALL: "AlltoAll",
    Op.SEND: "Send",
    Op.RECV: "Recv",
}
NOT_A_NUMBER = "nan"  # how the plugin writes a bandwidth that is not finite

# why a record has no line
NOT_ENDED = "inspector.not_ended"
NO_SUCH_FUNCTION = "inspector.no_such_function"
FOLDED = "inspector.folded_p2p"
NO_COMMUNICATOR = "inspector.no_communicator"
# what every line lacks or means differently, for the user to know
DEGRADATIONS = (
    "inspector.no_start_time",
    "inspector.no_global_rank",
    "inspector.sizes_as_nccl_tests",
    "inspector.no_event_trace",
)


@dataclass(slots=True)
class InspectorLines:
    """Iterates over the lines (bytes, without newline) of one session in ``seq`` order.

    ``skipped`` counts, while iterating, the ops that have no line, by reason code.
    """

    identity: SessionIdentity
    comms: np.ndarray
    records: np.ndarray
    skipped: Counter[str] = field(default_factory=Counter)

    def __iter__(self) -> Iterator[bytes]:
        self.skipped.clear()
        ops = self._ops()
        headers = _headers(self.comms)
        metadata = _metadata(self.identity)
        wall_us = self.identity.real_minus_mono_ns // NS_PER_US
        encode = msgspec.json.Encoder().encode
        serials = _serials(ops)
        for row, serial in zip(_columns(ops), serials, strict=True):
            header = headers.get(row.comm_index)
            if header is None:
                self.skipped[NO_COMMUNICATOR] += 1
                continue
            metadata["dump_timestamp_us"] = wall_us + row.end_ns // NS_PER_US
            kind, perf = _perf(row, serial, header.n_ranks)
            yield encode({"header": header, "metadata": metadata, kind: perf})

    def _ops(self) -> np.ndarray:
        """The records that can have a line; the other ops are counted."""
        kind = self.records["kind"]
        is_op = (kind == RecordKind.COLLECTIVE) | (kind == RecordKind.P2P)
        is_marker = np.isin(self.records["state"], (OpState.OPEN, OpState.OVERDUE))
        ops = self.records[is_op & ~is_marker]
        is_done = (ops["state"] == OpState.DONE) & (ops["end_ns"] > 0)
        is_known = np.isin(ops["op"], list(NAMES))
        is_folded = (ops["kind"] == RecordKind.P2P) & (ops["n_folded"] > 1)
        self.skipped[NOT_ENDED] += int(np.count_nonzero(~is_done))
        self.skipped[NO_SUCH_FUNCTION] += int(np.count_nonzero(is_done & ~is_known))
        self.skipped[FOLDED] += int(np.count_nonzero(is_done & is_known & is_folded))
        lined: np.ndarray = ops[is_done & is_known & ~is_folded]
        return lined


class _Header(msgspec.Struct, frozen=True):
    id: str
    comm_name: str
    rank: int
    n_ranks: int
    nnodes: int


class _Row(msgspec.Struct, frozen=True):
    comm_index: int
    op: int
    peer: int
    size_bytes: int
    start_ns: int
    end_ns: int
    gpu_start_ns: int
    gpu_end_ns: int
    timing_source: int


def _columns(ops: np.ndarray) -> Iterator[_Row]:
    names = (
        "comm_index", "op", "peer_or_root", "size_bytes", "start_ns", "end_ns", "gpu_start_ns",
        "gpu_end_ns", "timing_source",
    )  # fmt: skip
    return map(_Row, *(ops[name].tolist() for name in names))


def _serials(ops: np.ndarray) -> list[int]:
    """``func_seq`` where the communicator's records of the function hold it, else counted from 0
    in program order."""
    key = ops["comm_index"].astype(np.int64) << 8 | ops["op"]
    order = np.lexsort((ops["seq"], ops["op_seq"], key))
    ordered = key[order]
    first_at = np.searchsorted(ordered, ordered, side="left")
    serial = np.empty(len(ops), np.int64)
    serial[order] = np.arange(len(ops)) - first_at
    has_own = np.isin(key, key[ops["func_seq"] > 0])
    chosen: list[int] = np.where(has_own, ops["func_seq"], serial).tolist()
    return chosen


def _perf(row: _Row, serial: int, n_ranks: int) -> tuple[str, dict[str, object]]:
    duration_ns, source = _duration(row)
    kind = "p2p" if row.op in {Op.SEND, Op.RECV} else "coll"
    algbw_gbs = row.size_bytes / duration_ns if duration_ns > 0 else None
    perf: dict[str, object] = {kind: NAMES[row.op], f"{kind}_sn": serial}
    if kind == "p2p":
        perf["p2p_peer"] = row.peer
    perf[f"{kind}_msg_size_bytes"] = row.size_bytes
    perf[f"{kind}_exec_time_us"] = max(0, duration_ns) // NS_PER_US
    perf[f"{kind}_timing_source"] = source
    perf[f"{kind}_algobw_gbs"] = NOT_A_NUMBER if algbw_gbs is None else algbw_gbs
    busbw_gbs = None if algbw_gbs is None else algbw_gbs * bus_factor(row.op, n_ranks)
    perf[f"{kind}_busbw_gbs"] = NOT_A_NUMBER if busbw_gbs is None else busbw_gbs
    return f"{kind}_perf", perf


def _duration(row: _Row) -> tuple[int, str]:
    """(ns, source in the plugin's words): device time where there is any."""
    if row.gpu_end_ns > row.gpu_start_ns > 0:
        return row.gpu_end_ns - row.gpu_start_ns, "kernel_gpu"
    is_kernel = row.timing_source == TimingSource.HOST_KERNEL_CALLBACK
    return row.end_ns - row.start_ns, "kernel_cpu" if is_kernel else "collective_cpu"


def _headers(comms: np.ndarray) -> dict[int, _Header]:
    return {
        int(row["comm_index"]): _Header(
            id=f"0x{int(row['comm_hash']):x}",
            comm_name=_text(row["desc"]) or _text(row["name"]) or "unknown",
            rank=int(row["comm_rank"]),
            n_ranks=int(row["comm_size"]),
            nnodes=int(row["n_nodes"]),
        )
        for row in comms
    }


def _metadata(identity: SessionIdentity) -> dict[str, object]:
    return {
        "inspector_output_format_version": FORMAT_VERSION,
        "git_rev": f"comminsight-{identity.versions.get('comminsight', 'unknown')}",
        "rec_mechanism": "comminsight",
        "dump_timestamp_us": 0,
        "hostname": identity.host,
        "pid": identity.pid,
    }


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
