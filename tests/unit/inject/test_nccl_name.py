"""The byte logic of ``commName`` on buffers shaped like ``ncclConfig_t``; no GPU needed."""

import ctypes
import struct
from datetime import timedelta
from types import SimpleNamespace

import pytest

from comminsight_inject import nccl_name


def config(size=64, magic=0xCAFEBEEF, version=22705, name=0):
    buffer = ctypes.create_string_buffer(96)
    struct.pack_into("<QII", buffer, 0, size, magic, version)
    struct.pack_into("<Q", buffer, 48, name)
    return buffer


def name_of(buffer) -> bytes | None:
    address = struct.unpack_from("<Q", buffer, 48)[0]
    return ctypes.string_at(address) if address else None


def test_name_is_written_where_nccl_looks_for_it():
    buffer = config()
    assert nccl_name.write_name(ctypes.addressof(buffer), "TP:3")
    assert name_of(buffer) == b"TP:3"
    assert buffer.raw[:48] == config().raw[:48]
    assert buffer.raw[56:] == config().raw[56:]


@pytest.mark.parametrize(
    "strange",
    [{"magic": 0xDEADBEEF}, {"size": 48}, {"size": 1 << 40}, {"version": 22702}],
    ids=str,
)
def test_nothing_is_written_into_a_strange_structure(strange):
    buffer = config(**strange)
    before = buffer.raw
    assert not nccl_name.write_name(ctypes.addressof(buffer), "TP:3")
    assert buffer.raw == before


def test_a_name_of_the_user_stays_and_one_of_ours_is_replaced():
    theirs = ctypes.create_string_buffer(b"theirs")
    buffer = config(name=ctypes.addressof(theirs))
    assert not nccl_name.write_name(ctypes.addressof(buffer), "ours")
    assert name_of(buffer) == b"theirs"
    parent = config()
    nccl_name.write_name(ctypes.addressof(parent), "parent")
    assert nccl_name.write_name(ctypes.addressof(parent), "child")
    assert name_of(parent) == b"child"


@pytest.mark.parametrize(
    ("version", "expected"),
    [((2, 8), False), ((2, 9), True), ((2, 13), True), ((2, 14), False)],
)
def test_versions_that_need_it_and_can(version, expected):
    assert nccl_name.can_name(version) is expected


class Config:
    """A config whose copy is another structure, as torch's."""

    def __init__(self):
        self.buffer = config()

    def unsafe_get_ptr(self):
        return ctypes.addressof(self.buffer)

    def __deepcopy__(self, memo):
        other = Config()
        other.buffer = ctypes.create_string_buffer(self.buffer.raw, len(self.buffer))
        return other


class Options:
    def __init__(self):
        self.config = Config()
        self._timeout = timedelta(minutes=10)
        self.is_high_priority_stream = True


C10D = SimpleNamespace(ProcessGroupNCCL=SimpleNamespace(Options=Options))


def test_each_group_gets_options_of_its_own():
    shared = Options()
    first = nccl_name.named_options(C10D, shared, "a:1", None)
    second = nccl_name.named_options(C10D, shared, "b:2", None)
    assert [name_of(o.config.buffer) for o in (first, second)] == [b"a:1", b"b:2"]
    assert name_of(shared.config.buffer) is None


def test_default_options_carry_the_groups_timeout():
    own = nccl_name.named_options(C10D, None, "a:1", timedelta(seconds=5))
    assert (own._timeout, own.is_high_priority_stream) == (timedelta(seconds=5), False)


def test_options_of_another_backend_are_not_touched():
    assert nccl_name.named_options(C10D, object(), "a:1", None) is None
