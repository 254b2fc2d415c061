"""Lists of ranks as short text: ``0-3,8,10-14:2`` stands for 0 1 2 3 8 10 12 14.

The order is kept, because the position in a member list is the communicator rank.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from itertools import islice

from comminsight.errors import FormatError

MAX_MEMBERS = 1 << 20
MAX_LISTED = 4096  # missing ranks by name; beyond, their number says enough

_ITEM = re.compile(r"(-?\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?", re.ASCII)


def range_compress(numbers: Iterable[int]) -> str:
    """The text of ``numbers`` in their order; ``range_expand`` gives them back exactly.

    Runs that grow by one are written ``first-last``, three or more that grow by a larger constant
    ``first-last:step``; everything else, -1 for an unknown member included, stands alone.
    """
    values = [int(number) for number in numbers]
    items = []
    position = 0
    while position < len(values):
        length = _run_length(values, position)
        items.append(_item(values[position : position + length]))
        position += length
    return ",".join(items)


def range_expand(text: str) -> list[int]:
    """The numbers that ``text`` stands for; "" is the empty list.

    Raises FormatError for text of another form and for more than ``MAX_MEMBERS`` numbers.
    """
    numbers: list[int] = []
    offset = 0
    for item in text.split(",") if text else ():
        expanded = _expand_item(item, offset)
        if len(numbers) + len(expanded) > MAX_MEMBERS:
            raise FormatError(f"more than {MAX_MEMBERS} members", offset_bytes=offset)
        numbers.extend(expanded)
        offset += len(item) + 1
    return numbers


def missing_ranks(world_size: int, seen: Collection[int]) -> tuple[int, ...]:
    """The first ``MAX_LISTED`` ranks of the world that are not among ``seen``, ascending.

    A world of any stated size costs no more than that: the number may come from a damaged file.
    """
    known = frozenset(seen)
    return tuple(islice((r for r in range(world_size) if r not in known), MAX_LISTED))


def _run_length(values: list[int], start: int) -> int:
    """Length of the arithmetic run at ``start`` that is worth an item of its own; at least 1."""
    if start + 1 == len(values) or values[start] < 0:
        return 1
    step = values[start + 1] - values[start]
    if step < 1:
        return 1
    end = start + 2
    while end < len(values) and values[end] - values[end - 1] == step:
        end += 1
    return end - start if step == 1 or end - start > 2 else 1


def _item(run: list[int]) -> str:
    if len(run) == 1:
        return str(run[0])
    step = run[1] - run[0]
    return f"{run[0]}-{run[-1]}" + (f":{step}" if step > 1 else "")


def _expand_item(item: str, offset_bytes: int) -> range:
    match = _ITEM.fullmatch(item.strip())
    if match is None:
        raise FormatError(f"{item[:40]!r} is no range of ranks", offset_bytes=offset_bytes)
    first = int(match[1])
    last = first if match[2] is None else int(match[2])
    step = 1 if match[3] is None else int(match[3])
    if last < first or step == 0:
        raise FormatError(f"{item[:40]!r} runs backwards", offset_bytes=offset_bytes)
    return range(first, last + 1, step)
