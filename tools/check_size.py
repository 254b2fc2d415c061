"""Fail on files or functions above the size limits, and on imports inside functions outside cli.

Limits: Python files 350 lines (tests 500), functions 40 lines (tests 60), native files 500 lines;
the median function of ``src`` must be at most 10 lines.
"""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
from pathlib import Path

FILE_LINES = {"src": 350, "tools": 350, "benchmarks": 350, "tests": 500}
FUNCTION_LINES = {"src": 40, "tools": 40, "benchmarks": 60, "tests": 60}
NATIVE_LINES = 500
MEDIAN_FUNCTION_LINES = 10
GENERATED = {"native/wire.h"}
ROOT = Path(__file__).resolve().parents[1]


def tracked(*patterns: str) -> list[Path]:
    """Files of the tree that git tracks or would track."""
    out = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *patterns],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [ROOT / line for line in out.stdout.splitlines() if (ROOT / line).exists()]


def function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body without its docstring."""
    body = node.body
    if ast.get_docstring(node) is not None:
        body = body[1:]
    return (node.end_lineno or 0) - body[0].lineno + 1 if body else 0


def check_python(path: Path, sizes: list[int]) -> list[str]:
    """Faults of one Python file; adds its function sizes to ``sizes`` when it is in src."""
    relative = path.relative_to(ROOT)
    area = relative.parts[0] if relative.parts[0] in FILE_LINES else "tools"
    text = path.read_text()
    faults = []
    if (lines := text.count("\n")) > FILE_LINES[area]:
        faults.append(f"{relative}: {lines} lines (limit {FILE_LINES[area]})")
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        size = function_lines(node)
        if area == "src":
            sizes.append(size)
        if size > FUNCTION_LINES[area]:
            faults.append(f"{relative}:{node.lineno}: {node.name} has {size} lines")
        hidden = [n for n in ast.walk(node) if isinstance(n, ast.Import | ast.ImportFrom)]
        may_hide = {"cli", "lab", "tests", "comminsight_inject"} & set(relative.parts)
        if hidden and not may_hide:
            faults.append(f"{relative}:{hidden[0].lineno}: import inside a function")
    return faults


def main() -> int:
    """Exit code 1 and one line per fault, or the median function size."""
    sizes: list[int] = []
    faults = [fault for path in tracked("*.py") for fault in check_python(path, sizes)]
    for path in tracked("native/*.cc", "native/*.h", "native/**/*.cc", "native/**/*.h"):
        relative = path.relative_to(ROOT).as_posix()
        lines = path.read_text().count("\n")
        if relative not in GENERATED and lines > NATIVE_LINES:
            faults.append(f"{relative}: {lines} lines (limit {NATIVE_LINES})")
    median = statistics.median(sizes) if sizes else 0
    if median > MEDIAN_FUNCTION_LINES:
        faults.append(f"median function of src has {median} lines (limit {MEDIAN_FUNCTION_LINES})")
    print("\n".join(faults) or f"sizes ok: {len(sizes)} functions in src, median {median} lines")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
