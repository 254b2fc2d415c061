"""What one rank does in one step: compute segments, entered ops and waits, as a flat program.

An instruction is ``(code, operand, slot)``: WORK runs segment ``operand``; ENTER issues op
``operand`` and keeps its ticket in ``slot``; WAIT blocks on ``slot``; STOP never goes on. A
blocking call is ENTER followed by WAIT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from comminsight.errors import UsageError
from comminsight.model.ops import DTYPE_SIZE_BYTES, DType, Op, RedOp
from comminsight.sim.groups import SimGroup
from comminsight.sim.layout import SimLayout

WORK, ENTER, WAIT, STOP = 0, 1, 2, 3
SCALAR_BYTES = 4  # of one number: a loss, a norm, a flag

Instruction = tuple[int, int, int]


class Phase(StrEnum):
    """What a compute segment or an op belongs to: the truth that phases are checked against.

    Late ranks are late in forward and backward. Evaluation, checkpoint and idle time lie between
    the steps; an iteration of a serving job is ``FORWARD``.
    """

    FORWARD = "forward"
    BACKWARD = "backward"
    GRAD_SYNC = "grad_sync"
    OPTIMIZER = "optimizer"
    DATA = "data"
    EVALUATION = "evaluation"
    CHECKPOINT = "checkpoint"
    IDLE = "idle"


PHASES = tuple(Phase)
BETWEEN_STEPS = frozenset({Phase.EVALUATION, Phase.CHECKPOINT, Phase.IDLE})


class Segment(NamedTuple):
    """A stretch of own work without jitter."""

    duration_ns: int
    phase: Phase


class OpSpec(NamedTuple):
    """Static part of an op; ``peer`` is the root or the partner, comm-local, -1 for none.

    ``phase`` and ``microbatch`` (-1 for none) are the truth about it and reach no record.
    """

    comm_id: int
    comm_index: int
    op: Op
    n_elements: int
    size_bytes: int
    dtype: DType
    red_op: RedOp
    peer: int
    is_async: bool
    n_members: int
    cost_ns: int
    source: int  # global rank of the sender of a P2P op, -1 for collectives
    target: int
    phase: Phase = Phase.FORWARD
    microbatch: int = -1


@dataclass(slots=True)
class Program:
    """Instructions of one step over shared segment and op tables."""

    instructions: list[Instruction] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    ops: list[OpSpec] = field(default_factory=list)

    def position_of(self, op_index: int) -> int:
        """Position of the ENTER of the ``op_index``-th op; -1 is the last. Raises UsageError."""
        entered = [i for i, (code, _, _) in enumerate(self.instructions) if code == ENTER]
        if not -len(entered) <= op_index < len(entered):
            raise UsageError(
                f"op {op_index} is asked for, but the step has {len(entered)} ops",
                next_step="choose an op_index within the step",
            )
        return entered[op_index]

    def stopped_at(self, op_index: int) -> Program:
        """The same program, stopping where it would enter its ``op_index``-th op."""
        cut = self.position_of(op_index)
        return Program([*self.instructions[:cut], (STOP, 0, 0)], self.segments, self.ops)

    def without_op(self, op_index: int) -> Program:
        """The same program without its ``op_index``-th op and the wait for it."""
        cut = self.position_of(op_index)
        slot = self.instructions[cut][2]
        kept = self.instructions[:cut]
        is_waiting = True
        for code, operand, place in self.instructions[cut + 1 :]:
            if is_waiting and code == WAIT and operand == slot:
                is_waiting = False
                continue
            kept.append((code, operand, place))
        return Program(kept, self.segments, self.ops)

    def without_ops(self) -> Program:
        """Only the own work."""
        work = [instruction for instruction in self.instructions if instruction[0] == WORK]
        return Program(work, self.segments, self.ops)


def with_shared_ops(programs: Sequence[Program]) -> list[Program]:
    """The same programs over one op table; their segments must already agree."""
    shared: list[OpSpec] = []
    moved = []
    for program in programs:
        first = len(shared)
        instructions = [
            (code, operand + first if code == ENTER else operand, slot)
            for code, operand, slot in program.instructions
        ]
        shared.extend(program.ops)
        moved.append(Program(instructions, programs[0].segments, shared))
    return moved


def joined(programs: Sequence[Program], parts: Sequence[Sequence[int]]) -> list[Program]:
    """One program per entry of ``parts``: the named ``programs`` one after the other, all over one
    op table and one segment table. Every part must wait for the ops that it enters."""
    ops: list[OpSpec] = []
    segments: list[Segment] = []
    moved: list[list[Instruction]] = []
    for program in programs:
        first = {ENTER: len(ops), WORK: len(segments)}
        moved.append(
            [(code, operand + first.get(code, 0), slot)
             for code, operand, slot in program.instructions]
        )  # fmt: skip
        ops.extend(program.ops)
        segments.extend(program.segments)
    return [
        Program([instruction for part in names for instruction in moved[part]], segments, ops)
        for names in parts
    ]


class ProgramWriter:
    """Writes the program of one rank; groups are named by dimension (``world``, ``dp``, …)."""

    def __init__(
        self,
        layout: SimLayout,
        groups: tuple[SimGroup, ...],
        dimensions: dict[str, int],
        global_rank: int,
    ) -> None:
        """``dimensions`` is this rank's table from dimension to ``comm_id``."""
        self.layout = layout
        self.place = layout.place(global_rank)
        self.program = Program()
        self.phase = Phase.DATA  # of the ops that follow
        self.microbatch = -1
        self._groups = groups
        self._dimensions = dimensions
        self._rank = global_rank
        self._weight = layout.stage_weight(global_rank)
        mine = [group.comm_id for group in groups if global_rank in group.members]
        self._comm_index = {comm_id: place + 1 for place, comm_id in enumerate(mine)}
        self._next_slot = 0

    def work(self, duration_ns: float, phase: Phase) -> None:
        """Own work; forward and backward scale with the weight of the stage."""
        self.phase = phase
        is_weighted = phase in {Phase.FORWARD, Phase.BACKWARD}
        scaled_ns = round(duration_ns * (self._weight if is_weighted else 1.0))
        self.program.instructions.append((WORK, len(self.program.segments), 0))
        self.program.segments.append(Segment(scaled_ns, phase))

    def label(self, phase: Phase, microbatch: int = -1) -> None:
        """What the ops that follow belong to."""
        self.phase, self.microbatch = phase, microbatch

    def size(self, dimension: str) -> int:
        """Members of this rank's group of a dimension; 1 where there is no group."""
        if dimension not in self._dimensions:
            return 1
        return len(self._groups[self._dimensions[dimension]].members)

    def comm_rank(self, dimension: str) -> int:
        """This rank's number in its group of a dimension; 0 where there is no group."""
        if dimension not in self._dimensions:
            return 0
        return self._groups[self._dimensions[dimension]].members.index(self._rank)

    def issue(
        self,
        dimension: str,
        op: Op,
        size_bytes: int,
        *,
        dtype: DType = DType.FLOAT32,
        peer: int = -1,
        is_async: bool = True,
    ) -> int:
        """Enters an op without waiting and returns its slot; -1 if the group does not exist."""
        if dimension not in self._dimensions:
            return -1
        group = self._groups[self._dimensions[dimension]]
        slot = self._next_slot
        self._next_slot += 1
        self.program.instructions.append((ENTER, len(self.program.ops), slot))
        self.program.ops.append(self._spec(group, op, size_bytes, dtype, peer, is_async=is_async))
        return slot

    def call(
        self,
        dimension: str,
        op: Op,
        size_bytes: int,
        *,
        peer: int = -1,
        dtype: DType = DType.FLOAT32,
    ) -> None:
        """Enters an op and waits for it."""
        self.wait(self.issue(dimension, op, size_bytes, dtype=dtype, peer=peer, is_async=False))

    def wait(self, slot: int) -> None:
        """Waits for the op in ``slot``; nothing for -1."""
        if slot >= 0:
            self.program.instructions.append((WAIT, slot, 0))

    def _spec(
        self, group: SimGroup, op: Op, size_bytes: int, dtype: DType, peer: int, *, is_async: bool
    ) -> OpSpec:
        source = target = -1
        if op in {Op.SEND, Op.RECV}:
            pair = (self._rank, group.members[peer])
            source, target = pair if op is Op.SEND else pair[::-1]
        is_reducing = op in {Op.ALL_REDUCE, Op.REDUCE_SCATTER, Op.REDUCE}
        ends = group.members if source < 0 else (source, target)
        return OpSpec(
            group.comm_id, self._comm_index[group.comm_id], op,
            size_bytes // DTYPE_SIZE_BYTES[dtype], size_bytes, dtype,
            RedOp.SUM if is_reducing else RedOp.UNKNOWN, peer, is_async, len(group.members),
            self._cost_ns(ends, op, size_bytes), source, target, self.phase, self.microbatch,
        )  # fmt: skip

    def _cost_ns(self, members: tuple[int, ...], op: Op, size_bytes: int) -> int:
        """Alpha-beta cost; an all-reduce moves its bytes twice, the others once."""
        layout, n = self.layout, len(members)
        is_local = len({layout.node(rank) for rank in members}) == 1
        bytes_per_ns = layout.intra_gbs if is_local else layout.inter_gbs
        factor = (2 if op is Op.ALL_REDUCE else 1) * (n - 1) / n if n > 2 else 1.0
        return round(
            layout.alpha_ns * max(1, (n - 1).bit_length()) + factor * size_bytes / bytes_per_ns
        )
