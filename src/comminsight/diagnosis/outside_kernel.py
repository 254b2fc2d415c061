"""Ranks that have not come to an op because a hand-written communication kernel runs on them.

Such a kernel waits for its counterpart on the peers, which stand in the op: two orders of the same
two things. A kernel counts where a trace shows that it had not ended on every rank that is missing,
and on none that waits: there it would be the one thing all are in.
"""

from __future__ import annotations

from msgspec.structs import replace

from comminsight.diagnosis import codes_groups as codes
from comminsight.diagnosis.codes import message
from comminsight.model.activity import Activity, ActivityKind
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence, Evidence, Verdict

ABSENCES = frozenset({Cause.RANK_NOT_ENTERED, Cause.CONTROL_FLOW_SKIP})


def with_outside_kernel(verdict: Verdict, job: JobEvidence) -> Verdict:
    """As an order that differs, where an open kernel on each missing rank tells it."""
    if verdict.cause not in ABSENCES or not job.activities:
        return verdict
    open_on = {one.global_rank: one for one in job.activities if is_open_outside(one)}
    missing = set(verdict.culprits)
    kernels = {open_on[rank].name for rank in missing & open_on.keys()}
    if not missing <= open_on.keys() or len(kernels) != 1 or open_on.keys() & {*verdict.victims}:
        return verdict
    kernel, ranks = kernels.pop(), sorted(missing)
    said = message(codes.OUTSIDE_KERNEL, ranks=ranks, kernel=kernel)
    return replace(
        verdict,
        cause=Cause.ORDER_INVERSION,
        confidence=Confidence.MEDIUM,
        evidence=(Evidence(kind="trace", message=said), *verdict.evidence),
        next_actions=(
            message(codes.ORDER_KERNELS, ranks=ranks, kernel=kernel), *verdict.next_actions
        ),
    )  # fmt: skip


def is_open_outside(one: Activity) -> bool:
    """True for a communication kernel of no library that had not ended when its trace did."""
    return one.kind is ActivityKind.COMMUNICATION and not one.is_library and one.end_ns == 0
