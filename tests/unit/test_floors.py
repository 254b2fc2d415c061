"""The floor plan is kept by import-linter: each planted breach of it must be reported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"


BREACHES = {
    "upwards": (
        "comminsight/model/planted.py",
        "import comminsight.format.layout",
        "comminsight.model is not allowed to import comminsight.format",
    ),
    "sideways": (
        "comminsight/store/planted.py",
        "import comminsight.capture",
        "comminsight.store is not allowed to import comminsight.capture",
    ),
    "clock": (
        "comminsight/semantics/planted.py",
        "import time",
        "comminsight.semantics is not allowed to import time",
    ),
    "presentation": (
        "comminsight/report/planted.py",
        "import comminsight.analysis",
        "comminsight.report is not allowed to import comminsight.analysis",
    ),
    "drawer": (
        "comminsight/utils/__init__.py",
        "",
        "not listed as layers: - comminsight.utils",
    ),
    "inject": (
        "comminsight_inject/planted.py",
        "import numpy",
        "comminsight_inject is not allowed to import numpy",
    ),
}


def copied_tree(place: Path) -> Path:
    unwanted = shutil.ignore_patterns("_native", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", place / "src", ignore=unwanted)
    shutil.copy(ROOT / "pyproject.toml", place)
    return place


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    # -S: an editable install puts a finder first that would lead back to the real tree
    search_path = os.pathsep.join([str(tree / "src"), sysconfig.get_path("purelib")])
    return subprocess.run(
        [sys.executable, "-S", LINT_IMPORTS, "--no-cache", "--no-logo"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": search_path},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_tree_as_it_stands_keeps_its_floors(tmp_path: Path) -> None:
    result = lint(copied_tree(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What import-linter says about a tree with every breach in it, in one line."""
    tree = copied_tree(tmp_path_factory.mktemp("planted"))
    for planted, text, _ in BREACHES.values():
        path = tree / "src" / planted
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + "\n")
    result = lint(tree)
    assert result.returncode != 0
    return " ".join((result.stdout + result.stderr).split())


@pytest.mark.parametrize("breach", BREACHES)
def test_a_planted_breach_is_reported(complaints: str, breach: str) -> None:
    assert BREACHES[breach][2] in complaints
