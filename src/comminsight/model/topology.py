"""Who takes part: the session of a process, the communicators of a run and their members.

A *session* is one life of one process (one GPU): (boot id, pid, start time). A *communicator* of
the run joins the rows that its ranks wrote separately, by (comm_hash, ordinal).
"""

from __future__ import annotations

import msgspec

from comminsight.model.ops import Backend, CommRole

UNKNOWN_RANK = -1


class SessionIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Which process wrote a stream, as its own header says; unknown numbers are -1."""

    session_id: str  # "<boot id first 8>-<pid>-<pid start ticks>"
    run_id: str = ""
    host: str = ""
    boot_id: str = ""
    pid: int = -1
    pid_start_ticks: int = 0
    global_rank: int = UNKNOWN_RANK
    local_rank: int = UNKNOWN_RANK
    world_size: int = -1
    restart_count: int = 0
    created_mono_ns: int = 0
    created_real_ns: int = 0
    versions: dict[str, str] = {}

    @property
    def real_minus_mono_ns(self) -> int:
        """What turns its monotonic times into wall time."""
        return self.created_real_ns - self.created_mono_ns


class Communicator(msgspec.Struct, frozen=True, kw_only=True):
    """One communicator of the run with the members known so far.

    ``members[comm_rank]`` is a global rank, -1 where no evidence names it. ``name`` and ``desc``
    are the framework's; ``is_role_inferred`` is false only when a name gave the role. A role that
    ops gave carries its ``role_confidence`` (0-1) and the codes of its evidence.
    """

    comm_id: int
    comm_hash: int
    ordinal: int
    name: str = ""
    desc: str = ""
    role: CommRole = CommRole.UNKNOWN
    is_role_inferred: bool = True
    members: tuple[int, ...] = ()
    backend: Backend = Backend.UNKNOWN
    role_confidence: float = 0.0
    role_evidence: tuple[str, ...] = ()

    @property
    def comm_size(self) -> int:
        """Number of members, known or not."""
        return len(self.members)

    @property
    def label(self) -> str:
        """Role and name as people read it, for example ``TP mesh_tp#3``; a role that was told from
        ops is marked: ``TP? 00c0ffee00000000#3``."""
        shown = self.desc or self.name or f"{self.comm_hash:016x}"
        is_told = self.role_evidence and self.role is not CommRole.GLOBAL
        return f"{self.role.value}{'?' if is_told else ''} {shown}#{self.comm_id}"
