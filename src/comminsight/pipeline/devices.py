"""Which GPU each rank is on, as its communicators' rows name it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from comminsight.capture.session import SessionData
from comminsight.semantics.comm_table import row_text


def devices(sessions: Iterable[SessionData]) -> dict[int, str]:
    """By global rank ``3 (0000:1b:00.0)``, ordinal and PCI id as far as they are known; ranks whose
    rows name no device, or several, are left out."""
    found = {s.identity.global_rank: device_names(s.comms) for s in sessions}
    return {rank: names.pop() for rank, names in found.items() if len(names) == 1}


def device_names(comms: np.ndarray) -> set[str]:
    """The devices that the rows of one session name."""
    rows = zip(comms["device_number"].tolist(), comms["pci_bus_id"], strict=True)
    return {name for number, bus_id in rows if (name := device_name(number, row_text(bus_id)))}


def device_name(device_number: int, bus_id: str) -> str:
    """The name of one device; ``device_number`` is its ordinal + 1, 0 unknown."""
    ordinal = str(device_number - 1) if device_number else ""
    if not bus_id:
        return ordinal
    return f"{ordinal} ({bus_id})" if ordinal else bus_id
