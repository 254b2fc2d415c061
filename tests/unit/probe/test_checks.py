"""Every check as a table: what was found on the machine, and what is said about it."""

import dataclasses
import re
from pathlib import Path

import pytest

from comminsight.format.layout import BOX_BYTES
from comminsight.model.checkup import Standing
from comminsight.model.hang import Stack, StackSource
from comminsight.probe import checks
from comminsight.probe.checks import CHECKS, examine
from comminsight.probe.elf import ElfFacts
from comminsight.probe.facts import MachineFacts
from comminsight.probe.folder import FolderFacts, FolderKind
from comminsight.probe.packages import Found
from comminsight.probe.settings import Unfit
from comminsight.probe.trial import Attempt, Probe, Trial
from comminsight.report.catalogue import LANGUAGES, catalogue
from comminsight.report.checkup_text import headline, render_checkup

GOOD_FOLDER = FolderFacts(
    "/f", FolderKind.FOLDER, is_own=True, is_writable=True, free_bytes=1 << 40
)  # fmt: skip
GOOD_PROBE = Probe(
    release="2.30", loaded=True, symbol="ncclProfiler_v6", box_path="/f/1.box"
)  # fmt: skip
STACK = Stack(global_rank=-1, pid=1, source=StackSource.PY_SPY)
GOOD = MachineFacts(
    recorder_path="/l.so",
    elf=ElfFacts("x86_64", (2, 34)),
    machine="x86_64",
    glibc=(2, 36),
    box_folder=GOOD_FOLDER,
    spool=GOOD_FOLDER,
    open_files_limit=65536,
    stack=STACK,
    torch=(Found("2.9.1", "/p"),),
    nccl=(Found("2.32.3", "/p"),),
    trial=Trial((GOOD_PROBE,)),
)


def folder(**changes):
    return dataclasses.replace(GOOD_FOLDER, **changes)


def stack(reason):
    return Stack(global_rank=-1, pid=1, source=StackSource.PROC, text="x", reason=reason)


def probes(**changes):
    fields = {"release": "2.31", "loaded": True, "box_path": "/f/2.box"} | changes
    return Trial((GOOD_PROBE, Probe(**fields)))


NOT_FOUND = Attempt(name="lib.so", error="not found")
MISSING = FolderKind.MISSING
PROBLEMS = [
    ({"elf": None, "elf_error": "ENOENT"}, {"library_unreadable"}),
    ({"elf": ElfFacts("aarch64", (2, 17))}, {"fit_machine"}),
    ({"elf": ElfFacts("")}, {"fit_foreign"}),
    ({"glibc": (2, 28)}, {"fit_glibc"}),
    ({"is_disabled": True}, {"switch_variable"}),
    ({"disable_file": "/run/x"}, {"switch_file"}),
    ({"is_disabled": True, "disable_file": "/run/x"}, {"switch_variable", "switch_file"}),
    ({"is_disabled": True, "trial": probes(inert_reason="off")}, {"switch_variable"}),
    ({"unfit": (Unfit("V", "x", "number", 1, 2),)}, {"setting_number"}),
    (
        {"unfit": (Unfit("V", "x", "mask"), Unfit("W", "/", "run_id"))},
        {"setting_mask", "setting_run_id"},
    ),
    ({"mask": "off"}, {"setting_mask_off"}),
    ({"plugin": "example", "is_plugin_foreign": True}, {"plugin_other"}),
    ({"plugin": "/a/l.so"}, {"plugin_no_file"}),
    ({"box_folder": folder(kind=FolderKind.LINK)}, {"box_no_folder"}),
    ({"box_folder": folder(kind=FolderKind.OTHER)}, {"box_no_folder"}),
    ({"box_folder": folder(kind=MISSING, is_writable=False)}, {"box_unwritable"}),
    ({"box_folder": folder(is_writable=False)}, {"box_unwritable"}),
    ({"box_folder": folder(is_own=False)}, {"box_foreign"}),
    ({"box_folder": folder(is_open_to_others=True)}, {"box_open"}),
    ({"box_folder": folder(free_bytes=8 * BOX_BYTES - 1)}, {"box_room"}),
    ({"spool": folder(kind=FolderKind.OTHER)}, {"spool_no_folder"}),
    ({"spool": folder(is_writable=False)}, {"spool_unwritable"}),
    ({"private_folder": folder(is_own=False)}, {"spool_not_private"}),
    ({"private_folder": folder(is_open_to_others=True)}, {"spool_not_private"}),
    ({"is_spool_on_network": True}, {"spool_network"}),
    ({"is_spool_on_network": True, "is_network_allowed": True}, {"spool_network_allowed"}),
    ({"spool": folder(free_bytes=1 << 20)}, {"spool_room"}),
    ({"open_files_limit": 256}, {"files_few"}),
    ({"stack": stack("stack.py_spy_missing")}, {"stacks_none"}),
    ({"stack": stack("stack.py_spy_denied")}, {"stacks_none"}),
    ({"nccl": (Found("2.31.2", "/p"),)}, {"kernel_events_cost"}),
    ({"nccl": (Found("2.31.2", "/p"),), "mask": "net"}, {"kernel_events_cost"}),
    ({"nccl": (Found("2.27.3", "/p"), Found("2.19.3", "/q"))}, {"no_path", "no_table"}),
    ({"trial": probes(loaded=False, attempts=(NOT_FOUND,))}, {"load_failed"}),
    ({"trial": probes(loaded=False, died_of_signal=11)}, {"load_crashed"}),
    ({"trial": probes(init_errors=1)}, {"load_misbehaved"}),
    ({"trial": probes(inert_reason="disk full")}, {"load_inert"}),
    ({"trial": probes(unwritten=1)}, {"load_misbehaved"}),
    ({"trial": probes(nonzero=1)}, {"load_misbehaved"}),
    ({"trial": probes(box_path="")}, {"load_inert"}),
]
UNKNOWN = [
    ({"glibc": (0, 0)}, {"fit_glibc_unknown"}),
    ({"box_folder": folder(free_bytes=-1)}, {"box_room_unknown"}),
    ({"spool": folder(free_bytes=-1)}, {"spool_room_unknown"}),
    ({"plugin": "comminsight"}, {"plugin_no_name"}),
    ({"torch": ()}, {"torch_missing"}),
    ({"nccl": ()}, {"nccl_missing"}),
    ({"nccl": (Found("", "/usr/lib/libnccl.so.2"),)}, {"nccl_version_unknown"}),
    ({"nccl": (Found("2.40.1", "/p"),)}, {"untested"}),
    ({"trial": Trial()}, {"load_untried"}),
    ({"trial": Trial(failure="SIGSEGV")}, {"load_failing_trial"}),
]
FINE = [
    {},
    {"default_plugin": "/usr/lib/libnccl-profiler.so"},
    {"plugin": "/a/l.so", "is_plugin_there": True, "default_plugin": "/usr/lib/x.so"},
    {"box_folder": folder(kind=MISSING)},
    {"private_folder": folder(kind=MISSING)},
    {"open_files_limit": -1},  # unlimited
    {"nccl": (Found("2.27.7", "/p"), Found("2.28.9", "/q"))},
    {"is_network_allowed": True},
    {"nccl": (Found("2.27.3", "/p"),), "plugin": "comminsight", "is_plugin_there": True},
    {"nccl": (Found("2.31.2", "/p"),), "mask": "api"},
]


