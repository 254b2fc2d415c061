"""The logs of a made-up job, in the forms in which people have them.

A line is said by a rank at a time; ``FORMS`` write the same lines as one mixed file, a file per
rank, what mpirun or a container's driver makes of them, or without any stamp.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

BEGIN = datetime(2026, 4, 14, 16, 0, 0, tzinfo=UTC)
RANKS_PER_HOST = 8


@dataclass(frozen=True)
class Line:
    """``rank`` -1: said by nobody of the job (a launcher, the kernel)."""

    at_s: float
    rank: int
    text: str
    source: str = "ProcessGroupNCCL.cpp:616"  # "": Python's own output, without a stamp
    is_bare: bool = False  # not even the rank stands before it

    @property
    def when(self) -> datetime:
        return BEGIN + timedelta(seconds=self.at_s)


def host_of(rank: int) -> str:
    return f"node{rank // RANKS_PER_HOST:02d}"


def pid_of(rank: int) -> int:
    return 40_000 + 17 * rank


def bare(line: Line) -> str:
    """As the process itself writes it."""
    if line.is_bare or line.rank < 0:
        return line.text
    if not line.source:
        return f"[rank{line.rank}]: {line.text}"
    stamp = line.when.strftime("%m%d %H:%M:%S.%f")
    return f"[rank{line.rank}]:[E{stamp} {line.source}] {line.text}"


def _unstamped(line: Line) -> str:
    return line.text if line.is_bare or line.rank < 0 else f"[rank{line.rank}]: {line.text}"


def _docker(line: Line) -> str:
    time = line.when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return json.dumps({"log": bare(line) + "\n", "stream": "stderr", "time": time})


def _mpirun(line: Line) -> str:
    return bare(line) if line.rank < 0 else f"[1,{line.rank}]<stderr>:{bare(line)}"


def _cri(line: Line) -> str:
    return f"{line.when.strftime('%Y-%m-%dT%H:%M:%S.%f')}Z stderr F {bare(line)}"


FORMS: dict[str, tuple[Callable[[Line], str], bool]] = {
    "mixed": (bare, False),
    "files": (bare, True),
    "mpirun": (_mpirun, False),
    "docker": (_docker, True),
    "cri": (_cri, False),
    "unstamped": (_unstamped, False),
}


def write_logs(folder: Path, lines: Iterable[Line], *, form: str = "mixed") -> None:
    """Writes the lines below ``folder`` in one of ``FORMS``; what the kernel or a launcher says is
    a file of its own where each rank has one."""
    put, is_per_rank = FORMS[form]
    ordered = sorted(lines, key=lambda line: line.at_s)
    folder.mkdir(parents=True, exist_ok=True)
    if not is_per_rank:
        _write(folder / "job.log", map(put, ordered))
        return
    for rank in sorted({line.rank for line in ordered}):
        name = f"rank_{rank}.log" if rank >= 0 else "launcher.log"
        _write(folder / name, (put(line) for line in ordered if line.rank == rank))


def _write(path: Path, texts: Iterable[str]) -> None:
    path.write_text("step 1 | loss 2.5\n" + "".join(f"{text}\n" for text in texts))


def nccl(at_s: float, rank: int, text: str, *, level: str = "INFO", source: str = "") -> Line:
    """A line of NCCL with its header, which tells host and process."""
    place = f"{source} " if source else ""
    header = f"{host_of(rank)}:{pid_of(rank)}:{pid_of(rank) + 1} [{rank % RANKS_PER_HOST}] {place}"
    return Line(at_s, rank, f"{header}NCCL {level} {text}", source="", is_bare=True)


def init(ranks: Sequence[int], *, world: int, at_s: float = 0.0) -> list[Line]:
    """Every rank makes the communicator of all ranks."""
    found = []
    for rank in ranks:
        bus = f"{0x1B000 + 0x10000 * (rank % RANKS_PER_HOST):x}"
        who = f"comm 0x55{rank:04x}00 rank {rank} nranks {world} cudaDev {rank % RANKS_PER_HOST}"
        for word in ("START", "COMPLETE"):
            said = f"ncclCommInitRank {who} nvmlDev 0 busId {bus} commId 0xabcdef12 - Init {word}"
            found.append(nccl(at_s, rank, said))
    return found


def timeout(
    at_s: float, rank: int, *, seq: int, op: str = "ALLREDUCE", limit_s: float = 600.0,
    n_elements: int = 4096, ran_s: float | None = None,
) -> Line:  # fmt: skip
    """A watchdog gives up."""
    ran_ms = round((limit_s + 0.03 if ran_s is None else ran_s) * 1000)
    return Line(
        at_s, rank,
        f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, "
        f"OpType={op}, NumelIn={n_elements}, NumelOut={n_elements}, "
        f"Timeout(ms)={round(limit_s * 1000)}) ran for {ran_ms} milliseconds before timing out.",
    )  # fmt: skip


def progress(
    at_s: float, rank: int, *, seq: int, enqueued: int, completed: int, pg: str = "default_pg",
    pg_id: int = 0, comm_rank: int | None = None,
) -> Line:  # fmt: skip
    """The counters of a group, beside a timeout."""
    place = rank if comm_rank is None else comm_rank
    return Line(
        at_s, rank,
        f"[PG ID {pg_id} PG GUID {pg_id}({pg}) Rank {place}] Exception (either an error or timeout)"
        f" detected by watchdog at work: {seq}, last enqueued NCCL work: {enqueued}, last "
        f"completed NCCL work: {completed}.",
    )  # fmt: skip


def waiting(
    at_s: float, ranks: Iterable[int], *, seq: int, op: str = "ALLREDUCE", limit_s: float = 600.0,
    n_elements: int = 4096,
) -> list[Line]:  # fmt: skip
    """Ranks give up in one op, with their counters."""
    found = []
    for rank in ranks:
        late_s = at_s + 0.01 * rank
        found.append(timeout(late_s, rank, seq=seq, op=op, limit_s=limit_s, n_elements=n_elements))
        found.append(progress(late_s, rank, seq=seq, enqueued=seq, completed=seq - 1))
    return found
