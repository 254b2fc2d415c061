"""What the inject holds in one process: the recorder, and the groups by torch's group name.

Opened by the first group, closed at exit, emptied in a forked child (which inherits groups that
it must not use).
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from typing import Any, Dict, Optional, Sequence

from comminsight_inject import codes, names, stacks
from comminsight_inject.recorder import Recorder
from comminsight_inject.watch import Group


def comm_hash(group_name: str) -> int:
    """The 64-bit hash under which all ranks know a group: blake2b-8 of torch's name for it."""
    return int.from_bytes(hashlib.blake2b(group_name.encode(), digest_size=8).digest(), "little")


class Session:
    """State of one process; ``recorder`` is None when there is nothing to record with."""

    def __init__(self) -> None:
        self.recorder: Optional[Recorder] = None
        self.groups: Dict[str, Group] = {}
        self.group_map: Dict[str, str] = {}
        self.rows: Dict[str, Sequence[int]] = {}
        self.capture: Any = None
        self._is_open = False

    def open(self) -> None:
        """Load the recorder and tell it what is known of this process; once per process."""
        if self._is_open:
            return
        self._is_open = True
        self.group_map = names.parse_group_map(os.environ.get("COMMINSIGHT_GROUP_MAP", ""))
        path = os.environ.get("COMMINSIGHT_LIBRARY", "")
        if path and os.path.isfile(path):
            self.recorder = Recorder(path)
            self.recorder.identity("versions.python", platform.python_version())
            torch = sys.modules.get("torch")
            self.recorder.identity("versions.torch", str(getattr(torch, "__version__", "")))
            os.register_at_fork(after_in_child=self.forget)
        stacks.register(os.environ)

    def register(
        self, name: str, desc: str, rank: int, ranks: Sequence[int], backends: Sequence[str]
    ) -> Group:
        """Write the group into the communicator table, one row per backend, ``backends[0]`` first.

        ``backends[0]`` is the one that the CPU capture records into.
        """
        rows = []
        for backend in backends if self.recorder is not None else ():
            code = codes.BACKENDS.get(backend, 0)
            members = names.compress_ranks(ranks)
            assert self.recorder is not None  # noqa: S101 - for the type checker
            rows.append(
                self.recorder.register(comm_hash(name), name, desc, rank, len(ranks), members, code)
            )
        is_gloo = bool(backends) and backends[0] == "gloo"
        group = Group(rows[0] if rows else 0, rank, len(ranks), is_gloo)
        self.groups[name], self.rows[name] = group, rows
        return group

    def retire(self, name: str) -> None:
        """Mark the group's communicators as gone; unknown names are none of ours."""
        group = self.groups.pop(name, None)
        rows = self.rows.pop(name, ())
        if group is None or self.recorder is None:
            return
        if self.capture is not None:
            self.capture.settle(group.comm_index)
        for comm_index in rows:
            self.recorder.retire(comm_index)

    def forget(self) -> None:
        """In a forked child: the parent's groups and unfinished ops are not this process's."""
        self.groups, self.rows = {}, {}
        if self.capture is not None:
            self.capture.forget()

    def close(self) -> None:
        """At orderly exit: settle what can be settled, seal the segment."""
        for part in (self.capture, self.recorder):
            try:
                if part is not None:
                    part.close()
            except Exception:
                pass


SESSION = Session()
