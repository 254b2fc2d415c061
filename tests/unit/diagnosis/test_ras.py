"""What NCCL's RAS adds to a verdict: it supports, adds and contradicts, and accuses nobody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from comminsight.diagnosis import codes
from comminsight.diagnosis.hang import judge_hang
from comminsight.diagnosis.ras import with_ras
from comminsight.diagnosis.ras_evidence import MAX_PER_CODE
from comminsight.format.ras import parse_ras
from comminsight.model.hang import HangEvent, Liveness
from comminsight.model.ras import RasReading
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Cause, Confidence, Verdict
from tests.builders.ras import TEXT_DEAD, ras_comm, ras_json, ras_missing, ras_rank
from tests.unit.diagnosis.events import AR, came, comm, event, op, state

WORLD = comm(0, range(4))  # its hash is 1
RANK_2_ABSENT = event(
    4,
    [op(rank, 0, AR, 42) for rank in (0, 1, 3)],
    [came(rank, 0, 41 if rank == 2 else 42, 41) for rank in range(4)],
    states={rank: state(rank, pid=5000 + rank) for rank in range(4)},
)


def ranks_of(*launched: int, **more: Any) -> list[dict[str, Any]]:
    return [ras_rank(rank, launched=n, **more) for rank, n in enumerate(launched)]


def reading(data: bytes, *, asked: bool = True) -> RasReading:
    source = "ras-1.json" if asked else "mine.txt"
    return RasReading(answer=parse_ras(data), source=source, observed_mono_ns=int(asked))


def judged(
    data: bytes,
    seen: HangEvent = RANK_2_ABSENT,
    communicators: Sequence[Communicator] = (WORLD,),
    *,
    asked: bool = True,
) -> tuple[Verdict, Verdict]:
    """(the verdict by the records alone, the verdict with RAS)."""
    alone = judge_hang(seen, communicators)
    (made,), notes = with_ras([alone], [reading(data, asked=asked)], seen, communicators)
    assert notes == ()
    return alone, made


def said(verdict: Verdict) -> dict[str, dict[str, Any]]:
    """The parameters of every evidence from RAS by its code, the first of each."""
    found = [entry.message for entry in verdict.evidence if entry.kind == "ras"]
    return {message.code: dict(message.params) for message in reversed(found)}


def test_a_lower_count_of_the_absent_rank_supports_the_verdict() -> None:
    alone, made = judged(ras_json(ras_comm(1, ranks_of(42, 42, 41, 42))))
    assert (alone.cause, alone.culprits) == (Cause.RANK_NOT_ENTERED, (2,))
    assert replace(made, evidence=alone.evidence) == alone
    assert made.evidence[: len(alone.evidence)] == alone.evidence
    assert said(made) == {
        codes.RAS_ASKED: {"source": "ras-1.json"},
        codes.RAS_LAUNCHED: {
            "ranks": [2], "members": [2], "n_members": 1, "comm": WORLD.label, "op": "all_reduce",
            "launched": 41, "n_others": 3, "others": 42,
        },
    }  # fmt: skip


def test_an_absent_rank_that_launched_more_by_ras_is_a_contradiction_that_is_said() -> None:
    alone, made = judged(ras_json(ras_comm(1, ranks_of(42, 42, 43, 42))))
    assert said(made)[codes.RAS_AHEAD] == {
        "ranks": [2], "op": "all_reduce", "comm": WORLD.label, "others": 42,
    }  # fmt: skip
    assert (alone.confidence, made.confidence) == (Confidence.HIGH, Confidence.MEDIUM)
    assert made.missing[-1].code == codes.MISSING_RAS_AGREEMENT
    assert (made.cause, made.culprits) == (alone.cause, alone.culprits)


def test_equal_counts_are_told_and_change_nothing() -> None:
    """RAS does not count captured, copy-engine and symmetric launches."""
    alone, made = judged(ras_json(ras_comm(1, ranks_of(42, 42, 42, 42))))
    assert said(made)[codes.RAS_EQUAL]["ranks"] == [2]
    assert made.confidence is alone.confidence


def test_an_answer_of_unknown_time_contradicts_nobody() -> None:
    """One rank ahead or dead at another moment is no contradiction."""
    ranks = ranks_of(42, 42, 43)
    data = ras_json(ras_comm(1, ranks, [ras_missing(3, dead=True)]))
    alone, made = judged(data, asked=False)
    assert made.confidence is alone.confidence
    assert made.missing == alone.missing
    found = said(made)
    assert set(found) == {codes.RAS_GIVEN, codes.RAS_DEAD_LEAD, codes.RAS_LAUNCHED}
    assert found[codes.RAS_GIVEN] == {"source": "mine.txt", "timestamp": "2026-03-01 12:00:00"}


@pytest.mark.parametrize(
    ("liveness", "code", "is_lead"),
    [
        (Liveness.DEAD, codes.RAS_DEAD_TOO, False),
        (Liveness.CLOSED, codes.RAS_DEAD_TOO, False),
        (Liveness.ALIVE, codes.RAS_DEAD_BUT_ALIVE, False),
        (Liveness.UNKNOWN, codes.RAS_DEAD_LEAD, True),
        (None, codes.RAS_DEAD_LEAD, True),
    ],
)
def test_a_process_that_ras_considers_dead(
    liveness: Liveness | None, code: str, is_lead: bool
) -> None:
    own = None if liveness is None else state(2, liveness, pid=5002)
    others = {rank: state(rank, pid=5000 + rank) for rank in (0, 1, 3)}
    seen = event(
        4, RANK_2_ABSENT.in_flight,
        [entry for entry in RANK_2_ABSENT.progress if entry.global_rank != 2 or own is not None],
        states=others | {2: own},
    )  # fmt: skip
    data = ras_json(
        ras_comm(1, [ras_rank(rank) for rank in (0, 1, 3)], [ras_missing(2, dead=True)])
    )
    alone, made = judged(data, seen)
    assert said(made)[code] == {"ranks": [2], "pid": 5002, "host": "10.0.0.1"}
    assert (made.cause, made.culprits, made.confidence) == (
        alone.cause, alone.culprits, alone.confidence,
    )  # fmt: skip
    checks = [one.params for one in made.next_actions if one.code == codes.CHECK_PROCESS]
    assert checks == [{"pid": 5002, "host": "10.0.0.1"}] * is_lead


def test_death_by_ras_alone_accuses_nobody_but_names_the_process() -> None:
    """Waiting ends at a rank without records: no verdict, and RAS tells where to look."""
    members = replace(WORLD, members=(0, 1, -1, 3))
    seen = event(4, [op(rank, 0, AR, 42) for rank in (0, 1, 3)], states={2: None})
    data = ras_json(ras_comm(1, [*ranks_of(42, 42), ras_rank(3)], [ras_missing(2, dead=True)]))
    alone, made = judged(data, seen, (members,))
    assert (made.cause, made.culprits) == (alone.cause, alone.culprits)
    assert 2 not in made.culprits
    assert said(made)[codes.RAS_DEAD_LEAD] == {"ranks": [], "pid": 5002, "host": "10.0.0.1"}
    assert said(made)[codes.RAS_UNRECORDED] == {
        "ranks": [], "members": [2], "comm": members.label, "pid": 5002, "host": "10.0.0.1",
        "device": 2,
    }  # fmt: skip


def test_silence_errors_status_and_departure_by_ras() -> None:
    ranks = [ras_rank(0, status={"async_error": 6}), ras_rank(1, status={"abort_flag": True})]
    data = ras_json(ras_comm(1, ranks, [ras_missing(2), ras_missing(3, silent=True)]))
    found = said(judged(data)[1])
    comm = WORLD.label
    assert found[codes.RAS_SILENT] == {"ranks": [3], "pid": 5003, "host": "10.0.0.1"}
    assert found[codes.RAS_LEFT] == {"ranks": [2], "members": [2], "comm": comm}
    assert found[codes.RAS_ASYNC_ERROR] == {
        "ranks": [0], "members": [0], "comm": comm, "error": "ncclRemoteError",
    }  # fmt: skip
    assert found[codes.RAS_STATUS] == {
        "ranks": [1], "members": [1], "comm": comm, "status": "ABORT",
    }  # fmt: skip


def test_another_process_behind_a_rank_is_a_contradiction_that_is_said() -> None:
    ranks = ranks_of(42, 42, 41, 42)
    ranks[1]["pid"] = 7777
    assert said(judged(ras_json(ras_comm(1, ranks)))[1])[codes.RAS_OTHER_PROCESS] == {
        "rank": 1, "pid": 5001, "ras_pid": 7777, "host": "10.0.0.1", "comm": WORLD.label,
    }  # fmt: skip


def test_stacks_stay_last_and_contradictions_come_first() -> None:
    seen = replace(RANK_2_ABSENT, stacks=event(4, [], stacks=[2]).stacks)
    ranks = ranks_of(42, 42, 43)
    ranks[1]["pid"] = 7777
    _, made = judged(ras_json(ras_comm(1, ranks, [ras_missing(3, silent=True)])), seen)
    kinds = [entry.kind for entry in made.evidence]
    assert (kinds.count("stack"), kinds[-1]) == (1, "stack")
    assert [entry.message.code for entry in made.evidence if entry.kind == "ras"] == [
        codes.RAS_ASKED, codes.RAS_AHEAD, codes.RAS_OTHER_PROCESS, codes.RAS_SILENT,
        codes.RAS_LAUNCHED,
    ]  # fmt: skip


def test_an_answer_of_another_job_is_no_evidence() -> None:
    """Two jobs of one user share the port of a node."""
    data = ras_json(ras_comm(0xBAD, [ras_rank(0)], [ras_missing(1, dead=True)]))
    alone, made = judged(data)
    assert made.evidence == alone.evidence
    *others, last = made.missing
    assert tuple(others) == alone.missing
    assert (last.code, last.params) == (codes.MISSING_RAS_OURS, {"source": "ras-1.json"})


def test_a_torn_text_says_that_its_end_is_missing() -> None:
    eight = comm(0, range(8))
    text = TEXT_DEAD[: TEXT_DEAD.index("Warnings")].replace("00000000000000ab", "1")
    seen = event(8, [op(rank, 0, AR, 42) for rank in range(7)])
    _, made = judged(text.encode(), seen, (eight,))
    assert codes.MISSING_RAS_END in {one.code for one in made.missing}
    assert said(made)[codes.RAS_SILENT]["pid"] == 5003


def test_what_is_too_much_is_counted() -> None:
    many = comm(0, range(40))
    missing = [ras_missing(rank, silent=True) for rank in range(1, 40)]
    seen = event(40, [op(rank, 0, AR, 42) for rank in range(39)])
    _, made = judged(ras_json(ras_comm(1, [ras_rank(0)], missing)), seen, (many,))
    found = [entry.message.code for entry in made.evidence if entry.kind == "ras"]
    assert found.count(codes.RAS_SILENT) == MAX_PER_CODE
    n_other_pids = found.count(codes.RAS_OTHER_PROCESS)
    assert n_other_pids == MAX_PER_CODE
    assert said(made)[codes.RAS_MORE] == {"n": 39 + 40 - 2 * MAX_PER_CODE}


def test_without_a_hang_the_answer_is_told_in_notes() -> None:
    data = ras_json(ras_comm(1, ranks_of(42, 42, 42), [ras_missing(3, dead=True)]))
    healthy = event(4, [], states={rank: state(rank, pid=5000 + rank) for rank in range(4)})
    verdicts, notes = with_ras([], [reading(data, asked=False)], healthy, [WORLD])
    assert verdicts == ()
    assert [note.code for note in notes] == [codes.RAS_GIVEN, codes.RAS_DEAD_LEAD]
    assert with_ras([], [], healthy, [WORLD]) == ((), ())
