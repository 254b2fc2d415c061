"""tools/gen_wire.py: the committed header is the generated one, and drift is noticed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from comminsight.model import event


@pytest.fixture
def tool(
    load_tool: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ModuleType:
    module = load_tool("gen_wire")
    committed = module.TARGET.read_text()
    copy = tmp_path / "wire.h"
    copy.write_text(committed)
    monkeypatch.setattr(module, "TARGET", copy)
    monkeypatch.setattr(sys, "argv", ["gen_wire.py", "--check"])
    return module


def test_the_committed_header_is_up_to_date(tool: ModuleType) -> None:
    assert tool.main() == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("offsetof(ci_record, end_ns) == 24", "offsetof(ci_record, end_ns) == 16"),
        ("CI_OP_ALL_REDUCE = 1", "CI_OP_ALL_REDUCE = 2"),
        ("  int64_t enqueue_ns;\n", ""),
    ],
    ids=["offset", "enumeration", "member"],
)
def test_drift_is_reported(
    tool: ModuleType, capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    text = tool.TARGET.read_text()
    assert old in text
    tool.TARGET.write_text(text.replace(old, new))
    assert tool.main() == 1
    assert "make wire" in capsys.readouterr().err


def test_without_check_the_header_is_written(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["gen_wire.py"])
    tool.TARGET.write_text("old")
    assert tool.main() == 0
    assert tool.TARGET.read_text() == tool.render()


def test_every_field_of_the_record_stands_in_the_header_with_its_offset(tool: ModuleType) -> None:
    header = tool.render()
    for name, _, offset in event.OP_FIELDS:
        assert f"static_assert(offsetof(ci_record, {name}) == {offset}," in header
    assert f"static_assert(sizeof(ci_record) == {event.OP_RECORD_BYTES}," in header


def test_a_gap_between_fields_becomes_named_padding(tool: ModuleType) -> None:
    lines = list(tool.struct_lines("s", (("a", "u1", 0), ("b", "<i8", 8)), 24))
    assert lines[:6] == [
        "struct s {",
        "  uint8_t a;",
        "  uint8_t pad0_[7];",
        "  int64_t b;",
        "  uint8_t pad1_[8];",
        "};",
    ]
