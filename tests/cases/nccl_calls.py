"""NCCL's log of a job at level INFO: the making of its communicator, settings, and every call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

DTYPES = {"int8": 0, "float16": 6, "float32": 7, "bfloat16": 9}


class NcclCall(NamedTuple):
    op: str
    n_elements: int
    dtype: str = "float32"
    root: int = 0


@dataclass
class NcclLogs:
    """``calls[rank]`` on the communicator of all ranks. ``is_numbered``: the library counts calls,
    as it does not on one node in later releases. ``lost[rank]`` are calls without a line."""

    calls: Mapping[int, Sequence[NcclCall]]
    ranks_per_node: int = 4
    is_numbered: bool = True
    settings: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    versions: Mapping[int, str] = field(default_factory=dict)
    lost: Mapping[int, frozenset[int]] = field(default_factory=dict)
    warns: Mapping[int, Sequence[str]] = field(default_factory=dict)

    def lines(self, rank: int) -> list[str]:
        """The log of one rank."""
        host, local = f"node{rank // self.ranks_per_node}", rank % self.ranks_per_node
        comm, n_ranks = f"0x7f{rank:04x}00", len(self.calls)
        head = f"{host}:{4000 + rank}:{5000 + rank} [{local}]"
        made = (
            f"ncclCommInitRank comm {comm} rank {rank} nranks {n_ranks} cudaDev {local} nvmlDev"
            f" {local} busId {0x1B000 + local:x} commId 0xabcdef0123456789 - Init COMPLETE"
        )
        texts = [f"NCCL INFO NCCL version {self.versions.get(rank, '2.21.5+cuda12.4')}"]
        texts += [
            f"NCCL INFO {name} set by environment to {value}."
            for name, value in self.settings.get(rank, {}).items()
        ]
        texts.append(f"NCCL INFO {made}")
        texts += [
            self._call(n, call, comm)
            for n, call in enumerate(self.calls[rank])
            if n not in self.lost.get(rank, ())
        ]
        texts += [f"transport/net_ib.cc:901 NCCL WARN {text}" for text in self.warns.get(rank, ())]
        return [f"{head} {text}" for text in texts]

    def _call(self, n: int, call: NcclCall, comm: str) -> str:
        number = n if self.is_numbered else 0
        return (
            f"NCCL INFO {call.op}: opCount {number:x} sendbuff 0x7f10 recvbuff 0x7f20 count"
            f" {call.n_elements} datatype {DTYPES[call.dtype]} op 0 root {call.root} comm {comm}"
            f" [nranks={len(self.calls)}] stream 0x55aa"
        )

    def write(self, folder: Path, *, is_one_file: bool = False) -> Path:
        """A file per rank, or one in which the lines of all ranks alternate."""
        folder.mkdir(parents=True, exist_ok=True)
        lines = {rank: self.lines(rank) for rank in self.calls}
        if not is_one_file:
            for rank, own in lines.items():
                (folder / f"nccl_rank{rank}.log").write_text("\n".join(own) + "\n")
            return folder
        longest = max(map(len, lines.values()))
        mixed = [own[n] for n in range(longest) for own in lines.values() if n < len(own)]
        (folder / "job.log").write_text("\n".join(mixed) + "\n")
        return folder
