"""Files that were made to break whoever reads them, by name."""

from __future__ import annotations

import gzip
import json
import os
import pickle  # noqa: TID251 - makes what must be refused
import struct
import zipfile
import zlib
from collections.abc import Callable
from io import BytesIO
from typing import Any

import zstandard

from tests.builders.flight_recorder import Call, FlightJob, Group, torch_pickle

PROTO = b"\x80\x02"
HEAD = PROTO + b"}(X\x07\x00\x00\x00versionX\x04\x00\x00\x002.10X\x07\x00\x00\x00entries"
MILLION = 1_000_000


class Runs:
    """Would run a command if it were ever looked up."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("echo ran >&2; exit 1",)


def good_dump(**fields: Any) -> dict[str, Any]:
    """The dump of rank 0 of two; ``fields`` replace those of its first entry."""
    groups = {"0": Group("default_pg", (0, 1))}
    job = FlightJob(groups, {r: [Call("0", "all_reduce")] * 3 for r in (0, 1)}, host_stops={1: 1})
    document = job.play().dump(0)
    document["entries"][0].update(fields)
    return document


def with_value(field: str, value: bytes, *, key: str = "") -> bytes:
    """A pickle of a good dump in which a field of an entry, or a key of the dump, is ``value``."""
    mark = "a value to replace"
    document = good_dump() if key else good_dump(**{field: mark})
    if key:
        document[key] = mark
    plain = pickle.dumps(document, 2)
    at = plain.index(b"X" + struct.pack("<I", len(mark)) + mark.encode())
    end = at + 5 + len(mark)
    keep = plain[end : end + 2] if plain[end : end + 1] == b"q" else plain[end : end + 5]
    return plain[:at] + value + keep + plain[end + len(keep) :]


def bomb(n_levels: int = 30) -> bytes:
    """Lists, each of the one before four times: 4^30 values to whoever walks through them."""
    first = 1 << 20
    made = b"]r" + struct.pack("<I", first)
    for level in range(n_levels):
        made += b"](" + (b"j" + struct.pack("<I", first + level)) * 4 + b"e"
        made += b"r" + struct.pack("<I", first + level + 1)
    return b"(" + made + b"l"


def one_list(value: bytes) -> bytes:
    return b"](" + value + b"e"


def shared(value: bytes, n_times: int) -> bytes:
    """A list that holds one value many times."""
    return b"](" + value + b"r\xff\xff\xff\x7f" + b"j\xff\xff\xff\x7f" * (n_times - 1) + b"e"


def entries(value: bytes) -> bytes:
    return HEAD + value + b"u."


def plain_entry() -> bytes:
    return torch_pickle(good_dump()["entries"][0])[2:-1]


def wide_shapes() -> bytes:
    shape = one_list(b"K\x02" * 64)
    return shared(shape, 60_000)


PICKLES: dict[str, Callable[[], bytes]] = {
    "reduce": lambda: pickle.dumps(Runs(), 2),
    "stack global": lambda: pickle.dumps(Runs(), 4),
    "inst": lambda: entries(b"(S'id'\nios\nsystem\n"),
    "obj": lambda: entries(b"(cos\nsystem\nS'id'\no"),
    "build": lambda: entries(b"]}b"),
    "new object": lambda: entries(b"cos\nsystem\n)\x81"),
    "extension": lambda: entries(b"\x82\x01"),
    "extension of four bytes": lambda: entries(b"\x84\xff\xff\xff\x7f"),
    "persistent id": lambda: entries(b"Pid\n"),
    "persistent id from the stack": lambda: entries(b"NQ"),
    "out of band": lambda: entries(b"\x97"),
    "a million marks": lambda: PROTO + b"entries" + b"(" * MILLION,
    "tuples in tuples": lambda: entries(b")" + b"\x85" * MILLION),
    "lists in lists": lambda: entries(b"]" * MILLION + b"a" * (MILLION - 1)),
    "unfolding entries": lambda: entries(bomb()),
    "unfolding version": lambda: with_value("", bomb(), key="version"),
    "unfolding library": lambda: with_value("", bomb(), key="nccl_version"),
    "unfolding sizes": lambda: with_value("input_sizes", bomb()),
    "unfolding types": lambda: with_value("input_dtypes", b"](" + bomb() + bomb() + b"e"),
    "unfolding frames": lambda: with_value("frames", bomb()),
    "unfolding groups": lambda: with_value("", bomb(), key="pg_config"),
    "entries in themselves": lambda: entries(b"]q\x01(h\x01h\x01e"),
    "a table in itself": lambda: PROTO + b"}q\x00(X\x07\x00\x00\x00entriesh\x00u.",
    "an integer of 250 bytes": lambda: entries(b"\x8a\xfa" + b"\x7f" * 250),
    "an integer of two GiB": lambda: entries(b"\x8b\xff\xff\xff\x7f12"),
    "an integer of negative length": lambda: entries(b"\x8b\xff\xff\xff\xff12"),
    "an integer of many digits": lambda: entries(b"I" + b"9" * MILLION + b"\n"),
    "a text of eight EiB": lambda: entries(b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7fab"),
    "a text of four GiB": lambda: entries(b"X\xff\xff\xff\xffab"),
    "eight million lists": lambda: entries(b"](" + b"]" * (9 * MILLION) + b"e"),
    "eight million tables": lambda: entries(b"](" + b"}" * (9 * MILLION) + b"e"),
    "one entry a million times": lambda: entries(shared(plain_entry(), MILLION)),
    "a list in a million places": lambda: entries(shared(one_list(b"]" * 100_000), MILLION)),
    "wide shapes": lambda: with_value("input_sizes", wide_shapes()),
    "torn": lambda: torch_pickle(good_dump())[:-200],
    "two of them, the first torn": lambda: torch_pickle(good_dump())[:-9] + b"\x80\x02N.",
    "members without end": lambda: with_value("", members_without_end(), key="pg_config"),
    "a rank of a thousand million": lambda: torch_pickle(
        good_dump() | {"pg_config": {"0": {"name": "0", "desc": "x", "ranks": [0, 10**9]}}}
    ),
}


def members_without_end() -> bytes:
    """60,000 groups, each of the same 500,000 members."""
    ranks = torch_pickle([*range(500_000)])[2:-1]
    places = b"".join(b"X\x05\x00\x00\x00%05dj\xff\xff\xff\x7f" % n for n in range(60_000))
    return b"}(X\x01\x00\x00\x00a" + ranks + b"r\xff\xff\xff\x7f" + places + b"u"


def as_json(**fields: Any) -> bytes:
    return json.dumps(good_dump(**fields)).encode()


def json_with(text: str) -> bytes:
    return as_json(op_id="MARK").replace(b'"MARK"', text.encode())


JSON: dict[str, Callable[[], bytes]] = {
    "NaN": lambda: json_with("NaN"),
    "Infinity": lambda: json_with("-Infinity"),
    "a number beyond all": lambda: json_with("1e999"),
    "a number of many digits": lambda: json_with("9" * MILLION),
    "a million brackets": lambda: b'{"entries": ' + b"[" * MILLION,
    "a million tables": lambda: b'{"entries": ' + b'{"a":' * MILLION,
    "brackets around the entries": lambda: json_with("[" * 5000 + "]" * 5000),
    "two of them": lambda: as_json() + as_json(),
    "in UTF-16": lambda: as_json().decode().encode("utf-16"),
    "in UTF-32": lambda: as_json().decode().encode("utf-32"),
    "with a byte of Latin-1": lambda: as_json(profiling_name="nccl:x").replace(b"cl:x", b"\xe9"),
    "with NUL": lambda: as_json().replace(b"2.10", b"2.\x0010"),
    "half a surrogate": lambda: json_with(r'"\ud800"'),
    "twenty million lists": lambda: b'{"entries": [' + b"[]," * 20 * MILLION + b"[]]}",
    "five million tables": lambda: b'{"entries": [' + b'{"":1},' * 5 * MILLION + b"{}]}",
    "torn": lambda: as_json()[:-100],
    "entries that are a table": lambda: b'{"version": "2.10", "entries": {"a": 1}}',
    "of a version to come": lambda: as_json().replace(b'"2.10"', b'"9.0"'),
}  # fmt: skip


def bomb_of(pack: Callable[[bytes], bytes]) -> bytes:
    return pack(b"\0" * (300 << 20))


def zip_file(data: bytes) -> bytes:
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("dump_rank_0", data)
    return stream.getvalue()


PACKED: dict[str, Callable[[], bytes]] = {
    "zeros in gzip": lambda: bomb_of(lambda data: gzip.compress(data, 9)),
    "zeros in zstd": lambda: bomb_of(lambda data: zstandard.compress(data, 3)),
    "a dump and zeros in gzip": lambda: gzip.compress(torch_pickle(good_dump()) + bytes(99 << 20)),
    "gzip in gzip in gzip": lambda: gzip.compress(gzip.compress(gzip.compress(b"x" * MILLION))),
    "a million empty parts": lambda: gzip.compress(b"") * 1_000_000,
    "torn gzip": lambda: gzip.compress(torch_pickle(good_dump()))[:-60],
    "gzip with a wrong sum": lambda: gzip.compress(torch_pickle(good_dump()))[:-8] + b"\0" * 8,
    "torn zstd": lambda: zstandard.compress(torch_pickle(good_dump()))[:-60],
    "gzip of nothing but its head": lambda: gzip.compress(b"")[:10],
    "zlib": lambda: zlib.compress(torch_pickle(good_dump())),
    "zip": lambda: zip_file(torch_pickle(good_dump())),
    "random bytes": lambda: bytes(range(256)) * 400,
}  # fmt: skip


def with_entries(n: int, **more: Any) -> bytes:
    """A dump of so many calls in flight; values of ``more`` may be made from the number."""
    first = good_dump()["entries"][0] | {"state": "scheduled", "retired": False, "frames": []}
    made = [
        first
        | {"record_id": i, "collective_seq_id": i + 1}
        | {key: make(i) for key, make in more.items()}
        for i in range(n)
    ]
    return torch_pickle(good_dump() | {"entries": made})


LARGE: dict[str, Callable[[], bytes]] = {
    "a million members": lambda: torch_pickle(
        good_dump() | {"pg_config": {"0": {"name": "0", "desc": "x", "ranks": [*range(1 << 20)]}}}
    ),
    "a hundred thousand members": lambda: torch_pickle(
        good_dump() | {"pg_config": {"0": {"name": "0", "desc": "x", "ranks": [*range(131_072)]}}}
    ),
    "twenty thousand in flight": lambda: with_entries(20_000),
    "a group for each call": lambda: with_entries(
        50_000, pg_id=lambda i: i, process_group=lambda i: (f"g{i}", "x")
    ),
    "sends to nobody": lambda: with_entries(
        20_000, profiling_name=lambda i: f"nccl:send 0->{i}", is_p2p=lambda _: True
    ),
    "one number again and again": lambda: with_entries(20_000, collective_seq_id=lambda _: 1),
    "numbers at their ends": lambda: with_entries(
        2_000, collective_seq_id=lambda i: (1 << 62) - i, time_created_ns=lambda i: (1 << 62) + i
    ),
}

LOG_LINE = b"[rank0]: node1:1:2 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n"
OTHERS: dict[str, Callable[[], bytes]] = {
    "a log of one line": lambda: b"NCCL WARN " * 5 * MILLION,
    "a log of newlines": lambda: LOG_LINE + b"\n" * 5 * MILLION,
    "a log of NUL": lambda: LOG_LINE + b"\0" * 20 * MILLION + LOG_LINE,
    "a traceback without end": lambda: b"Traceback (most recent call last):\n" + (
        b'  File "a.py", line 1, in f\n' * 100_000
    ),
    "tracebacks in tracebacks": lambda: b"Traceback (most recent call last):\n" * 20_000,
    "a log of numbers": lambda: LOG_LINE + b"9" * 5000 + b": [rank" + b"9" * 5000 + b"]: x\n" * 999,
    "an answer of many lines": lambda: b"Communicators... (1s)\n" + b"x\n" * 2 * MILLION,
    "an answer of one line": lambda: b"Job summary\n" + b"1 " * 5 * MILLION,
    "an answer of protocol alone": lambda: b"OK\n" * 2 * MILLION + b"Job summary\n",
    "an answer of many tables": lambda: b'{"nccl_version":"2.28","communicators":[{"ranks":['
    + b"{}," * 5 * MILLION + b"{}]}]}",
    "an answer of many members": lambda: b'{"nccl_version":"2.28","communicators":[{"hash":"1",'
    b'"size":3,"ranks":[' + b",".join(b'{"rank":%d}' % i for i in range(300_000)) + b"]}]}",
}  # fmt: skip
