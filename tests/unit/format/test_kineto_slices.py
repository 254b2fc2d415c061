"""A trace read slice by slice is the trace read whole, wherever its text is cut."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comminsight.errors import InputError
from comminsight.format.kineto_events import Event
from comminsight.format.kineto_slices import SlicedDocument

TRAPS = ["}, {", '"traceEvents": [', '}\\"},{"', "]}", "é", "[{},{}]"]
VALUES = st.recursive(
    st.one_of(st.none(), st.integers(-5, 5), st.sampled_from(TRAPS)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "traceEvents"]), inner)
    ),
    max_leaves=6,
)
ARGS = st.dictionaries(st.sampled_from(["correlation", "Collective name", "other"]), VALUES)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {"ph": st.sampled_from("XM"), "name": st.sampled_from(["gemm", *TRAPS]), "args": ARGS},
        optional={"ts": VALUES, "more": VALUES},
    ),
    max_size=12,
)
SIDES = st.dictionaries(st.sampled_from(["schemaVersion", "other", "traceName"]), VALUES)
STYLES: list[dict[str, Any]] = [
    {}, {"indent": 2}, {"separators": (",", ":")}, {"separators": (" , ", ": ")}
]  # fmt: skip


def cut(text: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    at = 0
    for size in sizes:
        yield text[at : at + size]
        at += size
    yield text[at:]


def read(text: bytes, sizes: Iterable[int], slice_bytes: int = 1) -> tuple[list[Event], int, Any]:
    """The events, in how many slices they came, and the header."""
    document = SlicedDocument(
        cut(text, sizes), path="t.json", next_step="x", slice_bytes=slice_bytes
    )
    slices = list(document)
    return [event for events in slices for event in events], len(slices), document.header


@settings(max_examples=100)
@given(
    SIDES, EVENTS, SIDES, st.sampled_from(STYLES), st.lists(st.integers(1, 60), max_size=30),
    st.sampled_from([1, 40, 300]),
)  # fmt: skip
def test_slices_make_up_the_whole(
    before: dict[str, Any], events: list[Any], after: dict[str, Any], style: dict[str, Any],
    sizes: list[int], slice_bytes: int,
) -> None:  # fmt: skip
    document = {**before, "traceEvents": events, **{f"{key} ": after[key] for key in after}}
    text = json.dumps(document, **style).encode()
    found, _, header = read(text, sizes, slice_bytes)
    assert found == msgspec.json.decode(msgspec.json.encode(events), type=list[Event])
    assert header.trace_name == before.get("traceName")


@pytest.mark.parametrize("style", STYLES[:3], ids=["json", "indented", "tight"])
def test_a_long_list_comes_in_many_slices(style: dict[str, Any]) -> None:
    events = [{"ph": "X", "ts": n, "args": {"x": [{}, {}], "correlation": n}} for n in range(500)]
    text = json.dumps({"traceEvents": events}, **style).encode()
    found, n_slices, _ = read(text, [200] * (len(text) // 200))
    assert [event.ts for event in found] == [*range(500)]
    assert n_slices > 10


def test_what_stands_behind_the_events_counts() -> None:
    text = json.dumps({
        "distributedInfo": {"rank": 1}, "traceName": "old",
        "traceEvents": [{"ph": "X", "ts": n} for n in range(50)],
        "traceName ": 0, "baseTimeNanoseconds": 7,
    }).encode()  # fmt: skip
    found, n_slices, header = read(text, [50] * (len(text) // 50))
    assert (len(found), n_slices > 5) == (50, True)
    assert (header.distributed.rank, header.trace_name, header.base_ns) == (1, "old", 7)


WHOLE = json.dumps({"x": 1, "traceEvents": [{"ph": "X", "ts": 1, "name": "a"}] * 9}).encode()
SMALL = [7] * 60


@pytest.mark.parametrize("end", range(0, len(WHOLE), 5))
def test_a_cut_document_is_refused_wherever_it_ends(end: int) -> None:
    with pytest.raises(InputError, match="truncated"):
        read(WHOLE[:end], SMALL)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (WHOLE + b" " + WHOLE, "trailing characters"),
        (WHOLE.replace(b"1,", b"1;", 5), "malformed"),
        (WHOLE.replace(b"{", b"[", 1), "Expected `object`|malformed"),
        (WHOLE.replace(b'"a"', b"1e999"), "range|Expected `str`"),
        (WHOLE.replace(b"traceEvents", b"events"), "traceEvents"),
        (b'{"other": {"traceEvents": [{"ph": "X"}]}}', "traceEvents"),
        (b'{"other": "traceEvents\\": [", "more": ["\\"traceEvents\\": [{"]}', "traceEvents"),
    ],
)
def test_what_does_not_read_whole_does_not_read_in_slices(text: bytes, said: str) -> None:
    with pytest.raises(InputError, match=f"t.json: .*({said})"):
        read(text, SMALL)
