"""The checks of ``comminsight doctor``: facts in, one or more results each; nothing is read here.

A check says OK only for what it saw, PROBLEM for what keeps a job from being recorded or makes the
record poorer or dearer, and UNKNOWN where this machine does not tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from comminsight.format.layout import BOX_BYTES
from comminsight.model.checkup import CheckResult, Checkup, Standing
from comminsight.model.hang import StackSource
from comminsight.model.verdict import Message, MessageParam
from comminsight.probe.facts import MachineFacts
from comminsight.probe.folder import FolderFacts, FolderKind
from comminsight.probe.nccl_releases import KnownRelease, about, known_releases, version_of
from comminsight.probe.trial import Probe

PROCESSES_PER_NODE = 8
MIN_SPOOL_BYTES = 256 << 20  # four segments of the default size
MIN_OPEN_FILES = 1024
MASKS_WITHOUT_KERNELS = frozenset({"api", "off"})
OK, PROBLEM, UNKNOWN = Standing.OK, Standing.PROBLEM, Standing.UNKNOWN

Check = Callable[[MachineFacts], Iterable[CheckResult]]


def result(standing: Standing, check: str, variant: str, **params: MessageParam) -> CheckResult:
    """A result whose sentences are ``[checkup]`` and, unless OK, ``[remedy]`` of the catalogue."""
    code = f"{check}_{variant}"
    remedy = None if standing is OK else Message(f"remedy.{code}", params)
    return CheckResult(
        check=check, standing=standing, found=Message(f"checkup.{code}", params), remedy=remedy
    )


def library(facts: MachineFacts) -> Iterable[CheckResult]:
    """The recorder library is there and is a library."""
    if facts.elf is None:
        yield result(
            PROBLEM, "library", "unreadable", path=facts.recorder_path, reason=facts.elf_error
        )
    else:
        yield result(OK, "library", "found", path=facts.recorder_path)


def library_fit(facts: MachineFacts) -> Iterable[CheckResult]:
    """The library is made for this processor and finds a C library that is new enough."""
    if facts.elf is None:
        return
    needed, here = facts.elf.glibc, facts.glibc
    if not facts.elf.machine:
        yield result(PROBLEM, "fit", "foreign", machine=facts.machine)
    elif facts.elf.machine != facts.machine:
        yield result(PROBLEM, "fit", "machine", made_for=facts.elf.machine, machine=facts.machine)
    elif here == (0, 0):
        yield result(UNKNOWN, "fit", "glibc_unknown", needed=dotted(needed))
    elif needed > here:
        yield result(PROBLEM, "fit", "glibc", needed=dotted(needed), here=dotted(here))
    else:
        yield result(OK, "fit", "good", needed=dotted(needed), here=dotted(here))


def switched_on(facts: MachineFacts) -> Iterable[CheckResult]:
    """Neither the variable nor the node's file switches recording off."""
    if facts.is_disabled:
        yield result(PROBLEM, "switch", "variable")
    if facts.disable_file:
        yield result(PROBLEM, "switch", "file", path=facts.disable_file)
    if not facts.is_disabled and not facts.disable_file:
        yield result(OK, "switch", "on")


def settings(facts: MachineFacts) -> Iterable[CheckResult]:
    """Every setting is one that the recorder takes, and NCCL's events are not switched off."""
    for one in facts.unfit:
        params: dict[str, MessageParam] = {"name": one.name, "value": one.value}
        if one.kind == "number":
            params |= {"low": f"{one.low:g}", "high": f"{one.high:g}"}
        yield result(PROBLEM, "setting", one.kind, **params)
    if facts.mask == "off":
        yield result(PROBLEM, "setting", "mask_off")
    if not facts.unfit and facts.mask != "off":
        yield result(OK, "setting", "good")


