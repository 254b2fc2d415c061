"""Settings that the recorder cannot take as they are: it goes on with a default or a bound."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MASK_VARIABLE, MASK_WORDS = "COMMINSIGHT_NCCL_MASK", ("off", "api", "light", "net", "deep")
RUN_ID_VARIABLE, RUN_ID = "COMMINSIGHT_RUN_ID", re.compile(r"[\w@+=:,.-]{1,128}")
LARGEST_MASK = (1 << 31) - 1
NUMBERS = {  # the bounds that the recorder clamps to
    "COMMINSIGHT_OVERDUE_S": (0.05, 86_400),
    "COMMINSIGHT_SAFE_WINDOW_MS": (10, 600_000),
    "COMMINSIGHT_MIN_SIZE_BYTES": (0, 1 << 40),
    "COMMINSIGHT_EVENT_MASK": (0, (1 << 32) - 1),
    "COMMINSIGHT_NCCL_BUDGET_PERCENT": (0, 100),
    "COMMINSIGHT_FLUSH_MS": (1, 10_000),
    "COMMINSIGHT_SEGMENT_MB": (1, 4096),
    "COMMINSIGHT_SPOOL_CAP_MB": (1, 1 << 30),
}


@dataclass(frozen=True, slots=True)
class Unfit:
    """A variable with a value that says something else than what will be done; ``kind``: number,
    mask or run_id; ``low`` and ``high`` of numbers."""

    name: str
    value: str
    kind: str
    low: float = 0
    high: float = 0


def unfit_settings(environment: Mapping[str, str]) -> tuple[Unfit, ...]:
    """In the order of their names; a variable that is empty is none."""
    return tuple(sorted(_unfit(environment), key=lambda one: one.name))


def _unfit(environment: Mapping[str, str]) -> Iterator[Unfit]:
    for name, (low, high) in NUMBERS.items():
        value = environment.get(name, "")
        if value and not low <= _number(value) <= high:
            yield Unfit(name, value, "number", low, high)
    mask = environment.get(MASK_VARIABLE, "")
    if mask and mask not in MASK_WORDS and not _is_mask(mask):
        yield Unfit(MASK_VARIABLE, mask, "mask")
    run_id = environment.get(RUN_ID_VARIABLE, "")
    if run_id and (not RUN_ID.fullmatch(run_id) or not run_id.strip(".")):
        yield Unfit(RUN_ID_VARIABLE, run_id, "run_id")


def _number(text: str) -> float:
    """As the recorder reads it, which takes what C takes; not a number for what is none."""
    if "_" in text:  # Python's own
        return math.nan
    try:
        return float(int(text, 16)) if text.lower().startswith("0x") else float(text)
    except ValueError:
        return math.nan


def _is_mask(text: str) -> bool:
    return (number := _number(text)).is_integer() and 0 <= number <= LARGEST_MASK
