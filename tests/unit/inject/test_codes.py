"""The inject repeats numbers of the format; here they are held against the authority."""

import ast
import sys
from pathlib import Path

import pytest

import comminsight_inject
from comminsight.model.ops import (
    Backend,
    DType,
    LossReason,
    Op,
    OpFlag,
    OpState,
    RecordKind,
    RedOp,
    TimingSource,
)
from comminsight_inject import codes

ENUMS = {
    "KIND": RecordKind,
    "OP": Op,
    "STATE": OpState,
    "TIMING": TimingSource,
    "FLAG": OpFlag,
    "LOSS": LossReason,
}


def test_every_constant_is_the_member_of_its_name():
    seen = 0
    for name, value in vars(codes).items():
        family, _, member = name.partition("_")
        if family in ENUMS and isinstance(value, int):
            assert ENUMS[family][member] == value, name
            seen += 1
    assert seen >= 20


def test_backends_and_dtypes_are_the_members_of_their_names():
    assert {name.upper(): code for name, code in codes.BACKENDS.items()} == {
        b.name: b.value for b in Backend if b is not Backend.UNKNOWN
    }
    spelled = {"float8_e4m3fn": "FLOAT8_E4M3"}
    by_name = {spelled.get(name, name.upper()): code for name, code in codes.DTYPES.items()}
    assert by_name == {d.name: d.value for d in DType if d is not DType.UNKNOWN}


@pytest.mark.parametrize(
    ("torch_number", "red_op"), [(0, RedOp.SUM), (3, RedOp.MIN), (8, RedOp.PREMUL_SUM), (9, 0)]
)
def test_reduction_numbers(torch_number, red_op):
    assert codes.red_op_code(torch_number) == red_op


def sources() -> list[Path]:
    package = Path(comminsight_inject.__file__).parent
    return sorted([*package.glob("*.py"), *package.glob("site/*.py")])


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.name)
def test_sources_are_python_3_9_and_standard_library_only(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add((node.module or "").partition(".")[0])
    assert modules <= set(sys.stdlib_module_names) | {"comminsight_inject"}
