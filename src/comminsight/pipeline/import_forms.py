"""Which forms of files give op records, each with its reader; all others are kept as evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from comminsight.model.imported import ImportedRank
from comminsight.pipeline.evidence_files import EvidenceFiles
from comminsight.pipeline.import_traces import recorded_ranks, trace_ranks

Reader = Callable[[Iterable[Path]], Iterable[ImportedRank]]

# a field of EvidenceFiles, and what makes ranks of its files; of two readers that find a rank the
# first counts
READERS: tuple[tuple[str, Reader], ...] = (
    ("traces", recorded_ranks),
    ("traces", trace_ranks),
)


def imported_ranks(files: EvidenceFiles) -> tuple[ImportedRank, ...]:
    """One for each rank that a reader finds, by rank."""
    found: dict[int, ImportedRank] = {}
    for name, read in READERS:
        for one in read(getattr(files, name)):
            found.setdefault(one.global_rank, one)
    return tuple(found[rank] for rank in sorted(found) if rank >= 0)
