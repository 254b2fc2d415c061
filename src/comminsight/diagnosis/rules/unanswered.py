"""All ranks stand still in an op, and one host alone counts transfers without an answer."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.analysis.counter_rise import CounterRise, unusual_rises
from comminsight.analysis.placement import ranks_at
from comminsight.diagnosis import codes_link as codes
from comminsight.diagnosis.all_present import all_present_stuck, stuck_ranks
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, Place, abstained, job_verdict, told
from comminsight.diagnosis.link_evidence import map_missing, rise_said
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence, Verdict

RULE = "unanswered"
NO_ANSWER = frozenset({"local_ack_timeout_err"})  # the retry timer of a sender ran out
LOST_INCOMING = frozenset({"out_of_sequence", "rx_discards_phy", "rx_out_of_buffer"})


def unanswered_rule(job: JobEvidence) -> Iterator[Claim]:
    """PEER_UNREACHABLE on the path of the one host whose senders get no answer. Its ranks are named
    where the same ports also lost what came in: then both directions meet there. Else the other end
    may be at fault as well. Without a map from ranks to ports nothing is claimed."""
    rises = unusual_rises(job.counters, NO_ANSWER)
    stuck = all_present_stuck(job) if rises else None
    if stuck is None or len({rise.host for rise in rises}) != 1:
        return
    missing = map_missing(job, rises[0].host)
    if missing:
        yield Claim(abstained(job, RULE, [rise_said(rise) for rise in rises], missing))
        return
    users = {r for rise in rises for r in ranks_at(job.links, rise.host, rise.device)}
    users &= set(stuck_ranks(stuck))
    if users:
        yield _claim(job, rises, tuple(sorted(users)), stuck)


def _is_both_ways(job: JobEvidence, rises: list[CounterRise]) -> bool:
    ports = {(rise.host, rise.device) for rise in rises}
    lost = {(one.host, one.device) for one in unusual_rises(job.counters, LOST_INCOMING)}
    return ports <= lost


def _claim(
    job: JobEvidence, rises: list[CounterRise], users: tuple[int, ...], stuck: Verdict
) -> Claim:
    first, inside = rises[0], stuck_ranks(stuck)
    is_here = _is_both_ways(job, rises)
    culprits = users if is_here else ()
    missing = [] if job.hosts.gids else [message(codes.MISSING_GID_TABLE)]
    if not is_here:
        missing.append(message(codes.MISSING_PEER_END, peers=""))
    found = JobFinding(
        rule=RULE,
        cause=Cause.PEER_UNREACHABLE,
        confidence=Confidence.MEDIUM if is_here else Confidence.LOW,
        culprits=culprits,
        victims=tuple(rank for rank in inside if rank not in culprits),
        place=Place(
            node=first.host, port=", ".join(f"{rise.host}/{rise.device}" for rise in rises)
        ),
        first_bad_op=stuck.first_bad_op,
        evidence=(
            told(codes.UNANSWERED, ranks=users, peers=""),
            *(rise_said(rise) for rise in rises),
        ),
        missing=tuple(missing),
        next_actions=(message(codes.CHECK_PORT, host=first.host, device=first.device),),
    )
    return Claim(
        job_verdict(job, found),
        explains=frozenset({Cause.ALL_PRESENT_STUCK}),
        explains_ranks=frozenset(inside),
    )
