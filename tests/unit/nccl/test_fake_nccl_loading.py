"""How each NCCL release finds the plugin, and which table it takes."""

from __future__ import annotations

import pytest

from tests.unit.native.door import LIBRARY
from tests.unit.nccl.playing import NULL, OLD, needs_plugins, probe, run_text

pytestmark = needs_plugins

NEW = ("2.27", "2.28", "2.32")  # from 2.27.5 on; "none" from 2.28 on
VERSIONS = {"2.27.3": 4, "2.27": 4, "2.28": 5, "2.29": 6, "2.30": 6, "2.31": 7, "2.32": 7}
DERIVED = "libnccl-profiler-{}.so"

# (releases, value, names tried when none of them is there)
RULES = (
    (("2.27.3", *NEW), None, ["libnccl-profiler.so"]),
    (("2.27.3", *NEW), "", ["libnccl-profiler.so"]),
    (("2.27.3", *NEW), "libmine.so", ["libmine.so"]),
    (("2.27.3",), "mine", [DERIVED.format("mine")]),
    (("2.27.3",), "/no/such/libmine.so", [DERIVED.format("/no/such/libmine.so")]),
    (NEW, "mine", ["mine", DERIVED.format("mine")]),
    (NEW, "/no/such/libmine.so", ["/no/such/libmine.so"]),
    (NEW, "no/such", ["no/such"]),
    (NEW, "libmine.so.1", ["libmine.so.1", DERIVED.format("libmine.so.1")]),
    (("2.27",), "none", ["none", DERIVED.format("none")]),
    (("2.28", "2.32"), "none", []),
    (("2.28", "2.32"), "NONE", []),
    (("2.27.3", "2.32"), "STATIC_PLUGIN", [""]),
    (("2.32",), "static", [""]),
    (("2.32",), "x" * 300, ["x" * 255, DERIVED.format("x" * 255)]),
)


@pytest.mark.parametrize(("releases", "value", "names"), RULES)
def test_names_are_tried_in_the_order_of_the_release(releases, value, names, tmp_path):
    for release in releases:
        told = probe(tmp_path, release, value)
        assert [attempt["name"] for attempt in told["attempts"]] == names, release
        assert all(attempt["error"] for attempt in told["attempts"])
        assert (told["loaded"], told["exit_code"]) == (False, 3)
        assert told["is_disabled"] == (names == [])


@pytest.mark.parametrize("release", VERSIONS)
def test_our_name_finds_our_library_on_every_release(release, tmp_path):
    told = probe(tmp_path, release, "comminsight", where=LIBRARY.parent)
    assert told["path"] == str(LIBRARY.resolve())
    assert told["version"] == VERSIONS[release]
    assert told["symbol"] == f"ncclProfiler_v{VERSIONS[release]}"
    assert (told["unwritten"], told["nonzero"], told["init_errors"]) == (0, 0, 0)
    assert told["box_path"].startswith(str(tmp_path))
    assert told["inert_reason"] == ""


@pytest.mark.parametrize("release", NEW)
def test_an_absolute_path_is_taken_as_it_is(release, tmp_path):
    told = probe(tmp_path, release, str(NULL))
    assert (told["path"], told["plugin"], told["box_path"]) == (str(NULL.resolve()), "null", "")


@pytest.mark.parametrize(
    ("release", "tried", "version"),
    [
        ("2.27", ["v4"], 4),
        ("2.28", ["v5"], 5),
        ("2.30", ["v6", "v5"], 5),
        ("2.32", ["v7", "v6", "v5"], 5),
        ("2.32 shim v4", ["v4"], 4),
    ],
)
def test_the_newest_table_that_both_know_is_taken(release, tried, version, tmp_path):
    told = probe(tmp_path, release, str(OLD))
    assert told["symbols"] == [f"ncclProfiler_{symbol}" for symbol in tried]
    assert told["version"] == version


def test_a_library_without_tables_ends_the_search(tmp_path):
    told = probe(tmp_path, "2.30", "libm.so.6")
    assert [attempt["name"] for attempt in told["attempts"]] == ["libm.so.6"]
    assert "no profiler table" in told["attempts"][0]["error"]
    assert (told["loaded"], told["exit_code"]) == (False, 3)


# What one AllReduce over 4 channels makes NCCL send with the light mask.
API = {"GroupApi": 1, "CollApi": 1, "KernelLaunch": 1}
TASK = {"Group": 1, "Coll": 1, "KernelCh": 4}


@pytest.mark.parametrize(
    ("release", "started"),
    [
        ("2.27.3", TASK),
        ("2.27", TASK),
        ("2.28 shim v4", TASK),
        ("2.28", API | TASK),
        ("2.30 shim v4", TASK),
        ("2.30 shim v5", API | TASK),
        ("2.31", API | TASK),
        ("2.32 shim v6", API | TASK),
    ],
)
def test_events_of_one_call_by_release(release, started, tmp_path):
    value = "null" if release == "2.27.3" else str(NULL)
    told = probe(tmp_path, release, value, where=NULL.parent)
    assert told["started"] == started


def test_without_a_plugin_the_program_says_so(tmp_path):
    assert run_text(tmp_path, "ranks 2\nall: all_reduce world\n", plugin="/no/such").returncode == 3
