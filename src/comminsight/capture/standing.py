"""Slots of ops of which only a record is left: how far they had come when it was written.

The slot of an NCCL op says more than its record. Without it, an op of which no task is known was
called and no more: whether it is over, what other members show decides. Channel numbers are not in
the record, so that one of which only some channels stopped is left untold.
"""

from __future__ import annotations

import numpy as np

from comminsight.format.layout import SLOT_DTYPE, SLOT_IN_FLIGHT, SLOT_OVERDUE
from comminsight.model.ops import Backend, OpFlag, OpState, SlotFlag

CALLED = SlotFlag.NCCL | SlotFlag.API_SEEN | SlotFlag.API_RETURNED
LEFT = CALLED | SlotFlag.GROUP_ENDED | SlotFlag.GROUP_LEFT
PLANNED = LEFT | SlotFlag.TASK_SEEN
LAUNCHED = PLANNED | SlotFlag.LAUNCH_BEGUN | SlotFlag.LAUNCH_RETURNED
MASK_BITS = 64


def standing_slots(rows: np.ndarray, comms: np.ndarray) -> np.ndarray:
    """SLOT_DTYPE rows, one for each of ``rows`` (OP_DTYPE), overdue where the record says so."""
    slots = np.zeros(len(rows), SLOT_DTYPE)
    slots["record"] = rows
    slots["state_word"] = np.where(_is_overdue(rows), SLOT_OVERDUE, SLOT_IN_FLIGHT)
    started, stopped = rows["channels_started"], rows["channels_stopped"]
    is_nccl = is_of_nccl(rows, comms)
    is_tasked = has_task(rows)
    is_running = is_nccl & (started > 0) & (stopped == 0)
    # an OPEN marker is written early: that nothing had begun by then tells nothing of later
    is_planned = is_nccl & is_tasked & (started == 0) & (rows["state"] != OpState.OPEN)
    slots["slot_flags"][is_nccl & ~is_tasked] = LEFT
    slots["slot_flags"][is_planned] = PLANNED
    slots["slot_flags"][is_running] = LAUNCHED
    n_begun = np.minimum(started[is_running], MASK_BITS).astype(np.uint64)
    slots["started_mask"][is_running] = ~np.uint64(0) >> (np.uint64(MASK_BITS) - n_begun)
    return slots


def is_of_nccl(rows: np.ndarray, comms: np.ndarray) -> np.ndarray:
    """Which rows are of communicators of NCCL; ``(n,)`` bool."""
    known = comms["comm_index"][comms["backend"] == Backend.NCCL]
    mask: np.ndarray = np.isin(rows["comm_index"], known)
    return mask


def has_task(rows: np.ndarray) -> np.ndarray:
    """Which ops (``OP_DTYPE``) were seen to have a task, and not only to be called; ``(n,)``."""
    mask: np.ndarray = (rows["n_channels"] > 0) | (rows["channels_started"] > 0)
    return mask


def _is_overdue(rows: np.ndarray) -> np.ndarray:
    was_overdue = (rows["flags"] & OpFlag.WAS_OVERDUE) != 0
    overdue: np.ndarray = (rows["state"] == OpState.OVERDUE) | was_overdue
    return overdue
