"""How the run went, from its manifests and from what its processes left behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from comminsight.capture.process import boot_id, is_running
from comminsight.model.manifest import LaunchManifest
from comminsight.model.report import RunFacts


def run_end(manifests: Sequence[LaunchManifest], killed_ranks: Sequence[int], *, alive: int) -> str:
    """running, exited, killed or unknown.

    A launcher that left no end and is not there any more was killed itself; a process that died
    without closing its box was killed, whatever the launcher saw.
    """
    if alive or any(is_launcher_running(manifest) for manifest in manifests):
        return "running"
    if killed_ranks or any(m.exit_signal or m.exit_code is None for m in manifests):
        return "killed"
    return "exited" if manifests else "unknown"


def is_launcher_running(manifest: LaunchManifest) -> bool:
    """True when the launcher still runs on this node; false when it cannot be told."""
    return (
        manifest.exit_code is None
        and manifest.boot_id == boot_id()
        and is_running(manifest.launcher_pid, manifest.launcher_start_ticks)
    )


def run_facts(
    path: str,
    manifests: Sequence[LaunchManifest],
    *,
    world_size: int,
    ranks_seen: int,
    hosts: Iterable[str],
    killed_ranks: Sequence[int],
    alive: int,
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
        end=run_end(manifests, killed_ranks, alive=alive),
        exit_code=max(codes, default=None),
        killed_ranks=tuple(killed_ranks),
    )
