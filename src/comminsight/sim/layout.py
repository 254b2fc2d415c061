"""The job that is simulated: its parallel layout, its sizes and its cost model.

Ranks are laid out as a device mesh (pp, dp, tp) lays them out: ``rank = (pp * DP + dp) * TP + tp``.
Sizes and speeds default to a small CPU job over gloo, since that is what the real jobs of this
repository are; scale them for anything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Schedule(StrEnum):
    """What a step does."""

    DDP = "ddp"
    FSDP2 = "fsdp2"
    MEGATRON = "megatron"
    MOE = "moe"


class Place(NamedTuple):
    """Coordinates of a rank in the mesh."""

    pp: int
    dp: int
    tp: int

    @property
    def label(self) -> str:
        """For example ``tp0 pp1 dp0``."""
        return f"tp{self.tp} pp{self.pp} dp{self.dp}"


@dataclass(frozen=True, slots=True)
class SimLayout:
    """A job. Durations are per rank: ``forward_ns`` and ``backward_ns`` of one layer of one
    microbatch, ``optimizer_ns`` and ``between_ns`` (data loading) once per step.

    ``has_startup`` begins with what DDP emits before its buckets are settled: set-up ops, one
    bucket for all gradients in the first step, two broadcasts in the second. ``stage_weights``
    scales the compute of each pipeline stage: imbalance by design. A transfer of ``b`` bytes costs
    ``alpha_ns + b / bandwidth`` with the bandwidth of the slowest hop.
    """

    schedule: Schedule
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    ranks_per_node: int = 8
    layers: int = 2
    microbatches: int = 4
    buckets: int = 4
    bucket_bytes: int = 2_102_272
    activation_bytes: int = 262_144
    forward_ns: int = 2_000_000
    backward_ns: int = 4_000_000
    optimizer_ns: int = 3_000_000
    between_ns: int = 1_000_000
    stage_weights: tuple[float, ...] = ()
    has_loss_reduce: bool = True
    has_startup: bool = False
    is_send_buffered: bool = True
    alpha_ns: int = 40_000
    intra_gbs: float = 4.0
    inter_gbs: float = 1.0

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.tp * self.pp * self.dp

    def place(self, global_rank: int) -> Place:
        """Coordinates of ``global_rank``."""
        rest, tp = divmod(global_rank, self.tp)
        pp, dp = divmod(rest, self.dp)
        return Place(pp, dp, tp)

    def rank_at(self, pp: int, dp: int, tp: int) -> int:
        """The global rank at the given coordinates."""
        return (pp * self.dp + dp) * self.tp + tp

    def node(self, global_rank: int) -> int:
        """The node that runs ``global_rank``."""
        return global_rank // self.ranks_per_node

    def stage_weight(self, global_rank: int) -> float:
        """Compute of this rank's stage relative to the others."""
        return self.stage_weights[self.place(global_rank).pp] if self.stage_weights else 1.0


def ddp_layout(world_size: int, *, has_loss_reduce: bool = True, buckets: int = 4) -> SimLayout:
    """Data parallel: bucket all-reduces overlap the backward pass, all on ``default_pg``."""
    return SimLayout(
        schedule=Schedule.DDP, dp=world_size, layers=4, microbatches=1,
        buckets=buckets, has_loss_reduce=has_loss_reduce,
    )  # fmt: skip


def fsdp2_layout(world_size: int, *, layers: int = 4) -> SimLayout:
    """Fully sharded: prefetched all-gathers, reduce-scatters, one norm all-reduce."""
    return SimLayout(schedule=Schedule.FSDP2, dp=world_size, layers=layers, microbatches=1)


def megatron_layout(
    tp: int, pp: int, dp: int, *, microbatches: int = 4, stage_weights: tuple[float, ...] = ()
) -> SimLayout:
    """TP all-reduces, 1F1B over PP, gradient all-reduce over DP, one-element anchor."""
    return SimLayout(
        schedule=Schedule.MEGATRON, tp=tp, pp=pp, dp=dp,
        microbatches=microbatches, buckets=2, stage_weights=stage_weights,
    )  # fmt: skip


def moe_layout(world_size: int, ep: int, *, layers: int = 3) -> SimLayout:
    """Mixture of experts: all-to-all dispatch and combine inside EP, gradients over the world."""
    return SimLayout(
        schedule=Schedule.MOE, dp=world_size, ep=ep, layers=layers, microbatches=1, buckets=2
    )
