"""Step time if a part of the job behaved like its peers, from communication records alone.

Own work is what lies between a rank's ops (``program``), transfers are what ops take after their
last member came. What of them is beyond the peers is taken away (``whatif_excess``) and the step is
replayed (``replay``): waits for the part shrink with it, slack stays slack. With nothing taken away
the replay gives the step as it was, to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.replay import build_graph, replay
from comminsight.analysis.whatif_barriers import behind_barriers
from comminsight.analysis.whatif_excess import Removed, beyond_each, beyond_others
from comminsight.analysis.whatif_grid import Grid, LabelledStep, grids_of
from comminsight.analysis.whatif_idle import idle_of
from comminsight.analysis.whatif_links import transfers_beyond
from comminsight.analysis.whatif_stages import stages_beyond

REPLAY_CELLS = 1 << 20  # (op, variant) pairs replayed at once: bounds the memory, not the result
N_LEVELS = 3  # low, expected, high
MODEL_RATIO = 0.1  # of a gain, for what waits for what is itself inferred


@dataclass(frozen=True, slots=True)
class Part:
    """What is to behave like its peers, masks by number, None for nothing.

    The work of ``ranks (n_ranks,)``: each becomes like the middle rank, with ``is_joint`` like the
    ranks outside of the part, with ``is_stage`` their stage like the other stages. The transfers of
    ``links``; those of ``op_classes``, which also become like they usually are. ``perhaps
    (n_ranks,)``: ranks whose late work may be this part's doing, which counts in the high bound
    alone (the end of a buffered send is not that of the transfer, and what is missing reads as
    work of the receiver).
    """

    ranks: np.ndarray | None = None
    is_joint: bool = False
    is_stage: bool = False
    links: np.ndarray | None = None
    op_classes: np.ndarray | None = None
    perhaps: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class Gain:
    """Mean time that a step would lose, ns, 0 <= low <= expected <= high."""

    low_ns: float
    expected_ns: float
    high_ns: float


class WhatIf:
    """The steps of a run, to be replayed without what is beyond the peers."""

    def __init__(self, steps: Sequence[LabelledStep], stage_of_rank: np.ndarray) -> None:
        """``stage_of_rank (n_ranks,)`` numbers pipeline stages from 0, all 0 without."""
        self._n_ranks = len(stage_of_rank)
        every = grids_of(steps)
        self._batches, self._labels, self._grids = every.batches, every.labels, every.grids
        self._graphs = [
            build_graph(batch.layout, before)
            for batch, before in zip(every.batches, every.before, strict=True)
        ]
        self._is_used = [self._is_usable(b) for b in range(len(self._batches))]
        self._work = self._placed((grid, beyond_each(grid.work_ns)) for grid in self._grids)
        self._transfer = self._placed((grid, transfers_beyond(grid)) for grid in self._grids)
        self._usual = self._placed(
            (grid, transfers_beyond(grid, has_peers=False)) for grid in self._grids
        )
        self._behind = [
            np.maximum(batch.work_ns, 0) * behind_barriers(own)
            for batch, own in zip(self._batches, self._labels, strict=True)
        ]
        self._idle = [np.zeros(batch.work_ns.shape) for batch in self._batches]
        for grid in self._grids:
            grid.put_one(idle_of(grid, self.step_ns()), self._idle)
        self._stages = stages_beyond(self._batches, self._idle, stage_of_rank)
        for batch, *removed in zip(self._batches, self._work, self._stages, strict=True):
            for matrix in removed:
                matrix[:, :, batch.layout.has_opaque_work] = 0
        for batch, *removed in zip(self._batches, self._transfer, self._usual, strict=True):
            for matrix in removed:
                matrix[:, :, batch.layout.has_opaque_transfer] = 0

    @property
    def n_steps(self) -> int:
        """Steps that can be replayed."""
        return sum(
            len(batch.numbers)
            for batch, used in zip(self._batches, self._is_used, strict=True)
            if used
        )

    @property
    def n_steps_left_out(self) -> int:
        """Steps whose replay does not give them back, or in which ranks ran unusual programs."""
        return sum(len(batch.numbers) for batch in self._batches) - self.n_steps

    @property
    def ranks_alone(self) -> tuple[int, ...]:
        """Numbers of the ranks whose program no other rank runs: their work has no peers."""
        alone = {int(grid.ranks[0]) for grid in self._grids if len(grid.ranks) == 1}
        return tuple(sorted(alone))

    def idle_ns(self) -> np.ndarray:
        """Mean time of a step, ``(n_ranks,)``, that may be a wait for what was not recorded: most
        ranks need it at a place where one of them does without."""
        idle_ns = np.zeros(self._n_ranks)
        for batch, idle in zip(self._batches, self._idle, strict=True):
            of_rank = np.bincount(batch.layout.rank, idle.sum(axis=0), self._n_ranks)
            idle_ns += of_rank / sum(len(own.numbers) for own in self._batches)
        return idle_ns

    def has_peers(self, ranks: np.ndarray) -> bool:
        """Does somebody outside of ``ranks (n_ranks,)`` run the program of each of them?"""
        mixed = [
            bool((~ranks[grid.ranks]).any()) for grid in self._grids if ranks[grid.ranks].any()
        ]
        return bool(mixed) and all(mixed)

    def step_ns(self) -> float:
        """Mean time from one step's end to the next one's, without steps that took more than twice
        as long as the middle one (pauses, evaluation) and without the first where others are."""
        finish: dict[int, int] = {}
        for batch, used in zip(self._batches, self._is_used, strict=True):
            if used:
                finish |= dict(zip(batch.numbers.tolist(), batch.end_ns.max(axis=1), strict=True))
        times = np.array([finish[s] - finish[s - 1] for s in finish if s - 1 in finish])
        if not len(times):
            spans = [(b.end_ns.max(axis=1) - b.entry_ns.min(axis=1)).mean() for b in self._batches]
            return float(np.mean(spans)) if spans else 0.0
        return float(times[times <= 2 * np.median(times)].mean())

    def rank_excess_ns(self) -> np.ndarray:
        """How much of each rank's work is beyond the peers at most, ``(n_ranks,)``, a sum over the
        steps: whom it is worth to replay."""
        excess_ns = np.zeros(self._n_ranks)
        for batch, work in zip(self._batches, self._work, strict=True):
            own = work[-1].sum(axis=0)
            excess_ns += np.bincount(batch.layout.rank, own, minlength=self._n_ranks)
        return excess_ns

    def link_excess_ns(self, n_links: int) -> np.ndarray:
        """The same of the transfers of each link, ``(n_links,)``."""
        excess_ns = np.zeros(n_links + 1)
        for own, transfer in zip(self._labels, self._transfer, strict=True):
            excess_ns += np.bincount(
                own.link % (n_links + 1), transfer[-1].sum(axis=0), n_links + 1
            )
        return excess_ns[:n_links]

    def gains(self, parts: Sequence[Part]) -> list[Gain]:
        """The gain of each part, in their order; zeros where no step can be replayed."""
        if not parts:
            return []
        sums = np.zeros((len(parts), N_LEVELS))
        joint = [self._joint(part) for part in parts]
        for b, used in enumerate(self._is_used):
            if used:
                removed = [
                    self._removed(part, own, b) for part, own in zip(parts, joint, strict=True)
                ]
                sums += self._gained_ns(b, removed)
        return [_gain(row / max(self.n_steps, 1)) for row in sums]

    def gain_of_all(self, parts: Sequence[Part]) -> Gain:
        """The gain when every rank and link and the joint ``parts`` behave like their peers at
        once, or what any of the parts gains alone, if that is more: stages differ by design and
        are not made equal on top of it."""
        joint = [self._joint(part) for part in parts]
        sums = np.zeros((1, N_LEVELS))
        for b, used in enumerate(self._is_used):
            if used:
                work = self._work[b]
                for own in joint:
                    work = work if own is None else np.maximum(work, own[b])
                if work[1].any():
                    work = np.stack([*work[:-1], np.maximum(work[-1], self._behind[b])])
                transfer = np.maximum(self._transfer[b], self._usual[b])
                sums += self._gained_ns(b, [(work, transfer)])
        every = [_gain(sums[0] / max(self.n_steps, 1)), *self.gains(parts)]
        return Gain(
            max(gain.low_ns for gain in every),
            max(gain.expected_ns for gain in every),
            max(gain.high_ns for gain in every),
        )

    def _joint(self, part: Part) -> list[np.ndarray] | None:
        ranks = part.ranks
        if not part.is_joint or ranks is None:
            return None
        return self._placed(
            (grid, beyond_others(grid.work_ns, ranks[grid.ranks])) for grid in self._grids
        )

    def _removed(
        self, part: Part, joint: list[np.ndarray] | None, b: int
    ) -> tuple[np.ndarray, np.ndarray]:
        layout, labels = self._batches[b].layout, self._labels[b]
        rows = np.zeros(len(layout.rank), bool)
        work, transfer = np.zeros(self._work[b].shape), self._transfer[b]
        if part.ranks is not None:
            own = part.ranks[layout.rank]
            source = self._stages if part.is_stage else self._work if joint is None else joint
            work = source[b] * own
            if work[1].any():
                work[-1] = np.maximum(work[-1], self._behind[b])
        if part.links is not None:
            rows |= part.links[labels.link]
        if part.op_classes is not None:
            rows |= part.op_classes[labels.op_class]
            transfer = np.maximum(transfer, self._usual[b])
        if part.perhaps is not None:
            work[-1] = np.maximum(work[-1], self._work[b][1] * part.perhaps[layout.rank])
        return work, transfer * rows

    def _gained_ns(self, b: int, removed: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """Sums over the batch's steps, ``(n_parts, 3)``, of how much earlier the step is over."""
        batch, n_variants = self._batches[b], N_LEVELS * len(removed)
        n_steps, n_ops = batch.start_ns.shape
        at_once = max(1, REPLAY_CELLS // (n_ops * n_variants))
        gained = np.zeros((len(removed), N_LEVELS))
        for begin in range(0, n_steps, at_once):
            chosen = slice(begin, begin + at_once)
            work = np.stack([_less(batch.work_ns[chosen], own[:, chosen]) for own, _ in removed])
            transfer = np.stack(
                [_less(batch.transfer_ns[chosen], own[:, chosen]) for _, own in removed]
            )
            finish = self._finish_ns(b, chosen, work, transfer)
            gained += (batch.end_ns[chosen].max(axis=1) - finish).sum(axis=2)
        return gained

    def _finish_ns(
        self, b: int, chosen: slice, work: np.ndarray, transfer: np.ndarray
    ) -> np.ndarray:
        """When the steps end, ``(…, n_steps)``, with durations ``(…, n_steps, n_ops)``."""
        batch, graph = self._batches[b], self._graphs[b]
        shape, n_ops = work.shape[:-1], work.shape[-1]
        entry = batch.entry_ns[chosen][:, batch.layout.rank[graph.first]]
        entry = np.broadcast_to(entry, (*shape, len(graph.first))).reshape(-1, len(graph.first))
        durations = [_padded(own.reshape(-1, n_ops).T, graph.n_rows) for own in (work, transfer)]
        _, end = replay(graph, entry.T, *durations)
        finish: np.ndarray = end.max(axis=0).reshape(shape)
        return finish

    def _is_usable(self, b: int) -> bool:
        batch = self._batches[b]
        in_grid = np.zeros(len(batch.layout.rank), bool)
        for grid in self._grids:
            for number, rows in grid.parts:
                in_grid[rows if number == b else []] = True
        if not in_grid.all():
            return False
        finish = self._finish_ns(b, slice(None), batch.work_ns, batch.transfer_ns)
        return bool((finish == batch.end_ns.max(axis=1)).all())

    def _placed(self, found: Iterable[tuple[Grid, Removed]]) -> list[np.ndarray]:
        matrices = [np.zeros((N_LEVELS, *batch.work_ns.shape)) for batch in self._batches]
        for grid, removed in found:
            grid.put(removed, matrices)
        return matrices


def _gain(means_ns: np.ndarray) -> Gain:
    low, expected, high = np.maximum(means_ns, 0).tolist()
    wider_low, wider_high = expected * (1 - MODEL_RATIO), expected * (1 + MODEL_RATIO)
    return Gain(min(low, wider_low), expected, max(high, wider_high))


def _padded(durations: np.ndarray, n_rows: int) -> np.ndarray:
    """With zeros for the turns in queues."""
    padded = np.zeros((n_rows, durations.shape[1]), durations.dtype)
    padded[: len(durations)] = durations
    return padded


def _less(duration_ns: np.ndarray, removed: np.ndarray) -> np.ndarray:
    less: np.ndarray = duration_ns - removed.astype(np.int64)
    return less
