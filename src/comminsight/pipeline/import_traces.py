"""Profiler traces as op records: the collectives that their kernels stand for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from comminsight.model.imported import ImportedRank
from comminsight.pipeline.traces import trace_evidence
from comminsight.semantics.imported_ops import ops_by_rank


def trace_ranks(paths: Iterable[Path]) -> tuple[ImportedRank, ...]:
    """The ranks of the traces in ``paths``; what does not read is named when they are judged."""
    found = trace_evidence(paths)
    return ops_by_rank(found.activities, world_size=found.world_size, sources={})