def examined(changes):
    return examine(dataclasses.replace(GOOD, **changes))


def said(checkup, standing):
    return {result.found.code.split(".")[1] for result in checkup.having(standing)}


@pytest.mark.parametrize(("changes", "codes"), PROBLEMS)
def test_problems(changes, codes):
    checkup = examined(changes)
    assert said(checkup, Standing.PROBLEM) == codes
    assert said(checkup, Standing.UNKNOWN) == set()


@pytest.mark.parametrize(("changes", "codes"), UNKNOWN)
def test_what_cannot_be_told(changes, codes):
    checkup = examined(changes)
    assert said(checkup, Standing.UNKNOWN) == codes
    assert said(checkup, Standing.PROBLEM) == set()


@pytest.mark.parametrize("changes", FINE)
def test_nothing_wrong(changes):
    checkup = examined(changes)
    assert {result.standing for result in checkup.results} == {Standing.OK}
    assert len(checkup.results) >= len(CHECKS)


def test_what_is_not_in_order_says_what_to_do_and_what_is_says_nothing():
    for changes in [row[0] for row in PROBLEMS + UNKNOWN] + FINE:
        for result in examined(changes).results:
            assert (result.remedy is None) == (result.standing is Standing.OK), result


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("changes", [row[0] for row in PROBLEMS + UNKNOWN] + FINE)
def test_every_answer_is_whole_sentences(changes, lang):
    text = render_checkup(examined(changes), lang=lang, width=200)
    assert not re.search(r"checkup\.|remedy\.|nccl_re|\?|doctor\.|heading\.", text), text


@pytest.mark.parametrize("group", ["checkup", "remedy"])
def test_the_catalogue_has_no_sentence_that_no_check_says(group):
    """The tables above reach every sentence, so that none is written for nothing."""
    spoken = {
        message.code
        for changes in [row[0] for row in PROBLEMS + UNKNOWN] + FINE
        for result in examined(changes).results
        for message in (result.found, result.remedy)
        if message is not None and message.code.startswith(f"{group}.")
    }
    written = {c for c in catalogue("en").templates if c.startswith(f"{group}.")}
    assert spoken == written


def test_problems_come_first_and_are_counted():
    words = catalogue("en")
    assert headline(examined({}), words) == "nothing here keeps a job from being recorded."
    two = examined({"is_disabled": True, "glibc": (0, 0), "torch": ()})
    assert headline(two, words) == (
        "1 problem found, 2 questions could not be answered here."
    )  # fmt: skip
    text = render_checkup(two, width=200)
    assert text.index("Problems") < text.index("Cannot tell") < text.index("In order")
    assert "COMMINSIGHT_DISABLE switches recording off. To do: unset COMMINSIGHT_DISABLE" in text


def test_a_failed_load_tells_what_the_loader_said():
    checkup = examined({"trial": probes(loaded=False, attempts=(NOT_FOUND,))})
    assert "lib.so: not found" in render_checkup(checkup, width=200)


def test_checks_are_one_list_of_small_functions():
    source = Path(checks.__file__).read_text()
    declared = set(
        re.findall(r"^def (\w+)\(facts: MachineFacts\) -> Iterable\[CheckResult\]", source, re.M)
    )
    assert declared == {check.__name__ for check in CHECKS}


def test_releases_with_the_same_trouble_are_one_problem():
    bad = [Probe(release=name, loaded=True, inert_reason="disk full") for name in ("2.28", "2.30")]
    (problem,) = examined({"trial": Trial((GOOD_PROBE, *bad))}).having(Standing.PROBLEM)
    assert problem.found.params["release"] == "2.28, 2.30"
