"""Files of NCCL's Inspector as its versions write them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any

STREAMED = frozenset({"v4.3", "v4.4"})
DUMP_US = 1_748_030_377_748_202


def inspector_text(
    rank: int, n_ranks: int, numbers: Iterable[int], *, version: str = "v4.0",
    op: str = "AllReduce", size_bytes: int = 1 << 20, n_proxy: int = 0, per_dump: int = 50,
) -> bytes:  # fmt: skip
    """One process with the ops ``numbers`` of one communicator; in versions that have them,
    ``n_proxy`` lines of the proxy stand behind each op."""
    header = {"id": "0xabc", "comm_name": "WORLD", "rank": rank, "n_ranks": n_ranks, "nnodes": 2}
    lines: list[dict[str, Any]] = []
    serials = list(numbers)
    for at in range(0, len(serials), per_dump):
        dump = serials[at : at + per_dump]
        metadata = {
            "inspector_output_format_version": version, "git_rev": "9019a19",
            "rec_mechanism": "nccl_profiler_interface", "dump_timestamp_us": DUMP_US + at,
            "hostname": f"node{rank // 8}", "pid": 1000 + rank,
        }  # fmt: skip
        context = {"header": header, "metadata": metadata}
        records = [{"coll_perf": one} for one in _calls(dump, op, size_bytes)]
        if version not in STREAMED:
            lines += [context | one for one in records]
            continue
        n_lines = len(records) * n_proxy
        stats = {"coll_records": len(records), "p2p_records": 0, "proxy_records": n_lines}
        lines.append(context | {"dump_stats": stats})
        for one in records:
            lines += [one, *({"proxy_trace": proxy(n)} for n in range(n_proxy))]
    return b"".join(json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in lines)


def proxy(n: int) -> dict[str, Any]:
    """A record of one step of the proxy."""
    return {
        "record_type": "proxy_step", "record_sn": n, "parent_type": "coll", "channel_id": n % 8,
        "peer": 1, "direction": "send", "trans_size_bytes": 524288, "total_us": 40,
    }  # fmt: skip


def without(numbers: Iterable[int], lost: Collection[int]) -> Iterator[int]:
    """The numbers but those that are lost."""
    return (one for one in numbers if one not in lost)


def _calls(serials: Iterable[int], op: str, size_bytes: int) -> Iterator[dict[str, Any]]:
    for serial in serials:
        yield {
            "coll": op, "coll_sn": serial, "coll_msg_size_bytes": size_bytes,
            "coll_exec_time_us": 400 + serial % 7, "coll_timing_source": "kernel_gpu",
            "coll_algobw_gbs": 2.5, "coll_busbw_gbs": 4.375,
        }  # fmt: skip
