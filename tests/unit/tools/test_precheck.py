"""tools/precheck.py names what a machine lacks and the line that installs it."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def machine(
    load_tool: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., int]:
    """Runs the check on a machine that lacks the given programs and modules."""
    tool = load_tool("precheck")

    def run(*lacking: str) -> int:
        def which(program: str) -> str | None:
            return None if program in lacking else f"/usr/bin/{program}"

        def find_spec(name: str) -> Any:
            return None if name in lacking else object()

        monkeypatch.setattr(shutil, "which", which)
        monkeypatch.setattr(importlib.util, "find_spec", find_spec)
        return int(tool.main())

    return run


def test_a_complete_machine_passes_in_silence(
    machine: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert machine() == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("lacking", "package"),
    [("g++", "g++"), ("make", "make"), ("venv", "python3-venv"), ("ensurepip", "python3-venv")],
)
def test_what_is_missing_is_named_with_its_apt_line(
    machine: Callable[..., int], capsys: pytest.CaptureFixture[str], lacking: str, package: str
) -> None:
    assert machine(lacking) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"missing: {package}"
    assert second.strip() == f"apt-get update && apt-get install -y {package}"


def test_everything_missing_is_one_line(
    machine: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert machine("g++", "make", "venv") == 2
    assert "install -y python3-venv g++ make" in capsys.readouterr().err


def test_cmake_and_node_are_not_asked_for(machine: Callable[..., int]) -> None:
    assert machine("cmake", "node", "npm", "ctest") == 0
