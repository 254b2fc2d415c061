"""Scenarios of fake_nccl played for real, and what our own readers make of them beside the log of
what was truly played.

A scenario is one text file; ``play`` runs it to its end, ``stage`` leaves it running.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

from comminsight.capture.box import read_box
from comminsight.capture.discovery import discover
from comminsight.capture.session import SessionData, read_session
from comminsight.errors import InputError
from comminsight.format.layout import SLOT_DTYPE, SLOT_OVERDUE
from comminsight.model.event import OP_DTYPE
from comminsight.model.hang import Liveness
from comminsight.model.ops import Op, OpState, RecordKind
from tests.unit.native.door import LIBRARY, ROOT

PROGRAM = LIBRARY.parent / "fake_nccl"
SCENARIOS = ROOT / "native/tests/fake_nccl/scenarios"
needs_program = pytest.mark.skipif(
    not (PROGRAM.exists() and LIBRARY.exists()), reason="native programs are not built: make native"
)

OPS = {
    "AllReduce": Op.ALL_REDUCE, "AllGather": Op.ALL_GATHER, "ReduceScatter": Op.REDUCE_SCATTER,
    "Broadcast": Op.BROADCAST, "Reduce": Op.REDUCE, "Send": Op.SEND, "Recv": Op.RECV,
}  # fmt: skip
PATIENCE_S = 60


@dataclass(frozen=True, order=True)
class Place:
    """One communicator of one rank; ``life`` counts how often it was made there before."""

    rank: int
    comm: str
    life: int = 0


@dataclass
class Member:
    """What was played and what was recorded at one place: log lines, and OP_DTYPE records in the
    order of ``op_seq``, each op once, ``in_flight`` as SLOT_DTYPE rows."""

    comm_hash: int
    comm_rank: int
    members: list[int]
    calls: list[dict] = field(default_factory=list)
    ops: np.ndarray = field(default_factory=lambda: np.empty(0, OP_DTYPE))
    nets: np.ndarray = field(default_factory=lambda: np.empty(0, OP_DTYPE))
    in_flight: np.ndarray = field(default_factory=lambda: np.empty(0, SLOT_DTYPE))
    losses: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    row: np.void | None = None

    @property
    def n_recorded(self) -> int:
        """Calls that records or slots stand for."""
        slots = self.in_flight["record"]
        return sum(max(1, int(n)) for n in (*self.ops["n_folded"], *slots["n_folded"]))

    @property
    def n_lost(self) -> int:
        return int(self.losses.sum())


class Played:
    """The truth and the records of one scenario, as they stand on disk now."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = read_log(folder / "log.jsonl")
        found = discover(folder / "spool", folder / "boxes").sessions
        self.sessions = [read_session(paths) for paths in found]

    @cached_property
    def members(self) -> dict[Place, Member]:
        """Every communicator of every rank with its calls and its records."""
        made: dict[Place, Member] = {}
        lives: dict[tuple[int, str], int] = defaultdict(int)
        pids: dict[tuple[int, int, int], list[Member]] = defaultdict(list)
        for line in self.log:
            key = (line["rank"], line.get("comm", ""))
            if line["event"] == "comm":
                member = Member(int(line["hash"], 0), line["comm_rank"], line["members"])
                made[Place(*key, lives[key])] = member
                pids[line["pid"], member.comm_hash, member.comm_rank].append(member)
                lives[key] += 1
            elif line["event"] == "call" and not line.get("captured"):
                made[Place(*key, lives[key] - 1)].calls.append(line)
        for session in self.sessions:
            _take(session, pids)
        return made

    def member(self, rank: int, comm: str = "world", life: int = 0) -> Member:
        return self.members[Place(rank, comm, life)]

    @cached_property
    def done(self) -> dict[tuple[int, int], dict]:
        """The line that tells the end of a call, by (rank, id)."""
        return {(d["rank"], d["id"]): d for d in self.log if d["event"] == "done"}

    @property
    def ends(self) -> list[dict]:
        return [line for line in self.log if line["event"] == "end"]

    def counter(self, name: str) -> int:
        """A counter of the NCCL door, over all sessions."""
        return sum(session.nccl_counters.get(name, 0) for session in self.sessions)

    @property
    def losses(self) -> dict[int, int]:
        """Ops lost by reason, over all sessions."""
        total = sum(s.losses.sum(axis=0) for s in self.sessions)
        return {reason: int(n) for reason, n in enumerate(np.atleast_1d(total)) if n}


