"""How much a value is once all its shared parts are written out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def unfolded_size(value: Any, max_size: int) -> int:
    """Values in lists, tuples and dicts, each as often as it would be met by who walks through
    them; at most ``max_size + 1``, which also stands for one that contains itself.

    A shared part is looked at once: thirty lists, each four times of the one before, are 30 steps.
    """
    sizes: dict[int, int] = {}
    open_ids: set[int] = set()
    todo = [value]
    while todo:
        one = todo[-1]
        if id(one) in sizes or not isinstance(one, _HOLDERS):
            todo.pop()
            continue
        parts = _parts(one)
        if id(one) not in open_ids:
            open_ids.add(id(one))
            held = {id(part): part for part in parts if isinstance(part, _HOLDERS)}
            if not open_ids.isdisjoint(held):
                return max_size + 1
            todo.extend(part for number, part in held.items() if number not in sizes)
            continue
        todo.pop()
        open_ids.discard(id(one))
        sizes[id(one)] = min(max_size, sum(sizes.get(id(part), 1) for part in parts)) + 1
    return sizes.get(id(value), 1)


_HOLDERS = (dict, list, tuple)


def _parts(value: Any) -> Collection[Any]:
    return value.values() if isinstance(value, dict) else value
