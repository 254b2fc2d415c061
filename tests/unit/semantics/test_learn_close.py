"""A close that is learnt from what follows the anchor, or from what is in flight.

Letters are ops of two groups: lower case TP, upper case GLOBAL; "s" and "r" are a pipeline's.
"""

from __future__ import annotations

import numpy as np
import pytest

from comminsight.model.ops import CommRole, Op
from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.learn import resolve
from comminsight.semantics.template import Symbol, Template
from tests.builders import comm_row, ops, record

TP_OPS = {"a": Op.ALL_REDUCE, "g": Op.ALL_GATHER}
GLOBAL_OPS = {"A": Op.ALL_REDUCE, "G": Op.ALL_GATHER, "B": Op.BROADCAST, "X": Op.BARRIER}
COMMS = np.concatenate(
    [comm_row(1, "0-3", 1, desc=b"default_pg"), comm_row(2, [1, 2], 1, desc=b"mesh_tp")]
)
UNTIL_OPEN = Template(
    name="t", version=1, learn="until_open",
    opens=(((Symbol(roles=(CommRole.TP,)),),),),
    anchors=(((Symbol(roles=(CommRole.GLOBAL,), ops=(Op.ALL_REDUCE,)),),),),
)  # fmt: skip


def rows(letters: str) -> np.ndarray:
    batch = []
    for seq, letter in enumerate(letters.replace(" ", ""), 1):
        op = TP_OPS.get(letter) or GLOBAL_OPS[letter]
        comm = 2 if letter in TP_OPS else 1
        batch.append(record(seq=seq, op=op, comm_index=comm, start_ns=seq, op_seq=seq))
    return ops(*batch)


def table(comms: np.ndarray = COMMS) -> CommTable:
    found = CommTable(4)
    found.add(comms)
    return found


def learnt(letters: str, template: Template = UNTIL_OPEN) -> str:
    """The close in letters, or the reason."""
    resolved = resolve(template, rows(letters), table())
    if isinstance(resolved, str):
        return resolved
    letter_of = {op: letter for letter, op in GLOBAL_OPS.items()}
    (close,) = resolved.closes
    return "".join(letter_of[position[0].ops[0]] for position in close)


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("aaA aaA aaA a", "A"),
        ("aaAGB aaAGB aaAGB a", "AGB"),
        ("aaAGB aaAGB aaAGBX aaAGB a", "AGB"),  # a barrier now and then lies between
        ("aaAGBX aaAGBX aaAGBX aaAGB a", "AGBX"),  # three of four
        ("aaAGB aaAB aaAGB aaAG a", "too_few_anchored_steps"),  # more steps will tell
        ("aaAGB aaAG aaAGB aaAG aaAGB aaAG a", "AG"),  # they do not agree on more
        ("aAGBXG aAGBXG aABXG aAGBXG aAGXG aAGBXG aAGBG aAGBXG a", "AGBXG"),  # three lost one each
        ("aAA aAA aAA a", "AA"),  # the first anchor of a step counts
        ("GB aaAG aaAG aaAG a", "AG"),  # what stands before the first step is not looked at
        ("aaAG aaAG a", "too_few_anchored_steps"),
        ("aaaa", "too_few_anchored_steps"),
    ],
)
def test_the_close_is_what_follows_the_anchor_in_most_steps(letters: str, expected: str) -> None:
    assert learnt(letters) == expected


def test_a_close_may_begin_with_its_open() -> None:
    """As a serving iteration: the small gather opens, and idle ones alone do not."""
    gather, tensor = Symbol(ops=(Op.ALL_GATHER,)), Symbol(roles=(CommRole.TP,))
    opening = (((gather,), (tensor,)),)
    template = Template(
        name="t", version=1, learn="until_open", opens=opening, anchors=opening,
        is_close_inside_open=True,
    )  # fmt: skip
    resolved = resolve(template, rows("Gaag Gaag GGG Gaag Gaag Ga"), table())
    assert isinstance(resolved, Template)
    (close,) = resolved.closes
    assert len(close) == 4
    assert close[:2] == opening[0]
    assert [position[0].ops for position in close[2:]] == [(Op.ALL_REDUCE,), (Op.ALL_GATHER,)]


IN_FLIGHT = Template(
    name="p", version=1, learn="in_flight",
    opens=(((Symbol(ops=(Op.SEND, Op.RECV), min_bytes=1024),),),),
)  # fmt: skip
KINDS = {"f": (Op.RECV, 0), "F": (Op.SEND, 2), "b": (Op.RECV, 2), "B": (Op.SEND, 0)}


def in_flight(letters: str, *, rank: int = 1, size: int = 4096) -> str:
    """Open, anchor and close in letters: f F forward in and out, b B backward in and out."""
    batch = []
    for seq, letter in enumerate(letters.replace(" ", ""), 1):
        op, peer = KINDS[letter.replace("m", "f")]
        batch.append(
            record(
                seq=seq, op=op, comm_index=1, start_ns=seq, op_seq=seq,
                peer_or_root=peer + rank - 1, size_bytes=64 if letter == "m" else size,
            )
        )  # fmt: skip
    resolved = resolve(IN_FLIGHT, ops(*batch), table(comm_row(1, "0-3", rank, desc=b"mesh_pp")))
    if isinstance(resolved, str):
        return resolved
    letter_of = {(op, {0: "previous", 2: "next"}[peer]): key for key, (op, peer) in KINDS.items()}
    bounds = (resolved.opens[0], resolved.anchors[0], resolved.closes[0])
    return " ".join("".join(letter_of[p[0].ops[0], p[0].peer.value] for p in s) for s in bounds)


MIDDLE = "fF fF bB fF bB bB "  # one warm-up


@pytest.mark.parametrize(
    ("letters", "rank", "expected"),
    [
        (MIDDLE * 3, 1, "f Bb BbB"),  # "bB" alone occurs in the middle of the step
        ("mm" + MIDDLE * 3, 1, "f Bb BbB"),  # shapes are exchanged before the first step
        ("bB" + MIDDLE * 4, 1, "f Bb BbB"),  # recorded from the middle of a step
        ("FFFFbbbb " * 3, 0, "F b bbbb"),
        ("FFbFbb " * 3, 0, "F bb bb"),
        ("fB fB fB fB " * 3, 3, "one_microbatch_in_flight"),  # the last stage
        ("Fb Fb Fb Fb", 0, "one_microbatch_in_flight"),  # one microbatch per step
        ("fB fB ffBfBB fB fB fB fB fB " * 3, 3, "one_microbatch_in_flight"),  # a record was lost
        (MIDDLE * 2, 1, "pipeline_steps_undecided"),
        (MIDDLE + "fF fF bB bB " + MIDDLE + "fF fF fF bB bB bB ", 1, "pipeline_steps_undecided"),
    ],
)
def test_a_pipeline_closes_when_nothing_is_in_flight(
    letters: str, rank: int, expected: str
) -> None:
    assert in_flight(letters, rank=rank) == expected


def test_small_messages_are_no_pipeline() -> None:
    assert in_flight(MIDDLE, size=64) == "no_pipeline_ops"
