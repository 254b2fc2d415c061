"""What the launcher of a run wrote down: one manifest per launcher (= per node) of the run."""

from __future__ import annotations

import msgspec

from comminsight.model.verdict import Message

MANIFEST_SCHEMA = "1.0"


class ProcessEnd(msgspec.Struct, frozen=True, kw_only=True):
    """When and how a recorded process ended, as its node saw it.

    ``exit_code`` and ``exit_signal`` as waitpid tells them; both -1 where its parent was faster.
    """

    session_id: str
    ended_mono_ns: int
    exit_code: int = -1
    exit_signal: int = -1


class LaunchManifest(msgspec.Struct, frozen=True, kw_only=True):
    """One launcher's account of the run; ``exit_code`` is None while it runs or if it was killed.

    ``launcher_pid`` with ``launcher_start_ticks`` and ``boot_id`` tell whether it still runs.
    ``messages`` are what a reader should know besides; launchers before them wrote ``notes``.
    """

    run_id: str
    schema_version: str = MANIFEST_SCHEMA
    host: str = ""
    boot_id: str = ""
    command: tuple[str, ...] = ()
    started_real_ns: int = 0
    started_mono_ns: int = 0
    ended_real_ns: int = 0
    exit_code: int | None = None
    exit_signal: int = 0
    launcher_pid: int = -1
    launcher_start_ticks: int = 0
    spool: str = ""
    overdue_limit_ns: int = 0
    safe_window_ns: int = 0
    versions: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    messages: tuple[Message, ...] = ()
    ends: tuple[ProcessEnd, ...] = ()
