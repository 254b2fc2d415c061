"""torch >= 2.14: the official hooks around every op that a process group issues."""

from __future__ import annotations

import threading
from typing import Any, Dict, List, Tuple

from comminsight_inject import codes
from comminsight_inject.session import Session
from comminsight_inject.watch import Form, Group, Watch

HOOK_ID = 0x434F4D4D  # any number that is no one else's

# HookOpName -> (op, which tensors give its size, whether they are one rank's share of it)
_OPS = {
    "SEND": (codes.OP_SEND, "input", False),
    "RECV": (codes.OP_RECV, "output", False),
    "BROADCAST": (codes.OP_BROADCAST, "input", False),
    "ALLREDUCE": (codes.OP_ALL_REDUCE, "input", False),
    "REDUCE": (codes.OP_REDUCE, "input", False),
    "ALLGATHER": (codes.OP_ALL_GATHER, "output", False),
    "REDUCE_SCATTER": (codes.OP_REDUCE_SCATTER, "input", False),
    "ALLTOALL": (codes.OP_ALL_TO_ALL, "input", False),
    "BARRIER": (codes.OP_BARRIER, "", False),
    "SCATTER": (codes.OP_SCATTER, "output", True),
    "GATHER": (codes.OP_GATHER, "input", True),
}


class HookDoor:
    """Registers itself with every group it is told of. The hooks do not name the reduction."""

    def __init__(self, session: Session, watch: Watch, _torch: Any) -> None:
        self._session = session
        self._watch = watch
        self.skipped: List[str] = []

    def attach(self, group: Any) -> None:
        """See the ops of ``group`` from now on."""
        hooks = _GroupHooks(self._session, self._watch, group.group_name)
        group.register_pre_hook(HOOK_ID, hooks.before)
        group.register_post_hook(HOOK_ID, hooks.after)


class _GroupHooks:
    """The two hooks of one group; the number of an op joins them."""

    def __init__(self, session: Session, watch: Watch, name: str) -> None:
        self._session = session
        self._watch = watch
        self._name = name
        self._entered: Dict[int, Tuple[int, int]] = {}  # thread -> (op id, handle)

    def _group(self) -> Any:
        group = self._session.groups.get(self._name)
        return group if isinstance(group, Group) and group.comm_index else None

    def before(self, args: Any) -> None:
        """An op is about to be issued."""
        try:
            known = _OPS.get(args.name.name)
            group = self._group()
            if known is None or group is None:
                return
            thread = threading.get_ident()
            left = self._entered.pop(thread, None)
            if left is not None:  # issued but never "after": the backend raised
                self._watch.failed(left[1])
            op, side, is_per_rank = known
            form = Form(op, _tensors(args, side), is_per_rank, 0, int(args.root), _flags(args))
            self._entered[thread] = (int(args.op_id), self._watch.begin(group, form))
        except Exception:
            pass

    def after(self, args: Any) -> None:
        """The op is issued; ``args.work`` is None when it is over already."""
        try:
            entered = self._entered.pop(threading.get_ident(), None)
            group = self._group()
            if entered is not None and group is not None and entered[0] == int(args.op_id):
                self._watch.follow(entered[1], group, args.work, args.name.name)
        except Exception:
            pass


def _tensors(args: Any, side: str) -> List[Any]:
    return list(getattr(args, side + "_tensors")) if side else []


def _flags(args: Any) -> int:
    return codes.FLAG_ASYNC if args.async_op else 0
