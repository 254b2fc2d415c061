"""On which host each rank runs, and by which port it sends, from all that tells it."""

from __future__ import annotations

from collections.abc import Iterable

from comminsight.analysis.log_ranks import LogRanks, short_host
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.counters import LinkMap
from comminsight.model.job_evidence import JobEvidence


def hosts_of_ranks(job: JobEvidence, ranks: LogRanks) -> dict[int, str]:
    """Short host name by global rank: from the map of links, the view of the ranks, the logs."""
    found = {rank: ranks.host_of(rank) for rank in ranks.claims}
    if job.hang is not None:
        states = (state for state in job.hang.ranks if state.host)
        found |= {state.global_rank: short_host(state.host) for state in states}
    if job.links is not None:
        found |= {link.global_rank: short_host(link.host) for link in job.links.links}
    return {rank: host for rank, host in found.items() if host and rank >= 0}


def ranks_on(hosts: Iterable[str], by_rank: dict[int, str]) -> tuple[int, ...]:
    """The ranks on these hosts, ascending."""
    wanted = {short_host(host) for host in hosts}
    return tuple(sorted(rank for rank, host in by_rank.items() if host in wanted))


def ranks_at(links: LinkMap | None, host: str, device: str) -> tuple[int, ...]:
    """The ranks that send by this port, ascending; none without a map."""
    every = links.links if links is not None else ()
    return tuple(
        sorted(
            {
                link.global_rank
                for link in every
                if link.device == device and short_host(link.host) == short_host(host)
            }
        )
    )


def is_whole_at(links: LinkMap | None, host: str) -> bool:
    """True where the map holds every port that ranks on the host use, so that ``ranks_at`` gives
    all users of each."""
    if links is None:
        return False
    return links.whole_hosts is None or short_host(host) in links.whole_hosts


def is_used(links: LinkMap | None, host: str, device: str) -> bool:
    """True where the map names the port, or where there is no whole map to deny it."""
    return not is_whole_at(links, host) or bool(ranks_at(links, host, device))


def only_port_of(links: LinkMap | None, rank: int) -> tuple[str, str]:
    """(host, device) where the map knows that the rank uses this one and no other, else blanks."""
    if links is None or (links.whole_ranks is not None and rank not in links.whole_ranks):
        return "", ""
    own = (one for one in links.links if one.global_rank == rank)
    ports = {(short_host(one.host), one.device) for one in own}
    return ports.pop() if len(ports) == 1 else ("", "")


def network_rows(job: JobEvidence, ranks: LogRanks) -> list[BandwidthRow]:
    """What tests and the own records measured, without what certainly stayed within a host: that
    tells nothing of its cards."""
    by_rank = hosts_of_ranks(job, ranks)
    rows = (*job.bandwidth, *job.own_bandwidth)
    return [row for row in rows if not _is_within_host(row, by_rank)]


def _is_within_host(row: BandwidthRow, by_rank: dict[int, str]) -> bool:
    if len(row.hosts) == 1 and not row.devices:
        return True
    return bool(row.ranks) and len({by_rank.get(rank, f"rank {rank}") for rank in row.ranks}) == 1


def rails_of(links: LinkMap | None, row: BandwidthRow) -> set[int]:
    """The rails that the ports of a path, else those of its ranks, belong to; empty where the map
    does not tell each of them."""
    every = [one for one in (links.links if links is not None else ()) if one.rail >= 0]
    by_port = {f"{short_host(one.host)}/{one.device}": one.rail for one in every}
    by_rank = {one.global_rank: one.rail for one in every}
    ends = [by_port.get(device) for device in row.devices] or [by_rank.get(r) for r in row.ranks]
    return set() if None in ends else {rail for rail in ends if rail is not None}
