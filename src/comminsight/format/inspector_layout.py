"""How one line of NCCL's Inspector plugin is laid out behind its head: the keys, in their order.

A line means what another one means only if all its keys are the same, byte by byte, in the same
order, those of fields that nobody reads too: a second key of the same name would count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from comminsight.format.inspector_rows import (
    ALGORITHMS,
    MAX_SIZE_BYTES,
    MAX_US,
    OPS,
    PROTOCOLS,
    SOURCES,
)
from comminsight.model.ops import TimingSource

MAX_FIELDS = 12  # of a payload
END = b"}}"
TEXTS: dict[str, tuple[str, dict[str, int]]] = {
    "": ("op", OPS), "_algo": ("algo", ALGORITHMS), "_proto": ("proto", PROTOCOLS),
    "_timing_source": ("source", SOURCES | {"collective_cpu": TimingSource.UNKNOWN}),
}  # fmt: skip
NUMBERS = {
    "_sn": ("sn", 1 << 32), "_msg_size_bytes": ("size_bytes", MAX_SIZE_BYTES),
    "_exec_time_us": ("exec_us", MAX_US), "_peer": ("peer", 1 << 24),
}  # fmt: skip
_FIELD = re.compile(
    rb'([,{]"([a-z_0-9]{1,64})":)(?:"([^"\\]*)"|([0-9]+)(?=[,}])|[^,}"]+)', re.ASCII
)


@dataclass(frozen=True, slots=True)
class Layout:
    """``fields`` are (text before the value, name without the kind) up to the last one that is
    read; ``unread`` the texts before the values behind those. ``words`` is what stands in their
    place where all of them are "nan", empty where there is no bus bandwidth among them."""

    kind: str
    payload: bytes
    fields: tuple[tuple[bytes, str], ...]
    unread: tuple[bytes, ...]
    words: bytes


def layout_of(line: bytes) -> Layout | None:
    """That of a line with a header before its one payload, None for others and for verbose ones."""
    kind = "coll" if b'"coll_perf":{' in line else "p2p"
    payload = f'"{kind}_perf":{{'.encode()
    at = line.find(payload)
    if at < 0 or not line.endswith(END):
        return None
    rest = line[at + len(payload) - 1 : -1]
    found = list(_FIELD.finditer(rest))
    if b"".join(one.group(0) for one in found) + b"}" != rest or len(found) > MAX_FIELDS:
        return None
    names = [one.group(2).decode() for one in found]
    needed = {kind, f"{kind}_sn", f"{kind}_msg_size_bytes", f"{kind}_exec_time_us"}
    read = {kind + name for name in (*TEXTS, *NUMBERS)}
    if len({*names}) < len(names) or not needed <= {*names}:
        return None
    n_read = 1 + max(n for n, name in enumerate(names) if name in read)
    if not all(names[n] in read and (found[n][3] or found[n][4]) for n in range(n_read)):
        return None
    keys = [one.group(1) for one in found]
    fields = tuple(
        (key, name.removeprefix(kind))
        for key, name in zip(keys[:n_read], names[:n_read], strict=True)
    )
    unread = tuple(keys[n_read:])
    words = b"".join(key + b'"nan"' for key in unread) + END
    is_told = f"{kind}_busbw_gbs" in names[n_read:]
    return Layout(kind, payload, fields, unread, words if is_told else b"")
