"""What an NCCL job did against what was recorded of it, without any of the two."""

import numpy as np
import pytest

from comminsight.lab.nccl_compare import Call, Cost, call_from, costs, faults, plan
from comminsight.model.ops import OpState, TimingSource
from tests.builders import records as r

GPU = {
    "timing_source": TimingSource.GPU, "n_channels": 4, "channels_started": 4,
    "channels_stopped": 4, "gpu_start_ns": 1_000_000, "gpu_end_ns": 1_050_000, "size": 4096,
}  # fmt: skip
CALLS = [
    Call("all_reduce", ("ALL_REDUCE",), 4096, 60_000, True),
    Call("ring", ("SEND", "RECV"), 4096, 60_000, True),
    Call("broadcast", ("BROADCAST",), 4096, 60_000, True),
]


def recorded(**first):
    """The three calls as they should be recorded, the first with these fields."""
    return np.concatenate(
        [
            r.broadcast(4, 40, **GPU),
            r.allreduce(1, 10, **(GPU | first)),
            r.recv(2, 20, peer=1, **GPU),
            r.send(3, 20, peer=1, **GPU),
        ]
    )


def test_what_was_done_was_recorded():
    assert faults(CALLS, recorded()) == []


ALL_REDUCE = "call 0 (all_reduce, 4096 bytes): "


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"size": 4092}, "size 4092"),
        ({"state": OpState.UNOBSERVABLE}, "state UNOBSERVABLE"),
        ({"channels_stopped": 3}, "4 channels, 4 started, 3 stopped"),
        ({"n_channels": 0}, "0 channels, 4 started, 4 stopped"),
        ({"timing_source": TimingSource.HOST_KERNEL_CALLBACK}, "timed by HOST_KERNEL_CALLBACK"),
        ({"gpu_end_ns": 1_000_000}, "kernel time 0 ns"),
        ({"gpu_end_ns": 1_100_000}, "kernel time 100000 ns, CUDA events 60000 ns"),
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_true(fields, fault):
    assert faults(CALLS, recorded(**fields)) == [ALL_REDUCE + fault]


def test_a_missing_op_is_seen_where_it_is_missing():
    found = faults(CALLS, recorded()[[0, 2, 3]])
    assert found[0] == "4 ops, 3 records"
    assert found[1] == ALL_REDUCE + "recorded as RECV"
    assert found[-1] == "call 2 (broadcast, 4096 bytes): recorded as nothing"


def test_markers_and_summaries_are_no_ops():
    rows = recorded()
    with_more = np.concatenate([rows, r.open_marker(rows[1:2], 9), r.net_summary(rows[1:2], 10)])
    assert faults(CALLS, with_more) == []


def test_many_faults_are_not_all_told():
    calls = [CALLS[0]] * 100
    assert len(faults(calls, r.ops())) == 20


@pytest.mark.parametrize(
    ("n_gpus", "nccl", "n_ranks", "variable", "untested"),
    [
        (16, (2, 32, 3), 8, None, "network"),
        (2, (2, 27, 5), 2, None, "network"),
        (1, (2, 30, 3), 2, "NCCL_CUMEM_ENABLE", "share one GPU"),
        (1, (2, 31, 2), 2, "NCCL_MULTI_RANK_GPU_ENABLE", "share one GPU"),
        (1, (2, 29, 7), 1, None, "no op of such a communicator"),
    ],
)
def test_how_the_job_is_laid_out(n_gpus, nccl, n_ranks, variable, untested):
    made = plan(n_gpus, nccl)
    assert made.n_ranks == n_ranks
    assert (variable in made.environment) if variable else made.environment == {}
    assert any(untested in text for text in made.untested)


def test_costs_are_medians_of_warm_calls():
    def times(*values, name="a", size=8, is_warm=True):
        return [Call(name, ("X",), size, value, is_warm) for value in values]

    cold = times(10**9, is_warm=False)
    found = costs(
        [*cold, *times(100, 300, 200), *times(5, name="only here")], [*times(210, 230, 220)]
    )
    assert found == [Cost("a", 8, 200, 220)]
    assert found[0].ratio == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ({}, KeyError),
        ({"ops": "X"}, TypeError),
        ({"ops": [], "call": "a", "size_bytes": "x"}, ValueError),
    ],
)  # fmt: skip
def test_a_log_line_that_is_none(entry, error):
    with pytest.raises(error):
        call_from(entry)


def test_a_log_line():
    entry = {"call": "a", "ops": ["X"], "size_bytes": 8, "event_ns": 5, "is_warm": True}
    assert call_from(entry) == Call("a", ("X",), 8, 5, True)