def other_plugin(facts: MachineFacts) -> Iterable[CheckResult]:
    """No other profiler plugin takes the one place that NCCL has."""
    if facts.is_plugin_foreign:
        yield result(PROBLEM, "plugin", "other", plugin=facts.plugin)
    elif facts.plugin and not facts.is_plugin_there:
        is_path = "/" in facts.plugin
        yield result(
            PROBLEM if is_path else UNKNOWN, "plugin", "no_file" if is_path else "no_name",
            plugin=facts.plugin,
        )  # fmt: skip
    elif facts.default_plugin and not facts.plugin:
        yield result(OK, "plugin", "default", path=facts.default_plugin)
    else:
        yield result(OK, "plugin", "alone")


def box_folder(facts: MachineFacts) -> Iterable[CheckResult]:
    """The folder of the black boxes is ours alone, as the recorder demands, or can be made."""
    folder = facts.box_folder
    if fault := private_fault(folder):
        yield result(PROBLEM, "box", fault, path=folder.path)
    else:
        yield result(OK, "box", "good", path=folder.path)


def box_room(facts: MachineFacts) -> Iterable[CheckResult]:
    """There is room for the black boxes of a node full of processes."""
    free, needed = facts.box_folder.free_bytes, PROCESSES_PER_NODE * BOX_BYTES
    where = facts.box_folder.path
    if free < 0:
        yield result(UNKNOWN, "box", "room_unknown", path=where)
    elif free < needed:
        yield result(
            PROBLEM, "box", "room", path=where, free_bytes=free, n=free // BOX_BYTES
        )  # fmt: skip
    else:
        yield result(OK, "box", "roomy", path=where, free_bytes=free)


def spool_folder(facts: MachineFacts) -> Iterable[CheckResult]:
    """Segments can be written where they are to go."""
    private = facts.private_folder
    if private is not None and private_fault(private):
        yield result(PROBLEM, "spool", "not_private", path=private.path)
    elif fault := folder_fault(facts.spool):
        yield result(PROBLEM, "spool", fault, path=facts.spool.path)
    else:
        yield result(OK, "spool", "good", path=facts.spool.path)


def spool_local(facts: MachineFacts) -> Iterable[CheckResult]:
    """The spool is on the node's own disk."""
    if not facts.is_spool_on_network:
        yield result(OK, "spool", "local", path=facts.spool.path)
    elif facts.is_network_allowed:
        yield result(PROBLEM, "spool", "network_allowed", path=facts.spool.path)
    else:
        yield result(PROBLEM, "spool", "network", path=facts.spool.path)


def spool_room(facts: MachineFacts) -> Iterable[CheckResult]:
    """There is room for a few segments."""
    free, where = facts.spool.free_bytes, facts.spool.path
    if free < 0:
        yield result(UNKNOWN, "spool", "room_unknown", path=where)
    elif free < MIN_SPOOL_BYTES:
        yield result(PROBLEM, "spool", "room", path=where, free_bytes=free)
    else:
        yield result(OK, "spool", "roomy", path=where, free_bytes=free)


def open_files(facts: MachineFacts) -> Iterable[CheckResult]:
    """A process may open enough files for NCCL and for the few of the recorder."""
    limit = facts.open_files_limit
    if 0 <= limit < MIN_OPEN_FILES:
        yield result(PROBLEM, "files", "few", limit=limit)
    else:
        yield result(OK, "files", "enough", limit=limit)


def stacks(facts: MachineFacts) -> Iterable[CheckResult]:
    """The stack of a process of the same user can be taken."""
    if facts.stack.source in {StackSource.PY_SPY, StackSource.FAULTHANDLER}:
        yield result(OK, "stacks", "good")
    else:
        yield result(PROBLEM, "stacks", "none", reason=facts.stack.reason)


def torch(facts: MachineFacts) -> Iterable[CheckResult]:
    """Which torch the training Python has."""
    for found in facts.torch:
        yield result(OK, "torch", "found", version=found.version, place=found.place)
    if not facts.torch:
        yield result(UNKNOWN, "torch", "missing")


