"""Pipeline schedules: 1F1B, and interleaved with several model chunks per stage.

Stage ``s`` of ``p`` warms up ``p - s - 1`` forwards, with ``v`` chunks
``2 (p - s - 1) + (v - 1) p``, then goes one forward, one backward, and cools down. The k-th
forward of an interleaved stage is of chunk ``k // p % v``, backwards count the chunks down. A send
is waited for before the next one of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from comminsight.model.ops import Op
from comminsight.sim.program import Phase, ProgramWriter

_ISSUE_NS = 10_000  # of the call itself: the next op begins later than the send
Layers = Callable[[Phase, int, bool], None]  # (phase, microbatch, is this the model's last chunk)


class Pass(NamedTuple):
    """One forward or backward of one microbatch through one chunk."""

    phase: Phase
    microbatch: int
    chunk: int


def passes(n_stages: int, stage: int, microbatches: int, chunks: int) -> Iterator[Pass]:
    """All passes of one stage in one step, in order."""
    n_passes = microbatches * chunks
    warm_up = n_stages - stage - 1
    if chunks > 1:
        warm_up = 2 * warm_up + (chunks - 1) * n_stages
    warm_up = min(warm_up, n_passes)
    for nth in range(n_passes + warm_up):
        if nth < n_passes:
            yield _pass(Phase.FORWARD, nth, n_stages, chunks)
        if nth >= warm_up:
            yield _pass(Phase.BACKWARD, nth - warm_up, n_stages, chunks)


def _pass(phase: Phase, nth: int, n_stages: int, chunks: int) -> Pass:
    if chunks == 1:
        return Pass(phase, nth, 0)
    chunk = nth // n_stages % chunks
    microbatch = nth // (n_stages * chunks) * n_stages + nth % n_stages
    return Pass(phase, microbatch, chunk if phase is Phase.FORWARD else chunks - 1 - chunk)


class PipelineWriter:
    """Writes passes: receive, the layers of the chunk, send."""

    def __init__(
        self, writer: ProgramWriter, layers: Layers, *, is_evaluation: bool = False
    ) -> None:
        """``layers`` writes the work and the collectives of one pass."""
        self._writer, self._layers = writer, layers
        self._n_stages = writer.size("pp")
        self._stage = writer.comm_rank("pp")
        self._chunks = writer.layout.chunks
        self._is_evaluation = is_evaluation
        self._sends = {Phase.FORWARD: -1, Phase.BACKWARD: -1}

    def write_step(self) -> None:
        """All passes of a step."""
        layout = self._writer.layout
        for one in passes(self._n_stages, self._stage, layout.microbatches, self._chunks):
            self._write(one)
        self._finish()

    def write_forwards(self, n_batches: int) -> None:
        """Forward passes only, as an evaluation runs them."""
        for microbatch in range(n_batches):
            for chunk in range(self._chunks):
                self._write(Pass(Phase.FORWARD, microbatch, chunk))
        self._finish()

    def _write(self, one: Pass) -> None:
        ahead = 1 if one.phase is Phase.FORWARD else -1
        is_first = self._is_end(one, -ahead)
        is_last = self._is_end(one, ahead)
        if not is_first:
            self._label(one)
            self._p2p(Op.RECV, one, -ahead)
        self._label(one)
        self._layers(self._writer.phase, one.microbatch, self._is_end(one, 1))
        self._label(one)
        if not is_last:
            self._p2p(Op.SEND, one, ahead)

    def _label(self, one: Pass) -> None:
        phase = Phase.EVALUATION if self._is_evaluation else one.phase
        self._writer.label(phase, one.microbatch)

    def _is_end(self, one: Pass, direction: int) -> bool:
        """Whether the model ends at this chunk of this stage, in that direction."""
        stage, chunk = (self._n_stages - 1, self._chunks - 1) if direction > 0 else (0, 0)
        return self._stage == stage and one.chunk == chunk

    def _p2p(self, op: Op, one: Pass, direction: int) -> None:
        peer = (self._stage + direction) % self._n_stages
        size_bytes = self._writer.layout.activation_bytes
        if op is Op.RECV:
            self._writer.call("pp", op, size_bytes, peer=peer)
            return
        self._writer.wait(self._sends[one.phase])
        self._sends[one.phase] = self._writer.issue("pp", op, size_bytes, peer=peer)
        self._writer.work(_ISSUE_NS, one.phase)

    def _finish(self) -> None:
        for slot in self._sends.values():
            self._writer.wait(slot)


def write_pipeline(writer: ProgramWriter) -> None:
    """A step of a job that has nothing but its pipeline."""
    layout = writer.layout

    def layers(phase: Phase, microbatch: int, is_head: bool) -> None:  # noqa: FBT001
        del microbatch, is_head
        duration_ns = layout.backward_ns if phase is Phase.BACKWARD else layout.forward_ns
        writer.work(duration_ns * layout.layers, phase)

    writer.work(layout.between_ns, Phase.DATA)
    PipelineWriter(writer, layers).write_step()
    writer.work(layout.optimizer_ns, Phase.OPTIMIZER)
