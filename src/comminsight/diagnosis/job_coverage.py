"""What is known of a job's ranks, over all evidence of any kind."""

from __future__ import annotations

from comminsight.analysis.log_index import lines_of_writers
from comminsight.analysis.log_ranks import ranks_of
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.ranges import missing_ranks
from comminsight.model.verdict import Coverage


def job_coverage(job: JobEvidence) -> Coverage:
    """Which ranks left evidence of any kind, of how many."""
    seen = {state.global_rank for state in job.hang.ranks} if job.hang is not None else set()
    seen |= {log.rank for log in job.logs} | {e.rank for _, e in lines_of_writers(job.logs)}
    seen |= {one.global_rank for one in job.activities} | {*job.inspected_ranks}
    ranks = ranks_of(job.logs, job.world_size)
    seen = (seen | set(ranks.claims)) - {-1}
    expected = max(job.world_size, ranks.world_size, 1 + max(seen, default=-1))
    return Coverage(
        ranks_expected=expected,
        ranks_seen=len(seen),
        ranks_missing=missing_ranks(expected, seen),
        records_read=job.n_records,
    )
