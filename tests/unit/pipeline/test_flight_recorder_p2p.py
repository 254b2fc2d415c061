"""Sends and receives of dumps: numbered from the first where both ends are whole, else from the
oldest in flight; and what is not known then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from comminsight.diagnosis.presence import observe
from comminsight.model.hang import HangEvent, Presence
from comminsight.model.job_evidence import JobEvidence
from comminsight.pipeline.job_evidence import gather
from tests.builders.flight_recorder import Call, FlightJob, Group, torch_pickle, write_dumps

WORLD = {"0": Group("default_pg", (0, 1))}
SEND, RECV = Call("0", "send", (4,), peer=1), Call("0", "recv", (4,), peer=0)
REDUCE = Call("0", "all_reduce")


def evidence(folder: Path, job: FlightJob, **form: Any) -> JobEvidence:
    write_dumps(folder, job.play(), **form)
    return gather([folder]).job


def seen(job: JobEvidence) -> HangEvent:
    assert job.hang is not None
    return job.hang


def presence(job: JobEvidence) -> dict[int, Presence]:
    """Where both ranks stand towards the oldest op that anybody waits in."""
    return observe(seen(job), job.communicators).instances[0].presence


@pytest.mark.parametrize(("ring", "expected"), [(100, 3), (3, 1)])
def test_numbers_begin_with_the_first_call_where_all_are_left(
    tmp_path: Path, ring: int, expected: int
) -> None:
    programs = {0: [SEND, SEND], 1: [RECV, RECV, RECV, REDUCE]}
    job = evidence(tmp_path, FlightJob(WORLD, programs), ring=ring)
    assert [op.match_seq for op in seen(job).in_flight if op.peer >= 0] == [expected]


def test_a_message_that_was_sent_is_not_waited_for_where_both_are_whole(tmp_path: Path) -> None:
    """Rank 1 stands in a receive whose send is over; rank 0 went on and waits for it."""
    programs = {0: [SEND, REDUCE], 1: [RECV, REDUCE]}
    job = evidence(tmp_path, FlightJob(WORLD, programs, device_stops={1: 0}))
    assert presence(job) == {1: Presence.ENTERED, 0: Presence.DONE}


def test_where_calls_are_overwritten_a_busy_sender_may_have_sent(tmp_path: Path) -> None:
    programs = {0: [REDUCE, SEND, REDUCE], 1: [REDUCE, RECV, REDUCE]}
    job = evidence(tmp_path, FlightJob(WORLD, programs, device_stops={1: 1}), ring=2)
    assert presence(job) == {1: Presence.ENTERED, 0: Presence.UNKNOWN}
    assert job.doubted == frozenset()


def test_an_idle_sender_is_named_with_doubt(tmp_path: Path) -> None:
    programs = {0: [REDUCE], 1: [REDUCE, RECV]}
    job = evidence(tmp_path, FlightJob(WORLD, programs), is_only_active=True)
    assert presence(job) == {1: Presence.ENTERED, 0: Presence.ABSENT}
    assert job.doubted == {0}


def test_what_has_begun_on_the_device_is_not_queued(tmp_path: Path) -> None:
    programs = {0: [REDUCE, REDUCE], 1: [REDUCE]}
    job = FlightJob(WORLD, programs, device_stops={0: 0, 1: 0}).play()
    for rank in range(2):
        document = job.dump(rank)
        document["entries"][-1]["state"] = "started"
        (tmp_path / f"rank_{rank}").write_bytes(torch_pickle(document))
    found = gather([tmp_path]).job
    assert [op.is_queued for op in seen(found).in_flight] == [False, False, False]


def test_calls_of_one_batch_do_not_queue_behind_each_other(tmp_path: Path) -> None:
    exchange = {0: [SEND, Call("0", "recv", (4,), peer=1)],
                1: [Call("0", "send", (4,), peer=0), RECV]}  # fmt: skip
    job = FlightJob(WORLD, exchange, device_stops={0: 0, 1: 0})
    alone = evidence(tmp_path, job)
    assert [op.is_queued for op in seen(alone).in_flight] == [False, True] * 2
    for path in tmp_path.iterdir():
        path.unlink()
    for rank in range(2):
        document = job.dump(rank)
        for entry in document["entries"]:
            entry["p2p_seq_id"] = 1
        (tmp_path / f"rank_{rank}").write_bytes(torch_pickle(document))
    batch = gather([tmp_path]).job
    assert [op.is_queued for op in seen(batch).in_flight] == [False] * 4
