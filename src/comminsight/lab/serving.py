"""Serving engines without a model of language: what they send is what counts.

``serving``: replicas of a tensor parallel engine, each with requests of its own. An iteration is a
forward pass over the tokens of one batch, a prefill, decodes, or both mixed: two all-reduces per
layer, then the logits are gathered. Between bursts of requests nobody asks for anything and there
are no ops. ``serving_poll``: the same, and rank 0 of each engine broadcasts new requests over a
group for the CPU before every iteration and again and again while it has none. ``serving_ep``: data
parallel engines over expert parallel layers: the ranks agree on their batch sizes, and all
take part as long as one of them has a batch.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from comminsight.lab.context import JobContext
from comminsight.lab.moe import exchanged

VOCABULARY = 32
MAX_PROMPT = 24
MAX_ANSWER = 6
BURST = 4
POLL_S = 0.004


@dataclass(frozen=True, slots=True)
class Batch:
    """One iteration; ``is_after_idle`` when nobody asked for anything before it."""

    n_prefill: int
    n_decode: int
    is_after_idle: bool = False

    @property
    def mode(self) -> str:
        """Prefill, decode or mixed."""
        if self.n_prefill and self.n_decode:
            return "mixed"
        return "prefill" if self.n_prefill else "decode"


def plan(seed: int, n_bursts: int) -> list[Batch]:
    """The iterations of one engine: requests come in bursts, each burst is served to its end.

    A request is one prefill of its prompt and then one token per iteration; a new one is taken in
    every other iteration.
    """
    draw = random.Random(seed)
    batches: list[Batch] = []
    for _ in range(n_bursts):
        waiting = deque(
            (draw.randint(4, MAX_PROMPT), draw.randint(1, MAX_ANSWER))
            for _ in range(draw.randint(1, BURST))
        )
        running: list[int] = []
        is_first = True
        while waiting or running:
            n_decode = len(running)
            running = [left - 1 for left in running if left > 1]
            n_prefill = 0
            if (waiting and len(batches) % 2 == 0) or not n_decode:
                n_prefill, answer = waiting.popleft()
                running.append(answer)
            batches.append(Batch(n_prefill, n_decode, is_first))
            is_first = False
    return batches


class Engine:
    """One rank of a tensor parallel engine."""

    def __init__(self, context: JobContext, tp: dist.ProcessGroup) -> None:
        self._context, self._tp = context, tp
        hidden, n_ranks = context.options.hidden, dist.get_world_size(tp)
        self._weights = torch.randn(hidden, hidden) / hidden
        self._head = torch.randn(hidden, VOCABULARY // n_ranks)

    def run(self, batch: Batch) -> torch.Tensor:
        """One forward pass; the logits of its last tokens."""
        hidden = self._context.options.hidden
        x = torch.ones(batch.n_prefill + batch.n_decode, hidden)
        for _ in range(2 * self._context.options.layers):
            x = x @ self._weights
            dist.all_reduce(x, group=self._tp)
            x = x / (1 + x.abs().max())
        last = x[-(batch.n_decode + bool(batch.n_prefill)) :] @ self._head
        parts = [torch.empty_like(last) for _ in range(dist.get_world_size(self._tp))]
        dist.all_gather(parts, last, group=self._tp)
        return torch.cat(parts, dim=-1)


def run_serving(context: JobContext, *, is_polling: bool = False) -> None:
    """Bursts of requests (``--steps`` of them) with pauses (``--pause-ms``) between them."""
    tp_size = max(2, context.world_size // 2)
    mesh = init_device_mesh(
        "cpu", (context.world_size // tp_size, tp_size), mesh_dim_names=("dp", "tp")
    )
    tp = mesh.get_group("tp")
    context.note_group(tp)
    requests = new_request_group(context, tp) if is_polling else None
    engine = Engine(context, tp)
    batches = plan(context.options.seed * 64 + mesh.get_local_rank("dp"), context.options.steps)
    for batch in iterations(context, batches, requests):
        context.loss = engine.run(batch).sum()


def run_serving_poll(context: JobContext) -> None:
    """The same with a loop that asks for requests all the time."""
    run_serving(context, is_polling=True)


def new_request_group(context: JobContext, tp: dist.ProcessGroup) -> dist.ProcessGroup | None:
    """The CPU group beside this rank's ``tp``; every rank takes part in making all of them."""
    own = dist.get_process_group_ranks(tp)
    group, n_ranks = None, len(own)
    for first in range(0, context.world_size, n_ranks):
        members = list(range(first, first + n_ranks))
        made = dist.new_group(members, group_desc="tp:cpu")
        group = made if members == own else group
    return group


