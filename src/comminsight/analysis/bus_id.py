"""Addresses of PCI devices as numbers: as NCCL prints them, and as the kernel and tools do."""

from __future__ import annotations

import re

_ADDRESS = re.compile(
    r"(?:(?P<domain>[0-9a-f]{1,8}):)?(?P<bus>[0-9a-f]{2}):(?P<device>[01][0-9a-f])"
    r"(?:\.(?P<function>[0-7]))?"
)
_NUMBER = re.compile(r"(?:0x)?(?P<number>[0-9a-f]{1,16})")


def bus_number(bus_id: str) -> int:
    """``0000:0b:00.0``, or without its function as the kernel writes it, as the number that NCCL
    prints (``b000``): domain, bus, device and function in 4, 2, 2 and 1 digits; -1 for text that is
    neither an address nor such a number."""
    text = bus_id.lower()
    if (told := _ADDRESS.fullmatch(text)) is not None:
        domain, bus, device, function = (int(part or "0", 16) for part in told.groups())
        return domain << 20 | bus << 12 | device << 4 | function
    told = _NUMBER.fullmatch(text)
    return int(told["number"], 16) if told is not None else -1


def bus_name(number: int) -> str:
    """The address of such a number, ``0000:0b:00.0``."""
    return f"{number >> 20:04x}:{number >> 12 & 0xFF:02x}:{number >> 4 & 0xFF:02x}.{number & 0xF:x}"
