"""The verdict on the speed of a run, with the cause as far as there is evidence of it.

``judge_straggler`` tells who is late for good; here it is asked why, and what else there is where
nobody is.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from comminsight.diagnosis import codes
from comminsight.diagnosis.basis import complete_steps, missing_basis
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.host_pause import find_pauses, judge_pauses
from comminsight.diagnosis.input_wait import with_input
from comminsight.diagnosis.load import moving_load
from comminsight.diagnosis.straggler import judge_straggler
from comminsight.model.measures import StragglerMeasures
from comminsight.model.topology import Communicator
from comminsight.model.verdict import UNREMARKABLE, Cause, Coverage, Evidence, Verdict


def judge_speed(
    measures: StragglerMeasures, communicators: Sequence[Communicator], coverage: Coverage
) -> Verdict:
    """The verdict of ``judge_straggler``, as INPUT_STRAGGLER, LOAD_IMBALANCE or HOST_PAUSE where
    the measures tell that much more."""
    verdict = judge_straggler(measures, communicators, coverage)
    if missing_basis(measures, coverage):
        return verdict
    used = complete_steps(measures)
    if verdict.cause is Cause.COMPUTE_STRAGGLER:
        return with_node(with_input(verdict, used), used)
    if verdict.cause not in UNREMARKABLE:
        return verdict
    if (found := moving_load(verdict, used)) is not None:
        return found
    pauses = find_pauses(used)
    return verdict if pauses is None else judge_pauses(verdict, used, pauses)


def with_node(verdict: Verdict, used: StragglerMeasures) -> Verdict:
    """The verdict, with the node named where its culprits are exactly the ranks of one of several
    nodes: what slows them all is the node's."""
    hosts = dict(zip(used.global_ranks.tolist(), used.hosts, strict=True))
    named = {hosts[rank] for rank in verdict.culprits}
    alike = sorted(rank for rank, host in hosts.items() if host in named)
    is_node = len(named) == 1 < len(set(hosts.values())) and "" not in named
    if not is_node or len(alike) < 2 or tuple(alike) != verdict.culprits:
        return verdict
    cost_ns = round(verdict.measures["step_cost_ns"])
    said = message(codes.ALIKE, place=named.pop(), ranks=alike, cost_ns=cost_ns)
    return replace(verdict, evidence=(*verdict.evidence, Evidence(kind="measure", message=said)))
