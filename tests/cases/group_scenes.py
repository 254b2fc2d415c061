"""What scenes on groups share: folders, dumps and lines of NCCL."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.builders.flight_recorder import Group, torch_pickle

WORLD = "default_pg"


def two(folder: Path) -> tuple[Path, Path]:
    """Folders for the fault and for its twin."""
    fault, twin = folder / "fault", folder / "twin"
    fault.mkdir()
    twin.mkdir()
    return fault, twin


def world(n_ranks: int) -> dict[str, Group]:
    return {"0": Group(WORLD, tuple(range(n_ranks)))}


def write(folder: Path, documents: Mapping[int, dict[str, Any]], *, is_json: bool = False) -> Path:
    """Dumps of one job from their documents."""
    for rank, document in documents.items():
        if is_json:
            for entry in document["entries"]:
                entry.pop("frames", None)
        data = json.dumps(document).encode() if is_json else torch_pickle(document)
        (folder / f"rank_{rank}").write_bytes(data)
    return folder


def nccl_lines(folder: Path, rank: int, lines: Sequence[str], *, is_apart: bool) -> None:
    """What NCCL of one rank logs; the ranks of a node are eight, each a process of its own."""
    head = f"node{rank // 8}:{4100 + rank}:{4200 + rank} [{rank % 8}] NCCL INFO "
    name = f"rank_{rank}.log" if is_apart else "job.log"
    with (folder / name).open("a") as file:
        file.writelines(head + line + "\n" for line in lines)


def init_lines(
    comm: str, rank: int, n_ranks: int, *, comm_hash: str, end: bool, split_of: str = ""
) -> list[str]:
    """The beginning of a communicator and, with ``end``, its completion."""
    call = "ncclCommSplit" if split_of else "ncclCommInitRank"
    place = f"comm {comm} rank {rank} nranks {n_ranks} cudaDev {rank % 8} nvmlDev {rank % 8}"
    bus = f"busId {0x1000 * (1 + rank % 8):x}"
    parent = f" parent {split_of} childCount 1 color 1 key {rank}-" if split_of else ""
    start = f"{call} {place} {bus}{parent or f' commId {comm_hash} -'} Init START"
    done = f"{call} {place} {bus} commId {comm_hash} - Init COMPLETE"
    return [start, done] if end else [start]


def variants(*rows: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return rows
