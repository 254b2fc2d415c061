"""Small hang events written as tables: who is in which op, and how far everybody came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from comminsight.model.hang import (
    HangEvent,
    InFlightOp,
    Liveness,
    Progress,
    RankState,
    Stack,
    StackSource,
)
from comminsight.model.ops import DType, Op, RecordKind
from comminsight.model.topology import CommRole, Communicator

S = 1_000_000_000
NOW = 1_000 * S
LIMIT = 30 * S
AR, BC, AG, SEND, RECV = Op.ALL_REDUCE, Op.BROADCAST, Op.ALL_GATHER, Op.SEND, Op.RECV


def comm(comm_id: int, members: Iterable[int], role: CommRole = CommRole.DP) -> Communicator:
    return Communicator(
        comm_id=comm_id, comm_hash=comm_id + 1, ordinal=0, name=str(comm_id),
        desc=f"mesh_{role.value.lower()}", role=role, is_role_inferred=False,
        members=tuple(members),
    )  # fmt: skip


def op(rank: int, comm_id: int, name: Op, match_seq: int, **more: int) -> InFlightOp:
    """An op in flight for 40 s unless ``age_s`` says otherwise."""
    age_ns = more.pop("age_s", 40) * S
    fields: dict[str, Any] = {"size_bytes": 4096, "count": 1024, "dtype": DType.FLOAT32}
    fields.update(more)
    kind = RecordKind.P2P if name in {SEND, RECV} else RecordKind.COLLECTIVE
    return InFlightOp(
        global_rank=rank, comm_id=comm_id, kind=kind, op=name, op_seq=match_seq,
        match_seq=match_seq, start_ns=NOW - age_ns, age_ns=age_ns, is_overdue=age_ns >= LIMIT,
        **fields,
    )  # fmt: skip


def nccl_op(
    rank: int, comm_id: int, name: Op, match_seq: int, slot_flags: int, **more: int
) -> InFlightOp:
    """An op in flight as the NCCL door leaves it in its slot."""
    return op(rank, comm_id, name, match_seq, slot_flags=int(slot_flags), **more)


def came(
    rank: int, comm_id: int, entered: int, done: int | None = None, *, peer: int = -1, way: int = 0,
    is_current: bool | None = None, is_replay: bool = False,
) -> Progress:  # fmt: skip
    """``rank`` entered ``entered`` ops of the stream and finished ``done`` (default: all)."""
    last_done = entered if done is None else done
    return Progress(
        global_rank=rank, comm_id=comm_id, last_entered=entered, last_done=last_done, peer=peer,
        direction=way, is_current=is_current, is_replay=is_replay,
    )  # fmt: skip


def state(rank: int, liveness: Liveness = Liveness.ALIVE, **more: object) -> RankState:
    fields: dict[str, object] = {"host": f"node{rank // 4}", "pid": 100 + rank}
    fields.update(more)
    fields.setdefault("is_whole", not fields.get("records_lost"))
    return RankState(global_rank=rank, liveness=liveness, **fields)  # type: ignore[arg-type]


def event(
    world_size: int,
    in_flight: Iterable[InFlightOp],
    progress: Iterable[Progress] = (),
    *,
    states: Mapping[int, RankState | None] | None = None,
    stacks: Iterable[int] = (),
) -> HangEvent:
    """All ranks alive except as ``states`` says (None: no evidence); a stack for ``stacks``."""
    special = dict(states or {})
    everybody = [special.get(rank, state(rank)) for rank in range(world_size)]
    return HangEvent(
        observed_mono_ns=NOW, observed_real_ns=NOW, overdue_limit_ns=LIMIT, world_size=world_size,
        ranks=tuple(one for one in everybody if one is not None),
        in_flight=tuple(in_flight),
        progress=tuple(progress),
        stacks=tuple(
            Stack(global_rank=rank, pid=1, source=StackSource.PY_SPY, text=f"load (data.py:{rank})")
            for rank in stacks
        ),
    )  # fmt: skip
