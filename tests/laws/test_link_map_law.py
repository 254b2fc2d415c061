"""A map of links from logs that lost lines never says more than the map from whole ones.

Whatever lines are left out: each rank keeps none but its own ports, a port in use is never told as
unused, and what is called whole holds all that there is.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from comminsight.analysis.log_links import log_links
from comminsight.analysis.log_ranks import ranks_of
from comminsight.analysis.placement import is_used
from comminsight.model.counters import LinkMap
from comminsight.pipeline.job_logs import read_logs
from tests.builders.nccl_job import NcclJob

N_DRAWS = 40


def links_of(folder: Path) -> LinkMap:
    logs, _ = read_logs(sorted(folder.iterdir()))
    return log_links(logs, ranks_of(logs)) or LinkMap(
        whole_ranks=frozenset(), whole_hosts=frozenset()
    )


def ports(links: LinkMap) -> dict[int, set[tuple[str, str, int]]]:
    found: dict[int, set[tuple[str, str, int]]] = {}
    for one in links.links:
        found.setdefault(one.global_rank, set()).add((one.host, one.device, one.port))
    return found


def job_of(rng: random.Random) -> NcclJob:
    """Cards as they come: shared, swapped, several for one rank by another round of channels."""
    job = NcclJob(rng.choice((2, 3)), rng.choice((1, 2, 4)))
    for _ in range(rng.choice((1, 2))):
        cards = {rank: rng.randrange(job.per_node) for rank in range(job.size)}
        job.network(cards, n_channels=rng.choice((1, 2)), net=rng.choice(("IB", "IBext_v8")))
    return job


@pytest.mark.parametrize("seed", range(6))
def test_lost_lines_take_ports_away_and_never_add_or_clear_one(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    job = job_of(rng)
    true = links_of(job.write(tmp_path / "whole"))
    assert true.whole_ranks == frozenset(range(job.size))
    truth, n_partial = ports(true), 0
    whole = {rank: list(lines) for rank, lines in job.lines.items()}
    for draw in range(N_DRAWS):
        share = rng.choice((0.01, 0.05, 0.3))
        job.lines = {
            rank: [line for line in lines if rng.random() >= share]
            for rank, lines in whole.items()
            if rng.random() >= 0.1
        }
        job.lines = {rank: lines for rank, lines in job.lines.items() if lines}
        if not job.lines:
            continue
        links = links_of(job.write(tmp_path / str(draw)))
        found = ports(links)
        assert links.whole_ranks is not None
        n_partial += len(links.whole_ranks) < job.size
        for rank, own in found.items():
            assert own <= truth[rank], (draw, rank)
        for rank in links.whole_ranks:
            assert found.get(rank, set()) == truth.get(rank, set()), (draw, rank)
        for one in true.links:
            assert is_used(links, one.host, one.device), (draw, one)
    assert n_partial
