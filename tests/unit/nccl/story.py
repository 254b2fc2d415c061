"""The records of one rank on one communicator in words, so that an expectation is one line.

AR            all-reduce, done, times from the GPU     AR~       ... times from callbacks
AG?NO_TASK    no end can be seen, and why              AR!       aborted
SEND:3        send to comm_rank 3                      RECV:-1   the peer was never told
A2A[18]       18 calls folded into one record          AR@       replayed from a graph
AR*4          four times in a row
"""

from __future__ import annotations

from itertools import groupby

import numpy as np

from comminsight.model.ops import EndReason, Op, OpFlag, OpState, TimingSource

WORDS = {
    Op.ALL_REDUCE: "AR", Op.ALL_GATHER: "AG", Op.REDUCE_SCATTER: "RS", Op.BROADCAST: "BC",
    Op.REDUCE: "RD", Op.ALL_TO_ALL: "A2A", Op.SEND: "SEND", Op.RECV: "RECV", Op.UNKNOWN: "OP",
}  # fmt: skip
STATES = {OpState.ABORTED: "!", OpState.FAILED: "!!", OpState.DONE: ""}


def story(ops: np.ndarray) -> str:
    """The line of words of final records in ``op_seq`` order."""
    words = [(word, sum(1 for _ in same)) for word, same in groupby(map(word_of, ops))]
    return " ".join(word if n == 1 else f"{word}*{n}" for word, n in words)


def word_of(record: np.void) -> str:
    """One record."""
    op, flags = Op(record["op"]), OpFlag(int(record["flags"]))
    word = WORDS[op]
    if flags & OpFlag.COALESCED:
        word += f"[{int(record['n_folded'])}]"
    elif op in {Op.SEND, Op.RECV}:
        word += f":{int(record['peer_or_root'])}"
    if flags & OpFlag.GRAPH:
        word += "@"
    return word + ending(record)


def ending(record: np.void) -> str:
    """How it ended."""
    state = OpState(record["state"])
    if state is OpState.UNOBSERVABLE:
        return "?" + EndReason(record["reason"]).name
    is_host = record["timing_source"] == TimingSource.HOST_KERNEL_CALLBACK
    return STATES[state] + ("~" if state is OpState.DONE and is_host else "")