def nccl(facts: MachineFacts) -> Iterable[CheckResult]:
    """What is known of every NCCL that was found."""
    for found in facts.nccl:
        version = version_of(found.version)
        if not version:
            yield result(UNKNOWN, "nccl", "version_unknown", place=found.place)
            continue
        known = [e for e in about(version, known_releases()) if e.id not in remedied(facts)]
        if not any(entry.standing is not OK for entry in known):
            yield result(OK, "nccl", "found", version=found.version, place=found.place)
        for entry in known:
            yield known_release(entry, found.version)
    if not facts.nccl:
        yield result(UNKNOWN, "nccl", "missing")


def remedied(facts: MachineFacts) -> Iterable[str]:
    """Which known troubles this environment has met already, as the remedy says."""
    if facts.plugin and "/" not in facts.plugin:
        yield "no_path"
    if facts.mask in MASKS_WITHOUT_KERNELS:
        yield "kernel_events_cost"


def known_release(entry: KnownRelease, version: str) -> CheckResult:
    """What the list says of this version, and what to do."""
    params: dict[str, MessageParam] = {"version": version, "source": entry.source}
    return CheckResult(
        check="nccl",
        standing=entry.standing,
        found=Message(f"nccl_release.{entry.id}", params),
        remedy=None if entry.standing is OK else Message(f"nccl_remedy.{entry.id}", params),
    )


def loads(facts: MachineFacts) -> Iterable[CheckResult]:
    """The plugin loads, answers and records as each release of NCCL asks it to."""
    if not facts.trial.probes:
        failure = facts.trial.failure
        yield result(UNKNOWN, "load", "failing_trial" if failure else "untried", reason=failure)
        return
    good = [probe.release for probe in facts.trial.probes if not trouble(probe)]
    if good:
        yield result(OK, "load", "good", releases=", ".join(good))
    alike: dict[tuple[str, str], list[str]] = {}
    for probe in facts.trial.probes:
        if what := trouble(probe):
            alike.setdefault((what, why_not(probe)), []).append(probe.release)
    is_off = facts.is_disabled or bool(facts.disable_file)
    for (what, reason), releases in alike.items():
        if not (what == "inert" and is_off):  # the switch is told by itself
            yield result(PROBLEM, "load", what, release=", ".join(releases), reason=reason)


def trouble(probe: Probe) -> str:
    """What is wrong with a load, "" for nothing."""
    if probe.died_of_signal:
        return "crashed"
    if not probe.loaded:
        return "failed"
    if probe.unwritten or probe.nonzero or probe.init_errors:
        return "misbehaved"
    return "" if probe.box_path and not probe.inert_reason else "inert"


def why_not(probe: Probe) -> str:
    """The reason that a load gives for its trouble, "" where it gives none."""
    told = [f"{attempt.name}: {attempt.error}" for attempt in probe.attempts if attempt.error]
    return probe.inert_reason or "; ".join(told)


def folder_fault(folder: FolderFacts) -> str:
    """Why nothing can be written there, "" for no reason."""
    if folder.kind in {FolderKind.LINK, FolderKind.OTHER}:
        return "no_folder"
    return "" if folder.is_writable else "unwritable"


def private_fault(folder: FolderFacts) -> str:
    """Why the recorder refuses a folder that must be the user's alone, "" for no reason."""
    if folder.kind is FolderKind.FOLDER and not folder.is_own:
        return "foreign"
    if folder.is_open_to_others and folder.kind is FolderKind.FOLDER:
        return "open"
    return folder_fault(folder)


def dotted(version: tuple[int, int]) -> str:
    """The version as it is written."""
    return ".".join(map(str, version))


CHECKS: tuple[Check, ...] = (
    library, library_fit, switched_on, settings, loads, other_plugin, box_folder, box_room,
    spool_folder, spool_local, spool_room, open_files, stacks, torch, nccl,
)  # fmt: skip


def examine(facts: MachineFacts) -> Checkup:
    """The results of all checks, in their order."""
    return Checkup(results=tuple(result for check in CHECKS for result in check(facts)))
