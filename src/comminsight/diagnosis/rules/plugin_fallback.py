"""A network plugin that does not fit, in whose place NCCL uses a network of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

from comminsight.analysis.log_limits import PlacedLine, lines_of, named
from comminsight.analysis.log_ranks import ranks_of
from comminsight.diagnosis import codes_logs as logs
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.job_finding import JobFinding, job_verdict
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode
from comminsight.model.verdict import Cause, Confidence, Evidence

RULE = "plugin_fallback"
OWN_NETWORKS = frozenset({"Socket", "IB"})
# optional parts: a plugin without them is used all the same
OPTIONAL = re.compile(r"CollNet|Tuner|Profiler|collnet|tuner|profiler")
NOT_THERE = re.compile(r"cannot open shared object|No such file")


def plugin_fallback_rule(job: JobEvidence) -> Iterator[Claim]:
    """PLUGIN_FALLBACK where a library or symbol of the plugin is of the wrong version, and the
    network in use is one of NCCL's own. A plugin that is not installed is none."""
    if not job.logs:
        return
    ranks = ranks_of(job.logs, job.world_size)
    failed = lines_of(job.logs, ranks, [LogCode.NCCL_PLUGIN_FAILED])
    absent = {_process(one) for one in failed if NOT_THERE.search(str(one.event.values))}
    rejected = [one for one in failed if _is_misfit(one) and _process(one) not in absent]
    networks = lines_of(job.logs, ranks, [LogCode.NCCL_NETWORK])
    used = {str(one.event.values.get("network", "")) for one in networks}
    if not rejected or not used or not used <= OWN_NETWORKS:
        return
    first = rejected[0].event
    library = str(first.values.get("library", ""))
    said = message(
        logs.PLUGIN_REJECTED, ranks=list(named(rejected)), library=library,
        version=str(first.values.get("version", library)),
    )  # fmt: skip
    evidence = [Evidence(kind="log", message=said, text=first.text)]
    for network in sorted(used):
        own = [one for one in networks if one.event.values.get("network") == network]
        told = message(logs.NETWORK_USED, ranks=list(named(own)), network=network)
        evidence.append(Evidence(kind="log", message=told, text=own[0].event.text))
    found = JobFinding(
        rule=RULE, cause=Cause.PLUGIN_FALLBACK,
        confidence=Confidence.MEDIUM if "Socket" in used else Confidence.LOW,
        culprits=named(rejected), evidence=tuple(evidence),
        next_actions=(message(logs.MATCH_PLUGIN, library=library),),
    )  # fmt: skip
    yield Claim(job_verdict(job, found))


def _is_misfit(one: PlacedLine) -> bool:
    values = one.event.values
    is_symbol = "error" not in values and "result" not in values
    return is_symbol and not OPTIONAL.search(str(values.get("library", "")))


def _process(one: PlacedLine) -> tuple[str, int]:
    return one.host, one.event.pid
