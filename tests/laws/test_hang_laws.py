"""What holds for the hang rule on any event, however torn: it never names a rank it cannot see."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from comminsight.diagnosis import codes
from comminsight.diagnosis.hang import judge_hang
from comminsight.model.hang import HangEvent, InFlightOp, Liveness, Progress, RankState
from comminsight.model.ops import Op, RecordKind, SlotFlag
from comminsight.model.topology import Communicator
from comminsight.model.verdict import Cause, Verdict

WORLD = 6
LIMIT_NS = 30
ranks = st.integers(0, WORLD - 1)
members = st.lists(st.integers(-1, WORLD - 1), min_size=1, max_size=WORLD)


@st.composite
def communicators(draw: st.DrawFn) -> tuple[Communicator, ...]:
    lists = draw(st.lists(members, min_size=1, max_size=4))
    return tuple(
        Communicator(comm_id=i, comm_hash=i, ordinal=0, members=tuple(dict.fromkeys(found)))
        for i, found in enumerate(lists)
    )


slots = st.fixed_dictionaries(
    {
        "slot_flags": st.integers(0, max(SlotFlag) * 2 - 1).map(lambda bits: bits | SlotFlag.NCCL),
        "started_mask": st.integers(0, 15),
        "stopped_mask": st.integers(0, 15),
        "n_channels": st.integers(0, 4),
        "wait_side": st.sampled_from([0, 3, 4 << 8, 2 | 4 << 8, 0xFFFF]),
        "net_progress_ns": st.sampled_from([0, 900, 999]),
        "n_folded": st.sampled_from([0, 0, 20]),
        "pending_peers": st.lists(st.integers(0, WORLD), max_size=3).map(tuple),
    }
)


@st.composite
def ops(draw: st.DrawFn) -> InFlightOp:
    name = draw(st.sampled_from([Op.ALL_REDUCE, Op.BROADCAST, Op.REDUCE, Op.SEND, Op.RECV]))
    nccl: dict[str, Any] = draw(st.none() | slots) or {}
    age_ns = draw(st.integers(0, 100))
    return InFlightOp(
        global_rank=draw(ranks), comm_id=draw(st.integers(-1, 4)), op=name,
        kind=RecordKind.P2P if name in {Op.SEND, Op.RECV} else RecordKind.COLLECTIVE,
        op_seq=1, match_seq=draw(st.integers(1, 3)), start_ns=1000 - age_ns, age_ns=age_ns,
        size_bytes=draw(st.sampled_from([4, 8])), peer=draw(st.integers(-1, WORLD)),
        is_overdue=age_ns >= LIMIT_NS, **nccl,
    )  # fmt: skip


progress = st.builds(
    Progress,
    global_rank=ranks,
    comm_id=st.integers(0, 3),
    last_entered=st.integers(0, 3),
    last_done=st.integers(0, 3),
    peer=st.integers(-1, 3),
    direction=st.sampled_from([0, Op.SEND, Op.RECV, Op.ALL_TO_ALL]),
)
states = st.builds(
    RankState,
    global_rank=ranks,
    liveness=st.sampled_from(list(Liveness)),
    last_event_ns=st.integers(0, 1100),
    records_lost=st.sampled_from([0, 0, 3]),
)


@st.composite
def events(draw: st.DrawFn) -> HangEvent:
    return HangEvent(
        observed_mono_ns=1000, observed_real_ns=0, overdue_limit_ns=LIMIT_NS, world_size=WORLD,
        ranks=tuple(draw(st.lists(states, max_size=WORLD, unique_by=lambda s: s.global_rank))),
        in_flight=tuple(draw(st.lists(ops(), max_size=12))),
        progress=tuple(draw(st.lists(progress, max_size=8))),
    )  # fmt: skip


def messages_are_well_formed(verdict: Verdict) -> bool:
    said = [entry.message for entry in verdict.evidence]
    return all(
        set(message.params) == set(codes.CODES[message.code])
        for message in (*said, *verdict.missing, *verdict.next_actions)
    )


@settings(max_examples=400, deadline=None)
@given(events(), communicators())
def test_any_event_gives_a_sound_verdict(
    event: HangEvent, groups: tuple[Communicator, ...]
) -> None:
    verdict = judge_hang(event, groups)
    left_evidence = {s.global_rank for s in event.ranks} | {
        op.global_rank for op in event.in_flight
    }
    assert set(verdict.culprits) <= left_evidence
    assert not set(verdict.culprits) & set(verdict.victims)
    assert list(verdict.victims) == sorted(set(verdict.victims))
    assert set(verdict.measures) <= set(codes.MEASURES)
    assert messages_are_well_formed(verdict)
    if verdict.cause is Cause.NO_VERDICT:
        assert not verdict.culprits
        assert verdict.missing


@settings(max_examples=100, deadline=None)
@given(events(), communicators(), st.randoms())
def test_the_order_of_the_evidence_does_not_matter(
    event: HangEvent, groups: tuple[Communicator, ...], random: object
) -> None:
    shuffled = list(event.in_flight)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    other = HangEvent(
        observed_mono_ns=event.observed_mono_ns, observed_real_ns=event.observed_real_ns,
        overdue_limit_ns=event.overdue_limit_ns, world_size=event.world_size, ranks=event.ranks,
        in_flight=tuple(shuffled), progress=event.progress,
    )  # fmt: skip
    one, two = judge_hang(event, groups), judge_hang(other, groups)
    assert (one.cause, one.culprits, one.victims) == (two.cause, two.culprits, two.victims)
