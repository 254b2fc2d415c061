"""The op that a hang verdict names: a transfer by its two global ranks."""

from __future__ import annotations

import pytest

from comminsight.diagnosis.chain import op_ref
from comminsight.diagnosis.presence import observe
from comminsight.model.topology import CommRole
from tests.unit.diagnosis.events import AR, RECV, SEND, comm, event, op

STAGES = (comm(0, (3, 7, 11), CommRole.PP),)


@pytest.mark.parametrize(
    ("global_rank", "kind", "peer", "sender", "receiver"),
    [(7, RECV, 0, 3, 7), (3, SEND, 1, 3, 7), (7, SEND, 2, 7, 11), (3, RECV, 2, 11, 3)],
)
def test_sender_and_receiver_are_global_ranks(
    global_rank: int, kind: int, peer: int, sender: int, receiver: int
) -> None:
    (found,) = observe(event(12, [op(global_rank, 0, kind, 33, peer=peer)]), STAGES).instances
    named = op_ref(found)
    assert (named.match_seq, named.peer) == (33, peer)
    assert (named.sender, named.receiver) == (sender, receiver)


def test_a_collective_has_neither() -> None:
    (found,) = observe(event(12, [op(3, 0, AR, 4)]), STAGES).instances
    assert (op_ref(found).peer, op_ref(found).sender, op_ref(found).receiver) == (-1, -1, -1)
