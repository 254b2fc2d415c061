"""tools/check_size.py reports every kind of fault and stays quiet about a tidy tree."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


def body(n_lines: int) -> str:
    return "".join(f"    x{i} = {i}\n" for i in range(n_lines))


def function(name: str, n_lines: int) -> str:
    return f'def {name}():\n    """Doc."""\n' + body(n_lines)


TIDY = {"src/pkg/a.py": function("short", 3), "native/x.cc": "int x;\n"}

FAULTS = [
    ({"src/pkg/long.py": "x = 1\n" * 351}, "src/pkg/long.py: 351 lines (limit 350)"),
    ({"tests/test_long.py": "x = 1\n" * 501}, "tests/test_long.py: 501 lines (limit 500)"),
    ({"native/long.cc": "int x;\n" * 501}, "native/long.cc: 501 lines (limit 500)"),
    ({"native/src/long.h": "int x;\n" * 501}, "native/src/long.h: 501 lines (limit 500)"),
    ({"src/pkg/f.py": function("long", 41)}, "src/pkg/f.py:1: long has 41 lines"),
    ({"src/pkg/f.py": "async " + function("long", 41)}, "src/pkg/f.py:1: long has 41 lines"),
    ({"tests/test_f.py": function("long", 61)}, "tests/test_f.py:1: long has 61 lines"),
    (
        {"src/pkg/hidden.py": "def f():\n    import os\n    return os\n"},
        "src/pkg/hidden.py:2: import inside a function",
    ),
    (
        {f"src/pkg/m{i}.py": function("fair", 11) for i in range(3)},
        "median function of src has 11",
    ),
]

ALLOWED = [
    {"src/pkg/f.py": function("long", 40)},
    {"tests/test_f.py": function("long", 60)},
    {"src/pkg/edge.py": "x = 1\n" * 350},
    {"src/pkg/cli/f.py": "def f():\n    import os\n    return os\n"},
    {"native/wire.h": "int x;\n" * 501},
]


@pytest.fixture
def check(
    tmp_path: Path,
    load_tool: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[[dict[str, str]], tuple[int, str]]:
    tool = load_tool("check_size")
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)

    def run(files: dict[str, str]) -> tuple[int, str]:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tool.main(), capsys.readouterr().out

    return run


@pytest.mark.parametrize(("planted", "complaint"), FAULTS, ids=[c[:40] for _, c in FAULTS])
def test_a_planted_fault_is_reported(
    check: Callable[[dict[str, str]], tuple[int, str]], planted: dict[str, str], complaint: str
) -> None:
    tidy = {} if "median" in complaint else TIDY
    code, out = check(tidy | planted)
    assert code == 1
    assert complaint in out


@pytest.mark.parametrize("planted", ALLOWED, ids=[next(iter(files)) for files in ALLOWED])
def test_what_is_within_the_limits_passes(
    check: Callable[[dict[str, str]], tuple[int, str]], planted: dict[str, str]
) -> None:
    short = {f"src/pkg/s{i}.py": function("short", 3) for i in range(3)}
    code, out = check(TIDY | short | planted)
    assert (code, out[:8]) == (0, "sizes ok")


def test_files_that_git_ignores_do_not_count(
    check: Callable[[dict[str, str]], tuple[int, str]],
) -> None:
    code, _ = check(TIDY | {".gitignore": "build/\n", "build/long.py": "x = 1\n" * 999})
    assert code == 0
