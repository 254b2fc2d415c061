"""The steps of all sessions as one flat table, with the ops that bound them as comparable keys.

Two steps share a key exactly when the same op instance bounds them. The instances that are counted
together are a *stream*: the collectives of one communicator of the run, or what one of its ranks
sends to another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.model.ops import P2P_OPS, Op
from comminsight.model.step import StepEvidence, StepSummary
from comminsight.model.topology import SessionIdentity
from comminsight.semantics.step_votes import NO_KEY

_SEQ_BITS = 32
# comm_id, sender, receiver (-1 for collectives), replayed from a graph
_Stream = tuple[int, int, int, bool]


@dataclass(frozen=True, slots=True)
class SessionStepList:
    """A session's raw steps in local order; ``comm_ids[comm_index]`` is the run's communicator,
    ``comm_ranks[comm_index]`` the session's place in it, both -1 where unknown."""

    identity: SessionIdentity
    steps: Sequence[StepSummary]
    comm_ids: np.ndarray
    comm_ranks: np.ndarray


@dataclass(frozen=True, slots=True)
class StepTable:
    """One row per local step, session after session; ``sessions[row]`` numbers them.

    Keys are ``stream << 32 | match_seq``. ``has_loss``: records are missing in the step's window.
    """

    sessions: np.ndarray
    local_steps: np.ndarray
    anchors: np.ndarray
    firsts: np.ndarray
    lasts: np.ndarray
    has_loss: np.ndarray

    def __len__(self) -> int:
        return len(self.sessions)

    @property
    def instances(self) -> np.ndarray:
        """Keys of the anchors, of the firsts, of the lasts; each row has one only once."""
        firsts = np.where(self.firsts == self.anchors, NO_KEY, self.firsts)
        is_known = (self.lasts == self.anchors) | (self.lasts == self.firsts)
        return np.concatenate([self.anchors, firsts, np.where(is_known, NO_KEY, self.lasts)])

    @property
    def follows(self) -> np.ndarray:
        """Mask of the rows whose row before is of the same session."""
        mask = np.zeros(len(self), np.bool_)
        mask[1:] = self.sessions[1:] == self.sessions[:-1]
        return mask


def step_table(sessions: Sequence[SessionStepList]) -> StepTable:
    """All steps in the order of the sessions."""
    streams: dict[_Stream, int] = {}
    keys = np.array([key for one in sessions for key in _keys(one, streams)], np.int64)
    anchors, firsts, lasts = keys.reshape(-1, 3).T
    steps = [step for one in sessions for step in one.steps]
    return StepTable(
        sessions=np.repeat(np.arange(len(sessions)), [len(one.steps) for one in sessions]),
        local_steps=np.array([step.step for step in steps], np.int64),
        anchors=anchors, firsts=firsts, lasts=lasts,
        has_loss=np.array([step.n_lost + step.n_late > 0 for step in steps], np.bool_),
    )  # fmt: skip


def stream_of(keys: np.ndarray) -> np.ndarray:
    """The stream of each key, -1 for none."""
    return keys >> _SEQ_BITS


def seq_of(keys: np.ndarray) -> np.ndarray:
    """``match_seq`` of each key."""
    return keys & ((1 << _SEQ_BITS) - 1)


def key_of(stream: int, seqs: np.ndarray) -> np.ndarray:
    """The keys of numbers within one stream."""
    return (stream << _SEQ_BITS) | seqs


def _keys(one: SessionStepList, streams: dict[_Stream, int]) -> Iterator[int]:
    """Anchor, First and Last of each step in turn."""
    # the few streams of the session, looked up often
    known: dict[tuple[int, int, int, bool], int] = {}
    for step in one.steps:
        for evidence in (step.anchor, step.first, step.last):
            if evidence is None or evidence.match_seq <= 0:
                yield NO_KEY
                continue
            kind = (evidence.comm_index, evidence.op, evidence.peer, evidence.is_replay)
            stream = known.get(kind)
            if stream is None:
                stream = known[kind] = _stream(evidence, one, streams)
            yield NO_KEY if stream < 0 else (stream << _SEQ_BITS) | evidence.match_seq


def _stream(evidence: StepEvidence, one: SessionStepList, streams: dict[_Stream, int]) -> int:
    """The number of the stream, -1 where communicator or partner are unknown."""
    is_known = 0 <= evidence.comm_index < len(one.comm_ids)
    comm_id = int(one.comm_ids[evidence.comm_index]) if is_known else -1
    ends = (-1, -1)
    if evidence.op in P2P_OPS and comm_id >= 0:
        own = int(one.comm_ranks[evidence.comm_index])
        ends = (own, evidence.peer) if evidence.op == Op.SEND else (evidence.peer, own)
        comm_id = comm_id if min(ends) >= 0 else -1
    if comm_id < 0:
        return -1
    return streams.setdefault((comm_id, *ends, evidence.is_replay), len(streams))
