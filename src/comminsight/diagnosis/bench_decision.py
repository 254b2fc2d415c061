"""What may be done with the record of one launch: is the algorithm seen the one asked for?"""

from __future__ import annotations

from comminsight.model.bench import BenchPlan, Decision, EvidenceLevel, Observed
from comminsight.model.bench_algorithms import AUTO, MPI_OPS, OPENMPI


def evidence_level(
    failure: str, seen: tuple[Observed, ...] | str, *, has_rows: bool
) -> EvidenceLevel:
    """How much was measured, and whether the library told an algorithm."""
    if not has_rows:
        return EvidenceLevel.NONE
    if failure:
        return EvidenceLevel.PARTIAL
    return EvidenceLevel.MEASURED if isinstance(seen, str) else EvidenceLevel.CONFIRMED


def decision(plan: BenchPlan, level: EvidenceLevel, seen: tuple[Observed, ...] | str) -> Decision:
    """``plan`` is that of one launch. A failed one is discarded; nothing is honoured or not without
    the library's word."""
    if level in {EvidenceLevel.NONE, EvidenceLevel.PARTIAL}:
        return Decision.DISCARD
    told = () if isinstance(seen, str) else seen
    if plan.backend == "mpi":
        return _openmpi(plan, told)
    return _nccl(plan, told)


def _nccl(plan: BenchPlan, told: tuple[Observed, ...]) -> Decision:
    """all_reduce alone is judged: NCCL has a choice of algorithms for it, the others keep theirs
    whatever is asked. A line that does not name its op may be of any, and tells nothing."""
    judged = [one for one in told if one.op == "AllReduce"]
    if not judged:
        return Decision.USE_TIMES
    (algorithm,), (protocol,) = plan.algorithms, plan.protocols
    is_honoured = all(
        algorithm in {AUTO, one.algo.capitalize()} and protocol.upper() in {AUTO.upper(), one.proto}
        for one in judged
    )
    return Decision.USE_ALGORITHM if is_honoured else Decision.NOT_HONOURED


def _openmpi(plan: BenchPlan, told: tuple[Observed, ...]) -> Decision:
    """One function other than the one asked for is enough to say no; for a yes each op that was
    measured must have told its own."""
    wanted = OPENMPI.get(plan.algorithms[0], {})
    for one in told:
        op = one.op.rpartition("/")[2]
        if op in wanted and one.algo != wanted[op][1]:
            return Decision.NOT_HONOURED
    measured = {op for name in plan.collectives for op in MPI_OPS[name]}
    is_told = measured and measured <= {one.op for one in told}
    return Decision.USE_ALGORITHM if is_told else Decision.USE_TIMES
