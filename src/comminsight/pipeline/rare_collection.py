"""Python looks for cycles of objects less often while much is read.

Evidence is millions of small objects that live to the end and form no cycles: to look through them
after every few hundred new ones takes a tenth of the time, and finds nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS_BETWEEN = 1_000_000  # some 100 MB at most of what cycles might hold meanwhile


@contextmanager
def rare_collection() -> Iterator[None]:
    """Inside, cycles are looked for once in so many new objects, and after it as before. Of several
    threads the first one changes it for all, and back."""
    before = gc.get_threshold()
    if not 0 < before[0] < OBJECTS_BETWEEN:  # whoever asked for fewer, or for none, keeps that
        yield
        return
    gc.set_threshold(OBJECTS_BETWEEN, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
