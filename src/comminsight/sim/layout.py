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
    MEGATRON = "megatron"  # the skeleton: TP all-reduces, 1F1B, DP all-reduce, one-element anchor
    MOE = "moe"
    DDP_ACCUMULATED = "ddp_accumulated"  # no_sync in all microbatches but the last
    DDP_PAIR = "ddp_pair"  # two models in turns, each with a backward pass of its own
    FSDP1 = "fsdp1"
    FSDP2_ACCUMULATED = "fsdp2_accumulated"
    ZERO1 = "zero1"
    ZERO2 = "zero2"
    ZERO3 = "zero3"
    MEGATRON_CORE = "megatron_core"  # all that Megatron emits, by its own group names
    PIPELINE = "pipeline"  # nothing but the sends and receives of a pipeline
    TENSOR = "tensor"  # nothing but tensor parallel collectives
    SERVING = "serving"  # tensor parallel replicas that decode
    SERVING_EP = "serving_ep"  # data parallel attention over expert parallel layers


class Batching(StrEnum):
    """What the iterations of a serving job take in."""

    FIXED = "fixed"  # batches of one size; every so often a prefill of as many sequences
    SEPARATE = "separate"  # prompts come before decodes, never with them
    CHUNKED = "chunked"  # decodes, and what the budget of tokens leaves of a prompt
    SPECULATIVE = "speculative"  # separate; a decode verifies several tokens of each sequence
    PREFILL = "prefill"  # prompts only: another job decodes
    STATIC = "static"  # as many sequences all the time, prompts of one length


class Naming(StrEnum):
    """Who names the groups."""

    MESH = "mesh"
    MEGATRON = "megatron"
    SERVING = "serving"


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
    bucket for all gradients (of a model) in the first step, two broadcasts in the second; the
    accumulated one and the pair have the bucket alone. ``stage_weights``
    scales the compute of each pipeline stage: imbalance by design. A transfer of ``b`` bytes costs
    ``alpha_ns + b / bandwidth`` with the bandwidth of the slowest hop.

    ``cp`` and ``ep`` divide the ``dp`` coordinate. ``chunks`` are the model chunks per stage of an
    interleaved pipeline. ``is_fp16`` checks for overflow in every step. After every
    ``eval_every``-th step follow ``eval_batches`` forward passes, after every
    ``checkpoint_every``-th a pause; before every ``idle_every``-th nobody asks for anything; every
    ``prefill_every``-th iteration of a serving job is a prefill (0: never). Replica ``i`` of the
    ``dp`` coordinate ends ``steps_short[i]`` steps before the others. ``pair_bytes`` are the
    buckets of the model that a pair trains first. ``MEGATRON`` and ``MOE`` reduce a number over all
    ranks for every microbatch and batch of an evaluation with ``has_batch_metric``, and the one
    that ends a step before its gradients with ``has_late_gradients``. With a ``batching`` that is
    not FIXED ``activation_bytes`` are those of one token. FSDP2 scatters no gradients of ``frozen``
    layers, and gathers those again that lie behind one that is not; with ``layer_reduce_bytes`` it
    all-reduces as many in every layer of the forward pass.
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
    naming: Naming = Naming.MESH
    cp: int = 1
    chunks: int = 1
    has_sequence_parallel: bool = False
    has_dist_opt: bool = False
    has_clipping: bool = True
    is_fp16: bool = False
    eval_every: int = 0
    eval_batches: int = 2
    checkpoint_every: int = 0
    checkpoint_ns: int = 2_000_000_000
    idle_every: int = 0
    idle_ns: int = 5_000_000_000
    prefill_every: int = 0
    steps_short: tuple[int, ...] = ()
    pair_bytes: tuple[int, ...] = ()
    has_batch_metric: bool = False
    has_late_gradients: bool = False
    batching: Batching = Batching.FIXED
    frozen: tuple[int, ...] = ()
    layer_reduce_bytes: int = 0

    @property
    def dimensions(self) -> frozenset[str]:
        """The groups that the framework creates."""
        if self.naming is Naming.SERVING:
            is_expert = self.schedule is Schedule.SERVING_EP
            return frozenset({"tp", "dp", "ep"} if is_expert else {"tp"})
        own = {"tp", "pp", "dp", "cp", "mp"}
        own |= {"ep", "edp"} if self.ep > 1 else set()
        return frozenset(own | {"dist_opt"} if self.has_dist_opt else own)

    def n_steps(self, global_rank: int, steps: int) -> int:
        """Steps of one rank in a run of ``steps``."""
        short = self.steps_short
        return max(0, steps - short[self.place(global_rank).dp]) if short else steps

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


def ddp_accumulated_layout(world_size: int, *, microbatches: int = 4) -> SimLayout:
    """Data parallel with ``no_sync``: microbatches but the last are invisible."""
    return SimLayout(
        schedule=Schedule.DDP_ACCUMULATED, dp=world_size, microbatches=microbatches, layers=4
    )


