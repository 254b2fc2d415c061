"""A simulated run as a run directory, as if it had been recorded."""

from __future__ import annotations

from pathlib import Path

import msgspec

from comminsight.sim.cluster import SimRun
from comminsight.sim.layout import SimLayout, megatron_layout
from tests.builders.segment import segment_bytes, write_segment


def write_run(root: Path, run: SimRun, *, sealed: bool = True) -> Path:
    """``root/inspector_logs/<session>/000001.ciseg`` of every rank; returns ``root``."""
    for number, rank in enumerate(run.ranks):
        # session ids as a recorder names them: boot, pid, start ticks
        who = msgspec.structs.replace(
            rank.session, session_id=f"deadbeef-{4000 + number}-77",
            boot_id="deadbeef-0000-0000-0000-000000000000", pid=4000 + number, pid_start_ticks=77,
        )  # fmt: skip
        data = segment_bytes(rank.records, rank.comms, who, sealed=sealed)
        write_segment(root / "inspector_logs" / who.session_id, data, sealed=sealed)
    return root


def small_layout() -> SimLayout:
    """TP 2 x PP 2 x DP 2."""
    return megatron_layout(tp=2, pp=2, dp=2)
