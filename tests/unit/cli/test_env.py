"""``comminsight env``: what it prints makes a plain process record."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from comminsight.cli import main
from comminsight.errors import ExitCode
from comminsight.launch.environment import native_library
from tests.unit.native.door import LIBRARY

PROGRAM = """
import json, os, sys
names = [n for n in os.environ if n.startswith(("COMMINSIGHT_", "NCCL_", "PYTHONPATH"))]
print(json.dumps({"environment": {n: os.environ[n] for n in names},
                  "is_injected": "comminsight_inject" in sys.modules}))
"""


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for name in os.environ:
        if name.startswith(("COMMINSIGHT_INJECT", "COMMINSIGHT_RUN", "COMMINSIGHT_SP", "NCCL_")):
            monkeypatch.delenv(name)
    if not LIBRARY.exists():
        pytest.skip("the native library is not built: make native")


def printed(capsys, *argv):
    assert main(["env", *argv]) == ExitCode.OK
    return capsys.readouterr()


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_a_shell_that_evaluates_it_starts_processes_with_the_hook(shell, capsys, tmp_path):
    spool = tmp_path / "it's a spool"
    text = printed(capsys, "--run-id", "one", "--spool", str(spool), "--mask", "deep").out
    (tmp_path / "vars.sh").write_text(text)
    (tmp_path / "program.py").write_text(PROGRAM)
    script = f'eval "$(cat vars.sh)" && exec {sys.executable} program.py'
    done = subprocess.run(
        [shell, "-c", script], cwd=tmp_path, capture_output=True, check=True, text=True
    )
    seen = json.loads(done.stdout)
    assert seen["is_injected"]
    variables = seen["environment"]
    assert variables["NCCL_PROFILER_PLUGIN"] == str(native_library())
    assert variables["COMMINSIGHT_LIBRARY"] == str(native_library())
    assert variables["COMMINSIGHT_RUN_ID"] == "one"
    assert variables["COMMINSIGHT_SPOOL"] == str(spool)
    assert variables["COMMINSIGHT_NCCL_MASK"] == "deep"


def test_without_the_hook_only_nccl_is_told(capsys):
    text = printed(capsys, "--shell", "json", "--no-inject").out
    assert json.loads(text) == {"NCCL_PROFILER_PLUGIN": str(native_library())}


def test_slurm_gets_lines_for_the_script_and_one_for_sbatch(capsys):
    text = printed(capsys, "--shell", "slurm", "--no-inject").out
    assert text.startswith(f"export NCCL_PROFILER_PLUGIN={native_library()};\n")
    option = f"--export=ALL,NCCL_PROFILER_PLUGIN={native_library()}"
    assert f"# Or without a change to the script: sbatch {option} JOB.sh" in text.splitlines()


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_pod_mounts_every_folder_that_its_variables_name(lang, capsys):
    read = yaml.safe_load(printed(capsys, "--shell", "k8s", "--lang", lang).out)
    variables = {one["name"]: one["value"] for one in read["env"]}
    mounted = [Path(mount["mountPath"]) for mount in read["volumeMounts"]]
    named = [
        variables[name]
        for name in (
            "NCCL_PROFILER_PLUGIN",
            "COMMINSIGHT_LIBRARY",
            "PYTHONPATH",
            "COMMINSIGHT_SPOOL",
        )
    ]
    homeless = [path for path in named if not any(Path(path).is_relative_to(m) for m in mounted)]
    assert homeless == []
    assert {m["name"] for m in read["volumeMounts"]} == {v["name"] for v in read["volumes"]}


def test_old_nccl_is_told_of_in_a_comment(capsys):
    comments = [line for line in printed(capsys).out.splitlines() if line.startswith("# ")]
    assert any("2.27.3" in line and "NCCL_PROFILER_PLUGIN=comminsight" in line for line in comments)


def test_a_plugin_of_the_user_is_named_when_ours_takes_its_place(capsys, monkeypatch):
    monkeypatch.setenv("NCCL_PROFILER_PLUGIN", "/opt/libnccl-profiler-example.so")
    out, err = printed(capsys)
    assert f"export NCCL_PROFILER_PLUGIN={native_library()};" in out
    assert "/opt/libnccl-profiler-example.so" in err


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["--shell", "tcsh"], ExitCode.USAGE),
        (["--mask", "everything"], ExitCode.USAGE),
        (["--run-id", "../x"], ExitCode.USAGE),
    ],
)
def test_wrong_options(argv, code, capsys):
    try:
        got = main(["env", *argv])
    except SystemExit as stop:
        got = stop.code
    assert got == code


def test_without_a_library_it_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("COMMINSIGHT_NATIVE_DIR", str(tmp_path))
    assert main(["env"]) == ExitCode.BAD_INPUT
    assert "make native" in capsys.readouterr().err