def ddp_pair_layout(world_size: int, pair_bytes: tuple[int, ...], *, buckets: int = 4) -> SimLayout:
    """A discriminator and its generator, each under DDP: one gradient run right behind the
    other."""
    return SimLayout(
        schedule=Schedule.DDP_PAIR, dp=world_size, layers=4, microbatches=1, buckets=buckets,
        pair_bytes=pair_bytes,
    )  # fmt: skip


def fsdp1_layout(world_size: int, *, layers: int = 4, has_clipping: bool = True) -> SimLayout:
    """One flat parameter per block and for the root; the clipped norm is one number."""
    return SimLayout(
        schedule=Schedule.FSDP1, dp=world_size, layers=layers, microbatches=1,
        has_clipping=has_clipping,
    )  # fmt: skip


def fsdp2_frozen_layout(
    world_size: int, frozen: tuple[int, ...], *, layers: int = 8, has_clipping: bool = True
) -> SimLayout:
    """Most parameters are frozen: adapters of some layers are trained, or the last layers."""
    return SimLayout(
        schedule=Schedule.FSDP2_ACCUMULATED, dp=world_size, layers=layers, microbatches=1,
        has_clipping=has_clipping, frozen=frozen,
    )  # fmt: skip


def fsdp2_accumulated_layout(
    world_size: int, *, microbatches: int = 3, layers: int = 4, has_clipping: bool = True
) -> SimLayout:
    """Gathers in every microbatch, scatters in the last."""
    return SimLayout(
        schedule=Schedule.FSDP2_ACCUMULATED, dp=world_size, layers=layers,
        microbatches=microbatches, has_clipping=has_clipping,
    )  # fmt: skip


def zero_layout(
    stage: int, world_size: int, *, microbatches: int = 2, is_fp16: bool = True
) -> SimLayout:
    """DeepSpeed's ZeRO of a stage (1, 2 or 3) over all ranks."""
    return SimLayout(
        schedule=Schedule(f"zero{stage}"), dp=world_size, layers=4, microbatches=microbatches,
        is_fp16=is_fp16,
    )  # fmt: skip


def megatron_core_layout(
    tp: int, pp: int, dp: int, *, microbatches: int = 4, cp: int = 1, ep: int = 1, chunks: int = 1,
    has_dist_opt: bool = False,
) -> SimLayout:  # fmt: skip
    """What Megatron-LM emits; ``dp`` counts the ranks of data and context parallel together."""
    return SimLayout(
        schedule=Schedule.MEGATRON_CORE, naming=Naming.MEGATRON, tp=tp, pp=pp, dp=dp, cp=cp, ep=ep,
        microbatches=microbatches, chunks=chunks, buckets=2, has_dist_opt=has_dist_opt,
    )  # fmt: skip


def pipeline_layout(pp: int, *, microbatches: int = 4, chunks: int = 1) -> SimLayout:
    """A pipeline alone: the default group, nothing but sends and receives."""
    return SimLayout(schedule=Schedule.PIPELINE, pp=pp, microbatches=microbatches, chunks=chunks)


def tensor_layout(tp: int, *, has_sequence_parallel: bool = False, dp: int = 1) -> SimLayout:
    """Tensor parallel alone; more than one ``dp`` are jobs that do not speak to each other."""
    return SimLayout(
        schedule=Schedule.TENSOR, tp=tp, dp=dp, layers=4, microbatches=1,
        has_sequence_parallel=has_sequence_parallel,
    )  # fmt: skip


def serving_layout(tp: int, replicas: int = 1) -> SimLayout:
    """Replicas that decode; every fifth iteration is a prefill, and some time they are idle."""
    return SimLayout(
        schedule=Schedule.SERVING, naming=Naming.SERVING, tp=tp, dp=replicas, layers=4,
        forward_ns=200_000, activation_bytes=65_536, optimizer_ns=100_000, between_ns=300_000,
        prefill_every=5, idle_every=7,
    )  # fmt: skip


def serving_batches_layout(tp: int, batching: Batching) -> SimLayout:
    """One engine whose requests come and go; no idle time."""
    return SimLayout(
        schedule=Schedule.SERVING, naming=Naming.SERVING, tp=tp, layers=4, forward_ns=200_000,
        activation_bytes=8_192, optimizer_ns=100_000, between_ns=300_000, batching=batching,
    )  # fmt: skip


def serving_ep_layout(tp: int, dp: int) -> SimLayout:
    """Data parallel attention, experts over all ranks: they keep in step by a small all-gather."""
    return SimLayout(
        schedule=Schedule.SERVING_EP, naming=Naming.SERVING, tp=tp, dp=dp, ep=dp, layers=4,
        forward_ns=200_000, activation_bytes=65_536, optimizer_ns=100_000, between_ns=300_000,
        prefill_every=5, idle_every=7,
    )  # fmt: skip
