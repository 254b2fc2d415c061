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


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copytree(
        ROOT / "src",
        tmp_path / "src",
        ignore=shutil.ignore_patterns("_native", "__pycache__", "*.egg-info"),
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


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


def test_the_tree_as_it_stands_keeps_its_floors(tree: Path) -> None:
    result = lint(tree)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("planted", "text", "complaint"),
    [
        (
            "src/comminsight/model/planted.py",
            "import comminsight.format.layout\n",
            "comminsight.model is not allowed to import comminsight.format",
        ),
        (
            "src/comminsight/store/planted.py",
            "import comminsight.capture\n",
            "comminsight.store is not allowed to import comminsight.capture",
        ),
        (
            "src/comminsight/semantics/planted.py",
            "import time\n",
            "comminsight.semantics is not allowed to import time",
        ),
        (
            "src/comminsight/report/planted.py",
            "import comminsight.analysis\n",
            "comminsight.report is not allowed to import comminsight.analysis",
        ),
        ("src/comminsight/utils/__init__.py", "", "comminsight.utils"),
        (
            "src/comminsight_inject/planted.py",
            "import numpy\n",
            "comminsight_inject is not allowed to import numpy",
        ),
    ],
    ids=["upwards", "sideways", "clock", "presentation", "drawer", "inject"],
)
def test_a_planted_breach_is_reported(tree: Path, planted: str, text: str, complaint: str) -> None:
    path = tree / planted
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    result = lint(tree)
    output = " ".join((result.stdout + result.stderr).split())
    assert result.returncode != 0
    assert complaint in output
