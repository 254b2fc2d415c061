"""Calls that differ between ranks: what their histories tell, and logs that only seem to differ."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from comminsight.diagnosis import codes, codes_calls
from comminsight.diagnosis.hang import judge_hang
from comminsight.model.call_history import CalledOp, CallHistory
from comminsight.model.hang import HangEvent
from comminsight.model.ops import DType, Op
from comminsight.model.verdict import Cause, Confidence, Verdict
from comminsight.pipeline.diagnose import diagnose
from tests.cases.field_case import codes_of
from tests.cases.nccl_calls import NcclCall, NcclLogs
from tests.unit.diagnosis.events import AG, AR, BC, comm, event, op

WORLD = (comm(0, range(4)),)
KINDS = {"A": (AR, 1024), "B": (BC, 16), "G": (AG, 64), "g": (AG, 65), "R": (Op.REDUCE_SCATTER, 8)}


def history(rank: int, text: str, first_seq: int = 1) -> CallHistory:
    calls = tuple(
        CalledOp(comm_id=0, match_seq=first_seq + n, op=KINDS[one][0], dtype=DType.FLOAT32,
                 count=KINDS[one][1], out_count=KINDS[one][1] * 4, size_bytes=4 * KINDS[one][1])
        for n, one in enumerate(text)
    )  # fmt: skip
    return CallHistory(global_rank=rank, calls=calls)


def stuck(seq: int, own: dict[int, str], *, first: dict[int, int] | None = None) -> HangEvent:
    """Every rank is in op ``seq`` of its calls."""
    begins = first or {}
    inside = []
    for rank, text in own.items():
        kind, count = KINDS[text[seq - begins.get(rank, 1)]]
        inside.append(op(rank, 0, kind, seq, count=count, size_bytes=4 * count))
    told = tuple(history(rank, text, begins.get(rank, 1)) for rank, text in own.items())
    return replace(event(len(own), inside), histories=told)


def judged(seq: int, own: dict[int, str]) -> Verdict:
    return judge_hang(stuck(seq, own), (comm(0, range(len(own))),))


def test_the_first_call_that_differs_may_lie_far_before_the_one_in_which_all_stand() -> None:
    """Rank 2 made a call more; calls of one kind met each other until a size did not fit."""
    same = "GGGGGAB"
    verdict = judged(6, dict.fromkeys((0, 1, 3), same) | {2: "GGGGGGA"})
    assert (verdict.cause, verdict.culprits) == (Cause.OP_TYPE_MISMATCH, (2,))
    early = judged(7, dict.fromkeys((0, 1, 3), "GGAGBAR") | {2: "GGgAGBA"})
    assert (early.cause, early.culprits) == (Cause.EXTRA_COLLECTIVE, (2,))
    assert early.first_bad_op is not None
    assert early.first_bad_op.match_seq == 3
    prefix = [
        e.message.params for e in early.evidence if e.message.code == codes_calls.COMMON_PREFIX
    ]
    assert [one["n_ops"] for one in prefix] == [2]


@pytest.mark.parametrize(
    ("odd", "cause"),
    [
        ("BGRR", Cause.CONTROL_FLOW_SKIP),
        ("gABGR", Cause.EXTRA_COLLECTIVE),
        ("BAGRR", Cause.ORDER_INVERSION),
        ("gBGRR", Cause.OP_TYPE_MISMATCH),
        # what may be left out, or called later
        ("BGRA", Cause.OP_TYPE_MISMATCH),
        ("B", Cause.OP_TYPE_MISMATCH),
    ],
)
def test_what_the_odd_rank_did(odd: str, cause: Cause) -> None:
    verdict = judged(1, dict.fromkeys((0, 1, 2), "ABGRR") | {3: odd})
    assert (verdict.cause, verdict.culprits) == (cause, (3,))


def test_of_two_sides_of_one_size_that_which_keeps_the_pattern_is_right() -> None:
    step = "AGRB"
    kept, odd = step * 5, step * 4 + "GR"
    verdict = judged(17, {0: odd, 1: kept})
    assert (verdict.cause, verdict.culprits) == (Cause.CONTROL_FLOW_SKIP, (0,))
    assert verdict.confidence is Confidence.MEDIUM
    assert codes_calls.PATTERN in codes_of(verdict)
    without = judged(1, {0: "GR", 1: "AGRB"})
    assert without.culprits == (0, 1)
    assert codes_calls.MISSING_RIGHT_PATH in codes_of(without)


def test_where_the_calls_of_one_rank_are_not_known_only_the_op_itself_is_compared() -> None:
    told = stuck(1, dict.fromkeys((0, 1, 2), "ABGRR") | {3: "BGRR"})
    verdict = judge_hang(replace(told, histories=told.histories[:3]), WORLD)
    assert (verdict.cause, verdict.culprits) == (Cause.OP_TYPE_MISMATCH, (3,))
    assert codes_calls.SKIPPED_CALLS not in codes_of(verdict)


CALLS = (NcclCall("AllGather", 1), NcclCall("AllReduce", 9), NcclCall("Broadcast", 7))


@pytest.mark.parametrize(("is_numbered", "lost"), [(False, {1: frozenset({4})}), (False, {})])
def test_a_lost_line_is_no_call_less(
    is_numbered: bool, lost: dict[int, frozenset[int]], tmp_path: Path
) -> None:
    calls = dict.fromkeys(range(3), CALLS * 4)
    NcclLogs(calls, is_numbered=is_numbered, lost=lost).write(tmp_path / "logs")
    found = diagnose([tmp_path / "logs"]).verdicts
    assert [verdict.cause for verdict in found] == [Cause.NO_VERDICT]
    assert (codes_calls.MISSING_LINE_NUMBERS in codes_of(found[0])) == bool(lost)


def test_a_gap_in_the_numbers_of_the_library_is_no_call_less(tmp_path: Path) -> None:
    calls = dict.fromkeys(range(3), CALLS * 4)
    NcclLogs(calls, lost={1: frozenset({4})}).write(tmp_path / "logs")
    assert diagnose([tmp_path / "logs"]).verdicts[0].cause is Cause.NO_VERDICT


def test_a_process_that_prints_no_settings_may_have_them_all_the_same(tmp_path: Path) -> None:
    """At level WARN nobody's settings are printed: that is not an unlike setting."""
    sizes = ["Message truncated : received 524288 bytes instead of 65536"]
    made = NcclLogs(
        dict.fromkeys(range(2), ()), settings={0: {"NCCL_BUFFSIZE": "65536"}}, warns={1: sizes}
    )
    folder = made.write(tmp_path / "logs")
    quiet = [line for line in made.lines(1) if "WARN" in line]
    (folder / "nccl_rank1.log").write_text("\n".join(quiet) + "\n")
    verdict = diagnose([folder]).verdicts[0]
    assert verdict.cause is Cause.NO_VERDICT
    assert codes_calls.MISSING_ENVIRONMENT in codes_of(verdict)


