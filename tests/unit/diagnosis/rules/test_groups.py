"""Rules on groups, splits and pairs: what is claimed, and what a simpler reason keeps back."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from comminsight.diagnosis import codes_groups as codes
from comminsight.diagnosis.job import judge_job
from comminsight.diagnosis.rules.groups import group_rule
from comminsight.diagnosis.rules.open_inits import open_inits_rule
from comminsight.model.job_evidence import GroupClaim, JobEvidence, JobLog
from comminsight.model.log_event import LogCode, LogEvent, LogValue
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Cause, Confidence, Verdict
from tests.unit.diagnosis.events import AR, RECV, came, comm, event, op


def group(comm_id: int, name: str, members: Iterable[int], desc: str = "undefined") -> Communicator:
    return replace(comm(comm_id, members), name=name, desc=desc)


def claimed(*groups: tuple[int, str, tuple[int, ...], int], desc: str = "undefined"
            ) -> tuple[GroupClaim, ...]:  # fmt: skip
    """(rank, name, members, comm_id) each."""
    return tuple(
        GroupClaim(global_rank=rank, name=name, members=members, comm_id=comm_id, desc=desc)
        for rank, name, members, comm_id in groups
    )


APART = [(0, "1", (0, 3), 0), (3, "1", (0, 3), 0), (1, "1", (1, 2), 1), (2, "1", (1, 2), 1)]
PAIRS = (group(0, "1", (0, 3)), group(1, "1", (1, 2)))


def only(job: JobEvidence) -> Verdict | None:
    found = [claim.verdict for claim in group_rule(job)]
    assert len(found) < 2
    return found[0] if found else None


def apart(**more: object) -> JobEvidence:
    waiting = [op(1, 1, AR, 1), op(2, 1, AR, 1)]
    job = JobEvidence(
        hang=event(4, waiting), communicators=PAIRS, groups=claimed(*APART), world_size=4
    )
    return replace(job, **more)


def test_each_rank_made_only_its_own_group() -> None:
    verdict = only(apart())
    assert verdict is not None
    assert (verdict.cause, verdict.culprits) == (Cause.GROUP_MISUSE, (0, 1, 2, 3))
    assert verdict.confidence is Confidence.MEDIUM
    said = [e.message.params for e in verdict.evidence if e.message.code == codes.GROUP_CLAIM]
    assert [(one["ranks"], one["members"]) for one in said] == [([0, 3], [0, 3]), ([1, 2], [1, 2])]
    assert [v.cause for v in judge_job(apart())] == [Cause.GROUP_MISUSE]


@pytest.mark.parametrize(
    "job",
    [
        # parts of one split have their parent in the description, parts of a mesh their name
        apart(groups=claimed(*APART, desc="default_pg:split:0")),
        apart(groups=claimed(*APART, desc="mesh_tp")),
        # the group has worked before
        apart(hang=event(4, [op(1, 1, AR, 2), op(2, 1, AR, 2)], [came(1, 1, 2, 1)])),
        # a member is missing: that is what the other waits for
        apart(hang=event(4, [op(1, 1, AR, 1)], [came(2, 1, 0)])),
        # nothing hangs
        apart(hang=event(4, [op(1, 1, AR, 1, age_s=2), op(2, 1, AR, 1, age_s=2)])),
        apart(hang=event(4, [])),
    ],
)
def test_groups_that_are_only_apart_are_not_accused(job: JobEvidence) -> None:
    assert only(job) is None


def test_a_contradiction_names_the_rank_that_counts_otherwise() -> None:
    rows = [(0, "1", (0, 1), 0), (1, "1", (0, 1), 0), (2, "1", (0, 1, 2), 2),
            (0, "2", (0, 1, 2), 1), (1, "2", (0, 1, 2), 1)]  # fmt: skip
    groups = (
        group(0, "1", (0, 1)), group(1, "2", (0, 1, 2)), group(2, "1", (0, 1, 2)),
    )  # fmt: skip
    waiting = [op(0, 1, AR, 1), op(1, 1, AR, 1), op(2, 2, AR, 1)]
    progress = [came(2, 1, 0), came(0, 2, 0), came(1, 2, 0)]
    job = JobEvidence(hang=event(3, waiting, progress), communicators=groups, groups=claimed(*rows))
    verdicts = judge_job(job)
    assert [(v.cause, v.culprits, v.confidence) for v in verdicts] == [
        (Cause.GROUP_MISUSE, (2,), Confidence.HIGH)
    ]
    assert verdicts[0].victims == (0, 1)
    assert [a.code for a in verdicts[0].next_actions] == [codes.SAME_GROUPS]


def line(code: LogCode, rank: int, comm_name: str, n_ranks: int, comm_hash: str = "",
         parent: str = "") -> LogEvent:  # fmt: skip
    values: dict[str, LogValue] = {"comm": comm_name, "n_ranks": n_ranks}
    values |= {"comm_hash": comm_hash} if comm_hash else {}
    values |= {"parent": parent} if parent else {}
    return LogEvent(
        code=code, file=f"rank_{rank}.log", line=1, text="init", host="a", pid=100 + rank,
        comm_rank=rank, values=values,
    )  # fmt: skip


def log(rank: int, *events: LogEvent) -> JobLog:
    return JobLog(file=f"rank_{rank}.log", rank=rank, events=events)


START, DONE = LogCode.NCCL_INIT_START, LogCode.NCCL_INIT_COMPLETE
WORLD4 = (comm(0, range(4)),)


def parent(rank: int) -> LogEvent:
    return line(DONE, rank, "0x1", 4, "0xaa")


def split(rank: int) -> LogEvent:
    return line(START, rank, "0x2", 2, parent="0x1")


def inits(waiting: Iterable[int], splitting: Iterable[int]) -> list[tuple[Cause, tuple[int, ...]]]:
    """What is claimed where these wait in an op on the parent and those split it."""
    inside, apart_from = set(waiting), set(splitting)
    logs = tuple(
        log(rank, parent(rank), *([split(rank)] if rank in apart_from else [])) for rank in range(4)
    )
    hang = event(4, [op(rank, 0, AR, 5) for rank in sorted(inside)],
                 [came(rank, 0, 4) for rank in range(4) if rank not in inside])  # fmt: skip
    job = JobEvidence(hang=hang, communicators=WORLD4, logs=logs, world_size=4)
    return [(c.verdict.cause, c.verdict.culprits) for c in open_inits_rule(job)]


@pytest.mark.parametrize(
    ("waiting", "splitting", "is_circle"),
    [
        ((0,), (1, 2, 3), True),
        ((0, 3), (1, 2), True),
        ((0,), (1, 2), False),  # rank 3 is in neither: both sides wait for it
        ((), (0, 1, 2, 3), False),  # all split: it is only slow, or the network is
        ((0, 1, 2, 3), (), False),
        ((0, 1), (1, 2, 3), False),  # rank 1 says both: threads of its own
    ],
)
def test_a_split_against_an_op_on_the_parent(
    waiting: tuple[int, ...], splitting: tuple[int, ...], is_circle: bool
) -> None:
    expected = [(Cause.INIT_STUCK, (0, 1, 2, 3))] if is_circle else []
    assert inits(waiting, splitting) == expected


def pairs(begun: dict[int, str], waiting: dict[int, int]) -> list[tuple[int, ...]]:
    """Who is named where ranks began the pair of a hash, and wait for a message of a rank."""
    logs = tuple(
        log(
            rank,
            parent(rank),
            *([line(START, rank, "0x3", 2, begun[rank])] if rank in begun else []),
        )
        for rank in range(4)
    )
    transfers = [op(rank, 0, RECV, 1, peer=peer) for rank, peer in waiting.items()]
    hang = event(4, transfers)
    job = JobEvidence(hang=hang, communicators=WORLD4, logs=logs, world_size=4)
    return [claim.verdict.culprits for claim in open_inits_rule(job)]


@pytest.mark.parametrize(
    ("begun", "waiting", "expected"),
    [
        ({0: "0xc", 1: "0xc", 2: "0xd", 3: "0xd"}, {1: 0, 3: 2}, [(0, 1, 2, 3)]),
        # a ring: each waits for one that makes another pair
        ({0: "0xc", 1: "0xd", 2: "0xe"}, {0: 1, 1: 2, 2: 0}, [(0, 1, 2)]),
        ({1: "0xc", 3: "0xd"}, {1: 0, 3: 2}, []),  # their partners did not begin: who knows why
        ({0: "0xc", 1: "0xc"}, {1: 0}, []),  # one pair alone may just be slow
        ({0: "0xc", 1: "0xc", 2: "0xd", 3: "0xd"}, {}, []),  # nobody waits for them
    ],
)
def test_pairs_made_at_first_use(
    begun: dict[int, str], waiting: dict[int, int], expected: list[tuple[int, ...]]
) -> None:
    assert pairs(begun, waiting) == expected
