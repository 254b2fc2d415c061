"""What a launcher of the user's own must set, so that its job is recorded without ``run``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from comminsight.launch.plugin import PLUGIN_NAME, PLUGIN_VARIABLE, plugin_value
from comminsight.report.environment_forms import Assignment, Mount

POD_FOLDER = Path("/var/lib/comminsight")


@dataclass(frozen=True, slots=True)
class OwnLauncher:
    """What was chosen; "" and None: the recorder's default. ``inject_folder`` None: NCCL only."""

    recorder_path: Path
    inject_folder: Path | None
    run_id: str = ""
    spool: Path | None = None
    mask: str = ""


def assignments(chosen: OwnLauncher) -> Iterator[Assignment]:
    """The variables in the order in which they are printed."""
    value = plugin_value(chosen.recorder_path)
    yield Assignment(PLUGIN_VARIABLE, value)
    if value == PLUGIN_NAME:
        yield Assignment("LD_LIBRARY_PATH", str(chosen.recorder_path.parent), is_prefix=True)
    if chosen.inject_folder is not None:
        yield Assignment("COMMINSIGHT_INJECT", "1")
        yield Assignment("COMMINSIGHT_LIBRARY", str(chosen.recorder_path))
        yield Assignment("PYTHONPATH", str(chosen.inject_folder / "site"), is_prefix=True)
    if chosen.run_id:
        yield Assignment("COMMINSIGHT_RUN_ID", chosen.run_id)
    if chosen.spool is not None:
        yield Assignment("COMMINSIGHT_SPOOL", str(chosen.spool))
    if chosen.mask:
        yield Assignment("COMMINSIGHT_NCCL_MASK", chosen.mask)


def pod_mounts(chosen: OwnLauncher) -> Iterator[Mount]:
    """The folders of the node that the variables speak of."""
    yield Mount("comminsight-library", str(chosen.recorder_path.parent))
    if chosen.inject_folder is not None:
        yield Mount("comminsight-inject", str(chosen.inject_folder))
    if chosen.spool is not None:
        yield Mount("comminsight-spool", str(chosen.spool), is_read_only=False)
