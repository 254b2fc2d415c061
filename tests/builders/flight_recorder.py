"""A small job on process groups, played until it stands still, and the dumps that it leaves.

Every rank has a program of calls. Its host calls up to ``run_ahead`` of them before the first is
over (gloo: one); its device does them in order, sends aside, and an op ends when all its members
have come to it.
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

T0 = 1_795_963_064_000_000_000
MS = 1_000_000
NAMES = {
    "nccl": {
        "all_gather": "_all_gather_base", "reduce_scatter": "_reduce_scatter_base",
        "all_gather_list": "all_gather",
    },
    "gloo": {"all_gather_list": "all_gather"},
}  # fmt: skip


class Group(NamedTuple):
    desc: str
    members: tuple[int, ...]
    backend: str = ""  # that of the job where it is not said


class Call(NamedTuple):
    """``peer`` is a place in the group; only sends and receives have one."""

    group: str
    op: str
    shape: tuple[int, ...] = (16, 8)
    peer: int = -1
    dtype: str = "BFloat16"
    site: tuple[str, ...] = ()  # frames like "save trainer.py", innermost first

    @property
    def is_p2p(self) -> bool:
        return self.peer >= 0


@dataclass
class FlightJob:
    """``host_stops[rank]`` is the call that its host never makes, ``device_stops[rank]`` the first
    that never ends on it, ``dead`` are calls (rank, index) whose op can never end."""

    groups: dict[str, Group]
    programs: dict[int, list[Call]]
    backend: str = "nccl"
    run_ahead: int = 6
    host_stops: dict[int, int] = field(default_factory=dict)
    device_stops: dict[int, int] = field(default_factory=dict)
    dead: set[tuple[int, int]] = field(default_factory=set)
    clocks_ns: dict[int, int] = field(default_factory=dict)  # how far a rank's clock is ahead
    called: dict[int, int] = field(default_factory=dict)
    over: dict[int, set[int]] = field(default_factory=dict)
    oldest: dict[int, int] = field(default_factory=dict)  # first call that is not over

    def place(self, rank: int, name: str) -> int:
        return self.groups[name].members.index(rank)

    def backend_of(self, name: str) -> str:
        return self.groups[name].backend or self.backend

    def keys(self, rank: int) -> list[tuple[Any, ...]]:
        """What each call of a rank has in common with the same op's calls of other ranks."""
        numbers: dict[tuple[Any, ...], int] = defaultdict(int)
        found = []
        for call in self.programs[rank]:
            ends: tuple[int, ...] = ()
            if call.is_p2p:
                me = self.place(rank, call.group)
                ends = (me, call.peer) if call.op == "send" else (call.peer, me)
            line = (call.group, ends)
            numbers[line] += 1
            found.append((*line, numbers[line]))
        return found

    def play(self) -> FlightJob:
        """Until nothing moves any more."""
        keys = {rank: self.keys(rank) for rank in self.programs}
        self.called = dict.fromkeys(self.programs, 0)
        self.over = {rank: set() for rank in self.programs}
        self.oldest = dict.fromkeys(self.programs, 0)
        dead = {keys[rank][index] for rank, index in self.dead if index < len(keys[rank])}
        moved = True
        while moved:
            moved = sum(map(self._call, self.programs)) > 0
            ready: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
            for rank in self.programs:
                for index in self._ready(rank):
                    ready[keys[rank][index]].append((rank, index))
            for key, calls in ready.items():
                needed = 2 if key[1] else len(self.groups[key[0]].members)
                if len(calls) == needed and key not in dead:
                    moved |= sum(self._end(rank, index) for rank, index in calls) > 0
        return self

    def _call(self, rank: int) -> bool:
        before = self.called[rank]
        stop = min(self.host_stops.get(rank, 1 << 30), len(self.programs[rank]))
        while self.called[rank] < stop and self._n_open(rank) < self.run_ahead:
            self.called[rank] += 1
        return self.called[rank] > before

    def _n_open(self, rank: int) -> int:
        return self.called[rank] - len(self.over[rank])

    def _ready(self, rank: int) -> Iterable[int]:
        for index in range(self.oldest[rank], self.called[rank]):
            if index in self.over[rank]:
                continue
            yield index
            is_stopped = index >= self.device_stops.get(rank, 1 << 30)
            if is_stopped or self.programs[rank][index].op != "send":
                return

    def _end(self, rank: int, index: int) -> bool:
        if index >= self.device_stops.get(rank, 1 << 30):
            return False
        self.over[rank].add(index)
        while self.oldest[rank] in self.over[rank]:
            self.oldest[rank] += 1
        return True

    def dump(
        self, rank: int, *, ring: int = 10_000, is_only_active: bool = False,
        version: str = "2.10", is_sparse: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """What the rank's recorder holds, in the form of the pickle; ``is_sparse``: no counters of
        groups that were never used."""
        own = [name for name, group in self.groups.items() if rank in group.members]
        ids = {name: number for number, name in enumerate(own)}
        entries, counters = self._entries(rank, ids)
        entries = entries[-ring:]
        if is_sparse:
            counters = {k: own for k, own in counters.items() if max(own.values()) > 0}
        if is_only_active:
            entries = [entry for entry in entries if entry["state"] != "completed"]
        named = {
            name: {"name": name, "desc": group.desc, "ranks": str([*group.members])}
            for name, group in sorted(self.groups.items())
            if rank in group.members
        }
        is_gloo = self.backend == "gloo"
        return {
            "version": version,
            "pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}} if is_gloo else named,
            "pg_status": counters,
            "entries": entries,
        }

    def _entries(
        self, rank: int, ids: Mapping[str, int]
    ) -> tuple[list[dict[str, Any]], dict[str, dict[str, int]]]:
        seqs: dict[tuple[str, bool], int] = defaultdict(int)
        never = {f"last_{which}_collective": -1 for which in ("enqueued", "started", "completed")}
        counters = {str(number): dict(never) for number in ids.values()}
        entries = []
        for index, call in enumerate(self.programs[rank][: self.called[rank]]):
            seqs[call.group, call.is_p2p] += 1
            is_over = index in self.over[rank]
            pg_id = ids[call.group]
            told = counters[str(pg_id)]
            number = seqs[call.group, call.is_p2p]
            if self.backend_of(call.group) == "gloo":
                if call.is_p2p:
                    continue  # gloo numbers sends and receives with the others, and keeps none
                number += seqs[call.group, True]
            told["last_enqueued_collective"] = number
            if is_over:
                told["last_completed_collective"] = number
            entries.append(self._entry(rank, index, call, pg_id, seqs, is_over=is_over))
        for number, entry in enumerate(entries):
            entry["record_id"] = number
        return entries, counters

    def _entry(
        self, rank: int, index: int, call: Call, pg_id: int, seqs: Mapping[tuple[str, bool], int],
        *, is_over: bool,
    ) -> dict[str, Any]:  # fmt: skip
        backend = self.backend_of(call.group)
        name = NAMES[backend].get(call.op, call.op)
        if call.is_p2p:
            arrow = "->" if call.op == "send" else "<-"
            name += f" {self.place(rank, call.group)}{arrow}{call.peer}"
        is_gloo = backend == "gloo"
        n = len(self.groups[call.group].members)
        is_gather = call.op.startswith("all_gather")
        out = [n * call.shape[0], *call.shape[1:]] if is_gather else [*call.shape]
        return {
            "record_id": 0,
            "pg_id": pg_id,
            "process_group": (call.group, self.groups[call.group].desc),
            "collective_seq_id": seqs[call.group, False],
            "p2p_seq_id": seqs[call.group, True],
            "op_id": seqs[call.group, False] + seqs[call.group, True],
            "profiling_name": f"{backend}:{name}",
            "time_created_ns": T0 + index * MS + rank * 1000 + self.clocks_ns.get(rank, 0),
            "input_sizes": [[*call.shape]],
            "input_dtypes": [call.dtype],
            "output_sizes": [out],
            "output_dtypes": [call.dtype],
            "state": "completed" if is_over and not is_gloo else "scheduled",
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None,
            "retired": is_over,
            "timeout_ms": 600_000,
            "is_p2p": call.is_p2p,
            "frames": frames_of(call, index % 50),
        }


def frames_of(call: Call, line: int) -> list[dict[str, Any]]:
    places = (one.split() for one in call.site or (f"{call.op} train.py",))
    return [{"name": name, "filename": file, "line": line} for name, file in places]


def torch_pickle(value: Any) -> bytes:
    """The value as torch's own pickler writes it: only texts are kept in the memo."""
    memo: dict[str, int] = {}
    return b"\x80\x02" + b"".join(_pieces(value, memo)) + b"."


def _pieces(value: Any, memo: dict[str, int]) -> Iterator[bytes]:
    if isinstance(value, dict):
        inner = (piece for pair in value.items() for one in pair for piece in _pieces(one, memo))
        yield b"}("
        yield from inner
        yield b"u"
    elif isinstance(value, list | tuple):
        is_pair = isinstance(value, tuple) and len(value) == 2
        yield b"" if is_pair else b"]("
        yield from (piece for one in value for piece in _pieces(one, memo))
        yield b"\x86" if is_pair else b"e"
    elif isinstance(value, str):
        yield _text(value, memo)
    else:
        yield _scalar(value)


def _text(value: str, memo: dict[str, int]) -> bytes:
    if (number := memo.get(value)) is not None:
        return b"h%c" % number if number < 256 else b"j" + struct.pack("<I", number)
    number = memo[value] = len(memo)
    keep = b"q%c" % number if number < 256 else b"r" + struct.pack("<I", number)
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode() + keep


def _scalar(value: int | bool | None) -> bytes:
    if value is None or isinstance(value, bool):
        return {None: b"N", True: b"\x88", False: b"\x89"}[value]
    if 0 <= value < 1 << 16:
        return b"K%c" % value if value < 256 else b"M" + struct.pack("<H", value)
    is_short = -(1 << 31) <= value < 1 << 31
    return b"J" + struct.pack("<i", value) if is_short else b"\x8a\x08" + struct.pack("<q", value)


def write_dumps(
    folder: Path, job: FlightJob, *, ranks: Iterable[int] | None = None, name: str = "rank_{}",
    is_json: bool = False, **form: Any,
) -> list[Path]:  # fmt: skip
    """One file per rank, ``name`` with the rank in it."""
    paths = []
    for rank in job.programs if ranks is None else ranks:
        path = folder / name.format(rank)
        document = job.dump(rank, **form)
        if is_json:
            for entry in document["entries"]:
                del entry["frames"]
        path.write_bytes(json.dumps(document).encode() if is_json else torch_pickle(document))
        paths.append(path)
    return paths


def parallel_job(
    tp: int, pp: int, dp: int, *, n_steps: int = 3, n_microbatches: int = 2, **settings: Any
) -> FlightJob:
    """A training job: tensor parallel layers, a pipeline, gradients, and a number over all."""
    world = tp * pp * dp
    grid = {(d, p, t): d * pp * tp + p * tp + t
            for d in range(dp) for p in range(pp) for t in range(tp)}  # fmt: skip
    groups = {"0": Group("default_pg", tuple(range(world)))}
    owners: dict[tuple[str, int], str] = {}
    kinds: dict[str, Callable[[int, int, int], tuple[int, int]]] = {
        "TENSOR_MODEL_PARALLEL_GROUP": lambda d, p, t: (d, p),
        "PIPELINE_MODEL_PARALLEL_GROUP": lambda d, p, t: (d, t),
        "DATA_PARALLEL_GROUP": lambda d, p, t: (p, t),
    }
    for desc, line in kinds.items():
        members: dict[Any, list[int]] = defaultdict(list)
        for place, rank in grid.items():
            members[line(*place)].append(rank)
        for own in members.values():
            name = str(len(groups))
            groups[name] = Group(desc, tuple(sorted(own)))
            owners.update({(desc, rank): name for rank in own})
    programs = {
        rank: _program(rank, p, pp, tp, dp, owners, n_steps, n_microbatches)
        for (_, p, _), rank in grid.items()
    }
    return FlightJob(groups, programs, **settings)


def _program(
    rank: int, stage: int, pp: int, tp: int, dp: int, owners: Mapping[tuple[str, int], str],
    n_steps: int, n_microbatches: int,
) -> list[Call]:  # fmt: skip
    tensor, pipe, data = (
        owners[desc, rank]
        for desc in (
            "TENSOR_MODEL_PARALLEL_GROUP", "PIPELINE_MODEL_PARALLEL_GROUP", "DATA_PARALLEL_GROUP"
        )
    )  # fmt: skip
    layer = [Call(tensor, "all_gather"), Call(tensor, "reduce_scatter")] * (tp > 1)
    came, went = stage > 0, stage < pp - 1
    forward = [Call(pipe, "recv", peer=stage - 1)] * came + layer * 2
    forward += [Call(pipe, "send", peer=stage + 1)] * went
    backward = [Call(pipe, "recv", peer=stage + 1)] * went + layer * 2
    backward += [Call(pipe, "send", peer=stage - 1)] * came
    end = [Call(data, "all_reduce", (4096,))] * (dp > 1) * 2 + [Call("0", "all_reduce", (1,))]
    return (forward * n_microbatches + backward * n_microbatches + end) * n_steps