def _take(session: SessionData, pids: dict[tuple[int, int, int], list[Member]]) -> None:
    for row in session.comms:
        same = pids[session.identity.pid, int(row["comm_hash"]), int(row["comm_rank"])]
        if row["ordinal"] >= len(same):
            continue  # killed after it was made and before the log said so
        member, index = same[int(row["ordinal"])], int(row["comm_index"])
        records = session.records[session.records["comm_index"] == index]
        member.row = row
        member.ops = finished(records)
        member.nets = records[records["kind"] == RecordKind.NET]
        slots = session.in_flight
        member.in_flight = slots[slots["record"]["comm_index"] == index]
        member.losses = session.losses[index : index + 1]


def finished(records: np.ndarray) -> np.ndarray:
    """The final record of each op, by ``op_seq``."""
    is_op = (records["kind"] == RecordKind.COLLECTIVE) | (records["kind"] == RecordKind.P2P)
    is_final = (records["state"] != OpState.OPEN) & (records["state"] != OpState.OVERDUE)
    ops: np.ndarray = records[is_op & is_final]
    return ops[np.argsort(ops["op_seq"], kind="stable")]


def read_log(path: Path) -> list[dict]:
    """Whole lines only: the program may be writing, or was killed in the middle of one."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """A launcher's environment with the plugin, and every file below ``folder``."""
    ours = ("COMMINSIGHT_", "NCCL_", "TORCHELASTIC_", "SLURM_", "OMPI_", "PMI")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    return kept | {
        "NCCL_PROFILER_PLUGIN": str(LIBRARY),
        "COMMINSIGHT_BOX_DIR": str(folder / "boxes"),
        "COMMINSIGHT_SPOOL": str(folder / "spool"),
        "COMMINSIGHT_DISABLE_FILE": str(folder / "disable"),
        "COMMINSIGHT_FLUSH_MS": "20",
        **variables,
    }  # fmt: skip


def command(folder: Path, scenario: str, release: str, header: str) -> list[str]:
    """``header`` lines are put before those of the file."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / f"{scenario.replace('/', '-')}.txt"
    script.write_text(header + (SCENARIOS / f"{scenario}.txt").read_text())
    log = str(folder / "log.jsonl")
    return [str(PROGRAM), str(script), "--log", log, "--release", release]


def play(
    folder: Path,
    scenario: str,
    release: str = "2.30",
    *,
    header: str = "",
    code: int = 0,
    **env: str,
) -> Played:
    """The scenario played to its end, which must be ``code``."""
    ended = subprocess.run(
        command(folder, scenario, release, header), env=environment(folder, **env),
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert ended.returncode == code, ended.stdout + ended.stderr
    return Played(folder)


@contextmanager
def staged(
    folder: Path, scenario: str, release: str = "2.30", *, header: str = "", **env: str
) -> Iterator[subprocess.Popen[str]]:
    """The running program, in a process group of its own that is gone afterwards."""
    process = subprocess.Popen(
        command(folder, scenario, release, header), env=environment(folder, **env),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        kill(process)
        for pipe in filter(None, (process.stdin, process.stdout)):
            pipe.close()


def settled(process: subprocess.Popen[str]) -> dict[str, object]:
    """What the program says once nothing moves any more."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "it ended before it settled"
    told: dict[str, object] = json.loads(line)
    return told


def wait_until_overdue(boxes: Path, limit_s: float) -> None:
    """Until every slot is marked, and in any case for longer than the limit."""
    begun = time.monotonic()
    while not _is_overdue(boxes) or time.monotonic() < begun + 1.5 * limit_s:
        assert time.monotonic() < begun + PATIENCE_S, "not overdue in time"
        time.sleep(0.02)


def _is_overdue(boxes: Path) -> bool:
    slots = [slot for box in boxes.iterdir() for slot in read_box(box).data.in_flight]
    return all(int(slot["state_word"]) & 0xFF == SLOT_OVERDUE for slot in slots)


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL to the program and to all its ranks at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def kill_all(process: subprocess.Popen[str], boxes: Path) -> None:
    """SIGKILL as ``kill``, and until the kernel has buried every rank that keeps a box."""
    kill(process)
    deadline = time.monotonic() + PATIENCE_S
    while boxes.exists() and any(_is_alive(box) for box in boxes.iterdir()):
        assert time.monotonic() < deadline, "a killed rank lives on"
        time.sleep(0.005)


def _is_alive(box: Path) -> bool:
    try:
        return read_box(box).liveness is Liveness.ALIVE
    except InputError:  # killed while it made its box
        return False
