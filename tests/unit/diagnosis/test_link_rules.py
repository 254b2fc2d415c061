"""Rules on links: look-alikes that nobody may be accused for, and what follows from what."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from comminsight.diagnosis import codes_link as codes
from comminsight.diagnosis.job import judge_job
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.counters import CounterSeries, Link, LinkMap, RankSteps
from comminsight.model.host_facts import HostFacts, NvLinkState, PciBridge, PortState
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.ops import Op
from comminsight.model.verdict import Cause, Verdict
from comminsight.pipeline.diagnose import diagnose
from tests.builders.flight_recorder import Call, FlightJob, Group, write_dumps
from tests.builders.nccl_job import NcclJob, no_answer

RAISED = """[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "train.py", line 90, in <module>
[rank{rank}]:     loss.backward()
[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, remote process \
exited or there was a network error, NCCL version 2.21.5
[rank{rank}]: ncclRemoteError: A call failed possibly due to a network error."""


def peer_of(job: NcclJob, node: int) -> str:
    return f"10.40.{node}.7"


def transport_fault(job: NcclJob) -> None:
    """Two ranks get no answer from a third node, raise, and the launcher reports one of them."""
    for rank in (2, 4):
        job.warn(rank, 7200, no_answer(peer_of(job, 3)))
        job.say(rank, 7201, RAISED.format(rank=rank))
    job.say(
        0, 7210,
        "E0504 08:00:10.000000 140 torch/distributed/elastic/multiprocessing/api.py:874] failed "
        f"(exitcode: 1) local_rank: 0 (pid: {job.pid(2)}) of binary: /usr/bin/python3",
    )  # fmt: skip


def after_a_flap(job: NcclJob) -> None:
    job.warn(2, 7195, "NET/IB : mlx5_0:1 Got async event : port error")
    transport_fault(job)


def port_down_at_the_end(job: NcclJob) -> None:
    """The node is taken down after the failure."""
    transport_fault(job)
    job.warn(2, 7400, "NET/IB : mlx5_0:1 Got async event : port error")


def long_before(job: NcclJob) -> None:
    """A flap that the job survived by more than an hour."""
    job.warn(2, 100, "NET/IB : mlx5_0:1 Got async event : port error")
    transport_fault(job)


def on_another_port(job: NcclJob) -> None:
    """The failed transfer names its own port, which did not flap."""
    job.warn(2, 7195, "NET/IB : mlx5_5:1 Got async event : port error")
    line = no_answer(
        peer_of(job, 3), gids=("::ffff:10.40.1.7", "::ffff:10.40.3.7"), device="mlx5_0"
    )
    job.warn(2, 7200, line)


def killed(job: NcclJob) -> None:
    """The kernel killed a rank; its peers get no answer from it."""
    text = f"Killed process {job.pid(2)} (python) total-vm:9000kB, anon-rss:8100kB"
    job.kernel(1, 7190, f"Out of memory: {text}")
    for rank in (0, 4):
        job.warn(rank, 7200, no_answer(peer_of(job, 1)))
        job.say(rank, 7201, RAISED.format(rank=rank))


def flushed(job: NcclJob) -> None:
    """Only what is flushed after another error."""
    for rank in (0, 4):
        job.warn(rank, 7200, no_answer(peer_of(job, 1), status=5, vendor=249))


def verdicts_of(folder: Path, story: Callable[[NcclJob], None]) -> list[Verdict]:
    job = NcclJob(4, 2)
    story(job)
    found = diagnose([job.write(folder)]).verdicts
    return [verdict for verdict in found if verdict.cause is not Cause.NO_VERDICT]


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        (transport_fault, [(Cause.PEER_UNREACHABLE, ())]),
        (after_a_flap, [(Cause.LINK_FLAP, ())]),
        (port_down_at_the_end, [(Cause.PEER_UNREACHABLE, ())]),
        (long_before, [(Cause.PEER_UNREACHABLE, ())]),
        (on_another_port, [(Cause.PEER_UNREACHABLE, ())]),
        (killed, [(Cause.RANK_DEAD, (2,))]),
        (flushed, []),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_the_origin(
    story: Callable[[NcclJob], None], expected: list[tuple[Cause, tuple[int, ...]]], tmp_path: Path
) -> None:
    found = verdicts_of(tmp_path, story)
    assert [(verdict.cause, verdict.culprits) for verdict in found] == expected


@pytest.mark.parametrize("seed", range(12))
def test_lines_that_are_lost_or_shuffled_accuse_nobody_else(seed: int, tmp_path: Path) -> None:
    """Logs in other files and orders of files, with lines left out: the same cause, or nothing."""
    rng = random.Random(seed)
    stories = {after_a_flap: (), transport_fault: (), killed: (2,)}
    causes = {Cause.LINK_FLAP, Cause.PEER_UNREACHABLE, Cause.RANK_DEAD}
    for story, culprits in stories.items():
        job = NcclJob(4, 2)
        story(job)
        folder = job.write(tmp_path / story.__name__)
        for i, path in enumerate(sorted(folder.iterdir())):
            lines = [line for line in path.read_text().splitlines() if rng.random() > 0.2]
            path.rename(folder / f"{rng.randrange(1000):03}-{i}.log")
            (folder / f"{rng.randrange(1000):03}-{i}b.log").write_text("\n".join(lines) + "\n")
        for path in folder.glob("*-?.log"):
            path.unlink()
        for verdict in diagnose([folder]).verdicts:
            if verdict.cause in causes:
                assert set(verdict.culprits) <= set(culprits), (story.__name__, verdict)
            else:
                assert verdict.cause is Cause.NO_VERDICT


STEP_NS = 1_000_000_000
N_STEPS = 200


def job_with_errors(*, slower: float, is_mapped: bool, has_steps: bool = True) -> JobEvidence:
    """One port counts errors in steps 60-89, which take ``slower`` times as long."""
    rises = np.zeros(N_STEPS)
    rises[60:90] = 40
    counter = CounterSeries(
        host="h1.lan", device="mlx5_1", counter="symbol_error", unit="1",
        times_ns=tuple(STEP_NS * i for i in range(N_STEPS + 1)),
        values=tuple(np.concatenate([[0], np.cumsum(rises)]).tolist()),
    )  # fmt: skip
    times = 1e6 * (1 + 0.02 * np.random.default_rng(1).standard_normal(N_STEPS))
    times[60:90] *= slower
    steps = tuple(
        RankSteps(
            global_rank=rank, steps=tuple(range(N_STEPS)),
            start_ns=tuple(STEP_NS * i for i in range(N_STEPS)),
            end_ns=tuple(STEP_NS * (i + 1) for i in range(N_STEPS)),
            communication_ns=tuple(times.astype(int).tolist()),
        )
        for rank in range(4)
    )  # fmt: skip
    links = LinkMap(links=(Link(global_rank=2, host="h1", device="mlx5_1"),))
    return JobEvidence(
        counters=(counter,), step_times=steps if has_steps else (),
        links=links if is_mapped else None, world_size=4,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("job", "cause", "told"),
    [
        (job_with_errors(slower=1.5, is_mapped=True), Cause.SLOW_LINK, codes.EFFECT_SLOWED),
        (job_with_errors(slower=1.0, is_mapped=True), Cause.NO_VERDICT, codes.EFFECT_NONE),
        (job_with_errors(slower=1.5, is_mapped=False), Cause.NO_VERDICT, codes.MISSING_EFFECT),
        (
            job_with_errors(slower=1.5, is_mapped=True, has_steps=False),
            Cause.NO_VERDICT, codes.MISSING_EFFECT,
        ),
    ],
)  # fmt: skip
def test_errors_of_a_port_and_their_effect(job: JobEvidence, cause: Cause, told: str) -> None:
    verdict = judge_job(job)[0]
    said = {entry.message.code for entry in verdict.evidence} | {m.code for m in verdict.missing}
    assert (verdict.cause, told in said) == (cause, True)
    if cause is Cause.SLOW_LINK:
        assert (verdict.culprits, verdict.first_step, verdict.last_step) == ((2,), 60, 89)
        assert verdict.chain[-1].value == "h1/mlx5_1"
        assert verdict.measures["slowdown_ratio"] == pytest.approx(0.5, abs=0.05)


def rated(*, slow_gbs: float, is_mapped: bool, busbw_gbs: float) -> JobEvidence:
    """Eight ports in use and a management port; one of the eight has trained to ``slow_gbs``."""
    ports = [
        PortState(host=f"h{h}", device=f"m{c}", rate_gbs=slow_gbs if (h, c) == (2, 1) else 50.0)
        for h in range(4)
        for c in range(2)
    ]
    ports.append(PortState(host="h0", device="mgmt", rate_gbs=1.25))
    rows = tuple(
        BandwidthRow(
            op=Op.SEND, size_bytes=1 << 30, busbw_gbs=busbw_gbs if 2 in (a, b) and c == 1 else 46.0,
            ranks=(2 * a + c, 2 * b + c), hosts=(f"h{a}", f"h{b}"),
        )
        for c in range(2)
        for a, b in ((0, 1), (1, 2), (2, 3), (3, 0))
    )  # fmt: skip
    links = tuple(
        Link(global_rank=2 * h + c, host=f"h{h}", device=f"m{c}")
        for h in range(4)
        for c in range(2)
    )
    return JobEvidence(
        hosts=HostFacts(ports=tuple(ports)), bandwidth=rows if busbw_gbs else (),
        links=LinkMap(links=links) if is_mapped else None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (rated(slow_gbs=25, is_mapped=True, busbw_gbs=23), [(Cause.NIC_ASYMMETRY, (5,))]),
        (rated(slow_gbs=25, is_mapped=True, busbw_gbs=0), [(Cause.NIC_ASYMMETRY, (5,))]),
        (rated(slow_gbs=25, is_mapped=True, busbw_gbs=46), []),  # without an effect
        (rated(slow_gbs=50, is_mapped=True, busbw_gbs=46), []),
        (rated(slow_gbs=50, is_mapped=False, busbw_gbs=0), []),  # the management port is no card
    ],
)
def test_a_port_that_is_slower_than_those_like_it(
    job: JobEvidence, expected: list[tuple[Cause, tuple[int, ...]]]
) -> None:
    found = [v for v in judge_job(job) if v.cause is not Cause.NO_VERDICT]
    assert [(verdict.cause, verdict.culprits) for verdict in found] == expected


@pytest.mark.parametrize("n_before", [0, 40])
def test_bandwidth_that_fell_names_its_rank_and_step(n_before: int) -> None:
    """Three paths in windows of five steps; those of rank 2 fall, or nothing does."""
    rows = tuple(
        BandwidthRow(
            op=Op.SEND, size_bytes=size, ranks=pair, hosts=tuple(f"h{rank}" for rank in pair),
            busbw_gbs=size / (5e4 + size / (3.0 if 2 in pair and step >= n_before > 0 else 12.0)),
            first_step=step, last_step=step + 4,
        )
        for pair in ((0, 1), (1, 2), (2, 0))
        for size in (1 << 16, 1 << 20, 1 << 26)
        for step in range(0, 80, 5)
    )  # fmt: skip
    found = [v for v in judge_job(JobEvidence(bandwidth=rows)) if v.cause is not Cause.NO_VERDICT]
    if not n_before:
        assert found == []
        return
    assert [(v.cause, v.chain[6].value, v.first_step) for v in found] == [
        (Cause.SLOW_LINK, "h2", n_before)
    ]
    said = {entry.message.code for entry in found[0].evidence}
    assert {codes.FELL_AT, codes.FIT_DRIFTED} <= said


def test_a_job_without_any_of_it_is_not_judged_by_it() -> None:
    verdict = judge_job(replace(JobEvidence(), world_size=8))[0]
    assert verdict.cause is Cause.NO_VERDICT
    assert verdict.evidence == ()


def management_port(job: NcclJob) -> None:
    """The kernel tells of an interface that no line ties to the job."""
    job.kernel(1, 7195, "mlx5_core 0000:9a:00.0 eno1: Link down")
    transport_fault(job)


def between_other_hosts(job: NcclJob) -> None:
    """A port of one host goes down; transfers between two others fail."""
    job.warn(0, 7195, "NET/IB : mlx5_0:1 Got async event : port error")
    for node in range(4):
        job.info(2 * node, 0, f"Bootstrap : Using eth0:{peer_of(job, node)}<0>")
    job.warn(2, 7200, no_answer(peer_of(job, 3)))


def receiver_not_ready(job: NcclJob) -> None:
    """The other end answers that it has no buffer: the path works."""
    job.warn(2, 7200, no_answer(peer_of(job, 3), status=13, vendor=135))


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        (management_port, [Cause.PEER_UNREACHABLE]),
        (between_other_hosts, [Cause.PEER_UNREACHABLE]),
        (receiver_not_ready, []),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_port_that_has_nothing_to_do_with_it(
    story: Callable[[NcclJob], None], expected: list[Cause], tmp_path: Path
) -> None:
    assert [verdict.cause for verdict in verdicts_of(tmp_path, story)] == expected


def test_gids_that_changed_are_told_beside_a_late_failure(tmp_path: Path) -> None:
    job = NcclJob(4, 2)
    job.warn(2, 3000, "NET/IB : mlx5_0:1 Got async event : GID table change")
    job.warn(6, 9000, "NET/IB : mlx5_0:1 Got async event : GID table change")
    transport_fault(job)
    verdict = diagnose([job.write(tmp_path)]).verdicts[0]
    said = [e.message.params for e in verdict.evidence if e.message.code == codes.HOST_EVENT]
    assert [(one["host"], one["event"]) for one in said] == [("node1", "gid_change")]
    assert verdict.cause is Cause.PEER_UNREACHABLE


def stuck_job(folder: Path, n_nodes: int, hosts: HostFacts) -> JobEvidence:
    """All ranks in their first op, by direct access between the two of each node."""
    n_ranks = 2 * n_nodes
    world = {"0": Group("default_pg", tuple(range(n_ranks)))}
    programs = {rank: [Call("0", "all_reduce")] for rank in range(n_ranks)}
    write_dumps(folder, FlightJob(world, programs, dead={(0, 0)}).play())
    job = NcclJob(n_nodes, 2)
    for rank in range(n_ranks):
        job.info(rank, 1, f"Channel 00/0 : {rank}[0] -> {rank ^ 1}[1] via P2P/IPC")
    return replace(job.evidence(folder), hosts=hosts)


REDIRECTING = HostFacts(
    bridges=tuple(
        PciBridge(host="node0", bus_id=f"0000:0{i}:00.0", is_redirecting=True, below=(below,))
        for i, below in enumerate(("0000:0b:00.0", "0000:0f:00.0"))
    )
)
LINKED = replace(
    REDIRECTING,
    nvlinks=tuple(NvLinkState(host="node0", device=f"gpu{g}", link=0, is_up=True) for g in (0, 1)),
)
ODD_LINKS = HostFacts(
    nvlinks=tuple(
        NvLinkState(host="node0", device=f"gpu{g}", link=i, is_up=(g, i) != (0, 1))
        for g in (0, 1)
        for i in (0, 1)
    )
)


@pytest.mark.parametrize(
    ("n_nodes", "hosts", "cause"),
    [
        (1, REDIRECTING, Cause.P2P_BLOCKED),
        (1, ODD_LINKS, Cause.P2P_BLOCKED),
        (1, LINKED, Cause.ALL_PRESENT_STUCK),  # NVLink goes past the bridges
        (2, REDIRECTING, Cause.ALL_PRESENT_STUCK),  # the op joins two hosts: it may be the network
        (2, ODD_LINKS, Cause.ALL_PRESENT_STUCK),
        (1, HostFacts(), Cause.ALL_PRESENT_STUCK),
    ],
)
def test_direct_access_is_blamed_only_inside_one_host(
    n_nodes: int, hosts: HostFacts, cause: Cause, tmp_path: Path
) -> None:
    found = judge_job(stuck_job(tmp_path, n_nodes, hosts))
    assert [v.cause for v in found if v.cause is not Cause.NO_VERDICT] == [cause]


@pytest.mark.parametrize(("also_in", "culprits"), [((), ()), (("out_of_sequence",), (1,))])
def test_a_sender_without_an_answer_is_named_where_its_port_also_loses_what_comes(
    also_in: tuple[str, ...], culprits: tuple[int, ...], tmp_path: Path
) -> None:
    """Else the end that it sends to may be the one at fault."""
    names = ("local_ack_timeout_err", *also_in)
    counters = tuple(
        CounterSeries(
            host=f"node{i}", device="m", counter=name, unit="1", times_ns=(0, STEP_NS),
            values=(9.0, 900.0 if i == 1 else 9.0),
        )
        for i in range(4)
        for name in names
    )  # fmt: skip
    links = LinkMap(links=tuple(Link(global_rank=i, host=f"node{i}", device="m") for i in range(4)))
    job = replace(stuck_job(tmp_path, 2, HostFacts()), counters=counters, links=links)
    verdict = judge_job(job)[0]
    assert (verdict.cause, verdict.culprits) == (Cause.PEER_UNREACHABLE, culprits)
    assert verdict.chain[-1].value == "node1/m"
