"""What a run was made of: ranks, devices, communicators with the source of their roles, the
parallel layout, versions, and the templates that were chosen. One document per run; derived."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from comminsight.model.layout import ParallelLayout
from comminsight.model.ops import CommRole
from comminsight.model.views import TemplateScore

METADATA_SCHEMA_VERSION = "1.0.0"  # major: a key went or changed meaning; minor: a key came


class RoleSource(StrEnum):
    """Who gave a role."""

    NAMED = "named"
    INFERRED = "inferred"
    UNKNOWN = "unknown"


class RankMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """One rank. ``device`` is ordinal and PCI id as far as known; ``coordinates`` are its places in
    the layout by dimension, empty where the layout is not known."""

    global_rank: int
    session_id: str
    host: str = ""
    boot_id: str = ""
    pid: int = -1
    local_rank: int = -1
    restart_count: int = 0
    device: str = ""
    coordinates: dict[str, int] = {}
    versions: dict[str, str] = {}


class CommMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """One communicator. ``members`` are global ranks in comm rank order, as ranges, -1 unknown.

    ``role_confidence`` is 0-1 (1: named); ``role_evidence`` are codes of what spoke for the role.
    """

    comm_id: int
    comm_hash: str  # 16 hexadecimal digits
    ordinal: int
    name: str
    desc: str
    backend: str
    comm_size: int
    members: str
    role: CommRole
    role_source: RoleSource
    role_confidence: float
    role_evidence: tuple[str, ...] = ()


class TemplateUse(msgspec.Struct, frozen=True, kw_only=True):
    """A template ("" for none) with the ranks it won on, and how all templates fared on the first
    of them. ``reasons`` are codes of why sessions were given up."""

    template: str
    version: int
    ranks: str  # as ranges
    n_steps: int
    reasons: tuple[str, ...] = ()
    scores: tuple[TemplateScore, ...] = ()


class RunMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """The document. ``versions`` are all that were seen, by component."""

    schema_version: str
    run_id: str
    world_size: int
    hosts: dict[str, str]  # host to its global ranks, as ranges
    ranks: tuple[RankMetadata, ...]
    communicators: tuple[CommMetadata, ...]
    layout: ParallelLayout
    templates: tuple[TemplateUse, ...] = ()
    versions: dict[str, tuple[str, ...]] = {}
