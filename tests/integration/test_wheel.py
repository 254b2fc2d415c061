"""The wheel: one for all Pythons of the platform, libraries inside; its base install suffices to
report a run and to switch recording on."""

import json
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from comminsight.sim.cluster import simulate
from comminsight.sim.faults import LateRank
from tests.builders.run import small_layout, write_run

ROOT = Path(__file__).resolve().parents[2]
NOT_IN_BASE = ("torch", "pyarrow", "obstore", "duckdb", "scipy", "networkx", "hypothesis")


def run(*words, **options):
    done = subprocess.run(
        [str(w) for w in words], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    run(*pip, "wheel", "--no-build-isolation", "--no-deps", "-w", folder, ROOT)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def bare_python(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "--disable-pip-version-check", "-q", "install", wheel)
    return python


@pytest.mark.slow
def test_one_wheel_for_all_pythons_with_the_library_inside(wheel):
    assert "-py3-none-" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert "comminsight/_native/libnccl-profiler-comminsight.so" in names
    assert "comminsight/_native/libcomminsight-pairs.so" in names
    assert "comminsight_inject/autoload.py" in names
    assert any(name.endswith("templates/ddp.toml") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "native/", "docs/"))]


@pytest.mark.slow
def test_the_base_install_reports_a_run(bare_python, tmp_path):
    for name in NOT_IN_BASE:
        code = f"import importlib.util as u, sys; sys.exit(u.find_spec('{name}') is not None)"
        run(bare_python, "-c", code)
    late = LateRank(2, extra_ns=60_000_000, from_step=8)
    recorded = simulate(small_layout(), steps=20, seed=1, faults=(late,))
    folder = write_run(tmp_path / "run", recorded)
    command = bare_python.with_name("comminsight")
    report = json.loads(run(command, "report", folder, "--json"))
    assert [v["culprits"] for v in report["verdicts"] if v["culprits"]] == [[2]]
    run(command, "steps", folder)


@pytest.mark.slow
def test_run_passes_a_job_through_and_the_hook_can_be_installed(bare_python, tmp_path):
    command = bare_python.with_name("comminsight")
    out = run(command, "run", "--out", tmp_path / "r", "--", bare_python, "-c", "print('as ever')")
    assert out == "as ever\n"
    for action in ("install", "install", "status", "uninstall", "status"):
        subprocess.run([command, "inject", action], check=False, capture_output=True)
    assert not list(bare_python.parents[1].rglob("comminsight_inject*.pth"))
