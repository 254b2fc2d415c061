"""One op of a communicator, looked up as reports name it, on the ranks that have it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.capture.session import SessionData
from comminsight.errors import InputError
from comminsight.model.hang import InFlightOp
from comminsight.model.ops import DType, Op, OpState, RedOp
from comminsight.model.records import is_ended_op, is_fold, is_op, net_summaries
from comminsight.model.tally import NOT_READ
from comminsight.model.topology import Communicator
from comminsight.model.views import VIEW_SCHEMA_VERSION, AbsentOp, OpStories, OpStory
from comminsight.pipeline.hang_event import in_flight_ops
from comminsight.pipeline.observe import rank_view
from comminsight.pipeline.op_layers import OpSource, op_layers, stage_code
from comminsight.pipeline.pauses import n_switched_off
from comminsight.pipeline.step_view import no_rank

MAX_NAMED = 8
MAX_DIGITS = 10
_HASH_PREFIX = re.compile(r"(?:0x)?[0-9a-f]{4,16}", re.ASCII)
_NUMBER = re.compile(r"#?(\d{1,9})", re.ASCII)


def parse_op(text: str) -> tuple[str, int]:
    """(communicator, op_seq) of ``COMM:SEQ``; a communicator's name may hold colons itself.

    Raises InputError for anything else.
    """
    name, _, number = text.rpartition(":")
    if not name or not number.isascii() or not number.isdigit() or len(number) > MAX_DIGITS:
        raise InputError(
            f"{text!r} is no op", next_step="give COMM:SEQ, such as 'GLOBAL default_pg#0:41'",
            code="no_op_name", text=text,
        )  # fmt: skip
    return name, int(number)


def find_communicator(communicators: Sequence[Communicator], text: str) -> Communicator:
    """The one communicator that ``text`` names: its label, its number (``#3``), its name or
    description, or the beginning of its hash, in this order.

    Raises InputError naming the candidates where there is none or more than one.
    """
    number = _NUMBER.fullmatch(text)
    tries = (
        [c for c in communicators if c.label == text],
        [c for c in communicators if number and c.comm_id == int(number[1])],
        [c for c in communicators if text in {c.name, c.desc}],
        [c for c in communicators if _is_hash_of(text.lower(), c)],
    )
    found = next((matching for matching in tries if matching), [])
    if len(found) == 1:
        return found[0]
    candidates = found or communicators
    labels = ", ".join(c.label for c in candidates[:MAX_NAMED])
    if len(candidates) > MAX_NAMED:
        labels += f", ... ({len(candidates)} in all)"
    what = f"{text!r} names {len(found)} communicators" if found else f"no communicator {text!r}"
    labels = labels or "none"
    raise InputError(
        what, next_step=f"give one of: {labels}",
        code="many_communicators" if found else "no_communicator",
        text=text, n=len(found), known=labels,
    )  # fmt: skip


def _is_hash_of(text: str, communicator: Communicator) -> bool:
    if not _HASH_PREFIX.fullmatch(text):
        return False
    return f"{communicator.comm_hash:016x}".startswith(text.removeprefix("0x"))


@dataclass(frozen=True, slots=True)
class _Rank:
    """One session, with the run's number of each of its communicators."""

    session: SessionData
    comm_ids: np.ndarray
    communicator: Communicator

    @property
    def indices(self) -> np.ndarray:
        """Its ``comm_index`` of the communicator, one or several."""
        return np.flatnonzero(self.comm_ids == self.communicator.comm_id)


def op_stories(
    sessions: Sequence[SessionData],
    communicators: Sequence[Communicator],
    comm_ids: Mapping[str, np.ndarray],
    *,
    text: str,
    run_id: str,
    global_rank: int | None = None,
) -> OpStories:
    """The op that ``text`` (COMM:SEQ) names, on all ranks or on one.

    Raises InputError where no such communicator, rank or op is in the run.
    """
    name, op_seq = parse_op(text)
    communicator = find_communicator(communicators, name)
    wanted = [s for s in sessions if global_rank in {None, s.identity.global_rank}]
    if global_rank is not None and not wanted:
        raise no_rank(global_rank, [s.identity.global_rank for s in sessions])
    ranks = [_Rank(s, comm_ids[s.identity.session_id], communicator) for s in wanted]
    stories = [story for rank in ranks if (story := _story(rank, op_seq)) is not None]
    if not stories:
        raise InputError(
            f"no op {op_seq} of {communicator.label} was recorded",
            next_step=f"recorded op_seq: {(known := _range(ranks))}",
            code="no_op", op_seq=op_seq, comm=communicator.label, known=known,
        )  # fmt: skip
    return OpStories(
        schema_version=VIEW_SCHEMA_VERSION, run_id=run_id, comm_label=communicator.label,
        op_seq=op_seq, ops=tuple(stories),
        absent=_absent(ranks, communicator, stories) if global_rank is None else (),
    )  # fmt: skip


def _absent(
    ranks: Sequence[_Rank], communicator: Communicator, stories: Sequence[OpStory]
) -> tuple[AbsentOp, ...]:
    """Members that are known by rank and have no trace of the op, by rank."""
    seen = {story.global_rank for story in stories}
    members = {member for member in communicator.members if member >= 0} - seen
    by_rank = {rank.session.identity.global_rank: rank for rank in ranks}
    return tuple(
        _without(by_rank[member]) if member in by_rank else AbsentOp(global_rank=member)
        for member in sorted(members)
    )


def _without(rank: _Rank) -> AbsentOp:
    session = rank.session
    own = [rows[np.isin(rows["comm_index"], rank.indices)] for rows in
           (session.records[is_op(session.records)], session.in_flight["record"])]  # fmt: skip
    last = [_last_call(rows) for rows in own]
    is_whole = session.complete_from_seq == 1 and not (
        session.tally.sum_of(NOT_READ) or n_switched_off(session) or session.unseen_calls
    )
    return AbsentOp(
        global_rank=session.identity.global_rank, has_records=True,
        is_whole=is_whole, last_op_seq=max(last),
    )  # fmt: skip


def _last_call(rows: np.ndarray) -> int:
    n_more = np.where(is_fold(rows), rows["n_folded"].astype(np.int64) - 1, 0)
    return int((rows["op_seq"].astype(np.int64) + n_more).max(initial=0))


def _range(ranks: Sequence[_Rank]) -> str:
    """What there is instead."""
    numbers = [
        r.session.records["op_seq"][
            is_op(r.session.records) & np.isin(r.session.records["comm_index"], r.indices)
        ]
        for r in ranks
    ]
    known = np.concatenate([np.zeros(0, np.uint32), *numbers])
    return f"{known.min()}-{known.max()}" if len(known) else "none"


def _story(rank: _Rank, op_seq: int) -> OpStory | None:
    """The op on this rank, None where it left nothing of it. An end counts before a slot, a slot
    before a marker."""
    records = rank.session.records
    own = records[np.isin(records["comm_index"], rank.indices)]
    ended = own[is_ended_op(own) & _covers(own, op_seq)][-1:]
    flying = None if len(ended) else _in_flight(rank, op_seq)
    if flying is not None:
        slot, row = flying
        return _told(rank, row, slot, own)
    rows = ended if len(ended) else own[is_op(own) & _covers(own, op_seq)][-1:]
    return _told(rank, rows[0], None, own) if len(rows) else None


def _covers(rows: np.ndarray, op_seq: int) -> np.ndarray:
    """Ops that have the number, else folds that count it among theirs: a collective between the
    calls of a fold has a number of its own."""
    exact: np.ndarray = (rows["op_seq"] == op_seq) & is_op(rows)
    if exact.any():
        return exact
    first = rows["op_seq"].astype(np.int64)
    n_more = np.where(is_fold(rows), rows["n_folded"].astype(np.int64) - 1, 0)
    found: np.ndarray = (first <= op_seq) & (op_seq <= first + n_more)
    return found


def _in_flight(rank: _Rank, op_seq: int) -> tuple[InFlightOp, np.ndarray] | None:
    slots = rank.session.in_flight["record"]
    at = np.flatnonzero(np.isin(slots["comm_index"], rank.indices) & _covers(slots, op_seq))
    if not len(at):
        return None
    row = slots[at[0]]
    ops = in_flight_ops(rank_view(rank.session, rank.comm_ids), rank.session.heartbeat_mono_ns)
    mine = (o for o in ops if (o.comm_id, o.op_seq) == (rank.communicator.comm_id, row["op_seq"]))
    return next(mine), row


def _told(rank: _Rank, row: np.ndarray, flying: InFlightOp | None, own: np.ndarray) -> OpStory:
    session, members = rank.session, rank.communicator.members
    nets = net_summaries(own)
    net = nets[nets["op_seq"] == row["op_seq"]][-1:]
    comm = session.comms[session.comms["comm_index"] == row["comm_index"]][-1:]
    source = OpSource(
        row=row, in_flight=flying, net=net[0] if len(net) else None,
        backend=int(rank.communicator.backend),
        abi_version=int(comm["abi_version"][0]) if len(comm) else 0,
        has_network=len(net_summaries(session.records)) > 0, is_cut=session.is_cut,
    )  # fmt: skip
    called_ns = int(row["enqueue_ns"]) or int(row["start_ns"])
    identity, peer = session.identity, int(row["peer_or_root"])
    return OpStory(
        global_rank=identity.global_rank, host=identity.host, comm_label=rank.communicator.label,
        op=Op(int(row["op"])).name.lower(), op_seq=int(row["op_seq"]),
        match_seq=int(row["match_seq"]), state=OpState(int(row["state"])).name.lower(),
        started_real_ns=called_ns + identity.real_minus_mono_ns,
        n_calls=_calls(row), size_bytes=int(row["size_bytes"]), count=int(row["count"]),
        dtype=DType(int(row["dtype"])).name.lower() if row["dtype"] else "",
        red_op=RedOp(int(row["red_op"])).name.lower() if row["red_op"] else "",
        peer=members[peer] if 0 <= peer < len(members) else -1, stage=stage_code(flying),
        layers=op_layers(source),
    )  # fmt: skip


def _calls(row: np.ndarray) -> int:
    return int(row["n_folded"]) if is_fold(row) else 1
