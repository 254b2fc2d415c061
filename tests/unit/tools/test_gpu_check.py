"""``make gpu`` where no GPU is, and around jobs that are played by a small script."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from comminsight.launch.plugin import LIBRARY_NAME

GPU = {"torch": "2.9.1", "n_gpus": 1, "gpu": "H", "nccl": "2.29.7"}
CALL = {
    "call": "all_reduce", "ops": ["ALL_REDUCE"], "size_bytes": 8, "event_ns": 9000, "is_warm": True,
}  # fmt: skip
LOADED = "h:1:1 [0] NCCL INFO PROFILER/Plugin: Loaded CommInsight (v6)"
PLAYER = """#!{python}
import os, sys, pathlib
if "--survey" in sys.argv:
    print({survey!r})
    sys.exit({survey_code})
folder = pathlib.Path(sys.argv[-1])
for rank in range({n_ranks}):
    (folder / f"calls-{{rank}}.jsonl").write_text({log!r})
if "NCCL_PROFILER_PLUGIN" in os.environ:
    pathlib.Path(os.environ["NCCL_DEBUG_FILE"].replace("%h.%p", "h.1")).write_text({nccl!r})
print("the end of the job")
sys.exit({code})
"""


@pytest.fixture
def tool(load_tool: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    module = load_tool("gpu_check")
    if not (module.ROOT / "src/comminsight/_native" / LIBRARY_NAME).exists():
        pytest.skip("the native library is not built: make native")
    monkeypatch.setattr(module, "OUT", tmp_path / "out")
    return module


@pytest.fixture
def player(tmp_path: Path) -> Callable[..., str]:
    """A program in the place of the Python that trains."""

    def make(**given: object) -> str:
        fields = {
            "python": sys.executable, "survey": json.dumps(GPU), "survey_code": 0, "n_ranks": 1,
            "log": json.dumps(CALL) + "\n", "nccl": LOADED + "\n", "code": 0,
        } | given  # fmt: skip
        path = tmp_path / "player"
        path.write_text(PLAYER.format(**fields))
        path.chmod(0o700)
        return str(path)

    return make


REAL_PLAYER = """#!{python}
import json, os, pathlib, subprocess, sys
if "--survey" in sys.argv:
    print({survey!r})
    sys.exit(0)
folder = pathlib.Path(sys.argv[-1])
for rank in range(2):
    (folder / f"calls-{{rank}}.jsonl").write_text({log!r})
if "NCCL_PROFILER_PLUGIN" in os.environ:
    (folder / "job").write_text({script!r})
    for rank in range(2):
        (folder / f"nccl.h.{{rank}}.log").write_text({nccl!r})
    sys.exit(subprocess.run([{program!r}, str(folder / "job"), "--quiet"]).returncode)
"""
SCRIPT = """
ranks 2
release 2.30
all: all_reduce world count=256 {first}
all: all_gather world count=128
all: reduce_scatter world count=128
all: broadcast world count=256
all: group
all: send world to=+1 count=128
all: recv world from=-1 count=128
all: group end
all: sync
all: delay 600ms
end finalize
"""
DONE = [
    ("all_reduce", ["ALL_REDUCE"], 1024), ("all_gather", ["ALL_GATHER"], 1024),
    ("reduce_scatter", ["REDUCE_SCATTER"], 1024), ("broadcast", ["BROADCAST"], 1024),
    ("ring", ["SEND", "RECV"], 512),
]  # fmt: skip


@pytest.fixture
def nccl_player(tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """A Python whose job is played by the program that plays NCCL, under the real plugin."""
    program = tool.ROOT / "src/comminsight/_native/fake_nccl"
    if not program.exists():
        pytest.skip("fake_nccl is not built: make native")
    (tmp_path / "boxes").mkdir(mode=0o700)
    monkeypatch.setenv("COMMINSIGHT_BOX_DIR", str(tmp_path / "boxes"))
    calls = [
        CALL | {"call": name, "ops": ops, "size_bytes": size, "event_ns": 10**9}
        for name, ops, size in DONE
    ]

    def make(first: str = "") -> str:
        path = tmp_path / "player"
        path.write_text(
            REAL_PLAYER.format(
                python=sys.executable, survey=json.dumps(GPU | {"n_gpus": 2}), nccl=LOADED,
                log="".join(json.dumps(call) + "\n" for call in calls),
                script=SCRIPT.format(first=first), program=str(program),
            )
        )  # fmt: skip
        path.chmod(0o700)
        return str(path)

    return make


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"survey": json.dumps(GPU | {"n_gpus": 0})}, "no GPU"),
        ({"survey": json.dumps(GPU | {"nccl": ""})}, "torch 2.9.1 has no NCCL"),
        ({"survey": "", "survey_code": 1}, "no usable torch in"),
    ],
)
def test_without_what_it_takes_one_line_says_so(tool, player, capsys, given, reason):
    assert tool.main([player(**given)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"make gpu: skipped, {reason}")
    assert out.count("\n") == 1
    assert err == ""
    assert not tool.OUT.exists()


def test_no_python_at_all(tool, capsys):
    assert tool.main(["/no/such/python"]) == 0
    assert "skipped, /no/such/python does not answer" in capsys.readouterr().out


def test_one_rank_tests_only_the_loading_and_says_so(tool, player, capsys):
    assert tool.main([player()]) == 0
    page = capsys.readouterr().out
    assert page == (tool.OUT / "result.md").read_text()
    assert "loaded as CommInsight v6" in page
    assert "- not tested: one rank" in page
    assert "| all_reduce | 8 | 9.0 | 9.0 | 1.000 |" in page
    result = json.loads((tool.OUT / "result.json").read_text())
    assert result["faults"] == []
    assert result["machine"] == GPU


def test_a_plugin_that_nccl_did_not_load_is_a_fault(tool, player, capsys):
    assert tool.main([player(nccl="NCCL INFO nothing\n")]) == 1
    assert "- fault: NCCL's log says loaded in 0 ranks" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"code": 3}, "the job ended with 3: the end of the job"),
        ({"n_ranks": 2, "survey": json.dumps(GPU | {"n_gpus": 2})}, "spool"),
    ],
)
def test_a_job_that_fails_or_leaves_no_records_fails_the_check(
    tool, player, capsys, given, complaint
):
    assert tool.main([player(**given)]) == 1
    assert complaint in capsys.readouterr().err


def test_records_of_the_plugin_are_held_against_the_log(tool, nccl_player, capsys):
    assert tool.main([nccl_player()]) == 0, capsys.readouterr()
    page = capsys.readouterr().out
    assert "36 ops made, 0 faults." in page  # 3 rounds of 2 ranks
    assert "- not tested: one node" in page


@pytest.mark.parametrize(
    ("first", "fault"),
    [
        ("dtype=float64", "rank 0: call 0 (all_reduce, 1024 bytes): size 2048"),
        ("stamps=zero", "rank 0: call 0 (all_reduce, 1024 bytes): timed by HOST_KERNEL_CALLBACK"),
        ("nchannels=0", "rank 1: call 0 (all_reduce, 1024 bytes): state UNOBSERVABLE"),
        ("x2", "rank 1: 6 ops, 7 records"),
    ],
)
def test_records_that_are_not_what_the_log_says_are_faults(tool, nccl_player, capsys, first, fault):
    assert tool.main([nccl_player(first)]) == 1
    assert f"- fault: {fault}" in capsys.readouterr().out
