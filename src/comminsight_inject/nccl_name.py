"""Gives NCCL the name of a group where the pair of torch and NCCL allows it.

torch 2.9-2.13 exposes the address of its ``ncclConfig_t``; from NCCL 2.27.3 to 2.30 that structure
holds ``size`` (u64 at 0), ``magic`` (u32 at 8), ``version`` (u32 at 12) and the pointer
``commName`` at 48. Older torch hands out no address, newer torch names its communicators itself.
"""

from __future__ import annotations

import copy
import ctypes
from typing import Any, Dict, Optional, Tuple

CONFIG_MAGIC = 0xCAFEBEEF
MIN_CONFIG_BYTES = 56
FIRST_NCCL_WITH_NAMES = 22703
FIRST_TORCH, FIRST_TORCH_NAMING_ITSELF = (2, 9), (2, 14)
_NAME_OFFSET = 48
_MAX_NAMES = 4096

# NCCL keeps the pointer and not the characters: every name lives as long as the process.
_names: Dict[int, Any] = {}


def can_name(torch_version: Tuple[int, int]) -> bool:
    """True where this module has to give the name and can."""
    return FIRST_TORCH <= torch_version < FIRST_TORCH_NAMING_ITSELF


def write_name(config_address: int, name: str) -> bool:
    """Point ``commName`` of the structure at ``name``; False where it is not safe or not free.

    A name of ours is replaced: it came along when the options of a parent group were copied.
    """
    size_bytes = ctypes.c_uint64.from_address(config_address).value
    magic = ctypes.c_uint32.from_address(config_address + 8).value
    if magic != CONFIG_MAGIC or not MIN_CONFIG_BYTES <= size_bytes < 4096:
        return False
    if ctypes.c_uint32.from_address(config_address + 12).value < FIRST_NCCL_WITH_NAMES:
        return False
    slot = ctypes.c_void_p.from_address(config_address + _NAME_OFFSET)
    is_theirs = slot.value and slot.value not in _names
    if is_theirs or len(_names) >= _MAX_NAMES:
        return False
    text = ctypes.create_string_buffer(name.encode("utf-8", "replace"))
    address = ctypes.addressof(text)
    _names[address] = text
    slot.value = address
    return True


def named_options(c10d: Any, options: Any, name: str, timeout: Any) -> Optional[Any]:
    """Options of its own for one group, carrying ``name``; None when the caller's should stay.

    A copy, because one Options object handed to several groups would give all of them one name.
    """
    kind = c10d.ProcessGroupNCCL.Options
    if options is None:
        own = kind()
        own.is_high_priority_stream = False
        if timeout is not None:
            own._timeout = timeout  # the group creation warns when they differ
    elif isinstance(options, kind):
        own = copy.deepcopy(options)
    else:
        return None
    return own if write_name(int(own.config.unsafe_get_ptr()), name) else None
