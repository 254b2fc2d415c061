"""How NCCL is told of the recorder, by ``run`` and by ``env``."""

from pathlib import Path

import pytest

from comminsight.launch import environment as recording
from comminsight.launch.environment import RecordingOptions, recording_environment
from comminsight.launch.job import RunRequest, run_job
from comminsight.launch.own_launcher import OwnLauncher, assignments, pod_mounts
from comminsight.launch.plugin import LIBRARY_NAME, foreign_plugin, plugin_value
from comminsight.pipeline.layout import RunPaths
from comminsight.pipeline.manifest import read_manifests
from tests.unit.native.door import LIBRARY

LONG = Path("/" + "x" * 240) / LIBRARY_NAME


@pytest.mark.parametrize(
    ("value", "theirs"),
    [
        (None, ""),
        ("", ""),
        ("comminsight", ""),
        (LIBRARY_NAME, ""),
        (f"/elsewhere/{LIBRARY_NAME}", ""),
        ("example", "example"),
        ("/opt/libnccl-profiler-example.so", "/opt/libnccl-profiler-example.so"),
        ("none", "none"),
    ],
)
def test_whose_plugin_is_set(value, theirs):
    environment = {} if value is None else {"NCCL_PROFILER_PLUGIN": value}
    assert foreign_plugin(environment) == theirs


def test_a_path_that_nccl_would_cut_is_given_by_name():
    assert plugin_value(Path("/a") / LIBRARY_NAME) == f"/a/{LIBRARY_NAME}"
    assert plugin_value(LONG) == "comminsight"


def values(what):
    return {one.name: one.value for one in assignments(what)}


def test_nccl_alone_needs_one_variable():
    assert values(OwnLauncher(Path("/a/x.so"), None)) == {"NCCL_PROFILER_PLUGIN": "/a/x.so"}
    assert values(OwnLauncher(LONG, None)) == {
        "NCCL_PROFILER_PLUGIN": "comminsight",
        "LD_LIBRARY_PATH": str(LONG.parent),
    }


def test_everything_that_was_chosen_is_set_and_mounted():
    what = OwnLauncher(Path("/a/x.so"), Path("/b/inject"), "one", Path("/c"), "net")
    assert values(what) == {
        "NCCL_PROFILER_PLUGIN": "/a/x.so",
        "COMMINSIGHT_INJECT": "1",
        "COMMINSIGHT_LIBRARY": "/a/x.so",
        "PYTHONPATH": "/b/inject/site",
        "COMMINSIGHT_RUN_ID": "one",
        "COMMINSIGHT_SPOOL": "/c",
        "COMMINSIGHT_NCCL_MASK": "net",
    }
    assert [(m.path, m.is_read_only) for m in pod_mounts(what)] == [
        ("/a", True), ("/b/inject", True), ("/c", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("library", "base", "expected"),
    [
        ("/a/x.so", {}, {"NCCL_PROFILER_PLUGIN": "/a/x.so"}),
        ("/a/x.so", {"NCCL_PROFILER_PLUGIN": ""}, {"NCCL_PROFILER_PLUGIN": "/a/x.so"}),
        ("/a/x.so", {"NCCL_PROFILER_PLUGIN": "theirs"}, {"NCCL_PROFILER_PLUGIN": "theirs"}),
        (
            str(LONG),
            {"LD_LIBRARY_PATH": "/l"},
            {"NCCL_PROFILER_PLUGIN": "comminsight", "LD_LIBRARY_PATH": f"{LONG.parent}:/l"},
        ),
    ],
)
def test_run_names_the_plugin_unless_the_user_named_one(library, base, expected, monkeypatch):
    monkeypatch.setattr(recording, "native_library", lambda: Path(library))
    made = recording_environment(
        base, run_id="r", spool=Path("/s"), options=RecordingOptions()
    )  # fmt: skip
    assert {name: made.get(name) for name in expected} == expected


@pytest.mark.parametrize("theirs", ["", "/opt/libnccl-profiler-example.so"])
def test_run_notes_the_plugin_that_it_kept(theirs, monkeypatch, tmp_path):
    if not LIBRARY.exists():
        pytest.skip("the native library is not built: make native")
    monkeypatch.setenv("NCCL_PROFILER_PLUGIN", theirs)
    monkeypatch.setenv("COMMINSIGHT_BOX_DIR", str(tmp_path / "boxes"))
    request = RunRequest(command=("true",), out=tmp_path / "run", run_id="r")
    assert run_job(request) == 0
    (manifest,) = read_manifests(RunPaths(tmp_path / "run"))[0]
    kept = [m.params for m in manifest.messages if m.code == "launch.plugin_kept"]
    assert kept == ([{"plugin": theirs}] if theirs else [])
