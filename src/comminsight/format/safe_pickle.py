"""Pickles from outside, read as data: lists, tuples, dicts, text, numbers, and nothing else.

A pickle is a program. This reader knows only the instructions that build data; whatever would look
up a name, call, or ask for an object that is not in the bytes is refused at its offset, so nothing
of a file is ever run. ``pickle`` itself is not used: a few hundred bytes of plain tuples can make
it hash for years.

Parts may be shared (a reader that walks the value meets them again and must keep a budget of its
own); keys are text or small numbers, so that hashing one is cheap.

Source: the instruction set in CPython's ``pickletools``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from comminsight.errors import InputError
from comminsight.format.pickle_layouts import Layouts
from comminsight.format.pickle_rows import Rows

MAX_BYTES = 64 << 20
MAX_STEPS = 4 << 20  # instructions, each of which makes at most one value
MAX_DEPTH = 64  # of what is being built at one time
MAX_INT_BYTES = 16
MAX_TEXT_BYTES = 1 << 20  # of one text; of all together the file bounds it
MAX_KEY = 1 << 31

Plain: TypeAlias = Any  # None, bool, int, float, str, bytes, and list, tuple, dict of them

# the commonest are told apart in the loop itself, by frequency
_GET, _MARK, _INT1, _LIST, _DICT, _APPENDS, _STOP = b"h(K]}e."

# what is wrong with the bytes themselves, as opposed to their budget
_TORN = (IndexError, KeyError, struct.error)


class _RefusedError(Exception):
    """Why reading stops; the place is added by whoever knows it."""


def is_pickle(data: bytes) -> bool:
    """True for a binary pickle: it begins with its protocol, 2 to 5."""
    return len(data) > 2 and data[0] == 0x80 and 2 <= data[1] <= 5


def load_plain(
    data: bytes, *, path: str = "", next_step: str = "", layouts: Layouts | None = None
) -> Plain:
    """The one value in ``data``; pickles of one program are read faster with the same ``layouts``.

    Parts that are alike may be one object: the value is to be read, not changed.

    Raises InputError naming file, offset and next step for anything that is not plain data, is
    torn, or is beyond the budgets above.
    """
    if len(data) > MAX_BYTES:
        why = f"a pickle larger than {MAX_BYTES >> 20} MiB"
        raise InputError(why, path=path, next_step=next_step)
    machine = _Machine(data, Layouts() if layouts is None else layouts)
    try:
        return machine.run()
    except _RefusedError as error:
        why = str(error)
    except _TORN:
        why = "the pickle is torn"
    raise InputError(f"{why} (at byte {machine.at})", path=path, next_step=next_step)


class _Machine:
    """One run over the bytes. ``at`` is the offset of the instruction being read."""

    def __init__(
        self, data: bytes, layouts: Layouts | None, memo: dict[int, Plain] | None = None
    ) -> None:
        self.data = data
        self.at = 0
        self.stack: list[Plain] = []
        self.marks: list[list[Plain]] = []  # the stacks below, one per open mark
        self.memo: dict[int, Plain] = {} if memo is None else memo
        self.rows = Rows(data, self.memo, self.part, layouts) if layouts is not None else None

    def run(self) -> Plain:
        """The value on the stack when the pickle says stop."""
        data, memo, marks, stack, at = self.data, self.memo, self.marks, self.stack, 0
        try:
            for _ in range(MAX_STEPS):
                code = data[at]
                at += 1
                if code == _GET:
                    stack.append(memo[data[at]])
                    at += 1
                elif code == _MARK:
                    marks.append(stack)
                    self.stack = stack = []
                    if len(marks) > MAX_DEPTH:
                        raise _RefusedError(f"nested deeper than {MAX_DEPTH}")
                elif code == _INT1:
                    stack.append(data[at])
                    at += 1
                elif code == _LIST:
                    stack.append([])
                elif code == _DICT:
                    at = self.dict_at(at)
                elif code == _APPENDS:
                    items = stack
                    self.stack = stack = marks.pop()
                    self.top(list).extend(items)
                elif code == _STOP:
                    return self.result()
                else:
                    at = _INSTRUCTIONS.get(code, _refuse)(self, at)
                    stack = self.stack
        finally:
            self.at = at - 1
        raise _RefusedError(f"more than {MAX_STEPS} instructions")

    def dict_at(self, at: int) -> int:
        """Puts a dict on the stack: a whole row, or an empty one; where reading goes on."""
        found = None if self.rows is None else self.rows.row(at - 1)
        if found is None:
            self.stack.append({})
            return at
        if self.rows is not None and self.rows.n_values > MAX_STEPS:
            raise _RefusedError(f"more than {MAX_STEPS} values")
        self.stack.append(found[0])
        return found[1]

    def part(self, data: bytes) -> dict[Any, Plain]:
        """What ``data`` makes with the memo as it is."""
        made: dict[Any, Plain] = _Machine(data, None, self.memo).run()
        return made

    def keep(self, index: int) -> None:
        """Puts the value on top into the memo."""
        value = self.stack[-1]
        if self.rows is not None:
            if index in self.memo:
                self.rows.forget()
            if type(value) is not str:
                self.rows.has_texts_alone = False
        self.memo[index] = value

    def result(self) -> Plain:
        """What a whole pickle leaves behind: one value."""
        if self.marks or len(self.stack) != 1:
            raise _RefusedError("stops in the middle of a value")
        return self.stack[0]

    def since_mark(self) -> list[Plain]:
        """The arguments of the open mark, which is closed."""
        items, self.stack = self.stack, self.marks.pop()
        return items

    def top(self, kind: type) -> Plain:
        """The value on top, which must be of ``kind``."""
        value = self.stack[-1]
        if type(value) is not kind:
            raise _RefusedError(f"a {type(value).__name__} where a {kind.__name__} is filled")
        return value

    def text(self, at: int, n_bytes: int) -> str:
        """A text; bytes that are not UTF-8 are replaced (names of threads are cut anywhere)."""
        return self.raw(at, n_bytes).decode("utf-8", "replace")

    def raw(self, at: int, n_bytes: int) -> bytes:
        """``n_bytes`` of the file itself."""
        if n_bytes > MAX_TEXT_BYTES:
            raise _RefusedError(f"a text of {n_bytes} bytes")
        piece = self.data[at : at + n_bytes]
        if len(piece) < n_bytes:
            raise _RefusedError("the pickle is torn")
        return piece

    def set_items(self, target: dict[Any, Plain], items: list[Plain]) -> None:
        """Fills a dict; keys that would cost time to hash are refused."""
        keys = items[::2]
        if len(items) % 2:
            raise _RefusedError("a key without a value")
        if set(map(type, keys)) != {str}:
            _check_keys(keys)
        target.update(zip(keys, items[1::2], strict=True))


def _check_keys(keys: list[Plain]) -> None:
    for key in keys:
        kind = type(key)
        if kind is not str and not (kind is int and -MAX_KEY <= key < MAX_KEY):
            raise _RefusedError(f"a key of type {kind.__name__} or beyond all bounds")


Instruction: TypeAlias = Callable[[_Machine, int], int]  # offset of its argument -> of the next


def _append(m: _Machine, at: int) -> int:
    value = m.stack.pop()
    m.top(list).append(value)
    return at


def _set_item(m: _Machine, at: int) -> int:
    value, key = m.stack.pop(), m.stack.pop()
    m.set_items(m.top(dict), [key, value])
    return at


def _set_items(m: _Machine, at: int) -> int:
    items = m.since_mark()
    m.set_items(m.top(dict), items)
    return at


def _dict_of(m: _Machine, at: int) -> int:
    items = m.since_mark()
    made: dict[Any, Plain] = {}
    m.set_items(made, items)
    m.stack.append(made)
    return at


def _list_of(m: _Machine, at: int) -> int:
    items = m.since_mark()
    m.stack.append(items)
    return at


def _tuple_of(m: _Machine, at: int) -> int:
    items = m.since_mark()
    m.stack.append(tuple(items))
    return at


def _tuple(size: int) -> Instruction:
    def take(m: _Machine, at: int) -> int:
        if len(m.stack) < size:
            raise IndexError
        m.stack[len(m.stack) - size :] = [tuple(m.stack[len(m.stack) - size :])]
        return at

    return take


def _constant(make: Callable[[], Plain]) -> Instruction:
    def push(m: _Machine, at: int) -> int:
        m.stack.append(make())
        return at

    return push


def _number(form: str) -> Instruction:
    packed = struct.Struct(form)

    def push(m: _Machine, at: int) -> int:
        m.stack.append(packed.unpack_from(m.data, at)[0])
        return at + packed.size

    return push


def _long(m: _Machine, at: int) -> int:
    size = m.data[at]
    if size > MAX_INT_BYTES:
        raise _RefusedError(f"a number of {size} bytes")
    m.stack.append(int.from_bytes(m.raw(at + 1, size), "little", signed=True))
    return at + 1 + size


def _sized(form: str, *, is_text: bool) -> Instruction:
    size = struct.Struct(form)

    def push(m: _Machine, at: int) -> int:
        (n_bytes,) = size.unpack_from(m.data, at)
        at += size.size
        m.stack.append(m.text(at, n_bytes) if is_text else m.raw(at, n_bytes))
        return at + int(n_bytes)

    return push


def _get(form: str) -> Instruction:
    index = struct.Struct(form)

    def push(m: _Machine, at: int) -> int:
        m.stack.append(m.memo[index.unpack_from(m.data, at)[0]])
        return at + index.size

    return push


def _put(form: str) -> Instruction:
    index = struct.Struct(form)

    def keep(m: _Machine, at: int) -> int:
        m.keep(index.unpack_from(m.data, at)[0])
        return at + index.size

    return keep


def _memoize(m: _Machine, at: int) -> int:
    m.keep(len(m.memo))
    return at


def _refuse(m: _Machine, at: int) -> int:
    raise _RefusedError(f"instruction {m.data[at - 1]:#04x} builds no plain data")


def _skip(n_bytes: int) -> Instruction:
    return lambda _, at: at + n_bytes


_INSTRUCTIONS: dict[int, Instruction] = {
    ord("a"): _append,
    ord("s"): _set_item,
    ord("u"): _set_items,
    ord(")"): _constant(tuple),
    ord("d"): _dict_of,
    ord("l"): _list_of,
    ord("t"): _tuple_of,
    0x85: _tuple(1),
    0x86: _tuple(2),
    0x87: _tuple(3),
    ord("N"): _constant(lambda: None),
    0x88: _constant(lambda: True),
    0x89: _constant(lambda: False),
    ord("M"): _number("<H"),
    ord("J"): _number("<i"),
    ord("G"): _number(">d"),
    0x8A: _long,
    ord("U"): _sized("<B", is_text=True),
    ord("T"): _sized("<I", is_text=True),
    ord("X"): _sized("<I", is_text=True),
    0x8C: _sized("<B", is_text=True),
    0x8D: _sized("<Q", is_text=True),
    ord("C"): _sized("<B", is_text=False),
    ord("B"): _sized("<I", is_text=False),
    ord("j"): _get("<I"),
    ord("q"): _put("<B"),
    ord("r"): _put("<I"),
    0x94: _memoize,
    0x80: _skip(1),
    0x95: _skip(8),
}
