"""Inputs made wrong on purpose: bytes, instructions, lengths, numbers, shapes of documents."""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

from comminsight.errors import InputError
from comminsight.format.safe_pickle import load_plain
from comminsight.format.unfolding import unfolded_size
from tests.builders.flight_recorder import torch_pickle

Mutate = Callable[[random.Random, bytes, Sequence[bytes]], bytes]

# every instruction of a pickle, those that build no data among them
OPCODES = b"(.012FIJKLMNPQRSTUVXabcdeghijlopqrstu])}{" + bytes(range(0x80, 0x99))
BUILDERS = (
    b"cos\nsystem\n", b"(cos\nsystem\n", b"iposix\nsystem\n", b"\x8c\x02os\x8c\x06system\x93",
    b"R", b"b", b"o", b"\x81", b"\x92", b"\x82\x01", b"\x83\x01\x00", b"\x84\x01\x00\x00\x00",
    b"Pid\n", b"Q", b"\x8f", b"\x91", b"\x96\x04\x00\x00\x00\x00\x00\x00\x00abcd", b"\x97", b"\x98",
)  # fmt: skip
WIDTHS = ("<B", "<H", "<I", "<Q", "<i", "<q")
EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, (1 << 63) - 1)
ODD_NUMBERS = (
    "0",
    "-1",
    "-0",
    "1e999",
    "NaN",
    "Infinity",
    "1.5",
    "9" * 19,
    "9" * 400,
    "2147483648",
)
ODD_TEXT = ("", "\0", "\ud800", "é" * 40, "0" * 600, "[0, 1", "-5", "1e5", "9" * 30, "\n", '"', "{")
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_WORD = re.compile(rb"[A-Za-z_]{3,}|\d+|0x[0-9a-f]+")


def _at(rng: random.Random, data: bytes) -> int:
    return rng.randrange(len(data) + 1)


def changed_byte(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _at(rng, data)
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def removed(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _at(rng, data)
    return data[:at] + data[at + rng.choice((1, 2, 4, 9, 60)) :]


def repeated(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _at(rng, data)
    piece = data[at : at + rng.choice((1, 2, 5, 40, 200))]
    return data[:at] + piece * rng.choice((2, 3, 40)) + data[at:]


def cut(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: _at(rng, data)]


def spliced(rng: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    other = rng.choice(seeds)
    at, begin = _at(rng, data), _at(rng, other)
    return data[:at] + other[begin : begin + rng.choice((4, 30, 200))] + data[at:]


def opcode(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _at(rng, data)
    return data[:at] + bytes([rng.choice(OPCODES)]) + data[at + rng.randrange(2) :]


def builder(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _at(rng, data)
    return data[:at] + rng.choice(BUILDERS) + data[at:]


def length(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A number of the file, in place of whatever stands there."""
    at, form = _at(rng, data), struct.Struct(rng.choice(WIDTHS))
    n_bits = form.size * 8
    number = (rng.choice(EDGES) + rng.randrange(-2, 3)) % (1 << n_bits)
    packed = number.to_bytes(form.size, "little")
    return data[:at] + packed + data[at + form.size :]


def long_number(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at, size = _at(rng, data), rng.choice((0, 1, 8, 9, 16, 17, 255))
    return data[:at] + b"\x8a" + bytes([size]) + rng.randbytes(size) + data[at:]


def folded(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A value that unfolds without end in place of the next one, or a list that holds itself."""
    at = _at(rng, data)
    levels = b"".join(b"](" + b"h%c" % i * 4 + b"eq%c" % (i + 1) for i in range(200, 230))
    bomb = rng.choice([b"]q\xc8" + levels, b"]q\xc8h\xc8a", b"]q\xc8(h\xc8e"])
    return data[:at] + bomb + data[at:]


def nested(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _at(rng, data)
    opening = rng.choice((b"[", b"{", b'{"a":', b"](", b"}(", b"(", b"\x85", b"]"))
    return data[:at] + opening * rng.choice((3, 60, 70, 2000)) + data[at:]


def odd_number(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """One of the numbers that are written out becomes another."""
    places = list(_NUMBER.finditer(data[:4000]))
    if not places:
        return data
    place = rng.choice(places)
    return data[: place.start()] + rng.choice(ODD_NUMBERS).encode() + data[place.end() :]


def odd_word(rng: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """A word becomes another one, of this input or of others."""
    places = list(_WORD.finditer(data[:4000]))
    words = [found[0] for found in _WORD.finditer(rng.choice(seeds)[:4000])]
    if not places or not words:
        return data
    place = rng.choice(places)
    return data[: place.start()] + rng.choice(words) + data[place.end() :]


def other_encoding(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    text = data.decode("latin-1")
    forms = ("utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1")
    return text.encode(rng.choice(forms), "replace")


def several(rng: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    return data + rng.choice((b"", b"\n", b"\0", b",")) + rng.choice(seeds)


def reshaped(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A JSON document in which some values are of another kind."""
    try:
        document = json.loads(data)
        for _step in range(rng.randint(1, 3)):
            document = _reshaped(rng, document)
        return json.dumps(document).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):  # no JSON any more
        return data


def repickled(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A pickle of a document in which some values are of another kind."""
    try:
        document = load_plain(data)
        if unfolded_size(document, MAX_VALUES) > MAX_VALUES:
            return data
        for _step in range(rng.randint(1, 3)):
            document = _reshaped(rng, document)
        return torch_pickle(document)
    except (InputError, RecursionError, *UNWRITTEN):  # none any more, or nothing torch could write
        return data


MAX_VALUES = 2000
UNWRITTEN = (struct.error, TypeError, ValueError)


def _reshaped(rng: random.Random, value: Any) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        kind = rng.randrange(8)
        if kind == 0:
            return {name: inner for name, inner in value.items() if name != key}
        if kind == 1:
            return {**value, rng.choice(ODD_TEXT): value[key]}
        return {**value, key: _reshaped(rng, value[key])}
    if isinstance(value, list | tuple) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        if rng.random() < 0.2:
            return [*value[:at], *value[at:] * rng.choice((0, 2, 5))]
        return [*value[:at], _reshaped(rng, value[at]), *value[at + 1 :]]
    return odd_value(rng)


def odd_value(rng: random.Random) -> Any:
    """Anything that JSON can say."""
    plain: list[Any] = [None, True, False, [], {}, [[]], {"a": {}}, [None] * 70, -1, 0, 1 << 40]
    plain += [(1 << 63) - 1, 1 << 63, -(1 << 63), 1 << 64, 1.5, 1e300, 1 << 20]
    return rng.choice([*plain, *ODD_TEXT])


ANY: tuple[Mutate, ...] = (changed_byte, removed, repeated, cut, spliced, length)
PICKLE: tuple[Mutate, ...] = (
    *ANY, opcode, opcode, builder, long_number, folded, nested, odd_word, repickled, repickled,
    repickled,
)  # fmt: skip
JSON: tuple[Mutate, ...] = (
    *ANY, reshaped, reshaped, reshaped, odd_number, odd_word, nested, other_encoding, several,
)  # fmt: skip
TEXT: tuple[Mutate, ...] = (
    *ANY, odd_number, odd_number, odd_word, odd_word, nested, other_encoding, several,
)  # fmt: skip


def mutated(rng: random.Random, seeds: Sequence[bytes], kinds: Sequence[Mutate]) -> bytes:
    """A seed with one to four things wrong."""
    data = rng.choice(seeds)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
        data = rng.choice(kinds)(rng, data, seeds)
    return data[:MAX_BYTES]


MAX_BYTES = 1 << 16
