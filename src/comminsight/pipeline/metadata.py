"""The metadata document of a run: made from its sessions, written into ``metadata/``, read back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from comminsight.capture.session import SessionData
from comminsight.errors import InputError
from comminsight.format.document import UNREADABLE, document_bytes
from comminsight.model.manifest import LaunchManifest
from comminsight.model.metadata import (
    METADATA_SCHEMA_VERSION,
    CommMetadata,
    RankMetadata,
    RoleSource,
    RunMetadata,
    TemplateUse,
)
from comminsight.model.ops import CommRole
from comminsight.model.ranges import range_compress
from comminsight.model.session import SessionRecord
from comminsight.model.topology import Communicator
from comminsight.pipeline.devices import devices
from comminsight.pipeline.layout import RunPaths, unwritable_run, write_whole
from comminsight.pipeline.parallel import RunRoles
from comminsight.pipeline.rebuild import SessionSteps

NAME = "run.json"


def run_metadata(
    run_id: str, sessions: Sequence[SessionData], roles: RunRoles,
    records: Iterable[SessionRecord] = (), manifests: Iterable[LaunchManifest] = (),
) -> RunMetadata:  # fmt: skip
    """The document; ``records`` say which template won on which session."""
    placed = devices(sessions)
    ranks = tuple(
        rank_metadata(s, placed, roles.coordinates.by_rank)
        for s in sorted(sessions, key=lambda s: s.identity.global_rank)
    )
    on_host: dict[str, list[int]] = {}
    for rank in ranks:
        on_host.setdefault(rank.host, []).append(rank.global_rank)
    stated = [*(rank.versions for rank in ranks), *(m.versions for m in manifests)]
    return RunMetadata(
        schema_version=METADATA_SCHEMA_VERSION, run_id=run_id,
        world_size=roles.coordinates.layout.world_size,
        hosts={host: range_compress(own) for host, own in sorted(on_host.items())},
        ranks=ranks,
        communicators=tuple(comm_metadata(comm) for comm in roles.communicators),
        layout=roles.coordinates.layout, templates=template_uses(records),
        versions=all_versions(stated),
    )  # fmt: skip


def rank_metadata(
    session: SessionData,
    placed: Mapping[int, str],
    coordinates: Mapping[int, Mapping[str, int]],
) -> RankMetadata:
    """One rank, with what its session says of itself."""
    identity = session.identity
    rank = identity.global_rank
    return RankMetadata(
        global_rank=rank, session_id=identity.session_id, host=identity.host,
        boot_id=identity.boot_id, pid=identity.pid, local_rank=identity.local_rank,
        restart_count=identity.restart_count, device=placed.get(rank, ""),
        coordinates=dict(coordinates.get(rank, {})), versions=dict(identity.versions),
    )  # fmt: skip


def comm_metadata(comm: Communicator) -> CommMetadata:
    """One communicator with the source of its role."""
    source = RoleSource.INFERRED if comm.is_role_inferred else RoleSource.NAMED
    if comm.role is CommRole.UNKNOWN:
        source = RoleSource.UNKNOWN
    return CommMetadata(
        comm_id=comm.comm_id, comm_hash=f"{comm.comm_hash:016x}", ordinal=comm.ordinal,
        name=comm.name, desc=comm.desc, backend=comm.backend.name.lower(),
        comm_size=comm.comm_size, members=range_compress(comm.members), role=comm.role,
        role_source=source,
        role_confidence=1.0 if source is RoleSource.NAMED else comm.role_confidence,
        role_evidence=comm.role_evidence,
    )  # fmt: skip


def template_uses(records: Iterable[SessionRecord]) -> tuple[TemplateUse, ...]:
    """The choices, each once, in order of their first rank."""
    found: dict[tuple[str, int], list[SessionRecord]] = {}
    for record in sorted(records, key=lambda record: record.global_rank):
        chosen = (s.version for s in record.scores if s.is_chosen and s.template == record.template)
        found.setdefault((record.template, next(chosen, 0)), []).append(record)
    return tuple(
        TemplateUse(
            template=template, version=version,
            ranks=range_compress(record.global_rank for record in own),
            n_steps=max(record.n_steps for record in own),
            reasons=tuple(sorted({r.broken.reason.value for r in own if r.broken})),
            scores=own[0].scores,
        )
        for (template, version), own in found.items()
    )  # fmt: skip


def session_records(
    sessions: Iterable[SessionData], rebuilt: Mapping[str, SessionSteps]
) -> tuple[SessionRecord, ...]:
    """What became of the sessions' steps, in the form that a rebuild stores."""
    return tuple(
        SessionRecord(
            session_id=s.identity.session_id, global_rank=s.identity.global_rank,
            template=own.template, n_steps=len(own.steps), broken=own.broken, scores=own.scores,
        )
        for s in sessions
        for own in [rebuilt[s.identity.session_id]]
    )  # fmt: skip


def all_versions(stated: Iterable[Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    """Every version that was seen of each component, ascending."""
    found: dict[str, set[str]] = {}
    for versions in stated:
        for component, version in versions.items():
            found.setdefault(component, set()).add(version)
    return {component: tuple(sorted(own)) for component, own in sorted(found.items())}


def write_metadata(paths: RunPaths, document: RunMetadata) -> Path:
    """Replace the stored document in one step; the same run gives the same bytes.

    Raises InputError when it cannot be written.
    """
    path = paths.metadata / NAME
    try:
        paths.metadata.mkdir(exist_ok=True)
        write_whole(path, document_bytes(document))
    except OSError as error:
        raise unwritable_run(path, error) from error
    return path


def read_metadata(paths: RunPaths) -> RunMetadata | None:
    """The stored document; None where there is none, or one of another major version.

    Raises InputError when it is damaged.
    """
    path = paths.metadata / NAME
    try:
        document = msgspec.json.decode(path.read_bytes(), type=RunMetadata)
    except FileNotFoundError:
        return None
    except (*UNREADABLE, OSError) as error:
        raise InputError(
            f"is no metadata of a run: {error}", path=str(path), code="bad_metadata",
            reason=str(error),
            next_step="delete the file and run `comminsight rebuild`",
        ) from error  # fmt: skip
    major = METADATA_SCHEMA_VERSION.partition(".")[0]
    return document if document.schema_version.partition(".")[0] == major else None
