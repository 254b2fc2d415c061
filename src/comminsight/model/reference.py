"""References: how a verdict names what it rests on, so that ``comminsight show`` can open it.

``run`` · ``comm:3`` · ``rank:5`` (or ``rank:5,7``) · ``rank:5/step:41`` · ``op:3:120@5`` (the op of
``op_seq`` 120 of communicator 3 on rank 5) · ``verdict:1`` · ``evidence:1.4`` (the fourth of the
first verdict; both count from 1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

import msgspec

MAX_RANKS = 8


class RefKind(StrEnum):
    """What a reference leads to."""

    RUN = "run"
    COMM = "comm"
    RANK = "rank"
    STEP = "step"
    OP = "op"
    VERDICT = "verdict"
    EVIDENCE = "evidence"


class Reference(msgspec.Struct, frozen=True):
    """A reference taken apart; numbers that its kind has none of are -1."""

    kind: RefKind
    ranks: tuple[int, ...] = ()
    comm_id: int = -1
    op_seq: int = -1
    step: int = -1
    verdict: int = -1
    evidence: int = -1


_N = r"(\d{1,10})"
_FORMS: tuple[tuple[RefKind, re.Pattern[str], tuple[str, ...]], ...] = (
    (RefKind.RUN, re.compile("run"), ()),
    (RefKind.COMM, re.compile(f"comm:{_N}", re.ASCII), ("comm_id",)),
    (RefKind.RANK, re.compile(r"rank:(\d{1,10}(?:,\d{1,10}){0,7})", re.ASCII), ("ranks",)),
    (RefKind.STEP, re.compile(f"rank:{_N}/step:{_N}", re.ASCII), ("ranks", "step")),
    (RefKind.OP, re.compile(f"op:{_N}:{_N}@{_N}", re.ASCII), ("comm_id", "op_seq", "ranks")),
    (RefKind.VERDICT, re.compile(f"verdict:{_N}", re.ASCII), ("verdict",)),
    (RefKind.EVIDENCE, re.compile(rf"evidence:{_N}\.{_N}", re.ASCII), ("verdict", "evidence")),
)


def parse_reference(text: str) -> Reference | None:
    """The reference that ``text`` writes; None where it is of no known form."""
    for kind, form, names in _FORMS:
        if match := form.fullmatch(text):
            fields: dict[str, int | tuple[int, ...]] = {
                name: tuple(map(int, value.split(","))) if name == "ranks" else int(value)
                for name, value in zip(names, match.groups(), strict=True)
            }
            return msgspec.convert({"kind": kind, **fields}, Reference)
    return None


def comm_ref(comm_id: int) -> str:
    """The communicator, "" for an unknown one."""
    return f"comm:{comm_id}" if comm_id >= 0 else ""


def rank_ref(ranks: Iterable[int]) -> str:
    """These ranks, the first few of many; "" for none."""
    named = [str(rank) for rank in sorted(ranks) if rank >= 0][:MAX_RANKS]
    return f"rank:{','.join(named)}" if named else ""


def step_ref(rank: int, step: int) -> str:
    """One step of one rank."""
    return f"rank:{rank}/step:{step}"


def op_ref_text(comm_id: int, op_seq: int, rank: int) -> str:
    """One op on one rank; "" where any of the three is unknown."""
    return f"op:{comm_id}:{op_seq}@{rank}" if min(comm_id, op_seq, rank) >= 0 else ""


def verdict_ref(number: int) -> str:
    """A verdict of the report, counted from 1."""
    return f"verdict:{number}"


def evidence_ref(verdict: int, number: int) -> str:
    """One evidence of a verdict, both counted from 1."""
    return f"evidence:{verdict}.{number}"
