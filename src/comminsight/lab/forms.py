"""Every form of every op once per step, each written into the truth file before it is issued.

An ``op`` line of this job says what a record must say: ``op dtype size_bytes peer red_op is_folded
ends_by``, in program order per group. ``ends_by`` is ``future``, ``wait``, ``return`` or
``unseen``; ``peer`` is the root or the partner within the group, -1 for none.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.distributed_c10d import _coalescing_manager

from comminsight.lab.context import JobContext

N = 6  # elements of a rank's share


class FormTour:
    """One rank's tour. ``checks`` collects results, so that runs can be compared bit by bit."""

    def __init__(self, context: JobContext, group: dist.ProcessGroup) -> None:
        self._context = context
        self._group = group
        self._rank = context.rank
        self._n_ranks = context.world_size
        self.checks: list[torch.Tensor] = []

    def expect(
        self, op: str, size_bytes: int, *, dtype: str = "FLOAT32", peer: int = -1,
        red_op: str = "UNKNOWN", is_folded: bool = False, ends_by: str = "future",
    ) -> None:  # fmt: skip
        """Write what the record of the next op must say."""
        self._context.truth.write(
            "op", desc=self._group.group_desc, op=op, size_bytes=size_bytes, dtype=dtype,
            peer=peer, red_op=red_op, is_folded=is_folded, ends_by=ends_by,
        )  # fmt: skip

    def own(self, *shape: int) -> torch.Tensor:
        """A tensor that differs from rank to rank."""
        x = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
        return x + 10 * self._rank

    def all(self) -> None:
        """The whole tour."""
        self._reductions()
        self._gathers()
        self._scatters()
        self._exchanges()
        self._coalesced()
        self._functional()
        self._barriers()

    def _reductions(self) -> None:
        group, checks = self._group, self.checks
        operators = {"SUM": dist.ReduceOp.SUM, "MAX": dist.ReduceOp.MAX, "MIN": dist.ReduceOp.MIN}
        for name, operator in operators.items():
            x = self.own(N)
            self.expect("ALL_REDUCE", 4 * N, red_op=name)
            dist.all_reduce(x, operator, group=group)
            checks.append(x)
        flags = torch.tensor([self._rank + 1, 3], dtype=torch.int32)
        self.expect("ALL_REDUCE", 8, dtype="INT32", red_op="PRODUCT")
        work: Any = dist.all_reduce(flags, dist.ReduceOp.PRODUCT, group=group, async_op=True)
        work.wait()
        x, y = self.own(N), self.own(N).to(torch.bfloat16)
        self.expect("REDUCE", 4 * N, peer=1, red_op="SUM")
        dist.reduce(x, group_dst=1, group=group)
        self.expect("BROADCAST", 2 * N, dtype="BFLOAT16", peer=0)
        dist.broadcast(y, group_src=0, group=group)
        checks += [flags.float(), y.float()]

    def _gathers(self) -> None:
        group, n = self._group, self._n_ranks
        parts = [torch.empty(N) for _ in range(n)]
        self.expect("ALL_GATHER", 4 * N * n)
        dist.all_gather(parts, self.own(N), group=group)
        whole = torch.empty(n * N)
        self.expect("ALL_GATHER", 4 * N * n)
        dist.all_gather_into_tensor(whole, self.own(N), group=group)
        self.checks += [*parts, whole]
        self.expect("GATHER", 4 * N * n, peer=0)
        dist.gather(self.own(N), parts if self._rank == 0 else None, group_dst=0, group=group)
        lists = [[torch.empty(2), torch.empty(3)] for _ in range(n)]
        self.expect("ALL_GATHER", 4 * 5 * n, is_folded=True)
        dist.all_gather_coalesced(lists, [self.own(2), self.own(3)], group=group)
        self.checks += [tensor for pair in lists for tensor in pair]

    def _scatters(self) -> None:
        group, n = self._group, self._n_ranks
        part = torch.empty(N)
        parts = [self.own(N) for _ in range(n)]
        self.expect("SCATTER", 4 * N * n, peer=0)
        dist.scatter(part, parts if self._rank == 0 else None, group_src=0, group=group)
        self.checks.append(part.clone())
        self.expect("REDUCE_SCATTER", 4 * N * n, red_op="SUM", ends_by="wait")
        dist.reduce_scatter(part, parts, group=group)
        self.checks.append(part.clone())
        self.expect("REDUCE_SCATTER", 4 * N * n, red_op="SUM", ends_by="wait")
        dist.reduce_scatter_tensor(part, self.own(n * N), group=group)
        self.checks.append(part.clone())

    def _exchanges(self) -> None:
        group, n, rank = self._group, self._n_ranks, self._rank
        received = torch.empty(n * N)
        self.expect("ALL_TO_ALL", 4 * N * n)
        dist.all_to_all_single(received, self.own(n * N), group=group)
        self.checks.append(received.clone())
        if rank < 2:
            peer, x, y = 1 - rank, self.own(N), torch.empty(N)
            calls = [("SEND", dist.isend, x), ("RECV", dist.irecv, y)]
            for op, _, _ in calls:
                self.expect(op, 4 * N, peer=peer, ends_by="wait")
            ops = [dist.P2POp(call, t, group=group, group_peer=peer) for _, call, t in calls]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
            self.checks.append(y)
        if rank == 0:
            self.expect("SEND", 4 * N, peer=1, ends_by="wait")
            dist.send(self.own(N), group=group, group_dst=1)
        elif rank == 1:
            self.expect("RECV", 4 * N, ends_by="wait")
            dist.recv(received[:N], group=group)

    def _coalesced(self) -> None:
        group, n = self._group, self._n_ranks
        pair = [self.own(2), self.own(3)]
        self.expect("ALL_REDUCE", 20, red_op="SUM", is_folded=True)
        with _coalescing_manager(group=group):
            for tensor in pair:
                dist.all_reduce(tensor, group=group)
        wholes = [torch.empty(2 * n), torch.empty(3 * n)]
        self.expect("ALL_GATHER", 20 * n, is_folded=True)
        with _coalescing_manager(group=group, async_ops=True) as manager:
            for whole in wholes:
                dist.all_gather_into_tensor(whole, self.own(whole.numel() // n), group=group)
        manager.wait()
        shares = [torch.empty(2), torch.empty(3)]
        self.expect("REDUCE_SCATTER", 20 * n, red_op="SUM", is_folded=True)
        with _coalescing_manager(group=group, async_ops=True) as manager:
            for share in shares:
                dist.reduce_scatter_tensor(share, self.own(share.numel() * n), group=group)
        manager.wait()
        self.checks += [*pair, *wholes, *shares]

    def _functional(self) -> None:
        group, n = self._group, self._n_ranks
        self.expect("ALL_REDUCE", 4 * N, red_op="SUM")
        total = functional.wait_tensor(functional.all_reduce(self.own(N), "sum", group))
        self.expect("ALL_GATHER", 4 * N * n)
        whole = functional.wait_tensor(functional.all_gather_tensor(self.own(N), 0, group))
        self.expect("REDUCE_SCATTER", 4 * N * n, red_op="SUM", ends_by="wait")
        share = functional.wait_tensor(
            functional.reduce_scatter_tensor(self.own(n * N), "sum", 0, group)
        )
        self.expect("REDUCE_SCATTER", 4 * N * n, red_op="SUM", ends_by="unseen")
        functional.reduce_scatter_tensor(self.own(n * N), "sum", 0, group)  # nobody waits for it
        self.checks += [total, whole, share]

    def _barriers(self) -> None:
        self.expect("BARRIER", 0, dtype="UNKNOWN")
        dist.barrier(group=self._group)
        self.expect("BARRIER", 0, dtype="UNKNOWN", ends_by="return")
        dist.monitored_barrier(group=self._group)


def run_forms(context: JobContext) -> None:
    """The tour once per step on a group of its own; the step's loss is the sum of all results."""
    group = dist.new_group(list(range(context.world_size)), group_desc="forms")
    context.note_group(group)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old names on purpose: they are what jobs use
        for _ in context.steps():
            tour = FormTour(context, group)
            tour.all()
            context.loss = torch.cat([check.flatten() for check in tour.checks]).double().sum()
