"""A call whose like was read before is read as if it were the first."""

import random

import pytest

from comminsight.format.log_nccl import INFO_FIRST, body
from comminsight.format.log_pattern import AbsurdNumberError, Values, first_match
from comminsight.model.log_event import LogCode

CALLS = (
    "AllReduce: opCount 1f sendbuff 0x7f00 recvbuff (nil) count 4096 datatype 7 op 0 root 0 comm"
    " 0x55d0 [nranks=8] stream 0x55e0",
    "Broadcast: opCount 0 sendbuff 0x7f00 recvbuff 0x7f10 acc (nil) count 9 datatype 1 op 0 root 3"
    " comm 0x55d0 [nranks=8]",
    "Send: opCount ffffffffffffffff sendbuff (nil) recvbuff 0x1 count 1 datatype 0 op 0 root -1"
    " comm 0xa",
)
PIECES = (
    ": opCount ",
    "opCount 3 ",
    " ",
    "0",
    "f",
    "Reduce: opCount 5 sendbuff 0x1",
    "\t",
    "é",
    "٣",
)


def alone(text: str) -> tuple[LogCode, Values] | None:
    """What the table tells of the line."""
    found = first_match(INFO_FIRST, text)
    if found is not None:
        found[1]["level"] = "INFO"
    return found


def told(read: object, text: str) -> object:
    try:
        return read(text)  # type: ignore[operator]
    except AbsurdNumberError:
        return "absurd"


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_the_table_tells_of_any_line(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(200):
        text = draw.choice(CALLS)
        for _ in range(draw.randrange(3)):
            at, n_out = draw.randrange(len(text)), draw.choice((0, 0, 1, 3))
            text = text[:at] + draw.choice(PIECES) + text[at + n_out :]
        assert told(lambda one: body(one, "INFO"), text) == told(alone, text), text


@pytest.mark.parametrize("call", CALLS)
def test_calls_that_differ_in_their_number_are_told_apart(call: str) -> None:
    before, _, rest = call.partition("opCount ")
    behind = rest.partition(" ")[2]
    found = [body(f"{before}opCount {n:x} {behind}", "INFO") for n in (1, 2, 0xABC)]
    assert [one and one[1]["op_count"] for one in found] == [1, 2, 0xABC]
    assert [one and one[0] for one in found] == [LogCode.NCCL_COLL] * 3


def test_what_is_changed_in_one_is_not_changed_in_the_next() -> None:
    first = body(CALLS[0], "INFO")
    assert first is not None
    first[1].clear()
    assert body(CALLS[0], "INFO") == alone(CALLS[0])
