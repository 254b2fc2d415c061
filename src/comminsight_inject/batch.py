"""Ops of one group call share a number: ``group_id`` of the record."""

from __future__ import annotations

import itertools
import threading
from typing import Any

_numbers = itertools.count(1)


class _Current(threading.local):
    group_id = 0


CURRENT = _Current()


def in_batch(c10d: Any, original: Any) -> Any:
    """A hook for functions that issue several ops as one call."""

    def batch(*args: Any, **kwargs: Any) -> Any:
        outer, CURRENT.group_id = CURRENT.group_id, next(_numbers)
        try:
            return original(*args, **kwargs)
        finally:
            CURRENT.group_id = outer

    return batch
