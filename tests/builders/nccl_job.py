"""The logs that NCCL writes in a job of several nodes, line by line; all numbers are made up."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from comminsight.model.job_evidence import JobEvidence
from comminsight.pipeline.job_evidence import gather

BEGIN = datetime(2026, 5, 4, 6, 0, 0, tzinfo=UTC)  # the second at which all communicators are made


@dataclass
class NcclJob:
    """``lines`` are (second after the start, text) of each rank. ``has_stamps``: every line begins
    with its date, as newer NCCL writes them; ``host_form`` names the hosts."""

    n_nodes: int
    per_node: int
    host_form: str = "node{}"
    has_stamps: bool = True
    lines: dict[int, list[tuple[float, str]]] = field(default_factory=dict)
    others: dict[str, list[str]] = field(default_factory=dict)  # other logs by file name

    def __post_init__(self) -> None:
        for rank in range(self.size):
            device = f"cudaDev {self.gpu(rank)} nvmlDev {self.gpu(rank)} busId {self.bus(rank):x}"
            comm = f"comm 0x55f0{rank:04x} rank {rank} nranks {self.size}"
            text = f"ncclCommInitRank {comm} {device} commId 0x8d3f09 - Init COMPLETE"
            self.info(rank, 0, text)

    @property
    def size(self) -> int:
        return self.n_nodes * self.per_node

    def node(self, rank: int) -> int:
        return rank // self.per_node

    def gpu(self, rank: int) -> int:
        return rank % self.per_node

    def host(self, node: int) -> str:
        return self.host_form.format(node)

    def pid(self, rank: int) -> int:
        return 4000 + 7 * rank

    def bus(self, rank: int) -> int:
        return (0x0B + 4 * self.gpu(rank)) << 12

    def info(self, rank: int, second: float, text: str) -> None:
        self._say(rank, second, f"NCCL INFO {text}")

    def warn(self, rank: int, second: float, text: str) -> None:
        self._say(rank, second, f"transport/net_ib.cc:{1000 + len(text)} NCCL WARN {text}")

    def _say(self, rank: int, second: float, text: str) -> None:
        head = f"{self.host(self.node(rank))}:{self.pid(rank)}:{self.pid(rank) + 3}"
        line = f"{head} [{self.gpu(rank)}] {text}"
        if self.has_stamps:
            line = f"[{stamp(second)}] {line}"
        self.lines.setdefault(rank, []).append((second, line))

    def network(
        self,
        cards: Mapping[int, int] | None = None,
        *,
        listed: str = "mlx5_{}",
        ports: int = 0,
        second: float = 1,
        n_channels: int = 2,
        kind: str = "IB",
        net: str = "IB",
        tail: str = "/GDRDMA",
    ) -> None:
        """The devices that each rank lists, and its channels to the next node, as both ends tell
        them. ``cards[rank]`` is the number of its card, by default that of its GPU; ``ports`` are
        how many it lists, by default one for each GPU of the node."""
        card = {rank: self.gpu(rank) for rank in range(self.size)} | dict(cards or {})
        names = [listed.format(number) for number in range(ports or self.per_node)]
        devices = " ".join(f"[{n}]{name}:1/{kind}" for n, name in enumerate(names))
        for rank in range(self.size):
            self.info(rank, second, f"NET/IB : Using {devices} [RO]; OOB eth0:10.0.0.{rank}<0>")
        for rank in range(self.size):
            peer = (rank + self.per_node) % self.size
            for channel in range(n_channels):
                ends = (
                    f"Channel {channel:02}/0 : {rank}[{self.gpu(rank)}] -> {peer}[{self.gpu(peer)}]"
                )
                self.info(rank, second, f"{ends} [send] via NET/{net}/{card[rank]}{tail}")
                self.info(peer, second, f"{ends} [receive] via NET/{net}/{card[peer]}{tail}")
        for rank in range(self.size):
            self.info(rank, second, "Connected all rings, use ring PXN 0 GDR 1")

    def say(self, rank: int, second: float, text: str) -> None:
        """A line of the program itself."""
        self.lines.setdefault(rank, []).append((second, text))

    def kernel(self, node: int, second: float, text: str) -> None:
        """A line of the kernel log of a node, in the short form of a journal."""
        when = (BEGIN + timedelta(seconds=second)).strftime("%b %d %H:%M:%S")
        host = self.host(node)
        line = f"{when} {host} kernel: {text}"
        self.others.setdefault(f"{host}-kernel.log", []).append(line)

    def write(self, folder: Path) -> Path:
        """One log per rank, and those of the kernels."""
        folder.mkdir(parents=True, exist_ok=True)
        for rank, lines in self.lines.items():
            text = "\n".join(line for _, line in sorted(lines, key=lambda one: one[0]))
            (folder / f"worker{rank}.out").write_text(text + "\n")
        for name, others in self.others.items():
            (folder / name).write_text("\n".join(others) + "\n")
            os.utime(folder / name, (self._end_s(), self._end_s()))
        return folder

    def _end_s(self) -> float:
        last = max(second for lines in self.lines.values() for second, _ in lines)
        return BEGIN.timestamp() + last

    def evidence(self, folder: Path) -> JobEvidence:
        """What the readers make of them."""
        return gather([self.write(folder)]).job


def stamp(second: float) -> str:
    """The date as NCCL writes it, whole seconds."""
    return (BEGIN + timedelta(seconds=second)).strftime("%Y-%m-%d %H:%M:%S")


def no_answer(
    peer: str, *, status: int = 12, vendor: int = 129, gids: tuple[str, str] = ("", ""),
    device: str = "", form: str = "old",
) -> str:  # fmt: skip
    """The warning on a transfer without an answer, in the words of an older or a newer NCCL."""
    tail = f" localGid {gids[0]} remoteGids {gids[1]}" if gids[0] else ""
    tail += f" hca {device}" if device else ""
    if form == "old":
        said = f"error {status}, opcode 0, len 0, vendor err {vendor} (Send)"
    else:
        said = f"status=IBV_WC_RETRY_EXC_ERR({status}) opcode=IBV_WC_SEND(0) vendor_err={vendor}"
    return f"NET/IB : Got completion from peer {peer}<41003> with {said}{tail}"


def not_brought_up(device: str, index: int, gids: tuple[str, str]) -> str:
    """The warning on a queue pair that was not made in time."""
    return (
        f"Call to ibv_modify_qp failed with 110 Connection timed out, on dev {device}:1, curr "
        f"state INIT, next state RTR, local GID index {index}, local GID {gids[0]}, remote GID "
        f"{gids[1]}"
    )
