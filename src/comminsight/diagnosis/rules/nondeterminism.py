"""Two runs with other bits for the same result: because sums were formed in another order."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.analysis.sum_order import (
    AlgorithmTable,
    DifferingResult,
    algorithms,
    differing_results,
    layouts,
)
from comminsight.diagnosis import codes_link as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, abstained, job_verdict, told
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence, Evidence

RULE = "nondeterminism"
MIN_RANKS = 2
IN_SWITCH = ("NVLS", "COLLNET")  # the fabric decides in which order it adds
MAX_SIZES = 8


def nondeterminism_rule(job: JobEvidence) -> Iterator[Claim]:
    """NONDETERMINISTIC_ALGO where results differ between the runs, agree over the ranks of each,
    and the order of the sums differed or is open. What could differ is told without results too."""
    if job.baseline is None:
        return
    order = [
        *_tables_differ(algorithms(job.logs), algorithms(job.baseline.logs)),
        *_layouts_differ(layouts(job.logs), layouts(job.baseline.logs)),
        *_in_switch(algorithms(job.logs), algorithms(job.baseline.logs)),
    ]
    results = [
        result
        for result in differing_results(job.digests, job.baseline.digests)
        if result.n_ranks >= MIN_RANKS
    ]
    if order and results:
        yield Claim(job_verdict(job, _finding(results, order)))
    elif order and not (job.digests and job.baseline.digests):
        yield Claim(abstained(job, RULE, order, [message(codes.MISSING_DIGESTS)]))


def _finding(results: list[DifferingResult], order: list[Evidence]) -> JobFinding:
    said = [
        told(codes.RESULTS_DIFFER, name=one.name, n_ranks=one.n_ranks, n_calls=one.n_calls)
        for one in results
    ]
    return JobFinding(
        rule=RULE,
        cause=Cause.NONDETERMINISTIC_ALGO,
        confidence=Confidence.MEDIUM,
        evidence=(*said, *order),
        next_actions=(message(codes.FIX_ALGORITHM),),
    )


def _tables_differ(here: AlgorithmTable, there: AlgorithmTable) -> Iterator[Evidence]:
    """Other algorithms for equal sizes, else other sizes with other algorithms."""
    for (op, n_bytes), algo in sorted(here.items()):
        other = there.get((op, n_bytes), algo)
        if other != algo:
            yield told(
                codes.ALGO_DIFFERS, kind="log", op=op, n_bytes=n_bytes, algo=algo, other=other
            )
    if here.keys() & there.keys() or not (here and there):
        return
    if set(here.values()) != set(there.values()):
        yield told(codes.ALGO_BY_SIZE, kind="log", table=_shown(here), other=_shown(there))


def _layouts_differ(here: dict[str, list[int]], there: dict[str, list[int]]) -> Iterator[Evidence]:
    """The same number of elements in all, in other pieces."""
    for op in sorted(here.keys() & there.keys()):
        own, other = here[op], there[op]
        if sorted(own) != sorted(other) and sum(own) == sum(other):
            yield told(
                codes.LAYOUT_DIFFERS, kind="log", op=op, sizes=own[:MAX_SIZES],
                other=other[:MAX_SIZES],
            )  # fmt: skip


def _in_switch(here: AlgorithmTable, there: AlgorithmTable) -> Iterator[Evidence]:
    """Sizes that both runs reduced in the switch."""
    for prefix in IN_SWITCH:
        sizes = [
            f"{op} {n_bytes}".strip()
            for (op, n_bytes), algo in sorted(here.items())
            if algo.startswith(prefix) and there.get((op, n_bytes), "").startswith(prefix)
        ]
        if sizes:
            yield told(codes.ORDER_IN_SWITCH, kind="log", algo=prefix, sizes=sizes[:MAX_SIZES])


def _shown(table: AlgorithmTable) -> list[str]:
    rows = sorted(table.items())[:MAX_SIZES]
    return [f"{op} {n_bytes} -> {algo}".strip() for (op, n_bytes), algo in rows]
