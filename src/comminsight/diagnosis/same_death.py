"""One death that several rules tell is one finding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from comminsight.diagnosis import codes
from comminsight.model.verdict import Cause, Evidence, Message, Verdict


def told_once(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """The verdicts in their order; RANK_DEAD of ranks that an earlier one calls dead already is
    not there, and what it rests on stands with the earlier one."""
    found: list[Verdict] = []
    for verdict in verdicts:
        place = next((k for k, earlier in enumerate(found) if _is_same(earlier, verdict)), None)
        if place is None:
            found.append(verdict)
        else:
            found[place] = _joined(found[place], verdict)
    return found


def _is_same(earlier: Verdict, later: Verdict) -> bool:
    are_deaths = earlier.cause is later.cause is Cause.RANK_DEAD
    return are_deaths and bool(later.culprits) and earlier.culprits == later.culprits


def _joined(earlier: Verdict, later: Verdict) -> Verdict:
    said = [entry.message for entry in earlier.evidence]
    evidence = (*earlier.evidence, *(e for e in later.evidence if e.message not in said))
    return replace(
        earlier,
        evidence=evidence,
        missing=tuple(_still_missing(earlier.missing, later.missing, evidence)),
        next_actions=(*earlier.next_actions, *_new(later.next_actions, earlier.next_actions)),
    )


def _still_missing(
    earlier: Iterable[Message], later: Iterable[Message], evidence: Sequence[Evidence]
) -> Iterator[Message]:
    has_status = any(entry.message.code == codes.DIED for entry in evidence)
    for said in (*earlier, *_new(later, earlier)):
        if not (has_status and said.code == codes.MISSING_EXIT_STATUS):
            yield said


def _new(later: Iterable[Message], earlier: Iterable[Message]) -> Iterator[Message]:
    told = {said.code for said in earlier}
    return (said for said in later if said.code not in told)