def iterations(
    context: JobContext, batches: list[Batch], requests: dist.ProcessGroup | None
) -> Iterator[Batch]:
    """The batches, each a step; before a burst the pause, in which only requests are asked for."""

    def idle() -> None:
        with context.truth.interval("idle"):
            deadline = time.monotonic() + context.options.pause_ms / 1000
            n_polls = int(context.options.pause_ms / 1000 / POLL_S)
            if requests is not None:
                for _ in range(n_polls):
                    receive_requests(requests)
            time.sleep(max(0.0, deadline - time.monotonic()))

    def between(step: int) -> None:
        if step + 1 < len(batches) and batches[step + 1].is_after_idle:
            idle()

    idle()
    for step in context.steps(len(batches), between=between):
        batch = batches[step]
        context.more = {"mode": batch.mode}
        if requests is not None:
            receive_requests(requests)
        yield batch
    idle()


def receive_requests(group: dist.ProcessGroup) -> None:
    """The length of what rank 0 has got from its socket."""
    dist.broadcast(torch.zeros(1, dtype=torch.int64), group=group, group_src=0)
    time.sleep(POLL_S / 8)


def run_serving_ep(context: JobContext) -> None:
    """Turns in which some rank has a batch are steps; in the others the ranks only agree that
    nobody has one."""
    ep = dist.new_group(list(range(context.world_size)), group_desc="ep")
    context.note_group(ep)
    turns = tokens_by_turn(context)
    busy = [turn for turn, tokens in enumerate(turns) if any(tokens)]
    engine = ExpertEngine(context, ep)

    def idle(first: int, last: int) -> None:
        if first == last:
            return
        with context.truth.interval("idle"):
            for _ in range(first, last):
                engine.agree(0)
                time.sleep(POLL_S)

    idle(0, busy[0])
    ends = [*busy[1:], len(turns)]
    for step in context.steps(len(busy), between=lambda step: idle(busy[step] + 1, ends[step])):
        context.loss = engine.run(turns[busy[step]][context.rank]).sum()


def tokens_by_turn(context: JobContext) -> list[list[int]]:
    """Tokens of every rank in every turn; between the bursts there are turns of no tokens."""
    plans = [
        plan(context.options.seed * 64 + rank, context.options.steps)
        for rank in range(context.world_size)
    ]
    n_idle = max(1, round(context.options.pause_ms / 1000 / POLL_S))
    none = [0] * context.world_size
    turns: list[list[int]] = []
    for burst in zip(*(bursts(own) for own in plans), strict=True):
        turns += [none] * n_idle
        turns += [list(turn) for turn in zip_longest(*burst, fillvalue=0)]
    return [*turns, *[none] * n_idle]


def bursts(batches: Sequence[Batch]) -> list[list[int]]:
    """The tokens of the batches, burst by burst."""
    found: list[list[int]] = []
    for batch in batches:
        if batch.is_after_idle:
            found.append([])
        found[-1].append(batch.n_prefill + batch.n_decode)
    return found


class ExpertEngine:
    """One rank of data parallel engines over expert parallel layers."""

    def __init__(self, context: JobContext, ep: dist.ProcessGroup) -> None:
        self._context, self._ep = context, ep

    def agree(self, n_tokens: int) -> list[int]:
        """The batch sizes of all ranks."""
        own = torch.tensor([n_tokens])
        sizes = [torch.empty_like(own) for _ in range(self._context.world_size)]
        dist.all_gather(sizes, own)
        return [int(size) for size in sizes]

    def run(self, n_tokens: int) -> torch.Tensor:
        """One forward pass over the tokens of this rank, which visit experts on all ranks."""
        sizes = self.agree(n_tokens)
        sent = spread(n_tokens, len(sizes))
        received = [spread(size, len(sizes))[self._context.rank] for size in sizes]
        x = torch.ones(n_tokens, self._context.options.hidden)
        for _ in range(self._context.options.layers):
            there = exchanged(x, sent, received, self._ep)
            x = exchanged(there + 1, received, sent, self._ep)
        return x


def spread(n_tokens: int, n_experts: int) -> list[int]:
    """How many of the tokens go to each expert."""
    return [(n_tokens + place) // n_experts for place in range(n_experts)]
