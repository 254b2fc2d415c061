"""Laws of slow links: what is named is right, and healthy jobs are silent; rates are printed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from comminsight.analysis.alignment import align_steps
from comminsight.analysis.measured_bandwidth import run_bandwidth
from comminsight.diagnosis.rules.slow_place import slow_place_rule
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.counters import Link, LinkMap
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.ops import Op
from comminsight.model.verdict import Cause, ChainLevel, Verdict
from comminsight.sim import (
    LateRank,
    SimLayout,
    SlowLink,
    fsdp2_layout,
    megatron_layout,
    moe_layout,
    run_trace,
    simulate,
    tensor_layout,
)
from comminsight.sim.faults import Fault

N_SIMULATED = 30
N_TABLES = 160
KINDS = ("healthy", "late rank", "group", "group later", "rank's links")


def found_of(job: JobEvidence) -> list[Verdict]:
    verdicts = [claim.verdict for claim in slow_place_rule(job)]
    return [verdict for verdict in verdicts if verdict.cause is not Cause.NO_VERDICT]


def layout(rng: random.Random) -> SimLayout:
    made = rng.choice(
        (
            megatron_layout(rng.choice((1, 2)), 2, rng.choice((4, 8))),
            fsdp2_layout(8),
            moe_layout(16, rng.choice((2, 4))),
            tensor_layout(rng.choice((2, 4)), dp=4),
        )
    )
    return replace(made, ranks_per_node=rng.choice((2, 4, 8)))


def planted(
    rng: random.Random, made: SimLayout, seed: int
) -> tuple[str, set[int], tuple[Fault, ...]]:
    """Kind, the ranks that may be named or told as victims, and the faults."""
    kind = KINDS[seed % len(KINDS)]
    rank = rng.randrange(made.world_size)
    groups = [g for g in simulate(made, steps=1, seed=seed).groups if len(g.members) > 1]
    if kind == "late rank":
        return kind, set(), (LateRank(rank, 20_000_000),)
    if kind == "rank's links":
        nodes = {g.name: {made.node(member) for member in g.members} for g in groups}
        own = [g for g in groups if rank in g.members and len(nodes[g.name]) > 1]
        members = {member for g in own for member in g.members}
        return kind, members, tuple(SlowLink(g.name, 3.0) for g in own)
    if kind == "healthy":
        return kind, set(), ()
    group = rng.choice(groups)
    since = 15 if kind == "group later" else 0
    return kind, set(group.members), (SlowLink(group.name, 4.0, from_step=since),)


def test_simulated_jobs_name_the_slow_group_or_nothing() -> None:
    tally: Counter[tuple[str, str]] = Counter()
    for seed in range(N_SIMULATED):
        rng = random.Random(seed)
        made = layout(rng)
        kind, members, faults = planted(rng, made, seed)
        trace = run_trace(simulate(made, steps=30, seed=seed, faults=faults))
        rows = run_bandwidth(trace, align_steps(trace))
        found = found_of(JobEvidence(bandwidth=rows, world_size=made.world_size))
        told = {rank for verdict in found for rank in (*verdict.culprits, *verdict.victims)}
        assert told <= members, (seed, kind, faults, found)
        tally[kind, "named" if found else "silent"] += 1
    print(dict(sorted(tally.items())))
    assert tally["healthy", "named"] == tally["late rank", "named"] == 0
    assert tally["group", "named"] + tally["group later", "named"] >= 2


def pair_tests(
    rng: random.Random, n_hosts: int, n_cards: int, noise: float, slow: dict[str, float]
) -> tuple[BandwidthRow, ...]:
    """Each card with its like on other hosts, over a few rounds of random pairs; ``slow`` are the
    factors of hosts, ports ("h1/c0"), edges ("h1-h2") and rails ("c0")."""
    rows = []
    for _ in range(rng.choice((2, 3, 4))):
        order = rng.sample(range(n_hosts), n_hosts)
        for a, b in zip(order[::2], order[1::2], strict=False):
            for card in range(n_cards):
                names = {f"h{a}", f"h{b}", f"h{a}/c{card}", f"h{b}/c{card}", f"c{card}"}
                edge = f"h{min(a, b)}-h{max(a, b)}"
                factor = max([slow.get(name, 1.0) for name in (*names, edge)])
                rows.append(
                    BandwidthRow(
                        op=Op.SEND, size_bytes=1 << 30, hosts=(f"h{a}", f"h{b}"),
                        ranks=(a * n_cards + card, b * n_cards + card),
                        devices=(f"h{a}/c{card}", f"h{b}/c{card}"),
                        busbw_gbs=48.0 / factor * (1 + rng.gauss(0, noise)),
                    )
                )  # fmt: skip
    return tuple(rows)


def test_random_pair_tests_name_the_slow_host_port_or_edge_or_nothing() -> None:
    tally: Counter[tuple[str, str]] = Counter()
    for seed in range(N_TABLES):
        rng = random.Random(seed)
        n_hosts, n_cards = rng.choice((6, 8, 13, 16)), rng.choice((1, 2, 8))
        host, card = rng.randrange(n_hosts), rng.randrange(n_cards)
        other = (host + 1) % n_hosts
        kind = rng.choice(("healthy", "host", "port", "edge", "rail"))
        truth = {
            "healthy": "", "host": f"h{host}", "port": f"h{host}/c{card}",
            "edge": f"h{min(host, other)}-h{max(host, other)}", "rail": f"c{card}",
        }[kind]  # fmt: skip
        slow = {truth: rng.choice((1.4, 2.0, 10.0))} if truth else {}
        links = LinkMap(
            links=tuple(
                Link(global_rank=h * n_cards + c, host=f"h{h}", device=f"c{c}", rail=c)
                for h in range(n_hosts)
                for c in range(n_cards)
            )
        )
        rows = pair_tests(rng, n_hosts, n_cards, rng.choice((0.0, 0.02, 0.04)), slow)
        found = found_of(JobEvidence(bandwidth=rows, links=links))
        for verdict in found:
            assert is_right(verdict, kind, host, card, other, n_cards), (seed, kind, truth, verdict)
        tally[kind, "named" if found else "silent"] += 1
    print(dict(sorted(tally.items())))
    assert tally["healthy", "named"] == 0
    assert tally["port", "named"] > tally["port", "silent"]


def is_right(verdict: Verdict, kind: str, host: int, card: int, other: int, n_cards: int) -> bool:
    chain = {link.level: link.value for link in verdict.chain}
    node, port = chain[ChainLevel.NODE], chain[ChainLevel.PORT]
    if kind == "port":
        return port == f"h{host}/c{card}" and verdict.culprits == (host * n_cards + card,)
    if kind == "rail":
        return port == f"rail {card}" and not verdict.culprits
    if kind == "host":
        is_only_card = n_cards == 1 and port == f"h{host}/c0"
        return is_only_card or (node == f"h{host}" and port == "unknown")
    if kind == "edge":
        ends = {f"h{host}", f"h{other}"}
        return not verdict.culprits and set(node.split(", ")) == ends
    return False
