"""Hooks around the functions of ``distributed_c10d`` that make and unmake groups.

Each hook calls the original exactly once, outside every guard: what it returns or raises reaches
the caller unchanged, and a fault of ours never skips it.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from comminsight_inject import names, nccl_name
from comminsight_inject.batch import in_batch
from comminsight_inject.session import SESSION

_MARK = "_comminsight_original"
_Call = Tuple[Tuple[Any, ...], Dict[str, Any]]


def patch(c10d: Any) -> None:
    """Put the hooks on the module ``distributed_c10d``; twice is once."""
    _wrap(c10d, "_new_process_group_helper", _creating)
    _wrap(c10d, "split_group", _splitting)
    _wrap(c10d, "destroy_process_group", _destroying)
    _wrap(c10d, "batch_isend_irecv", in_batch)


def _wrap(c10d: Any, name: str, hook: Callable[[Any, Any], Any]) -> None:
    original = getattr(c10d, name, None)
    if original is None or hasattr(original, _MARK):
        return
    wrapped = functools.wraps(original)(hook(c10d, original))
    setattr(wrapped, _MARK, original)
    setattr(c10d, name, wrapped)


def _creating(c10d: Any, original: Any) -> Any:
    signature = inspect.signature(original)

    def new_process_group_helper(*args: Any, **kwargs: Any) -> Any:
        ranks: Optional[List[int]] = None
        try:
            SESSION.open()
            bound = signature.bind_partial(*args, **kwargs)
            ranks = _ranks(bound.arguments)
            _describe(c10d, bound.arguments, ranks)
            if "group_desc" not in signature.parameters:  # torch < 2.4
                bound.arguments.pop("group_desc", None)
            args, kwargs = bound.args, bound.kwargs
        except Exception:
            pass
        result = original(*args, **kwargs)
        try:
            _register(c10d, result[0], ranks or [])
        except Exception:
            pass
        return result

    return new_process_group_helper


def _ranks(arguments: Dict[str, Any]) -> List[int]:
    """Global ranks in group order; the default group is created with an empty list."""
    listed = arguments.get("global_ranks_in_group")
    return [int(rank) for rank in listed or range(int(arguments["group_size"]))]


def _describe(c10d: Any, arguments: Dict[str, Any], ranks: Sequence[int]) -> None:
    """Fill in the description, and NCCL's name where torch does not give it."""
    name = str(arguments.get("group_name", ""))
    desc = arguments.get("group_desc")
    # Frames: this function, the hook, its caller (new_group or init_process_group).
    desc = names.describe_group(SESSION.group_map, name, desc, ranks, sys._getframe(2))
    arguments["group_desc"] = desc
    parameter = "backend_options" if "backend_options" in arguments else "pg_options"
    if "nccl" in str(arguments.get("backend", "")).lower() and _can_name():
        options = nccl_name.named_options(
            c10d, arguments.get(parameter), desc + ":" + name, arguments.get("timeout")
        )
        if options is not None:
            arguments[parameter] = options


def _can_name() -> bool:
    version = str(getattr(sys.modules.get("torch"), "__version__", "0.0")).split(".")
    return nccl_name.can_name((int(version[0]), int(version[1])))


def _splitting(c10d: Any, original: Any) -> Any:
    signature = inspect.signature(original)

    def split_group(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind_partial(*args, **kwargs)
            _name_split(c10d, bound.arguments)
            args, kwargs = bound.args, bound.kwargs
        except Exception:
            pass
        group = original(*args, **kwargs)
        try:
            if group is not None:
                _register(c10d, group, list(c10d.get_process_group_ranks(group)))
        except Exception:
            pass
        return group

    return split_group


def _name_split(c10d: Any, arguments: Dict[str, Any]) -> None:
    """A split copies its parent's options and with them the parent's name: give it its own."""
    if not _can_name() or not hasattr(c10d, "ProcessGroupNCCL"):
        return
    parent = arguments.get("parent_pg") or c10d._get_default_group()
    desc = arguments.get("group_desc") or parent.group_desc + ":split"
    options = arguments.get("pg_options")
    if options is None:
        options = parent._get_backend(sys.modules["torch"].device("cuda")).options
    named = nccl_name.named_options(c10d, options, desc, arguments.get("timeout"))
    if named is not None:
        arguments["pg_options"] = named


def _register(c10d: Any, group: Any, ranks: List[int]) -> None:
    """Enter a group that this process is a member of into the table, and see that it is captured.

    A group found again by its tag is in the table already.
    """
    name = getattr(group, "group_name", None)
    if not isinstance(name, str) or name in SESSION.groups:
        return
    backends = _backends(group)
    _identify(group, ranks)
    desc = str(getattr(group, "group_desc", "") or names.UNDEFINED)
    row = SESSION.register(
        name, desc, int(group.rank()), ranks, list(dict.fromkeys(backends.values()))
    )
    if "cpu" in backends and row.comm_index:  # 0: off, inert or full; leave the ops alone
        from comminsight_inject import capture

        capture.attach(SESSION, c10d, group)


def _backends(group: Any) -> Dict[str, str]:
    """Backend name by device type, CPU first."""
    found = {}
    for device in getattr(group, "_device_types", ()):
        try:
            found[device.type] = str(group._get_backend(device).name()).lower()
        except RuntimeError:
            continue
    return dict(sorted(found.items(), key=lambda item: item[0] != "cpu"))


def _identify(group: Any, ranks: Sequence[int]) -> None:
    """Tell the recorder the global rank when the launcher's environment does not."""
    if SESSION.recorder is not None and not SESSION.rows and "RANK" not in os.environ:
        SESSION.recorder.identity("identity.global_rank", str(ranks[int(group.rank())]))
        SESSION.recorder.identity("identity.world_size", str(len(ranks)))


def _destroying(c10d: Any, original: Any) -> Any:
    def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
        gone: List[str] = []
        try:
            group: Any = args[0] if args else kwargs.get("group")
            is_all = group is None or group is c10d.GroupMember.WORLD
            gone = list(SESSION.groups) if is_all else [group.group_name]
        except Exception:
            pass
        try:
            return original(*args, **kwargs)
        finally:
            for name in gone:
                try:
                    SESSION.retire(name)
                except Exception:
                    pass

    return destroy_process_group
