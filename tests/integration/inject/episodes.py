"""The episodes of the tests here, and what is read of them."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from comminsight.format.segment import SegmentData, read_segment
from comminsight.lab.truth import read_truth

STEPS = 4
FLOOD_OPS = 5000
KILL_OPS, KILL_AT_STEP = 60, 2
FAILURES = ("exception", "sys_exit", "os_exit", "sigkill")  # ways to end that the others feel


@dataclass(frozen=True)
class Spec:
    """Arguments of ``lab.pool.Episode``, without importing torch when tests are collected."""

    name: str
    arguments: tuple[str, ...]
    ranks: int = 2
    timeout_s: float = 90.0


def spec(name: str, job: str, *arguments: object, ranks: int = 2) -> Spec:
    words = ("--job", job, "--steps", str(STEPS), *map(str, arguments))
    return Spec(name, words, ranks)


COMPARED = [
    spec("ddp", "ddp", "--layers", 4, "--hidden", 32),
    spec("forms", "forms", ranks=3),
    spec("fsdp2", "fsdp2"),
    spec("tpsp", "tpsp"),
    spec("pp", "pp"),
    spec("tp_pp_dp", "tp_pp_dp", "--microbatches", 2, "--layers", 1, ranks=8),
    spec("timeout", "timeout"),
    *(spec(how, "ddp", "--exit-rank", 1, "--exit-at", 2, "--exit-how", how) for how in FAILURES),
]
RECORDED = [
    *COMPARED,
    spec("threads", "threads", "--ops", 100),
    spec("loader", "loader"),
    spec("abandon", "abandon"),
    spec("flood", "flood", "--ops", FLOOD_OPS // STEPS),
    spec(
        "kill", "kill", "--ops", KILL_OPS, "--exit-rank", 1, "--exit-at", KILL_AT_STEP,
        "--exit-how", "sigkill",
    ),
]  # fmt: skip
BARE = COMPARED


@dataclass(frozen=True)
class LabRuns:
    """Results by episode: with recording, without it, and with a recorder that is missing."""

    recorded: dict
    bare: dict
    blind: dict

    def truth(self, name: str, kind: str, rank: int | None = None) -> list[dict]:
        lines = read_truth(self.recorded[name].truth)
        return [t for t in lines if t["kind"] == kind and rank in (None, t["rank"])]

    def segments(self, name: str) -> dict[int, SegmentData]:
        """The only segment of every rank."""
        files = sorted(Path(self.recorded[name].run, "inspector_logs").glob("*/*.ciseg*"))
        segments = [read_segment(file) for file in files]
        return {s.identity.global_rank: s for s in segments}

    def ops(self, name: str, desc: str | None = None) -> dict[int, np.ndarray]:
        """Ops that are over, in program order per communicator, by rank."""
        chosen = {}
        for rank, segment in self.segments(name).items():
            records = segment.records
            is_op = np.isin(records["kind"], (1, 2)) & (records["state"] > 2)
            if desc is not None:
                rows = segment.comms[segment.comms["desc"] == desc.encode()]
                is_op &= np.isin(records["comm_index"], rows["comm_index"])
            ops = records[is_op]
            chosen[rank] = ops[np.lexsort((ops["op_seq"], ops["comm_index"]))]
        return chosen


def losses_by_step(path: str) -> dict[tuple[int, int], str]:
    """The loss of every (rank, step), as the hexadecimal number that the job wrote."""
    return {(t["rank"], t["step"]): t["loss"] for t in read_truth(path) if t["kind"] == "step"}


def errors_by_rank(path: str) -> dict[int, tuple[str, str]]:
    """Type and text of the exception that ended a rank, without ports and durations."""
    return {
        t["rank"]: (t["type"], re.sub(r"\d+", "N", t["text"]))
        for t in read_truth(path)
        if t["kind"] == "error"
    }
