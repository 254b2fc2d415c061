"""Class 5, links: which node or card of many is slow, by tests of pairs."""

from __future__ import annotations

from pathlib import Path

from comminsight.diagnosis import codes_link as codes
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.counters import CounterSeries, Link, LinkMap, RankGpu
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.ops import Op
from comminsight.model.verdict import Cause
from comminsight.sim import LateRank, ddp_layout
from tests.builders.speed import judged
from tests.cases.field_case import Expected, FieldCase, Scene

GIB = 1 << 30


def pair(
    hosts: tuple[int, int], gbs: float, *, per_node: int, op: Op, run: str, card: int = -1
) -> BandwidthRow:
    """One test of two nodes, over all their ranks, or over one card of each."""
    first, second = hosts
    ranks = [*range(first * per_node, (first + 1) * per_node)]
    ranks += range(second * per_node, (second + 1) * per_node)
    devices = tuple(f"n{host}/mlx5_{card}" for host in hosts) if card >= 0 else ()
    return BandwidthRow(
        op=op, size_bytes=GIB, busbw_gbs=gbs, run=run, hosts=tuple(f"n{host}" for host in hosts),
        ranks=tuple(ranks), devices=devices,
    )  # fmt: skip


def rounds(_: Path, *, n_nodes: int, node: int, per_node: int, slower: float, op: Op) -> Scene:
    """C36: neighbours are paired, then paired anew: both pairs of the slow node are slow. In the
    twin there was one round only."""

    def run(name: str, shift: int) -> list[BandwidthRow]:
        found = []
        for i in range(shift, n_nodes + shift, 2):
            hosts = (i % n_nodes, (i + 1) % n_nodes)
            gbs = 90.0 - 0.3 * i
            gbs = gbs / slower if node in hosts else gbs
            found.append(pair(hosts, gbs, per_node=per_node, op=op, run=name))
        return found

    first = run("round 1", 0)
    ranks = tuple(range(node * per_node, (node + 1) * per_node))
    return Scene(
        JobEvidence(bandwidth=(*first, *run("round 2", 1))),
        Expected((Cause.SLOW_LINK,), ranks, told=(codes.SLOW_PLACE,), places=(f"n{node}",)),
        JobEvidence(bandwidth=tuple(first)),
        Expected(told=(codes.SLOW_CANDIDATES, codes.MISSING_ROUNDS)),
    )


def one_card(_: Path, *, n_nodes: int, n_cards: int, node: int, card: int, ratio: float) -> Scene:
    """C37: each card was tested by itself, with two peers: the one that is in all slow tests. In
    the twin the tests differ by a few percent only."""
    links = LinkMap(
        links=tuple(
            Link(global_rank=n * n_cards + c, host=f"n{n}", device=f"mlx5_{c}")
            for n in range(n_nodes)
            for c in range(n_cards)
        )
    )

    def tests(factor: float) -> tuple[BandwidthRow, ...]:
        found = []
        for step in (1, 2):
            for c in range(n_cards):
                for n in range(n_nodes):
                    hosts = (n, (n + step) % n_nodes)
                    gbs = (47.0 + 0.1 * n) * (factor if (node in hosts and c == card) else 1)
                    found.append(
                        pair(hosts, gbs, per_node=n_cards, op=Op.SEND, run=f"{step}", card=c)
                    )
        return tuple(found)

    place = f"n{node}/mlx5_{card}"
    return Scene(
        JobEvidence(bandwidth=tests(ratio), links=links),
        Expected(
            (Cause.SLOW_LINK,), (node * n_cards + card,), told=(codes.SLOW_PLACE,),
            places=(place,),
        ),
        JobEvidence(bandwidth=tests(0.96), links=links),
    )  # fmt: skip


def hot_gpu(
    _: Path, *, n_ranks: int, rank: int, since: int, share: float, clock_mhz: float
) -> Scene:
    """C38: one rank is late from some step on, and its GPU is clocked down since. In the twin the
    clock is as low, and nobody is late."""
    steps = 120
    layout = ddp_layout(n_ranks)
    step_ns = layout.layers * (layout.forward_ns + layout.backward_ns)
    fault = LateRank(rank=rank, extra_ns=round(share * step_ns), from_step=since)
    late = judged(layout, [fault], steps=steps)
    calm = judged(layout, [], steps=steps)
    clocks = tuple(
        CounterSeries(
            host=f"n{r // 4}", device=f"gpu{r % 4}", counter="sm_clock_mhz", unit="MHz",
            times_ns=tuple(10**9 * i for i in range(steps)),
            values=tuple(
                clock_mhz if r == rank and i >= since else 1980.0 - i % 3 for i in range(steps)
            ),
        )
        for r in range(n_ranks)
    )  # fmt: skip
    links = LinkMap(
        gpus=tuple(
            RankGpu(global_rank=r, host=f"n{r // 4}", device=f"gpu{r % 4}") for r in range(n_ranks)
        )
    )
    return Scene(
        JobEvidence(told=tuple(late), counters=clocks, links=links, world_size=n_ranks),
        Expected((Cause.COMPUTE_STRAGGLER,), (rank,), told=(codes.CLOCK_FELL,)),
        JobEvidence(told=tuple(calm), counters=clocks, links=links, world_size=n_ranks),
    )


CASES: tuple[FieldCase, ...] = (
    FieldCase(
        36, "which node is slow", rounds,
        (
            {"n_nodes": 8, "node": 5, "per_node": 1, "slower": 1.3, "op": Op.ALL_GATHER},
            {"n_nodes": 16, "node": 0, "per_node": 8, "slower": 2.0, "op": Op.ALL_REDUCE},
            {"n_nodes": 10, "node": 9, "per_node": 4, "slower": 1.5, "op": Op.ALL_TO_ALL},
        ),
    ),
    FieldCase(
        37, "which card is slow", one_card,
        (
            {"n_nodes": 5, "n_cards": 2, "node": 1, "card": 1, "ratio": 0.5},
            {"n_nodes": 8, "n_cards": 8, "node": 7, "card": 0, "ratio": 0.7},
            {"n_nodes": 6, "n_cards": 4, "node": 3, "card": 2, "ratio": 0.1},
        ),
    ),
    FieldCase(
        38, "a GPU that is clocked down", hot_gpu,
        (
            {"n_ranks": 8, "rank": 3, "since": 60, "share": 0.25, "clock_mhz": 1500.0},
            {"n_ranks": 16, "rank": 0, "since": 30, "share": 0.5, "clock_mhz": 1200.0},
            {"n_ranks": 4, "rank": 2, "since": 0, "share": 0.3, "clock_mhz": 1750.0},
        ),
    ),
)  # fmt: skip
