"""Rules on logs where a field case does not reach: versions of ranks, one node, what is abstained
from."""

from __future__ import annotations

import pytest

from comminsight.diagnosis import codes_logs
from comminsight.diagnosis.rules.heartbeat import heartbeat_rule
from comminsight.diagnosis.rules.init_network import init_network_rule
from comminsight.diagnosis.rules.monitored_barrier import monitored_barrier_rule
from comminsight.diagnosis.rules.plugin_fallback import plugin_fallback_rule
from comminsight.diagnosis.rules.rdma_memory import rdma_memory_rule
from comminsight.diagnosis.rules.shared_memory import shared_memory_rule
from comminsight.diagnosis.rules.version_skew import version_skew_rule
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence, Verdict
from tests.unit.analysis.log_texts import job_log

INFO = "n{host}:7{rank}:9 [{rank}] NCCL INFO {text}"


def info(rank: int, text: str, host: int = 1) -> str:
    return f"[rank{rank}]: {INFO.format(host=host, rank=rank, text=text)}"


def told(rule: object, *lines: str) -> list[Verdict]:
    job = JobEvidence(logs=(job_log(*lines),))
    return [claim.verdict for claim in rule(job)]  # type: ignore[operator]


def causes(rule: object, *lines: str) -> list[tuple[Cause, tuple[int, ...]]]:
    return [(verdict.cause, verdict.culprits) for verdict in told(rule, *lines)]


@pytest.mark.parametrize(
    ("versions", "found"),
    [
        (("2.21.5+cuda12.4",) * 4, []),
        (("2.21.5+cuda12.4", "2.21.5+cuda11.8"), []),
        (("2.21.5", "2.21.5", "2.18.1"), [(Cause.VERSION_SKEW, (2,))]),
        (("2.21.5", "2.18.1"), [(Cause.VERSION_SKEW, (0, 1))]),
    ],
)
def test_the_ranks_with_another_release_than_most(
    versions: tuple[str, ...], found: list[tuple[Cause, tuple[int, ...]]]
) -> None:
    lines = [info(rank, f"NCCL version {version}") for rank, version in enumerate(versions)]
    assert causes(version_skew_rule, *lines) == found


def test_a_rank_that_prints_two_versions_is_compared_with_nobody() -> None:
    lines = [info(rank, "NCCL version 2.21.5") for rank in range(3)]
    assert causes(version_skew_rule, *lines, info(0, "NCCL version 2.22.3")) == []


def test_loopback_is_no_fault_on_one_host() -> None:
    lines = [info(rank, "Bootstrap : Using lo:127.0.0.1<0>") for rank in range(2)]
    refused = info(1, "Call to connect returned Connection refused, retrying")
    assert causes(init_network_rule, *lines, refused) == []


@pytest.mark.parametrize("symbol", ["ncclCollNetPlugin_v8", "ncclTunerPlugin_v3"])
def test_an_optional_part_of_a_plugin_that_is_missing_is_no_fallback(symbol: str) -> None:
    lines = [info(0, f"NET/Plugin: Failed to find {symbol} symbol."),
             info(0, "Using network Socket")]  # fmt: skip
    assert causes(plugin_fallback_rule, *lines) == []


def test_a_plugin_that_is_not_installed_is_no_fallback() -> None:
    lines = [
        info(0, "NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open"
             " shared object file: No such file or directory"),
        info(0, "NET/Plugin: Failed to find ncclNetPlugin_v8 symbol."),
        info(0, "Using network Socket"),
    ]  # fmt: skip
    assert causes(plugin_fallback_rule, *lines) == []


def test_a_registration_that_fails_without_a_low_limit_is_not_explained() -> None:
    failed = "WARN Call to ibv_reg_mr failed with error Cannot allocate memory"
    call = info(0, "x").replace("INFO x", failed)
    limit = "max locked memory           (kbytes, -l) unlimited"
    (verdict,) = told(rdma_memory_rule, call, limit)
    assert (verdict.cause, verdict.culprits) == (Cause.NO_VERDICT, ())
    assert codes_logs.LIMIT_VALUE in {entry.message.code for entry in verdict.evidence}


def test_bus_errors_beside_another_fault_are_not_laid_to_shared_memory() -> None:
    lines = [f"[n1:7{rank}] Signal: Bus error (7)" for rank in range(2)]
    init = "ncclCommInitRank comm 0x5 rank {0} nranks 2 cudaDev 0 busId 1 commId 0x9 - Init START"
    known = [info(rank, init.format(rank)) for rank in range(2)]
    assert [cause for cause, _ in causes(shared_memory_rule, *known, *lines)] == [
        Cause.SHM_EXHAUSTED
    ]
    assert causes(shared_memory_rule, *known, *lines, "[rank1]: CUDA error: odd fault") == []


FAILED = "[rank0]: [Rank 0]: Ranks {} failed to pass monitoredBarrier in 2000 ms"
REACHED = (
    "[rank{0}]: Rank {0} successfully reached monitoredBarrier, but received errors while waiting "
    "for send/recv from rank 0. Please check"
)


@pytest.mark.parametrize(
    ("failed", "reached", "found"),
    [
        ("2, 5", (1, 3, 4), [(Cause.RANK_NOT_ENTERED, (2, 5))]),
        # a rank of which nobody knows: the group may be another one, with numbers of its own
        ("2, 5", (1, 3), []),
        ("2", (1,), []),
    ],
)
def test_who_missed_a_barrier_of_all_ranks(
    failed: str, reached: tuple[int, ...], found: list[tuple[Cause, tuple[int, ...]]]
) -> None:
    lines = [FAILED.format(failed), *(REACHED.format(rank) for rank in reached)]
    job = JobEvidence(world_size=6, logs=(job_log(*lines),))
    verdicts = [claim.verdict for claim in monitored_barrier_rule(job)]
    assert [(verdict.cause, verdict.culprits) for verdict in verdicts] == found


BEAT = (
    "[rank1]: [PG ID 0 PG GUID 0(default_pg) Rank 1] Heartbeat monitor timed out! Process will be "
    "terminated after dumping debug info. workMetaList_.size()={}"
)
GIL = "[rank1]: [PG ID 0 PG GUID 0(default_pg) Rank 1] Could not acquire GIL within 300 ms on exit"


@pytest.mark.parametrize(
    ("lines", "cause", "confidence"),
    [
        ((BEAT.format(0),), Cause.HEARTBEAT_FALSE_ALARM, Confidence.LOW),
        ((BEAT.format(0), GIL), Cause.HEARTBEAT_FALSE_ALARM, Confidence.MEDIUM),
        ((BEAT.format(3),), Cause.NO_VERDICT, Confidence.NONE),
        ((BEAT.format("many"),), Cause.NO_VERDICT, Confidence.NONE),
    ],
)
def test_a_heartbeat_is_false_only_where_nothing_is_pending(
    lines: tuple[str, ...], cause: Cause, confidence: Confidence
) -> None:
    (verdict,) = told(heartbeat_rule, *lines)
    assert (verdict.cause, verdict.confidence) == (cause, confidence)
