"""How processes ended that only NCCL's plugin recorded: it is told of no orderly exit.

Where our own hook runs in a process, it closes the recorder at any orderly end, so that a recorder
left open tells of a death. With the plugin alone it stays open. Then the end was in order where
all communicators had been destroyed; and where nothing was in flight anywhere, so that nobody
missed the process, nobody knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from comminsight.capture.session import SessionData
from comminsight.model.hang import Liveness
from comminsight.model.manifest import LaunchManifest
from comminsight.model.ops import Backend

HOOK_VERSION = "python"  # stated by whoever closes the recorder at an orderly end


def with_quiet_ends(
    sessions: Sequence[SessionData], manifests: Sequence[LaunchManifest]
) -> tuple[SessionData, ...]:
    """The sessions; those of a plugin alone that are taken for dead without anything that tells so
    are closed or unknown."""
    seen = {end.session_id for manifest in manifests for end in manifest.ends}
    is_quiet = not any(len(session.in_flight) for session in sessions)
    return tuple(
        replace(session, liveness=_quiet_end(session, is_quiet=is_quiet))
        if session.liveness is Liveness.DEAD
        and session.identity.session_id not in seen
        and is_of_plugin_alone(session)
        else session
        for session in sessions
    )


def is_of_plugin_alone(session: SessionData) -> bool:
    """True when NCCL's plugin was all that recorded in the process."""
    rows = session.comms
    is_nccl = len(rows) > 0 and bool((rows["backend"] == Backend.NCCL).all())
    return is_nccl and HOOK_VERSION not in session.identity.versions


def _quiet_end(session: SessionData, *, is_quiet: bool) -> Liveness:
    if len(session.in_flight) == 0 and (session.comms["retired_ns"] > 0).all():
        return Liveness.CLOSED
    return Liveness.UNKNOWN if is_quiet else Liveness.DEAD
