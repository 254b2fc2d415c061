"""Transfers that are bound by what each step costs, whatever its size: not by the link."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from comminsight.analysis.alpha_beta import AlphaBeta, fit_alpha_beta
from comminsight.analysis.bandwidth import path_of, usable
from comminsight.diagnosis import codes_link as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import abstained, told
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Verdict

RULE = "chunk_latency"
BOUND_RATIO = 0.7  # of the time of the smallest chunk


def chunk_latency_rule(job: JobEvidence) -> Iterator[Claim]:
    """No accusation: the evidence that the startup of a step takes most of its time, since the
    throughput grows with the chunk."""
    curves: dict[tuple[object, ...], list[BandwidthRow]] = defaultdict(list)
    for row in usable(job.bandwidth):
        if row.chunk_bytes > 0:
            curves[row.run, row.op, row.size_bytes, path_of(row)].append(row)
    for rows in curves.values():
        ordered = sorted(rows, key=lambda row: row.chunk_bytes)
        chunks = np.array([row.chunk_bytes for row in ordered], float)
        fit = fit_alpha_beta(chunks, chunks / [row.busbw_gbs for row in ordered])
        if fit is not None and fit.latency_ratio(chunks[0]) >= BOUND_RATIO:
            yield Claim(_bound(job, ordered, fit))


def _bound(job: JobEvidence, rows: Sequence[BandwidthRow], fit: AlphaBeta) -> Verdict:
    said = told(
        codes.LATENCY_BOUND, latency_ns=fit.latency_ns,
        low_bytes=rows[0].chunk_bytes, low_gbs=rows[0].busbw_gbs,
        high_bytes=rows[-1].chunk_bytes, high_gbs=rows[-1].busbw_gbs,
    )  # fmt: skip
    return abstained(job, RULE, [said], (), [message(codes.ENLARGE_CHUNK)])
