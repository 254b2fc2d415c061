"""Jobs that ran one after the other into one folder, and ranks that were restarted."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from comminsight.capture.session import SessionData
from comminsight.model.topology import UNKNOWN_RANK
from comminsight.pipeline.launches import last_launch, launch_notes
from tests.builders.records import MS, allreduce, comm_row, comm_rows, identity, ops
from tests.unit.pipeline.test_ends import session

OLD, NEW = 1_000, 5_000  # ms on the wall clock
A, B = 0xA, 0xB


def process(
    rank: int, begun_ms: int, *, world: int, comm_hash: int, run_id: str = "", lived_ms: int = 500
) -> SessionData:
    """One that recorded an op in its only communicator just before its end."""
    name = f"b007b007-{rank}-{begun_ms}"
    who = msgspec.structs.replace(
        identity(rank, world_size=world, run_id=run_id), session_id=name,
        created_real_ns=begun_ms * MS, created_mono_ns=7 * MS,
    )  # fmt: skip
    row = comm_row(1, "0", comm_hash=comm_hash, comm_size=world, comm_rank=max(rank, 0))
    records = ops(allreduce(1, 7 + lived_ms - 1, ms=1))
    return replace(session(0), identity=who, comms=comm_rows(row), records=records)


def job(n: int, begun_ms: int, **given: object) -> list[SessionData]:
    return [process(rank, begun_ms + rank, world=n, **given) for rank in range(n)]  # type: ignore[arg-type]


def ranks(sessions: object) -> list[int]:
    return [s.identity.global_rank for s in sessions]  # type: ignore[attr-defined]


@pytest.mark.parametrize("run_id", ["", "none", "job-1"])
def test_a_smaller_job_after_a_larger_one_is_another(run_id: str) -> None:
    first = job(8, OLD, comm_hash=A, run_id=run_id)
    second = job(4, NEW, comm_hash=B, run_id=run_id)
    own, earlier = last_launch([*first, *second])
    assert own == second
    assert list(earlier) == first
    (note,) = launch_notes(earlier)
    assert note.params == {"n_sessions": 8, "sizes": [8]}


def test_the_same_hash_in_both_does_not_join_them() -> None:
    second = job(4, NEW, comm_hash=A)
    own, earlier = last_launch([*job(8, OLD, comm_hash=A), *second])
    assert (own, len(earlier)) == (second, 8)


def test_the_same_ranks_again_are_restarted_where_the_run_has_a_name() -> None:
    named = [*job(2, OLD, comm_hash=A, run_id="x"), *job(2, NEW, comm_hash=B, run_id="x")]
    nameless = [*job(2, OLD, comm_hash=A), *job(2, NEW, comm_hash=B)]
    assert ranks(last_launch(named)[0]) == [0, 1, 0, 1]
    assert ranks(last_launch(nameless)[0]) == [0, 1]


def test_a_rank_that_did_not_come_again_does_not_stand_for_one_of_the_last_launch() -> None:
    first = job(4, OLD, comm_hash=A, run_id="x")
    second = job(4, NEW, comm_hash=B, run_id="x")[:3]
    own, earlier = last_launch([*first, *second])
    assert (ranks(own), ranks(earlier)) == ([0, 1, 2], [0, 1, 2, 3])


def test_a_rank_that_died_early_belongs_to_those_it_lived_beside() -> None:
    early = process(0, OLD, world=3, comm_hash=A, lived_ms=10)
    later = [process(r, OLD + 5, world=3, comm_hash=A, lived_ms=9_000) for r in (1, 2)]
    assert last_launch([early, *later]) == ([early, *later], ())


def test_a_process_that_was_over_before_its_job_had_a_communicator_is_of_the_job() -> None:
    early = process(2, OLD, world=3, comm_hash=B, lived_ms=10)
    others = [process(r, NEW, world=3, comm_hash=A) for r in (0, 1)]
    assert last_launch([early, *others]) == ([early, *others], ())


def test_two_jobs_at_the_same_time_are_not_told_apart_by_time() -> None:
    both = [*job(2, OLD, comm_hash=A), *job(4, OLD + 100, comm_hash=B)]
    assert last_launch(both) == (both, ())


def test_ranks_that_nobody_knows_yet_are_taken_by_time_alone() -> None:
    def nameless(sessions: list[SessionData]) -> list[SessionData]:
        return [
            replace(s, identity=msgspec.structs.replace(s.identity, global_rank=UNKNOWN_RANK))
            for s in sessions
        ]

    second = nameless(job(2, NEW, comm_hash=B))
    assert last_launch([*nameless(job(2, OLD, comm_hash=A)), *second])[0] == second
