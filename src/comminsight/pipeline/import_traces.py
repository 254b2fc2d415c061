"""Profiler traces and Inspector records as op records of our own layout."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from comminsight.model.imported import ImportedRank
from comminsight.pipeline.inspector_files import inspector_ranks
from comminsight.pipeline.trace_files import TraceKind, by_kind
from comminsight.pipeline.traces import trace_evidence
from comminsight.semantics.imported_ops import ops_by_rank


def recorded_ranks(paths: Iterable[Path]) -> tuple[ImportedRank, ...]:
    """The ranks of which NCCL's Inspector wrote records."""
    return inspector_ranks(by_kind(paths)[TraceKind.INSPECTOR])


def trace_ranks(paths: Iterable[Path]) -> tuple[ImportedRank, ...]:
    """The ranks of the traces in ``paths``; what does not read is named when they are judged."""
    found = trace_evidence(paths)
    return ops_by_rank(found.activities, world_size=found.world_size, sources={})
