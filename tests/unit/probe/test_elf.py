"""What a library needs, read from real ones and from damaged ones."""

import os
import platform
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from comminsight.errors import FormatError
from comminsight.probe.elf import MACHINES, ElfFacts, read_elf

INTERPRETER = Path(os.path.realpath(sys.executable)).read_bytes()


def test_the_interpreter_is_made_for_this_machine():
    assert read_elf(INTERPRETER).machine == platform.machine()


def test_the_glibc_needed_is_the_newest_that_readelf_lists():
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not installed")
    listed = subprocess.run(
        ["readelf", "-V", os.path.realpath(sys.executable)],
        capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    versions = [tuple(map(int, v)) for v in re.findall(r"Name: GLIBC_(\d+)\.(\d+)", listed)]
    assert versions
    assert read_elf(INTERPRETER).glibc == max(versions)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\x7fELF\x01\x01" + bytes(100), ElfFacts("")),  # 32-bit
        (b"\x7fELF\x02\x02" + bytes(100), ElfFacts("")),  # big-endian
        (b"\x7fELF\x02\x01" + bytes(12) + b"\xb7\x00" + bytes(60), ElfFacts("aarch64")),
    ],
)
def test_foreign_machines(data, expected):
    assert read_elf(data) == expected


@pytest.mark.parametrize("data", [b"", b"\x7fEL", b"MZ" + bytes(100), b"#!/bin/sh\n"])
def test_what_is_no_elf_file_is_named(data):
    with pytest.raises(FormatError, match=r"x\.so: is no ELF file"):
        read_elf(data, "x.so")


def test_a_cut_file_is_damaged():
    with pytest.raises(FormatError, match="damaged"):
        read_elf(INTERPRETER[:40])


def test_damage_never_gets_beyond_a_format_error():
    """Headers with random bytes in them: facts, or a FormatError."""
    chance = random.Random(7)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(400):
        data = bytearray(INTERPRETER)
        for _ in range(chance.randrange(1, 12)):
            data[chance.randrange(4, 2000)] = chance.randrange(256)
        try:
            facts = read_elf(bytes(data))
        except FormatError:
            outcomes["refused"] += 1
        else:
            assert facts.machine in {"", *MACHINES.values()}
            outcomes["read"] += 1
    assert min(outcomes.values()) > 0
