"""What the library exports and needs, and that the C layouts are the Python layouts."""

from __future__ import annotations

import re
import shutil
import subprocess

import numpy as np
import pytest

from comminsight.format import layout
from comminsight.model.event import COMM_DTYPE, NET_DTYPE, NOTICE_DTYPE, OP_DTYPE
from tests.unit.native.door import LIBRARY, ROOT

KERNELS = LIBRARY.with_name("libcomminsight-pairs.so")
PROFILER_TABLES = [f"ncclProfiler_v{version}" for version in (4, 5, 6, 7)]
DTYPES = {
    "ci_record": OP_DTYPE,
    "ci_comm_row": COMM_DTYPE,
    "ci_net_record": NET_DTYPE,
    "ci_notice_record": NOTICE_DTYPE,
    "ci_box_header": layout.BOX_HEADER_DTYPE,
    "ci_slot": layout.SLOT_DTYPE,
    "ci_segment_header": layout.SEGMENT_HEADER_DTYPE,
    "ci_frame_header": layout.FRAME_HEADER_DTYPE,
}


def tool_output(*command):
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def symbols(library, *options):
    if not library.exists():
        pytest.skip("the native libraries are not built: make native")
    return [line.split() for line in tool_output("nm", "-D", *options, str(library)).splitlines()]


def test_exports_are_the_door_and_nothing_else():
    declared = re.findall(r"CI_API .*?(ci_\w+)\(", (ROOT / "native/comminsight.h").read_text())
    exported = {line[-1] for line in symbols(LIBRARY, "--defined-only")}
    assert exported == set(declared) | set(PROFILER_TABLES)
    assert all(line[1] in "TDR" for line in symbols(LIBRARY, "--defined-only"))  # no GNU_UNIQUE


def test_the_kernel_exports_what_its_header_declares():
    header = (ROOT / "native/pairs/pair_waits.h").read_text()
    exported = symbols(KERNELS, "--defined-only")
    assert {line[-1] for line in exported} == set(re.findall(r"CI_API .*?(ci_\w+)\(", header))
    assert all(line[1] == "T" for line in exported)


def test_profiler_tables_are_data_of_six_pointers():
    listed = tool_output("readelf", "--dyn-syms", "--wide", str(LIBRARY))
    tables = re.findall(r"(\d+) (\w+) +GLOBAL +DEFAULT +\d+ (ncclProfiler\w+)", listed)
    assert sorted(tables) == sorted(("48", "OBJECT", name) for name in PROFILER_TABLES)


@pytest.mark.parametrize("library", [LIBRARY, KERNELS], ids=lambda path: path.name)
def test_needs_only_the_c_library_of_old_systems(library):
    undefined = symbols(library, "--undefined-only")
    needed = re.findall(r"NEEDED\s+(\S+)", tool_output("objdump", "-p", str(library)))
    assert set(needed) <= {
        "libc.so.6",
        "libpthread.so.0",
        "ld-linux-x86-64.so.2",
        "ld-linux-aarch64.so.1",
    }
    strong = [line[-1] for line in undefined if line[0] == "U"]
    assert [name for name in strong if "@GLIBC_" not in name] == []
    assert [name for name in strong if name.startswith(("cu", "cuda", "nccl"))] == []
    versions = [tuple(map(int, re.findall(r"\d+", name.split("@GLIBC_")[1]))) for name in strong]
    assert max(versions)[:2] <= (2, 34)


def test_library_stays_loaded():
    assert "NODELETE" in tool_output("readelf", "-d", str(LIBRARY))


def test_c_structs_are_the_dtypes(tmp_path):
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler")
    lines = ['#include "wire.h"', "#include <cstdio>", "int main() {"]
    for struct, dtype in DTYPES.items():
        lines.append(f'printf("{struct} . %zu 0\\n", sizeof({struct}));')
        for name in dtype.names:
            member = f"offsetof({struct}, {name}), sizeof({struct}::{name})"
            lines.append(f'printf("{struct} {name} %zu %zu\\n", {member});')
    source, program = tmp_path / "offsets.cc", tmp_path / "offsets"
    source.write_text("\n".join([*lines, "}"]))
    subprocess.run(["c++", "-std=c++17", f"-I{ROOT / 'native'}", "-o", program, source], check=True)
    printed = tool_output(str(program)).splitlines()
    assert len(printed) == sum(1 + len(dtype.names) for dtype in DTYPES.values())
    for line in printed:
        struct, name, first, second = line.split()
        dtype: np.dtype = DTYPES[struct]
        if name == ".":
            assert int(first) == dtype.itemsize
        else:
            form, offset = dtype.fields[name][:2]
            assert (int(first), int(second)) == (offset, form.itemsize), (struct, name)
