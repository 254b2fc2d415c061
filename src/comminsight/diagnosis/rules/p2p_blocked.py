"""Direct access between GPUs of a host that does not work: by a trial, or by an op stuck in it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from comminsight.analysis.bus_id import bus_name
from comminsight.analysis.gpu_pairs import (
    OddLinks,
    TriedPairs,
    odd_links,
    redirected,
    tried_pairs,
)
from comminsight.analysis.log_index import lines_in_order, lines_with
from comminsight.analysis.log_ranks import LogRanks, ranks_of, short_host
from comminsight.analysis.placement import hosts_of_ranks
from comminsight.analysis.run_differences import SETTING_CODES
from comminsight.diagnosis import codes_link as codes
from comminsight.diagnosis.all_present import all_present_stuck, stuck_ranks
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, Place, abstained, job_verdict, told
from comminsight.model.host_facts import DevicePath
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode
from comminsight.model.verdict import Cause, Confidence, Evidence, Verdict

RULE = "p2p_blocked"
OFF_NAMES = frozenset({"NCCL_P2P_DISABLE"})
STUCK = frozenset({Cause.ALL_PRESENT_STUCK})


def p2p_blocked_rule(job: JobEvidence) -> Iterator[Claim]:
    """P2P_BLOCKED where a trial failed by kind of path; else where an op is stuck among ranks that
    use direct access, with access control above their GPUs or links of one GPU down."""
    tried = [pairs for pairs in tried_pairs(job.hosts.paths) if pairs.is_by_path]
    for pairs in tried:
        yield Claim(_by_trial(job, pairs), explains=STUCK)
    links = odd_links(job.hosts.nvlinks)
    if tried or not (links or any(b.is_redirecting for b in job.hosts.bridges)):
        return
    stuck = all_present_stuck(job)
    host = _only_host(job, stuck) if stuck is not None else ""
    for odd in links:
        yield _by_links(job, odd, stuck if odd.host == host else None)
    if stuck is not None and host and not _has_nvlinks(job, host):
        yield from _by_bridges(job, host, set(stuck_ranks(stuck)))


def _only_host(job: JobEvidence, stuck: Verdict) -> str:
    """The host on which all ranks inside the op are, "" where they are on several or unknown: what
    is stuck between hosts is not explained by one of them."""
    by_rank = hosts_of_ranks(job, ranks_of(job.logs, job.world_size))
    hosts = {by_rank.get(rank, "") for rank in stuck_ranks(stuck)}
    return hosts.pop() if len(hosts) == 1 else ""


def _has_nvlinks(job: JobEvidence, host: str) -> bool:
    """True where direct access goes by NVLink, past all bridges."""
    links = [one for one in job.hosts.nvlinks if short_host(one.host) == host]
    paths = [one.path for one in job.hosts.paths if short_host(one.host) == host]
    return any(one.is_up for one in links) or any(path.startswith("NV") for path in paths)


def p2p_off_rule(job: JobEvidence) -> Iterator[Claim]:
    """A warning, no accusation: direct access is switched off although all NVLinks are up."""
    up = [state.is_up for state in job.hosts.nvlinks]
    if not up or not all(up):
        return
    for _, event in lines_in_order(job.logs, SETTING_CODES):
        name, value = str(event.values.get("name", "")), str(event.values.get("value", ""))
        if name in OFF_NAMES and value not in {"", "0"}:
            yield Claim(_off(job, name, value, len(up)))
            return


def _off(job: JobEvidence, name: str, value: str, n_links: int) -> Verdict:
    said = told(codes.P2P_OFF, kind="log", name=name, value=value, n_links=n_links)
    missing = [] if job.hosts.paths else [message(codes.MISSING_PEER_MATRIX)]
    return abstained(job, RULE, [said], missing, [message(codes.P2P_ON, name=name)])


def _by_trial(job: JobEvidence, pairs: TriedPairs) -> Verdict:
    said = [_pairs_said(codes.PAIRS_FAIL, pairs.host, pairs.failed)]
    if pairs.passed:
        said.append(_pairs_said(codes.PAIRS_WORK, pairs.host, pairs.passed))
    found = JobFinding(
        rule=RULE,
        cause=Cause.P2P_BLOCKED,
        confidence=Confidence.HIGH if pairs.passed else Confidence.MEDIUM,
        place=Place(node=pairs.host, port=", ".join(_names(pairs.failed))),
        evidence=tuple(said),
        next_actions=(message(codes.ACCESS_CONTROL_OFF, host=pairs.host),),
    )
    return job_verdict(job, found)


def _by_links(job: JobEvidence, odd: OddLinks, stuck: Verdict | None) -> Claim:
    said = told(
        codes.NVLINK_DOWN, kind="host", host=odd.host, device=odd.device, n_up=odd.n_up,
        n_links=odd.n_links,
    )  # fmt: skip
    seat = message(codes.SEAT_BRIDGE, host=odd.host, device=odd.device)
    if stuck is None:
        return Claim(abstained(job, RULE, [said], [message(codes.MISSING_PEER_MATRIX)], [seat]))
    found = JobFinding(
        rule=RULE,
        cause=Cause.P2P_BLOCKED,
        confidence=Confidence.MEDIUM,
        victims=stuck_ranks(stuck),
        place=Place(node=odd.host, port=f"{odd.host}/{odd.device}"),
        evidence=(said,),
        next_actions=(seat, message(codes.TRY_WITHOUT_P2P)),
    )
    return Claim(job_verdict(job, found), explains=STUCK)


def _by_bridges(job: JobEvidence, on: str, inside: set[int]) -> Iterator[Claim]:
    ranks = ranks_of(job.logs, job.world_size)
    direct = _direct_ranks(job, ranks) & inside
    bus_ids = [number for (_, number), rank in ranks.devices.items() if rank in direct]
    for host, bridges, below in redirected(job.hosts.bridges, bus_ids):
        if host != on:
            continue
        devices = [bus_name(number) for number in below]
        found = JobFinding(
            rule=RULE,
            cause=Cause.P2P_BLOCKED,
            confidence=Confidence.MEDIUM
            if job.hosts.nvlinks or job.hosts.paths
            else Confidence.LOW,
            victims=tuple(sorted(direct)),
            place=Place(node=host, port=", ".join(bridges)),
            evidence=(
                told(codes.P2P_IN_USE, kind="log", ranks=sorted(direct)),
                told(codes.REDIRECTS, kind="host", host=host, bridges=bridges, devices=devices),
            ),
            next_actions=(
                message(codes.ACCESS_CONTROL_OFF, host=host),
                message(codes.TRY_WITHOUT_P2P),
            ),
        )
        yield Claim(job_verdict(job, found), explains=STUCK)


def _direct_ranks(job: JobEvidence, ranks: LogRanks) -> set[int]:
    """The ranks that have a channel by direct access."""
    return {
        ranks.rank_of(log, event)
        for log, event in lines_with(job.logs, LogCode.NCCL_CHANNEL)
        if str(event.values.get("transport", "")).startswith("P2P")
    } - {-1}


def _pairs_said(code: str, host: str, paths: Collection[DevicePath]) -> Evidence:
    kinds = sorted({path.path for path in paths})
    return told(code, kind="host", host=host, pairs=_names(paths), paths=kinds)


def _names(paths: Collection[DevicePath]) -> list[str]:
    return [f"{path.device} - {path.other}" for path in paths]
