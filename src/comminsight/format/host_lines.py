"""What tools print on a host, with the host that printed it.

A host is told by what pdsh or clush put before each line (``node1: ...``), by a line ``# host
node1``, or by a file that is named ``node1.ibstat`` or ``node1.ibstat.txt``; else nobody knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_TOLD = re.compile(r"#\s*host(?:name)?\s*[:=]?\s+(\S+)\s*", re.IGNORECASE)
_PREFIX = re.compile(r"([A-Za-z][\w.-]{0,62}): ?(.*)")
_STEM = re.compile(r"([A-Za-z0-9][\w-]{0,62})\.[A-Za-z_]\w*(?:\.txt|\.log)?")
# a file that is named after what printed it says nothing of a host
TOOLS = frozenset(
    {"ibstat", "ibv_devinfo", "devinfo", "show_gids", "gids", "lspci", "ethtool", "perfquery",
     "rdma", "ibdev2netdev", "nvidia-smi", "nvidia_smi", "nvlink", "topo"}
)  # fmt: skip
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def plain_lines(text: str) -> Iterator[str]:
    """The lines, without colours."""
    for line in text.splitlines():
        yield (_ANSI.sub("", line) if "\x1b" in line else line).rstrip()


def by_host(
    text: str, marks: Iterable[re.Pattern[str]], *, file_name: str = ""
) -> dict[str, list[str]]:
    """The lines of each host, in their order; those of nobody under "".

    ``marks`` match the lines that only the tool prints: where these stand behind a name and a
    colon, that is the host of the line.
    """
    lines = list(plain_lines(text))
    marks = list(marks)
    if _are_prefixed(lines, marks):
        return _by_prefix(lines)
    stem = _STEM.fullmatch(file_name)
    host = stem[1] if stem and stem[1].lower() not in TOOLS else ""
    found: dict[str, list[str]] = {}
    for line in lines:
        if told := _TOLD.fullmatch(line):
            host = told[1]
        else:
            found.setdefault(host, []).append(line)
    return found


def _are_prefixed(lines: Iterable[str], marks: list[re.Pattern[str]]) -> bool:
    """True where every line that only the tool prints has a name before it."""
    seen = False
    for line in lines:
        if any(mark.match(line) for mark in marks):
            return False
        split = _PREFIX.fullmatch(line)
        seen |= split is not None and any(mark.match(split[2]) for mark in marks)
    return seen


def _by_prefix(lines: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in lines:
        if split := _PREFIX.fullmatch(line):
            found.setdefault(split[1], []).append(split[2])
    return found
