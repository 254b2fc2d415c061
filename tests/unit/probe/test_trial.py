"""What becomes of the answers of the program that plays NCCL, played here by a small script."""

import json

import pytest

from comminsight.launch.plugin import LIBRARY_NAME
from comminsight.pipeline.native_folder import native_folder
from comminsight.probe.checks import trouble
from comminsight.probe.trial import PROGRAM, Probe, Trial, try_plugin

GOOD = {"loaded": True, "symbol": "ncclProfiler_v6", "box_path": "", "mask": "0x1f46"}
SCRIPT = """#!/bin/sh
[ "$1" = --list-releases ] && exec cat {releases}
echo "$3 $5 $COMMINSIGHT_SPOOL $LD_LIBRARY_PATH" >> {calls}
exec cat {answer}
"""


@pytest.fixture
def player(tmp_path):
    """Installs a program that gives these answers; the library's path and the calls made."""

    def install(releases, answer):
        (tmp_path / "releases").write_text(releases)
        (tmp_path / "answer").write_text(answer)
        program = tmp_path / "fake_nccl"
        program.write_text(
            SCRIPT.format(
                releases=tmp_path / "releases", answer=tmp_path / "answer", calls=tmp_path / "calls"
            )
        )
        program.chmod(0o700)
        return tmp_path / "lib.so"

    return install


def lines(*releases):
    rows = [{"release": r, "takes_paths": r != "2.27.3", "more": [1]} for r in releases]
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_every_release_is_tried_by_path_and_the_oldest_by_name(player, tmp_path):
    library = player(lines("2.27.3", "2.32"), json.dumps({"release": "r", **GOOD}))
    found = try_plugin(library, {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": "/l"})
    assert found == Trial((Probe(release="r", loaded=True, symbol="ncclProfiler_v6"),) * 2)
    calls = [line.split() for line in (tmp_path / "calls").read_text().splitlines()]
    assert [call[:2] for call in calls] == [["2.27.3", "comminsight"], ["2.32", str(library)]]
    assert {call[3] for call in calls} == {f"{tmp_path}:/l"}
    assert not any((tmp_path / call[2]).exists() for call in calls)


def test_the_box_of_a_trial_is_removed_and_nothing_else(player, tmp_path):
    for name in ("1-2-3.box", "other"):
        (tmp_path / name).touch()
        library = player(lines("2.32"), json.dumps({**GOOD, "box_path": str(tmp_path / name)}))
        assert try_plugin(library, {"PATH": "/usr/bin:/bin"}).failure == ""
    assert not (tmp_path / "1-2-3.box").exists()
    assert (tmp_path / "other").exists()


@pytest.mark.parametrize("answer", ["", "not json", "[]", '{"unwritten": "many"}'])
def test_an_answer_that_is_none_is_an_error_of_that_release(player, answer):
    (found,) = try_plugin(player(lines("2.30"), answer), {"PATH": "/usr/bin:/bin"}).probes
    assert found.release == "2.30"
    assert not found.loaded
    assert [attempt.error != "" for attempt in found.attempts] == [True]


def test_without_the_program_nothing_is_tried(tmp_path):
    assert try_plugin(tmp_path / "lib.so", {}) == Trial()


def test_a_program_that_does_not_start_or_dies_is_told(player, tmp_path):
    library = player("nonsense", "")
    assert try_plugin(library, {"PATH": "/usr/bin:/bin"}).failure
    (tmp_path / "fake_nccl").write_text("#!/bin/sh\nkill -SEGV $$\n")
    assert "SIGSEGV" in try_plugin(library, {"PATH": "/usr/bin:/bin"}).failure
    (tmp_path / "fake_nccl").unlink()
    (tmp_path / "fake_nccl").mkdir()
    assert "ermission" in try_plugin(library, {}).failure


def test_the_real_program_loads_the_real_plugin_as_every_release(tmp_path):
    library = native_folder() / LIBRARY_NAME
    if not library.exists() or not (library.parent / PROGRAM).exists():
        pytest.skip("library or fake_nccl are not built: make native")
    boxes = tmp_path / "boxes"
    boxes.mkdir(mode=0o700)
    environment = {"PATH": "/usr/bin:/bin", "COMMINSIGHT_BOX_DIR": str(boxes)}
    probes = {p.release: p for p in try_plugin(library, environment).probes}
    assert {"2.27.3", "2.28", "2.30", "2.31", "2.32"} <= set(probes)
    for probe in probes.values():
        assert trouble(probe) == "", probe
    symbols = {name: probes[name].symbol for name in ("2.27.3", "2.28", "2.30", "2.32")}
    assert list(symbols.values()) == [f"ncclProfiler_v{n}" for n in (4, 5, 6, 7)]
    assert list(boxes.iterdir()) == []
