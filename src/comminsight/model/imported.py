"""What a reader of foreign records gives of one rank, and what the run made of it says of itself.

A reader (one per form, ``pipeline.import_forms.READERS``) fills ``ImportedRank`` with op records of
our own layout; everything behind it takes them as if our recorder had written them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec
import numpy as np

IMPORT_SCHEMA = "1.0"
IMPORTED = "imported"  # the kind of such a run


class ImportClock(StrEnum):
    """Whose times the ops of a rank have. No two ranks are taken to share one."""

    TRACE = "trace"  # of the profiler, as it wrote it
    EPOCH = "epoch"  # nanoseconds since 1970, by the clock of the rank's host
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, eq=False)
class ImportedRank:
    """The ops of one rank from one file: ``ops`` is an ``OP_DTYPE`` batch, ``comms`` its
    ``COMM_DTYPE`` rows.

    ``seq`` counts from 1 in order of start; ``op_seq`` and ``match_seq`` are 0 nowhere. Ops of two
    ranks match by ``comm_hash`` and ``match_seq``: a reader that cannot tell which op is which
    on another rank gives the communicator a hash of its own. ``n_read`` = ops + ``n_bad`` + all of
    ``dropped`` (by name, why they are not in ``ops``). ``inferred`` names columns that the source
    does not state. -1 and 0 are unknown, as in a session.
    """

    global_rank: int
    ops: np.ndarray
    comms: np.ndarray
    source: str
    world_size: int = 0
    host: str = ""
    clock: ImportClock = ImportClock.UNKNOWN
    clock_error_ns: int = 0
    n_read: int = 0
    n_bad: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    inferred: tuple[str, ...] = ()


class ImportedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One source: ``path`` under the run's ``evidence/``, ``form`` as it was recognised."""

    path: str
    form: str
    size_bytes: int
    sha256: str


class ImportedOps(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one rank's ops: ``n_read = n_written + n_bad + sum(dropped)``."""

    global_rank: int
    session_id: str
    source: str
    clock: ImportClock
    clock_error_ns: int
    n_read: int
    n_written: int
    n_bad: int = 0
    dropped: dict[str, int] = {}
    inferred: tuple[str, ...] = ()


class ImportManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The document that makes a run directory an imported one; ``files`` in the order in which they
    are judged, ``world_size`` as given by whoever imported them, 0 if not."""

    run_id: str
    schema_version: str = IMPORT_SCHEMA
    kind: str = IMPORTED
    imported_real_ns: int = 0
    world_size: int = 0
    files: tuple[ImportedFile, ...] = ()
    ranks: tuple[ImportedOps, ...] = ()
