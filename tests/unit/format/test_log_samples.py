"""A real log of RCCL, 32 ranks on two nodes in one file, against what it is known to hold."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from comminsight.format.log_reader import LogReader
from comminsight.model.log_event import LogCode

ROOT = Path(__file__).resolve().parents[4]
FOLDER = Path(os.environ.get("COMMINSIGHT_SAMPLES", ROOT / "shared" / "samples"))
LOG = FOLDER / "rccl-debug-log" / "amd_32ranks_rccl_info.txt"


def test_the_ranks_of_a_real_log_are_all_there() -> None:
    if not LOG.is_file():
        pytest.skip(f"no sample {LOG}")
    with LOG.open("rb") as stream:
        reader = LogReader(stream, file=LOG.name)
        events = list(reader)
    counts = Counter(event.code for event in events)
    for code in (LogCode.NCCL_INIT_START, LogCode.NCCL_INIT_COMPLETE, LogCode.NCCL_DESTROY):
        found = [event for event in events if event.code is code]
        assert sorted(event.comm_rank for event in found) == list(range(32))
        assert all(event.task == event.comm_rank for event in found)
        assert {event.values["n_ranks"] for event in found} == {32}
        assert len({event.host for event in found}) == 2
    hashes = {event.values.get("comm_hash") for event in events if "comm_hash" in event.values}
    assert len(hashes) == 1
    assert (counts[LogCode.NCCL_WRONG_MAGIC], counts[LogCode.NCCL_CONNECTION_CLOSED]) == (24, 2)
    assert counts[LogCode.NCCL_CONNECTED] == 64
    assert reader.tally.n_read == reader.tally.n_emitted + reader.tally.n_unknown == 1724
