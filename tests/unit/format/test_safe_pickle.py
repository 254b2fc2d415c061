"""Pickles from outside: plain data reads as ``pickle`` reads it, all else is refused."""

from __future__ import annotations

import io
import os
import pickle  # noqa: TID251 - makes the input, and says what is right
import pickletools
import random
import struct
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comminsight.errors import InputError
from comminsight.format import safe_pickle
from comminsight.format.safe_pickle import is_pickle, load_plain

N_INPUTS = 200_000 if os.environ.get("COMMINSIGHT_FULL") == "1" else 3_000

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**127), 2**127 - 1) | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4)
    | st.lists(inner, max_size=4).map(tuple)
    | st.dictionaries(st.text(max_size=4) | st.integers(-9, 9), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(value=PLAIN, protocol=st.integers(2, 5))
def test_plain_data_reads_as_pickle_reads_it(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    assert is_pickle(data)
    assert load_plain(data) == value


def test_bytes_read_where_the_protocol_has_them() -> None:
    assert load_plain(pickle.dumps([b"", b"x" * 300], 3)) == [b"", b"x" * 300]


def test_what_is_shared_stays_shared() -> None:
    part = [1]
    first, second = load_plain(pickle.dumps([part, part], 2))
    assert first is second


class Opener:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("echo ran >&2; exit 1",)


class Keeper(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        return "outside" if obj == "me" else None


def persistent() -> bytes:
    sink = io.BytesIO()
    Keeper(sink, 2).dump(["me"])
    return sink.getvalue()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (pickle.dumps(Opener(), 2), "instruction 0x63 builds no plain data (at byte 2)"),
        (pickle.dumps(Opener(), 4), "instruction 0x93 builds no plain data"),
        (pickle.dumps(os.getcwd, 2), "instruction 0x63"),
        (pickle.dumps({1, 2}, 4), "instruction 0x8f"),
        (pickle.dumps(bytearray(b"x"), 5), "instruction 0x96"),
        (pickle.dumps(1 << 200, 2), "a number of 26 bytes"),
        (pickle.dumps({(1, 2): 3}, 2), "a key of type tuple"),
        (pickle.dumps({1 << 61: 3}, 2), "a key of type int or beyond all bounds"),
        (persistent(), "instruction 0x51"),
        (b"\x80\x02\x82\x01.", "instruction 0x82"),  # a number of the extension registry
        (b"\x80\x02I42\n.", "instruction 0x49"),
        (b"\x80\x02X\xff\xff\xff\x7fab.", "a text of 2147483647 bytes (at byte 2)"),
        (b"\x80\x02h\x05.", "the pickle is torn (at byte 2)"),
        (b"\x80\x02]q", "the pickle is torn"),
        (b"\x80\x02(K\x01.", "stops in the middle of a value"),
        (b"\x80\x02K\x01K\x02a.", "a int where a list is filled"),
        (b"\x80\x02}(K\x01u.", "a key without a value"),
        (b"\x80\x02" + b"(" * 100 + b".", "nested deeper than 64"),
        (b"", "the pickle is torn"),
    ],
)  # fmt: skip
def test_what_is_no_plain_data_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(InputError) as caught:
        load_plain(data, path="dump_3", next_step="dump again")
    assert str(caught.value).startswith("dump_3: ")
    assert said in str(caught.value)
    assert caught.value.next_step == "dump again"


def test_a_memo_number_costs_no_memory() -> None:
    data = b"\x80\x02K\x07r" + struct.pack("<I", 0xFFFFFFFF) + b"."
    assert load_plain(data) == 7
    assert sys.getsizeof(load_plain(data)) < 100


def test_what_would_unfold_is_read_without_unfolding() -> None:
    """Thirty lists, each of the one before four times: 4^30 values to whoever walks them."""
    data = b"\x80\x02(]q\x00" + b"".join(
        b"](" + (b"h" + bytes([i])) * 4 + b"eq" + bytes([i + 1]) for i in range(30)
    )
    value = load_plain(data + b"l.")[-1]
    assert len(data) < 650
    for _ in range(30):
        assert len(value) == 4
        value = value[0]


def test_more_than_the_budgets_allow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_pickle, "MAX_STEPS", 100)
    with pytest.raises(InputError, match="more than 100 instructions"):
        load_plain(b"\x80\x02" + b"]" * 200 + b".")
    monkeypatch.setattr(safe_pickle, "MAX_BYTES", 10)
    with pytest.raises(InputError, match="larger than"):
        load_plain(b"\x80\x02" + b"]" * 200 + b".")


def mutations(rng: random.Random, seeds: list[bytes]) -> bytes:
    """A pickle with bytes changed, left out, doubled, or a piece of another."""
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            data[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            del data[at : at + rng.randint(1, 8)]
        elif kind == 2:
            data[at:at] = data[at : at + rng.randint(1, 16)]
        else:
            other = rng.choice(seeds)
            begin = rng.randrange(len(other))
            data[at:at] = other[begin : begin + rng.randint(1, 16)]
    return bytes(data)


def test_mutated_pickles_read_or_are_refused() -> None:
    """No mutation runs, hangs or ends in another error than InputError."""
    entry = {"record_id": 7, "process_group": ("0", "default_pg"), "sizes": [[1, 2]], "t": 1 << 60}
    values: list[Any] = [{"version": "2.10", "entries": [entry, entry]}, [1.5, None, True, b"x"]]
    seeds = [pickle.dumps(value, protocol) for value in values for protocol in (2, 3, 4, 5)]
    seeds += [pickle.dumps(Opener(), 2), pickle.dumps({1, 2}, 4), persistent()]
    rng = random.Random(7)
    n_read = 0
    for _ in range(N_INPUTS):
        data = mutations(rng, seeds)
        try:
            load_plain(data)
        except InputError:
            continue
        n_read += 1
    assert N_INPUTS // 100 < n_read < N_INPUTS


@settings(max_examples=300)
@given(data=st.binary(max_size=200))
def test_any_bytes_read_or_are_refused(data: bytes) -> None:
    try:
        load_plain(b"\x80\x02" + data)
    except InputError:
        return
    assert [op.name for op, _, _ in pickletools.genops(b"\x80\x02" + data)][-1] == "STOP"
