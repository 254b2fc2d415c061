"""The host or port that all slow paths have in common, and none of the others."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from comminsight.analysis.alpha_beta import has_drifted
from comminsight.analysis.bandwidth import (
    ComparedPaths,
    common_place,
    common_ranks,
    compare_paths,
    path_of,
)
from comminsight.analysis.fallen_bandwidth import FallenPaths, fallen_paths, fits_around
from comminsight.analysis.placement import only_port_of, rails_of, ranks_at
from comminsight.diagnosis import codes_link as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, Place, abstained, job_verdict, told
from comminsight.diagnosis.link_evidence import map_missing
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence, Evidence, Verdict

RULE = "slow_place"
MIN_SLOW = 2  # paths, of which a place is what they have in common
MIN_RAIL_HOSTS = 3  # of a rail that is slow as a whole
MIN_NORMAL = 2  # paths by which both ends of a slow one are cleared
MAX_NAMED = 8  # a longer list of suspects points at nobody


def slow_place_rule(job: JobEvidence) -> Iterator[Claim]:
    """SLOW_LINK at the one host, port or rank, or on the one path whose ends are well elsewhere; of
    a single communicator that is slow as a whole, its members are victims. Where several places
    fit, they are told and nobody is named. Paths are held against their peers, else against what
    they were before."""
    paths = compare_paths(job.bandwidth)
    if paths.slow:
        yield from map(Claim, _judged(job, paths))
        return
    fallen = fallen_paths(job.bandwidth)
    if fallen is not None:
        for verdict in _judged(job, fallen.paths):
            yield Claim(_since(job, verdict, fallen))


def _since(job: JobEvidence, verdict: Verdict, fallen: FallenPaths) -> Verdict:
    """The verdict from the step on at which the bandwidth fell, with what fell: startup or rate."""
    said = [told(codes.FELL_AT, step=fallen.first_step)]
    fits = fits_around(job.bandwidth, path_of(fallen.paths.slow[0]), fallen.first_step)
    if fits is not None and any(has_drifted(*fits)):
        before, after = fits
        said.append(
            told(
                codes.FIT_DRIFTED, before_ns=before.latency_ns, after_ns=after.latency_ns,
                before_gbs=before.rate_gbs, after_gbs=after.rate_gbs,
            )
        )  # fmt: skip
    last = max(row.last_step for row in job.bandwidth)
    return replace(
        verdict,
        evidence=(*verdict.evidence, *said),
        first_step=fallen.first_step,
        last_step=last,
    )


def _judged(job: JobEvidence, paths: ComparedPaths) -> Iterator[Verdict]:
    ranks = common_ranks(paths.slow, paths.normal)
    places = common_place(paths.slow, paths.normal)
    if _is_cleared(paths):
        yield _path_verdict(job, paths, Confidence.MEDIUM)
    elif len(places) == 1 and _n_partners(paths, min(places)) >= MIN_SLOW:
        yield _place_verdict(job, paths, places.pop(), ranks)
    elif len(paths.slow) >= MIN_SLOW and not places and len(ranks) == 1:
        yield _rank_verdict(job, paths, ranks.pop())
    elif not places and (rail := _common_rail(job, paths)) is not None:
        yield _rail_verdict(job, paths, f"rail {rail}")
    elif len(paths.slow) == 1 and paths.slow[0].comm_label:
        yield _path_verdict(job, paths, Confidence.LOW)
    elif 0 < len(places) <= MAX_NAMED:
        missing = [message(codes.MISSING_ROUNDS, places=sorted(places))]
        swap = [message(codes.SWAP_PAIRS, places=sorted(places))]
        yield abstained(job, RULE, [_candidates(paths, places)], missing, swap)


def _common_rail(job: JobEvidence, paths: ComparedPaths) -> int | None:
    """The one rail of all slow paths, between at least three hosts, and of none of the others."""
    rails = [rails_of(job.links, row) for row in paths.slow]
    hosts = {host for row in paths.slow for host in row.hosts}
    if any(one != rails[0] or len(one) != 1 for one in rails) or len(hosts) < MIN_RAIL_HOSTS:
        return None
    is_elsewhere = any(rails[0] & rails_of(job.links, row) for row in paths.normal)
    return None if is_elsewhere or not paths.normal else min(rails[0])


def _rail_verdict(job: JobEvidence, paths: ComparedPaths, rail: str) -> Verdict:
    found = JobFinding(
        rule=RULE,
        cause=Cause.SLOW_LINK,
        confidence=Confidence.MEDIUM,
        victims=tuple(sorted({rank for row in paths.slow for rank in row.ranks})),
        place=Place(port=rail),
        evidence=(_slow_said(paths, rail), _place_said(paths, rail)),
        missing=(message(codes.MISSING_PORT_COUNTERS),),
        measures=_measures(paths),
    )
    return job_verdict(job, found)


def _n_partners(paths: ComparedPaths, place: str) -> int:
    """With how many others the place is slow: with one alone, that one is as likely."""
    is_port = "/" in place
    return len({row.devices if is_port else row.hosts for row in paths.slow})


def _is_cleared(paths: ComparedPaths) -> bool:
    """True where all slow paths join the same two ends, no other path between these is well, and
    each end is part of enough normal paths and of none that may be slow too."""
    names = _ends if len(paths.slow) == 1 else _host_ends
    ends = {names(row) for row in paths.slow}
    if len(ends) != 1 or len(min(ends)) != 2:
        return False
    normal = [names(row) for row in paths.normal]
    if min(ends) in normal or any(min(ends) & names(row) for row in paths.unclear):
        return False
    return all(sum(end in one for one in set(normal)) >= MIN_NORMAL for end in min(ends))


def _ends(row: BandwidthRow) -> frozenset[str | int]:
    return frozenset(row.devices or (row.ranks if len(row.ranks) == 2 else row.hosts))


def _host_ends(row: BandwidthRow) -> frozenset[str | int]:
    return frozenset(row.hosts)


def _place_verdict(job: JobEvidence, paths: ComparedPaths, place: str, ranks: set[int]) -> Verdict:
    host, _, device = place.partition("/")
    culprits = ranks_at(job.links, host, device) if device else tuple(sorted(ranks))
    found = JobFinding(
        rule=RULE,
        cause=Cause.SLOW_LINK,
        confidence=Confidence.MEDIUM,
        culprits=culprits,
        place=Place(node=host, port=place if device else ""),
        evidence=(_slow_said(paths, place), _place_said(paths, place)),
        missing=tuple(map_missing(job, host) if culprits else ())
        if device
        else (message(codes.MISSING_PORT_COUNTERS),),
        measures=_measures(paths),
    )
    return job_verdict(job, found)


def _rank_verdict(job: JobEvidence, paths: ComparedPaths, rank: int) -> Verdict:
    """At a rank; at its port where the map of links knows a single one."""
    host, device = only_port_of(job.links, rank)
    place = f"{host}/{device}" if device else f"rank {rank}"
    found = JobFinding(
        rule=RULE,
        cause=Cause.SLOW_LINK,
        confidence=Confidence.MEDIUM,
        culprits=(rank,),
        place=Place(node=host, port=place if device else ""),
        evidence=(_slow_said(paths, place), _place_said(paths, f"rank {rank}")),
        missing=(message(codes.MISSING_PORT_COUNTERS if device else codes.MISSING_LINK_MAP),),
        measures=_measures(paths),
    )
    return job_verdict(job, found)


def _path_verdict(job: JobEvidence, paths: ComparedPaths, confidence: Confidence) -> Verdict:
    row = paths.slow[0]
    found = JobFinding(
        rule=RULE,
        cause=Cause.SLOW_LINK,
        confidence=confidence,
        victims=row.ranks,
        place=Place(
            node=", ".join(row.hosts),
            port=" - ".join(row.devices),
            communicator=row.comm_label or path_name(row),
        ),
        evidence=(_slow_said(paths, path_name(row)),),
        missing=(message(codes.MISSING_PORT_COUNTERS),),
        measures=_measures(paths),
    )
    return job_verdict(job, found)


def path_name(row: BandwidthRow) -> str:
    """The path as people read it: its devices, else its hosts, else its ranks."""
    ranks = [f"rank {rank}" for rank in row.ranks]
    if row.comm_label and len(row.ranks) != 2:
        return row.comm_label
    named = row.devices or (row.hosts if len(row.hosts) > 1 else ()) or ranks or row.hosts
    return " - ".join(named)


def _slow_said(paths: ComparedPaths, name: str) -> Evidence:
    return told(codes.SLOW_PATH, path=name, busbw_gbs=paths.busbw_gbs, usual_gbs=paths.usual_gbs)


def _place_said(paths: ComparedPaths, place: str) -> Evidence:
    n_slow, n_good = len(paths.slow), len(paths.normal)
    return told(codes.SLOW_PLACE, place=place, n_slow=n_slow, n_good=n_good)


def _candidates(paths: ComparedPaths, places: set[str]) -> Evidence:
    return told(
        codes.SLOW_CANDIDATES, places=sorted(places), busbw_gbs=paths.busbw_gbs,
        usual_gbs=paths.usual_gbs,
    )  # fmt: skip


def _measures(paths: ComparedPaths) -> dict[str, float]:
    return {"busbw_gbs": paths.busbw_gbs, "usual_gbs": paths.usual_gbs}
