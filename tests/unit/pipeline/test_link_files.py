"""Physical ports named from files alone: NCCL logs beside ports, counters and the own run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from comminsight.cli.sources import judged
from comminsight.diagnosis import codes_link as codes
from comminsight.model.counters import CounterSeries
from comminsight.model.host_facts import HostFacts, PortState
from comminsight.model.ops import Op
from comminsight.model.verdict import Cause, ChainLevel, Confidence, Verdict
from comminsight.pipeline.diagnose import diagnose
from comminsight.run import open_run
from comminsight.sim import Clocks, LateRank, SlowLink, ddp_layout, megatron_layout, simulate
from comminsight.sim.groups import groups_of
from tests.builders.activities import T0, comm, compute
from tests.builders.host_files import write_host_files
from tests.builders.kineto import write_traces
from tests.builders.nccl_job import NcclJob, no_answer
from tests.builders.run import write_run
from tests.cases.field_case import codes_of
from tests.unit.format.test_nccl_tests_json import part
from tests.unit.format.test_nccl_tests_json import report as json_report
from tests.unit.format.test_nccl_tests_json import result as json_result
from tests.unit.format.test_net_interfaces import ETHTOOL as SETTINGS
from tests.unit.format.test_port_counters import ETHTOOL as NIC_STATISTICS

POWERS = [1 << k for k in range(20, 31)]
NOBODY = {Cause.NO_VERDICT, Cause.HEALTHY}


def port_of(verdict: Verdict) -> str:
    return next(link.value for link in verdict.chain if link.level is ChainLevel.PORT)


def without(job: NcclJob, rank: int, word: str) -> None:
    job.lines[rank] = [(s, text) for s, text in job.lines[rank] if word not in text]


def write_ports(folder: Path, job: NcclJob, slow: str, *, storage_gbs: float = 50.0) -> None:
    """All cards of all nodes, and one for storage that no rank uses."""
    names = [*(f"mlx5_{gpu}" for gpu in range(job.per_node)), "mlx5_storage"]
    ports = [
        PortState(
            host=job.host(node), device=name, state="active", link_layer="infiniband",
            guid=f"{node:x}{n:x}ff",
            rate_gbs=12.5 if f"{job.host(node)}/{name}" == slow
            else storage_gbs if name == "mlx5_storage" else 50.0,
        )
        for node in range(job.n_nodes)
        for n, name in enumerate(names)
    ]  # fmt: skip
    write_host_files(folder, HostFacts(ports=tuple(ports)), ())


@pytest.mark.parametrize(("n_nodes", "per_node", "rank"), [(2, 4, 6), (4, 1, 2), (3, 8, 0)])
def test_a_port_that_trained_low_with_its_ranks(
    tmp_path: Path, n_nodes: int, per_node: int, rank: int
) -> None:
    job = NcclJob(n_nodes, per_node)
    job.network()
    port = f"{job.host(job.node(rank))}/mlx5_{job.gpu(rank)}"
    write_ports(tmp_path / "ports", job, port)
    job.write(tmp_path / "logs")
    (found,) = diagnose([tmp_path]).verdicts
    assert (found.cause, found.culprits, port_of(found)) == (Cause.NIC_ASYMMETRY, (rank,), port)
    assert (found.confidence, codes_of(found) & {codes.MISSING_WHOLE_MAP}) == (
        Confidence.LOW,
        set(),
    )


@pytest.mark.parametrize("lost", ["NET/IB : Using", "[send]", "Connected"])
def test_a_partial_map_does_not_clear_a_port(tmp_path: Path, lost: str) -> None:
    """It may be the port of the rank whose lines are lost: told, and nobody is named."""
    job = NcclJob(2, 4)
    job.network()
    write_ports(tmp_path / "ports", job, "node1/mlx5_storage")
    without(job, 6, lost)
    job.write(tmp_path / "logs")
    (found,) = diagnose([tmp_path]).verdicts
    assert found.cause is Cause.NO_VERDICT
    assert {codes.PORT_RATE, codes.MISSING_WHOLE_MAP} <= codes_of(found)


def test_a_whole_map_clears_a_port_of_storage(tmp_path: Path) -> None:
    job = NcclJob(2, 4)
    job.network()
    write_ports(tmp_path / "ports", job, "node1/mlx5_storage")
    job.write(tmp_path / "logs")
    (found,) = diagnose([tmp_path]).verdicts
    assert found.cause in NOBODY
    assert codes.PORT_RATE not in codes_of(found)


def recorded(folder: Path, *, tp: int, slow: tuple[int, ...]) -> Path:
    """A run whose data parallel groups of some local ranks are slow; one node for each TP group."""
    layout = megatron_layout(tp=tp, pp=1, dp=4)
    groups = [group.name for group in groups_of(layout) if group.desc == "mesh_dp"]
    faults = [SlowLink(group=groups[rank], factor=4.0) for rank in slow]
    return write_run(folder, simulate(layout, steps=4, seed=3, faults=faults, clocks=Clocks(0)))


def verdicts(*paths: Path) -> tuple[Verdict, ...]:
    with judged(paths) as found:
        return found.report.verdicts


@pytest.mark.parametrize(("node", "gpu"), [(2, 1), (0, 3)])
def test_a_port_that_trained_low_and_whose_groups_are_slow(
    tmp_path: Path, node: int, gpu: int
) -> None:
    run = recorded(tmp_path / "run", tp=8, slow=(gpu,))
    job = NcclJob(4, 8)
    job.network()
    port = f"node{node}/mlx5_{gpu}"
    write_ports(tmp_path / "ports", job, port)
    logs = job.write(tmp_path / "logs")
    found = verdicts(run, logs, tmp_path / "ports")[0]
    assert (found.cause, found.confidence) == (Cause.NIC_ASYMMETRY, Confidence.HIGH)
    assert (found.culprits, port_of(found)) == ((node * 8 + gpu,), port)


@pytest.mark.parametrize("is_whole", [True, False])
def test_two_ranks_behind_one_card(tmp_path: Path, is_whole: bool) -> None:
    run = recorded(tmp_path / "run", tp=8, slow=(4, 5))
    job = NcclJob(4, 8)
    job.network({3 * 8 + 4: 5})
    if not is_whole:  # the line of another card that the rank sends by may be lost too
        without(job, 3 * 8 + 4, "Channel 01")
    found = verdicts(run, job.write(tmp_path / "logs"))
    if is_whole:
        assert (found[0].cause, found[0].culprits) == (Cause.NIC_SHARED, (28, 29))
        assert port_of(found[0]) == "node3/mlx5_5"
    else:
        assert Cause.NIC_SHARED not in {one.cause for one in found}


def rising(run: Path, rank: int, name: str, *, is_related: bool) -> CounterSeries:
    """A counter of the node of ``rank`` that grows in its longer steps, or in as many at random."""
    opened = open_run(run)
    wall_ns = next(
        s.identity.real_minus_mono_ns for s in opened.sessions if s.identity.global_rank == rank
    )
    own = [step.members[rank] for step in opened.aligned_steps if rank in step.members]
    lasted = np.array([one.period_ns for one in own], float)
    is_long = lasted > 1.1 * np.median(lasted)
    assert 8 < is_long.sum() < len(own) // 3
    if not is_related:
        is_long = np.random.default_rng(5).permutation(is_long)
    values = np.concatenate([[0.0], np.cumsum(900.0 * is_long)])[:-1]
    return CounterSeries(
        host=f"node{rank}", device="mlx5_0", counter=name, unit="1",
        times_ns=tuple(one.start_ns + wall_ns for one in own), values=tuple(values.tolist()),
    )  # fmt: skip


@pytest.mark.parametrize(("is_mapped", "is_related"), [(True, True), (True, False), (False, True)])
def test_errors_of_a_port_that_came_with_longer_steps(
    tmp_path: Path, is_mapped: bool, is_related: bool
) -> None:
    layout = ddp_layout(4)
    step_ns = layout.layers * (layout.forward_ns + layout.backward_ns)
    fault = LateRank(rank=2, extra_ns=step_ns // 3, probability=0.1)
    run = write_run(tmp_path / "run", simulate(layout, steps=150, seed=3, faults=[fault]))
    job = NcclJob(4, 1)
    job.network()
    if not is_mapped:
        without(job, 2, "NET/IB : Using")
    series = rising(run, 2, "symbol_error", is_related=is_related)
    write_host_files(tmp_path / "hosts", HostFacts(), [series])
    found = verdicts(run, job.write(tmp_path / "logs"), tmp_path / "hosts")
    slow = [one for one in found if one.cause is Cause.SLOW_LINK]
    if not (is_mapped and is_related):
        assert slow == []
        return
    assert [(one.culprits, port_of(one)) for one in slow] == [((2,), "node2/mlx5_0")]
    assert codes.EFFECT_SLOWED in codes_of(slow[0])


FLAPS: dict[str, tuple[Callable[[NcclJob], None], bool]] = {
    "whole": (lambda job: None, True),
    "partial": (lambda job: without(job, 3, "[send]"), True),
    "no list": (lambda job: without(job, 3, "NET/IB : Using"), False),
}


@pytest.mark.parametrize("logs", FLAPS)
def test_a_port_that_went_down(tmp_path: Path, logs: str) -> None:
    """Its ranks are named where the lines tell them; what the map lacks is missing."""
    change, is_named = FLAPS[logs]
    job = NcclJob(3, 2)
    job.network()
    job.warn(3, 100, "NET/IB : mlx5_1:1 Got async event : port error")
    job.warn(3, 110, no_answer("10.40.2.7"))
    change(job)
    found = diagnose([job.write(tmp_path)]).verdicts[0]
    assert (found.cause, port_of(found)) == (Cause.LINK_FLAP, "node1/mlx5_1")
    assert found.culprits == ((3,) if is_named else ())
    assert (codes.MISSING_WHOLE_MAP in codes_of(found)) == (logs != "whole")


@pytest.mark.parametrize("is_mapped", [True, False])
def test_losses_that_ethtool_counts(tmp_path: Path, is_mapped: bool) -> None:
    """Two answers of ethtool on each host, by interface; some sizes of a test collapse."""
    job = NcclJob(5, 1)
    job.network(kind="RoCE")
    if not is_mapped:
        without(job, 2, "Connected")
    for node in range(job.n_nodes):
        settings = SETTINGS.format(name="eth1", speed="100000Mb/s", link="yes")
        blocks = [
            f"# time {1_777_874_400 + 60 * k}\n{settings}"
            + NIC_STATISTICS.format(n=7 + (90_000 * k if node == 2 else k))
            for k in range(2)
        ]
        (tmp_path / f"node{node}.ethtool").write_text("".join(blocks))
        (tmp_path / f"node{node}.links").write_text("mlx5_0 port 1 ==> eth1 (Up)\n")
    curve = {size: 1.0 if 1 << 23 <= size <= 1 << 25 else 20.0 for size in POWERS}
    rows = [json_result(size, out_of_place=part(gbs, gbs)) for size, gbs in curve.items()]
    (tmp_path / "all_reduce.json").write_text(json_report(*rows))
    job.write(tmp_path / "logs")
    found = diagnose([tmp_path]).verdicts[0]
    assert codes.COUNTER_ROSE in codes_of(found)
    if is_mapped:
        assert (found.cause, found.culprits) == (Cause.ROCE_LOSS, (2,))
        assert port_of(found) == "node2/mlx5_0"
    else:
        assert found.cause is Cause.NO_VERDICT
        assert codes.MISSING_WHOLE_MAP in codes_of(found)


@pytest.mark.parametrize("is_named", [True, False])
def test_an_interface_of_which_the_kernel_says_that_it_went_down(
    tmp_path: Path, is_named: bool
) -> None:
    """Only what tells the device above it makes it a port of the job."""
    job = NcclJob(3, 2)
    job.network(kind="RoCE")
    job.kernel(1, 100, "mlx5_core 0000:3b:00.1 ens1f1: Link down")
    job.warn(3, 110, no_answer("10.40.2.7"))
    if is_named:
        (tmp_path / "node1.links").write_text("mlx5_1 port 1 ==> ens1f1 (Up)\n")
    job.write(tmp_path)
    found = diagnose([tmp_path]).verdicts[0]
    if is_named:
        assert (found.cause, found.culprits) == (Cause.LINK_FLAP, (3,))
        assert port_of(found) == "node1/mlx5_1"
    else:
        assert found.cause is Cause.PEER_UNREACHABLE


@pytest.mark.parametrize("is_related", [True, False])
def test_errors_of_a_port_beside_traces_of_the_job(tmp_path: Path, is_related: bool) -> None:
    """The steps are those that the profiler marked on rank 1."""
    rng = np.random.default_rng(11)
    n_steps, usual_us = 160, 1000.0
    is_long = rng.random(n_steps) < 0.12
    lasted_us = usual_us * (1 + 0.4 * is_long + 0.02 * rng.random(n_steps))
    begun_us = np.concatenate([[0.0], np.cumsum(lasted_us)]).tolist()
    own = [
        one
        for rank in range(2)
        for k in range(n_steps)
        for one in (
            compute(rank, begun_us[k], 700, step=k),
            comm(rank, Op.ALL_REDUCE, begun_us[k] + 700, 200, step=k, size_bytes=1 << 20),
        )
    ]
    write_traces(tmp_path / "traces", own, 2)
    risen = is_long if is_related else rng.permutation(is_long)
    values = np.concatenate([[0.0], np.cumsum(700.0 * risen)]).tolist()
    series = CounterSeries(
        host="node1", device="mlx5_0", counter="symbol_error", unit="1",
        times_ns=tuple(T0 + round(us * 1000) for us in begun_us), values=tuple(values),
    )  # fmt: skip
    write_host_files(tmp_path / "hosts", HostFacts(), [series])
    job = NcclJob(2, 1)
    job.network()
    job.write(tmp_path / "logs")
    slow = [one for one in diagnose([tmp_path]).verdicts if one.cause is Cause.SLOW_LINK]
    assert [(one.culprits, port_of(one)) for one in slow] == (
        [((1,), "node1/mlx5_0")] if is_related else []
    )
