"""``comminsight doctor`` on set-ups that are really broken."""

import json
import os

import pytest

from comminsight.cli import main
from comminsight.errors import ExitCode
from comminsight.launch.plugin import LIBRARY_NAME
from comminsight.pipeline.native_folder import native_folder


@pytest.fixture
def healthy(monkeypatch, tmp_path):
    """An environment in which everything of ours is in order, in folders of its own."""
    if not (native_folder() / LIBRARY_NAME).exists():
        pytest.skip("the native library is not built: make native")
    for name in os.environ:
        if name.startswith(("COMMINSIGHT_", "NCCL_")):
            monkeypatch.delenv(name)
    for name, variable in (("boxes", "COMMINSIGHT_BOX_DIR"), ("spool", "COMMINSIGHT_SPOOL")):
        (tmp_path / name).mkdir(mode=0o700)
        monkeypatch.setenv(variable, str(tmp_path / name))
    monkeypatch.setenv("COMMINSIGHT_DISABLE_FILE", str(tmp_path / "disable"))
    return tmp_path


def answered(capsys, *argv):
    code = main(["doctor", "--json", *argv])
    results = json.loads(capsys.readouterr().out)["results"]
    return code, {one["found"]["code"].split(".")[1]: one["standing"] for one in results}


def problems(found):
    return {code for code, standing in found.items() if standing == "problem"}


OURS = ("library", "fit", "switch", "plugin", "box", "spool")


def test_a_sound_machine(healthy, capsys):
    code, found = answered(capsys)
    assert code == ExitCode.OK
    assert {name for name in problems(found) if name.startswith(OURS)} == set()
    assert {"library_found", "fit_good", "switch_on", "box_good", "spool_good"} <= set(found)
    assert list((healthy / "boxes").iterdir()) == []
    assert list((healthy / "spool").iterdir()) == []


def missing_library(place, monkeypatch):
    monkeypatch.setenv("COMMINSIGHT_NATIVE_DIR", str(place / "nowhere"))


def library_of_text(place, monkeypatch):
    (place / "native").mkdir()
    (place / "native" / LIBRARY_NAME).write_text("#!/bin/sh\n")
    monkeypatch.setenv("COMMINSIGHT_NATIVE_DIR", str(place / "native"))


def disabled(_, monkeypatch):
    monkeypatch.setenv("COMMINSIGHT_DISABLE", "1")


def disabled_node(place, _):
    (place / "disable").touch()


def another_plugin(_, monkeypatch):
    monkeypatch.setenv("NCCL_PROFILER_PLUGIN", "/opt/libnccl-profiler-example.so")


def plugin_that_is_gone(place, monkeypatch):
    monkeypatch.setenv("NCCL_PROFILER_PLUGIN", str(place / LIBRARY_NAME))


def linked_boxes(place, monkeypatch):
    (place / "link").symlink_to("boxes")
    monkeypatch.setenv("COMMINSIGHT_BOX_DIR", str(place / "link"))


def open_boxes(place, _):
    (place / "boxes").chmod(0o777)


def boxes_in_proc(_, monkeypatch):
    monkeypatch.setenv("COMMINSIGHT_BOX_DIR", "/proc")


def spool_is_a_file(place, monkeypatch):
    (place / "file").touch()
    monkeypatch.setenv("COMMINSIGHT_SPOOL", str(place / "file"))


def spool_in_proc(_, monkeypatch):
    monkeypatch.setenv("COMMINSIGHT_SPOOL", "/proc")


BROKEN = [
    (missing_library, "library_unreadable"),
    (library_of_text, "library_unreadable"),
    (disabled, "switch_variable"),
    (disabled_node, "switch_file"),
    (another_plugin, "plugin_other"),
    (plugin_that_is_gone, "plugin_no_file"),
    (linked_boxes, "box_no_folder"),
    (open_boxes, "box_open"),
    (boxes_in_proc, "box_unwritable"),
    (spool_is_a_file, "spool_no_folder"),
    (spool_in_proc, "spool_unwritable"),
]


@pytest.mark.parametrize(("damage", "code"), BROKEN)
def test_what_is_broken_is_named(healthy, monkeypatch, capsys, damage, code):
    damage(healthy, monkeypatch)
    exit_code, found = answered(capsys, "--fail-on", "problem")
    assert code in problems(found)
    assert exit_code == ExitCode.FINDING


def test_a_finding_exits_with_0_unless_asked_otherwise(healthy, monkeypatch, capsys):
    disabled(healthy, monkeypatch)
    assert answered(capsys)[0] == ExitCode.OK
    assert answered(capsys, "--fail-on", "any")[0] == ExitCode.FINDING


@pytest.mark.parametrize(("lang", "heading"), [("en", "Problems"), ("zh", "问题")])
def test_people_read_sentences(healthy, monkeypatch, capsys, lang, heading):
    disabled(healthy, monkeypatch)
    assert main(["doctor", "--lang", lang]) == ExitCode.OK
    text = capsys.readouterr().out
    assert heading in text
    assert "COMMINSIGHT_DISABLE" in text


@pytest.mark.usefixtures("healthy")
def test_a_python_that_is_none_is_bad_input(capsys):
    assert main(["doctor", "--python", "/no/such/python"]) == ExitCode.BAD_INPUT
    assert "--python" in capsys.readouterr().err
