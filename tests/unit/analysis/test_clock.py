import numpy as np
import pytest

from comminsight.analysis.clock import (
    align_rows,
    estimate_clocks,
    offset_between,
    stamp_error_ns,
    to_aligned,
    wall_clocks,
)
from comminsight.model.event import OP_DTYPE, UNBOUNDED_NS
from comminsight.model.ops import Op, RecordKind, TimingSource
from comminsight.model.topology import SessionIdentity
from comminsight.model.trace import ClockOffsets, RankTrace
from comminsight.model.units import LocalNs


def rank_trace(boot_id: str, starts: list[int], ends: list[int], comm_id: int = 0) -> RankTrace:
    ops = np.zeros(len(starts), OP_DTYPE)
    ops["start_ns"], ops["end_ns"] = starts, ends
    ops["kind"], ops["op"], ops["comm_index"] = RecordKind.COLLECTIVE, Op.ALL_REDUCE, 1
    ops["match_seq"] = np.arange(1, len(starts) + 1)
    session = SessionIdentity(session_id=boot_id, boot_id=boot_id)
    return RankTrace(session=session, ops=ops, comm_ids=np.array([-1, comm_id]))


def test_one_node_is_exact() -> None:
    clocks = estimate_clocks([rank_trace("a", [0], [10]), rank_trace("a", [5], [11])])
    assert clocks == ClockOffsets(offset_ns={"a": 0}, error_ns={"a": 0})


def test_an_offset_is_found_within_its_stated_error() -> None:
    rng = np.random.default_rng(7)
    true_offset_ns = -5_000_000_000
    begin = np.arange(200) * 1_000_000
    last = begin + rng.integers(0, 20_000, 200) + 20_000
    here = rank_trace("a", begin.tolist(), (last + rng.integers(0, 5_000, 200)).tolist())
    there_begin = begin + rng.integers(0, 20_000, 200) - true_offset_ns
    there_end = last + rng.integers(0, 5_000, 200) - true_offset_ns
    clocks = estimate_clocks([here, rank_trace("b", there_begin.tolist(), there_end.tolist())])
    assert abs(clocks.offset_ns["b"] - true_offset_ns) <= clocks.error_ns["b"]
    assert abs(clocks.offset_ns["b"] - true_offset_ns) < 2_000
    assert 0 < clocks.max_error_ns < 60_000


def test_causality_clamps_the_median() -> None:
    # medians of ends say 100, but a begin at 0 may not come after an end at -60 + offset
    keys = np.array([1, 2, 3])
    a = np.array([[0, 140, 140], [200, 340, 340], [400, 450, 450]])
    b = np.array([[-40, 40, 40], [160, 240, 240], [395, 400, 400]])
    interval = offset_between(keys, a, keys, b)
    assert interval is not None
    assert interval.high_ns == 450 - 395
    assert interval.offset_ns == 55
    assert interval.error_ns == 55 - interval.low_ns


def test_contradicting_evidence_gives_the_violated_band() -> None:
    keys = np.array([1, 2])
    a = np.array([[0, 10, 10], [100, 110, 110]])
    b = np.array([[0, 10, 10], [0, 10, 10]])  # says 0 and 100
    interval = offset_between(keys, a, keys, b)
    assert interval is not None
    assert (interval.low_ns, interval.offset_ns, interval.high_ns) == (10, 50, 90)


@pytest.mark.parametrize("drift_ppm", [-400.0, -20.0, 0.0, 20.0, 100.0, 900.0])
def test_the_bound_holds_what_a_drifting_clock_is_off_at_either_end(drift_ppm: float) -> None:
    rng = np.random.default_rng(3)
    begin = np.arange(400) * 5_000_000
    end = begin + 100_000 + rng.integers(0, 10_000, 400)
    off_ns = np.round(begin * drift_ppm * 1e-6).astype(np.int64)
    clocks = estimate_clocks([
        rank_trace("a", begin.tolist(), end.tolist()),
        rank_trace("b", (begin - off_ns).tolist(), (end - off_ns).tolist()),
    ])  # fmt: skip
    farthest_ns = np.abs(off_ns[[0, -1]] - clocks.offset_ns["b"]).max()
    assert farthest_ns <= clocks.error_ns["b"]


def test_unconnected_nodes_stay_out() -> None:
    clocks = estimate_clocks([rank_trace("a", [0], [9]), rank_trace("b", [0], [9], comm_id=1)])
    assert clocks.offset_ns == {"a": 0}


def test_errors_add_up_along_a_chain() -> None:
    middle = rank_trace("b", [0, 0], [100, 100])
    middle.ops["comm_index"] = [1, 2]
    middle.ops["match_seq"] = 1
    middle = RankTrace(session=middle.session, ops=middle.ops, comm_ids=np.array([-1, 0, 1]))
    clocks = estimate_clocks(
        [rank_trace("a", [0], [100]), middle, rank_trace("c", [0], [100], comm_id=1)]
    )
    assert clocks.error_ns == {"a": 0, "b": 100, "c": 200}


@pytest.mark.parametrize(("boot_id", "aligned"), [("a", 105), ("elsewhere", 100)])
def test_conversion(boot_id: str, aligned: int) -> None:
    clocks = ClockOffsets(offset_ns={"a": 5})
    assert to_aligned(LocalNs(100), boot_id, clocks) == aligned
    offset_ns = np.full(2, clocks.offset_ns.get(boot_id, 0))
    assert align_rows(np.array([100, 0]), offset_ns).tolist() == [aligned, 0]


def test_wall_clocks_take_the_earliest_pair_of_a_node() -> None:
    def session(boot_id: str, mono: int, real: int) -> SessionIdentity:
        return SessionIdentity(
            session_id=f"{boot_id}{mono}", boot_id=boot_id, created_mono_ns=mono,
            created_real_ns=real,
        )  # fmt: skip

    clocks = wall_clocks([session("a", 9, 1010), session("a", 5, 1005), session("b", 50, 1060)])
    assert clocks.offset_ns == {"a": 0, "b": 10}


def stamped(*errors_ns: int, source: TimingSource = TimingSource.GPU) -> RankTrace:
    trace = rank_trace("a", [0] * len(errors_ns), [1] * len(errors_ns))
    trace.ops["clock_error_ns"], trace.ops["timing_source"] = errors_ns, source
    return trace


@pytest.mark.parametrize(
    ("ranks", "error_ns"),
    [
        ([stamped(10, 20, 900), stamped(5)], 40),  # of the widest rank, typical, and of two ranks
        ([stamped(10, UNBOUNDED_NS)], 20),
        ([stamped(UNBOUNDED_NS)], 0),
        ([stamped(70, source=TimingSource.HOST_FUTURE)], 0),
        ([], 0),
    ],
)
def test_starts_are_as_sure_as_the_stamps_of_two_gpus(
    ranks: list[RankTrace], error_ns: int
) -> None:
    assert stamp_error_ns(ranks) == error_ns
