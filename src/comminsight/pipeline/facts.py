"""How the run went, from its manifests and from what its processes left behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from comminsight.capture.process import boot_id, is_running
from comminsight.model.hang import Liveness
from comminsight.model.manifest import LaunchManifest
from comminsight.model.report import RunFacts

ENDED = ("exited", "killed")  # as ``run_end`` says


def run_end(manifests: Sequence[LaunchManifest], liveness: Sequence[Liveness]) -> str:
    """running, exited, killed or unknown; ``liveness`` of every process that left a record.

    ``DEAD`` is a process that died by a signal or with a failing status, or of which nobody saw the
    end: then its recorder, which any orderly end closes, is what tells. Where a launcher left no
    end, the processes tell; a launcher that is gone before any of them recorded was killed itself.
    """
    states = set(liveness)
    if Liveness.ALIVE in states or any(is_launcher_running(m) for m in manifests):
        return "running"
    if Liveness.DEAD in states or any(m.exit_signal for m in manifests):
        return "killed"
    if manifests and all(m.exit_code is not None for m in manifests):
        return "exited"
    if states:
        return "exited" if states == {Liveness.CLOSED} else "unknown"
    return "killed" if any(is_launcher_gone(m) for m in manifests) else "unknown"


def is_launcher_running(manifest: LaunchManifest) -> bool:
    """True when the launcher still runs on this node; false when it cannot be told."""
    return (
        manifest.exit_code is None
        and manifest.boot_id == boot_id()
        and is_running(manifest.launcher_pid, manifest.launcher_start_ticks)
    )


def is_launcher_gone(manifest: LaunchManifest) -> bool:
    """True when it is known to have ended without a word; false when it cannot be told."""
    return (
        manifest.exit_code is None
        and manifest.boot_id == boot_id()
        and not is_running(manifest.launcher_pid, manifest.launcher_start_ticks)
    )


def run_facts(
    path: str,
    manifests: Sequence[LaunchManifest],
    *,
    world_size: int,
    ranks_seen: int,
    hosts: Iterable[str],
    killed_ranks: Sequence[int],
    liveness: Sequence[Liveness],
) -> RunFacts:
    """The head of the report."""
    codes = [m.exit_code for m in manifests if m.exit_code is not None]
    return RunFacts(
        run_id=manifests[0].run_id if manifests else "",
        path=path,
        world_size=world_size,
        ranks_seen=ranks_seen,
        hosts=tuple(sorted(set(filter(None, hosts)))),
        command=manifests[0].command if manifests else (),
        started_real_ns=min((m.started_real_ns for m in manifests), default=0),
        ended_real_ns=max((m.ended_real_ns for m in manifests), default=0),
        end=run_end(manifests, liveness),
        exit_code=max(codes, default=None),
        killed_ranks=tuple(killed_ranks),
    )