@pytest.mark.parametrize("name", ["NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA"])
def test_settings_that_may_differ_between_hosts_are_none_to_blame(
    name: str, tmp_path: Path
) -> None:
    sizes = ["Message truncated : received 524288 bytes instead of 65536"]
    made = NcclLogs(dict.fromkeys(range(2), ()), settings={0: {name: "x"}}, warns={1: sizes})
    verdict = diagnose([made.write(tmp_path / "logs")]).verdicts[0]
    assert verdict.cause is Cause.NO_VERDICT


def test_a_fingerprint_of_two_ranks_names_both(tmp_path: Path) -> None:
    line = (
        "[rank{}]: RuntimeError: Detected mismatch between collectives on ranks. Rank {} is running"
        " collective: CollectiveFingerPrint(SequenceNumber=3, OpType={}, TensorShape=[4],"
        " TensorDtypes=Float, x), but Rank {} is running collective: CollectiveFingerPrint("
        "SequenceNumber=3, OpType={}, TensorShape=[4], TensorDtypes=Float, x).\n"
    )
    text = line.format(0, 0, "ALLREDUCE", 1, "BROADCAST")
    (tmp_path / "job.log").write_text(text + line.format(1, 1, "BROADCAST", 0, "ALLREDUCE"))
    verdict = diagnose([tmp_path]).verdicts[0]
    assert (verdict.cause, verdict.culprits) == (Cause.OP_TYPE_MISMATCH, (0, 1))
    assert codes.MISSING_MAJORITY in codes_of(verdict)


def test_a_fingerprint_of_a_group_names_nobody_beyond_who_wrote(tmp_path: Path) -> None:
    """Rank 0 is the first of any group it is in; who is the second one there, only that one
    tells."""
    line = (
        "[rank0]: RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running"
        " collective: CollectiveFingerPrint(SequenceNumber=3, OpType=ALLREDUCE, TensorShape=[4],"
        " TensorDtypes=Float, x), but Rank 1 is running collective: CollectiveFingerPrint("
        "SequenceNumber=3, OpType=BROADCAST, TensorShape=[4], TensorDtypes=Float, x).\n"
    )
    (tmp_path / "job.log").write_text(line)
    verdict = diagnose([tmp_path]).verdicts[0]
    assert (verdict.cause, verdict.culprits) == (Cause.OP_TYPE_MISMATCH, ())
