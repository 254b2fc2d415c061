"""No evidence about links breaks a rule: odd numbers, empty names, series of any length."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from comminsight.diagnosis.job import judge_job
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.counters import CounterSeries, Link, LinkMap, RankGpu, RankSteps
from comminsight.model.host_facts import (
    DevicePath,
    GidEntry,
    HostDevice,
    HostFacts,
    NumaNode,
    NvLinkState,
    PciBridge,
    PortState,
)
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.ops import Op
from comminsight.model.result_digest import ResultDigest
from comminsight.model.verdict import Cause

HOST = st.sampled_from(["", "a", "b", "c", "d.lan", "10.0.0.1"])
DEVICE = st.sampled_from(["", "m0", "m1", "gpu0", "gpu1"])
NUMBER = st.one_of(st.floats(), st.integers(-5, 1 << 40).map(float))
SMALL = st.integers(-1, 6)
RANKS = st.lists(SMALL, max_size=5).map(tuple)
COUNTER = st.sampled_from(["out_of_sequence", "local_ack_timeout_err", "symbol_error", "x"])
GID = st.sampled_from(["", "::", "fe80::1", "fe80::2", "::ffff:10.0.0.1", "fd00::3", "none"])


def some(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.lists(strategy, max_size=8).map(tuple)


ROWS = st.builds(
    BandwidthRow, op=st.sampled_from(list(Op)), size_bytes=st.integers(-1, 1 << 40),
    busbw_gbs=NUMBER, run=st.sampled_from(["", "x"]), ranks=RANKS, hosts=some(HOST),
    devices=some(st.sampled_from(["", "a/m0", "b/m0", "m1"])), chunk_bytes=SMALL, n_ops=SMALL,
    low_gbs=NUMBER, high_gbs=NUMBER, first_step=SMALL, last_step=SMALL,
    comm_label=st.sampled_from(["", "DP 0"]),
)  # fmt: skip
SERIES = st.integers(0, 9).flatmap(
    lambda n: st.builds(
        CounterSeries, host=HOST, device=DEVICE, counter=COUNTER, unit=st.just("1"),
        times_ns=st.lists(st.integers(-9, 1 << 50), min_size=n, max_size=n).map(tuple),
        values=st.lists(NUMBER, min_size=n, max_size=n).map(tuple),
    )
)  # fmt: skip
STEPS = st.integers(0, 9).flatmap(
    lambda n: st.builds(
        RankSteps, global_rank=SMALL,
        steps=st.lists(st.integers(0, 99), min_size=n, max_size=n, unique=True).map(tuple),
        start_ns=st.lists(st.integers(0, 1 << 50), min_size=n, max_size=n).map(tuple),
        end_ns=st.lists(st.integers(0, 1 << 50), min_size=n, max_size=n).map(tuple),
    )
)  # fmt: skip
HOSTS = st.builds(
    HostFacts,
    ports=some(
        st.builds(
            PortState, host=HOST, device=DEVICE, rate_gbs=NUMBER, active_mtu_bytes=SMALL,
            state=st.sampled_from(["", "active", "down"]),
            link_layer=st.sampled_from(["", "ethernet", "infiniband"]),
        )
    ),
    gids=some(
        st.builds(
            GidEntry, host=HOST, device=DEVICE, index=SMALL, gid=GID, observed_ns=SMALL,
            kind=st.sampled_from(["", "v1", "v2", "ib"]),
        )
    ),
    bridges=some(
        st.builds(
            PciBridge, host=HOST, bus_id=DEVICE, is_redirecting=st.booleans(), below=some(DEVICE)
        )
    ),
    paths=some(
        st.builds(
            DevicePath, host=HOST, device=DEVICE, other=DEVICE, path=DEVICE,
            is_working=st.sampled_from([None, True, False]),
        )
    ),
    nvlinks=some(
        st.builds(NvLinkState, host=HOST, device=DEVICE, link=SMALL, is_up=st.booleans())
    ),
    devices=some(
        st.builds(
            HostDevice, host=HOST, device=DEVICE, is_nic=st.booleans(), numa_node=SMALL,
            switches=some(DEVICE),
        )
    ),
    numa_nodes=some(st.builds(NumaNode, host=HOST, numa_node=SMALL, cores=RANKS)),
)  # fmt: skip
LINKS = st.builds(
    LinkMap,
    links=some(st.builds(Link, global_rank=SMALL, host=HOST, device=DEVICE, rail=SMALL)),
    gpus=some(st.builds(RankGpu, global_rank=SMALL, host=HOST, device=DEVICE)),
)
DIGESTS = some(st.builds(ResultDigest, global_rank=SMALL, name=DEVICE, digest=DEVICE, call=SMALL))
JOBS = st.builds(
    JobEvidence, bandwidth=st.lists(ROWS, max_size=20).map(tuple), counters=some(SERIES),
    step_times=some(STEPS), hosts=HOSTS, links=st.one_of(st.none(), LINKS), digests=DIGESTS,
)  # fmt: skip


@settings(max_examples=40, deadline=None, derandomize=True)
@given(JOBS, st.one_of(st.none(), JOBS))
def test_no_evidence_breaks_a_rule(job: JobEvidence, baseline: JobEvidence | None) -> None:
    whole = JobEvidence(
        **{name: getattr(job, name) for name in job.__struct_fields__ if name != "baseline"},
        baseline=baseline,
    )
    verdicts = judge_job(whole)
    assert verdicts
    assert all(isinstance(verdict.cause, Cause) for verdict in verdicts)
