"""The catalog of a run: which segment holds what, and who is in which communicator.

It answers "where are the records of rank 3 between these instants" without opening segments.
Derived from the segments; rebuilt whenever wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from comminsight.errors import InputError
from comminsight.format.document import read_document
from comminsight.format.segment import SegmentData, read_segment
from comminsight.model.ops import RecordKind
from comminsight.model.ranges import range_compress
from comminsight.model.topology import Communicator, SessionIdentity
from comminsight.store.archive import Archive, compress, decompress

SCHEMA_VERSION = 1
NOT_OPS = (RecordKind.UNKNOWN, RecordKind.DRAIN, RecordKind.NOTICE)


class SegmentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What one segment holds. Starts are of ops, on the session's CLOCK_MONOTONIC; the offset to
    wall time is ``real - mono`` of the segment's newest clock pair. 0 records: all numbers 0."""

    name: str
    session_id: str
    global_rank: int
    number: int
    n_records: int
    first_seq: int = 0
    last_seq: int = 0
    first_start_ns: int = 0
    last_start_ns: int = 0
    last_end_ns: int = 0
    real_minus_mono_ns: int = 0
    comm_hashes: tuple[str, ...] = ()
    is_sealed: bool = False
    tally: dict[str, int] = {}


class CommEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One communicator; ``members`` are global ranks in comm_rank order, as ranges."""

    comm_id: int
    comm_hash: str
    ordinal: int
    name: str
    desc: str
    role: str
    comm_size: int
    members: str


class Catalog(msgspec.Struct, frozen=True, kw_only=True):
    """Segments by (rank, session, number) and communicators by id."""

    schema_version: int = SCHEMA_VERSION
    segments: tuple[SegmentEntry, ...] = ()
    communicators: tuple[CommEntry, ...] = ()

    def segments_of(
        self, global_rank: int, begin_real_ns: int, end_real_ns: int
    ) -> list[SegmentEntry]:
        """The segments that may hold ops of the rank in ``[begin, end)``, wall time."""
        return [
            entry
            for entry in self.segments
            if entry.global_rank == global_rank
            and entry.n_records
            and entry.first_start_ns + entry.real_minus_mono_ns < end_real_ns
            and max(entry.last_start_ns, entry.last_end_ns) + entry.real_minus_mono_ns
            >= begin_real_ns
        ]


def segment_entry(name: str, data: SegmentData) -> SegmentEntry:
    """The entry of a segment that lies under ``name``."""
    ops = data.records[~np.isin(data.records["kind"], NOT_OPS)]
    mono_ns, real_ns = data.clock_pairs[-1].tolist() if len(data.clock_pairs) else (0, 0)
    used = np.isin(data.comms["comm_index"], np.unique(ops["comm_index"]))
    starts = ops["start_ns"][ops["start_ns"] > 0]
    return SegmentEntry(
        name=name,
        session_id=data.identity.session_id,
        global_rank=data.identity.global_rank,
        number=data.number,
        n_records=len(data.records),
        first_seq=int(data.records["seq"].min()) if len(data.records) else 0,
        last_seq=int(data.records["seq"].max(initial=0)),
        first_start_ns=int(starts.min()) if len(starts) else 0,
        last_start_ns=int(starts.max(initial=0)),
        last_end_ns=int(ops["end_ns"].max(initial=0)),
        real_minus_mono_ns=real_ns - mono_ns,
        comm_hashes=tuple(f"{value:016x}" for value in data.comms["comm_hash"][used].tolist()),
        is_sealed=data.is_sealed,
        tally=data.tally.as_dict(),
    )


def build_catalog(
    entries: Iterable[SegmentEntry], communicators: Sequence[Communicator] = ()
) -> Catalog:
    """The catalog of these segments and communicators, in the same order whatever theirs is."""
    ordered = sorted(entries, key=lambda e: (e.global_rank, e.session_id, e.number))
    return Catalog(
        segments=tuple(ordered),
        communicators=tuple(
            CommEntry(
                comm_id=comm.comm_id,
                comm_hash=f"{comm.comm_hash:016x}",
                ordinal=comm.ordinal,
                name=comm.name,
                desc=comm.desc,
                role=comm.role.value,
                comm_size=comm.comm_size,
                members=range_compress(comm.members),
            )
            for comm in communicators
        ),
    )


def run_prefix(job: str, run_id: str) -> str:
    """Where a run lies in the archive."""
    return f"jobs/{job}/runs/{run_id}"


def archive_segment(archive: Archive, prefix: str, path: Path) -> SegmentEntry:
    """Puts a segment file into the archive as raw evidence, compressed; idempotent.

    Raises InputError for a file that is no segment, and when another content has its name.
    """
    data = read_segment(path)
    name = segment_name(prefix, data.identity, data.number)
    archive.put_evidence(name, compress(path.read_bytes()))
    return segment_entry(name, data)


def segment_name(prefix: str, identity: SessionIdentity, number: int) -> str:
    """The name of a segment in the archive: it follows from what the segment is."""
    return f"{prefix}/segments/{identity.session_id}/{number:06d}.ciseg.zst"


def fetch_segment(archive: Archive, name: str, folder: Path) -> Path:
    """Writes an archived segment to ``folder`` as it was; returns its path."""
    data = decompress(archive.get(name), path=name)
    session, file_name = name.split("/")[-2:]
    path = folder / session / file_name.removesuffix(".zst")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def write_catalog(archive: Archive, prefix: str, catalog: Catalog) -> None:
    """Stores the catalog; it is derived, so a newer one replaces it."""
    archive.put(f"{prefix}/metadata/catalog.json", msgspec.json.encode(catalog))


def read_catalog(archive: Archive, prefix: str) -> Catalog:
    """The stored catalog; InputError where there is none or it is of a newer schema."""
    name = f"{prefix}/metadata/catalog.json"
    catalog = read_document(archive.get(name), Catalog, path=name)
    if catalog.schema_version > SCHEMA_VERSION:
        raise InputError(f"has schema {catalog.schema_version}, newer than this version", path=name)
    return catalog
