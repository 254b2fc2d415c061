"""Who went past an op, told by the order in which the other ranks call two groups' ops.

A rank's calls are written as a string: ``a1 b1 a2*`` are ops 1 of the groups a and b, then op 2 of
a, which is still open; ``A1`` is the first message from place 0 to place 1 of group a.
"""

from __future__ import annotations

import pytest

from comminsight.analysis.call_order import OrderedCall, skipped_ops
from comminsight.model.hang import Progress
from comminsight.model.topology import CommRole, Communicator

GROUPS = {"a": 0, "b": 1, "c": 2}


def group(comm_id, members, desc):
    return Communicator(
        comm_id=comm_id, comm_hash=comm_id + 7, ordinal=0, members=members, desc=desc,
        role=CommRole.DP, is_role_inferred=False,
    )  # fmt: skip


def calls(text):
    return [
        OrderedCall(
            GROUPS[word[0].lower()], int(word.strip("*")[1:]), word.endswith("*"),
            *((0, 1) if word[0].isupper() else ()),
        )
        for word in text.split()
    ]  # fmt: skip


def found(programs, communicators, *, not_current=()):
    """(rank, comm_id, match_seq, n_others) of what was skipped."""
    ordered = {rank: calls(text) for rank, text in enumerate(programs)}
    progress = [
        Progress(
            global_rank=rank, comm_id=one.comm_id,
            last_entered=max(
                (c.match_seq for c in own if c.comm_id == one.comm_id and c.source < 0), default=0
            ),
            last_done=0, is_current=rank not in not_current,
        )
        for rank, own in ordered.items()
        for one in communicators
        if rank in one.members
    ]  # fmt: skip
    return [
        (s.global_rank, s.comm_id, s.match_seq, s.n_others)
        for s in skipped_ops(ordered, communicators, progress)
    ]


def two_groups(n_ranks, *, descs=("dp", "norm")):
    return [group(n, tuple(range(n_ranks)), desc) for n, desc in enumerate(descs)]


@pytest.mark.parametrize(
    ("programs", "expected"),
    [
        # rank 2 calls b a second time, or leaves out a: all others are in a first
        (("a1 b1 a2*", "a1 b1 a2*", "a1 b1 b2*"), [(2, 0, 2, 2)]),
        (("a1 b1 a2*", "a1 b1 a2*", "a1 b1 b2*", "a1 b1 a2*"), [(2, 0, 2, 3)]),
        # some had even been through: their a was over before they came to b
        (("a1 b1 a2 b2*", "a1 b1 a2*", "a1 b1 b2*"), [(2, 0, 2, 2)]),
        # of a kind that is called more than once between two b, all have called the next a, or more
        (("a1 b1 a2*", "a1 b1 a2 a3*", "a1 b1 b2*"), [(2, 0, 2, 2)]),
        # who counts otherwise and had come to its a before the last b tells nothing
        (("a1 b1 a2*", "a1 a2 a3 b1", "a1 b1 b2*"), []),
        # two against two, and one against one: no side is the right one
        (("a1 b1*", "a1 b1*", "b1 a1*", "b1 a1*"), []),
        (("a1*", "b1*"), []),
        # a third rank that did as rank 2 did contradicts the others
        (("a1*", "a1*", "b1*", "b1*"), []),
        # a rank that is not there yet says nothing, and two of three are most
        (("a1 b1 a2*", "a1 b1 a2*", "a1 b1 b2*", "a1 b1"), [(2, 0, 2, 2)]),
        (("a1*", "a1*", "b1*", ""), []),  # of its first ops no rank tells what would come next
        (("a1*", "b1*", "", ""), []),
        # all wait for a rank that came to neither: nobody went past anything
        (("a1*", "a1*", ""), []),
    ],
)
def test_the_order_of_the_others_decides(programs, expected):
    assert found(programs, two_groups(len(programs))) == expected


def test_of_a_rank_whose_last_calls_are_not_known_nothing_is_told():
    programs = ("a1 b1 a2*", "a1 b1 a2*", "a1 b1 b2*")
    assert found(programs, two_groups(3), not_current={2}) == []


@pytest.mark.parametrize("descs", [("", "norm"), ("dp", "undefined"), ("dp", "dp")])
def test_groups_without_descriptions_of_their_own_do_not_count_alike(descs):
    programs = ("a1 b1 a2*", "a1 b1 a2*", "a1 b1 b2*")
    assert found(programs, two_groups(3, descs=descs)) == []


def test_two_groups_of_one_description_on_a_rank_have_no_common_count():
    communicators = [group(0, (0, 1, 2), "dp"), group(1, (0, 1, 2), "norm"), group(2, (1, 2), "dp")]
    assert found(("a1 b1 a2*", "a1 b1 a2*", "a1 b1 b2*"), communicators) == [(2, 0, 2, 2)]
    assert found(("a1 b1 a2*", "a1 c1 b1 a2*", "a1 c1 b1 b2*"), communicators) == []


def test_groups_of_one_description_tell_of_each_other():
    """Ranks 0 and 1 share a, 2 and 3 share c; b is of all. Rank 1 calls b twice."""
    communicators = [
        group(0, (0, 1), "dp"), group(1, (0, 1, 2, 3), "norm"), group(2, (2, 3), "dp"),
    ]  # fmt: skip
    programs = ("a1 b1 a2*", "a1 b1 b2*", "c1 b1 c2 b2*", "c1 b1 c2 b2*")
    assert found(programs, communicators) == [(1, 0, 2, 3)]


@pytest.mark.parametrize(
    ("programs", "expected"),
    [
        # rank 1 waits for a message already, all others are in b: so says who plays its part
        (("A1 b1*", "A1 A2*", "C1 b1*", "C1 b1*"), [(1, 1, 1, 2)]),
        # its partner has not sent what all others had sent before b
        (("A1 b1*", "A1 A2*", "C1 C2 b1*", "C1 C2 b1*"), []),
        # there is no other pair that could tell which of the two is wrong
        (("A1 b1*", "A1 A2*"), []),
    ],
)
def test_who_waits_for_a_message_is_compared_with_other_pairs(programs, expected):
    everyone = tuple(range(len(programs)))
    communicators = [group(0, (0, 1), "pp"), group(1, everyone, "norm"), group(2, (2, 3), "pp")]
    assert found(programs, communicators) == expected
