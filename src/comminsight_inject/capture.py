"""Chooses the door through which the ops of CPU backends are seen, and opens it once."""

from __future__ import annotations

import sys
from typing import Any

from comminsight_inject import codes
from comminsight_inject.c10d_hooks import HookDoor
from comminsight_inject.c10d_kernels import KernelDoor
from comminsight_inject.session import Session
from comminsight_inject.watch import Watch


class Capture:
    """Sees the ops of the session's groups. ``door`` is the hook or the kernel way in."""

    def __init__(self, session: Session, torch: Any, c10d: Any) -> None:
        assert session.recorder is not None  # noqa: S101 - for the type checker
        self.watch = Watch(session.recorder, torch, c10d)
        has_hooks = hasattr(c10d.ProcessGroup, "register_pre_hook")
        door = HookDoor if has_hooks else KernelDoor
        self.door: Any = door(session, self.watch, torch)
        self.settle = self.watch.settle
        self.forget = self.watch.forget
        self.close = self.watch.close


def attach(session: Session, c10d: Any, group: Any) -> None:
    """See the ops of ``group`` from now on; forms that cannot be seen are counted as lost."""
    if session.capture is None:
        session.capture = Capture(session, sys.modules["torch"], c10d)
        n_skipped = len(session.capture.door.skipped)
        if n_skipped and session.recorder is not None:
            comm_index = session.groups[group.group_name].comm_index
            session.recorder.loss(comm_index, codes.LOSS_CAPTURE_SKIPPED, n_skipped)
    session.capture.door.attach(group)
