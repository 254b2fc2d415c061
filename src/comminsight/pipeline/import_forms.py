"""Which forms of files give op records, each with its reader; all others are kept as evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from comminsight.model.imported import ImportedRank
from comminsight.pipeline.evidence_files import EvidenceFiles
from comminsight.pipeline.import_traces import trace_ranks

Reader = Callable[[Iterable[Path]], Iterable[ImportedRank]]

# a field of EvidenceFiles, and what makes ranks of its files; at most one ImportedRank for a rank
# in all: of two forms the first that has the rank counts
READERS: Mapping[str, Reader] = {
    "traces": trace_ranks,
}


def imported_ranks(files: EvidenceFiles) -> tuple[ImportedRank, ...]:
    """One for each rank that a reader finds, by rank."""
    found: dict[int, ImportedRank] = {}
    for name, read in READERS.items():
        for one in read(getattr(files, name)):
            found.setdefault(one.global_rank, one)
    return tuple(found[rank] for rank in sorted(found))
