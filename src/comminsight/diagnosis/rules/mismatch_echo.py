"""Sizes that do not fit inside NCCL although nothing tells that the program's calls differ.

The numbers in such a warning are of slices and buffers. They differ where processes have unlike
settings or versions, or where the transport brings data in another order; an application that calls
different operations is only one of the reasons.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from comminsight.analysis.log_index import lines_in_order, lines_with
from comminsight.analysis.log_ranks import LogRanks, ranks_of
from comminsight.analysis.logged_calls import logged_comms
from comminsight.diagnosis import codes_calls as codes
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.divergence import compared
from comminsight.diagnosis.job_finding import JobFinding, abstained, job_verdict, told
from comminsight.model.job_evidence import JobEvidence, JobLog
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.verdict import Cause, Confidence, Evidence, Message

RULE = "mismatch_echo"
ECHOES = frozenset({LogCode.NCCL_SIZE_MISMATCH, LogCode.NCCL_COLL_MISMATCH})
# settings that change how data are cut and sent: all processes of a job need the same
NEEDED_EQUAL = frozenset(
    {
        "NCCL_ALGO", "NCCL_BUFFSIZE", "NCCL_CHUNK_SIZE", "NCCL_COLLNET_ENABLE",
        "NCCL_LL128_BUFFSIZE", "NCCL_LL_BUFFSIZE", "NCCL_LL_THRESHOLD", "NCCL_MAX_CTAS",
        "NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS", "NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS",
        "NCCL_MIN_NRINGS", "NCCL_NTHREADS", "NCCL_P2P_NET_CHUNKSIZE", "NCCL_PROTO",
        "NCCL_THREAD_THRESHOLDS", "NCCL_TREE_THRESHOLD",
    }
)  # fmt: skip
UNSET = ""

Settings = dict[str, dict[str, list[str]]]  # name -> value -> processes
Process = tuple[str, int]


def mismatch_echo_rule(job: JobEvidence) -> Iterator[Claim]:
    """ENV_SKEW suspected where processes have unlike settings; no verdict, with what to compare,
    where neither settings nor calls are known to differ."""
    echoes = list(lines_in_order(job.logs, ECHOES))
    if not echoes:
        return
    ranks = ranks_of(job.logs, job.world_size)
    comms = logged_comms(job.logs, ranks)
    if any(compared(comm.calls) is not None for comm in comms):
        return  # what the calls tell is told by their own rule
    agreeing = [told(codes.API_AGREES, kind="log", n_ranks=len(comm.calls),
                     n_ops=min(map(len, comm.calls.values()))) for comm in comms]  # fmt: skip
    evidence = [*_sizes(echoes), *agreeing]
    unlike = dict(_unlike(_settings(job, ranks)))
    versions = _versions(job, ranks)
    if len(versions) > 1:
        evidence += [
            told(codes.VERSIONS_DIFFER, kind="log", version=version, sources=", ".join(who))
            for version, who in sorted(versions.items())
        ]
    missing = [] if agreeing else [message(codes.MISSING_CALL_LINES)]
    if not unlike:
        missing.append(message(codes.MISSING_ENVIRONMENT))
        yield Claim(abstained(job, RULE, evidence, missing, _actions()))
        return
    said = [
        _setting(name, value, who)
        for name, values in sorted(unlike.items())
        for value, who in sorted(values.items())
    ]
    verdict = job_verdict(
        job,
        JobFinding(
            RULE, Cause.ENV_SKEW, Confidence.MEDIUM if agreeing else Confidence.LOW,
            evidence=(*evidence, *said), missing=tuple(missing), next_actions=_actions(),
        ),
    )  # fmt: skip
    yield Claim(verdict, explains=frozenset({Cause.ENV_SKEW, Cause.ALL_PRESENT_STUCK}))


def _setting(name: str, value: str, who: list[str]) -> Evidence:
    sources = ", ".join(who)
    if value == UNSET:
        return told(codes.SETTING_UNSET, kind="log", name=name, sources=sources)
    return told(codes.SETTING_DIFFERS, kind="log", name=name, value=value, sources=sources)


def _sizes(echoes: list[tuple[JobLog, LogEvent]]) -> Iterator[Evidence]:
    """The first complaint about sizes that states them."""
    for log, event in echoes:
        values = event.values
        first = values.get("local_size_bytes", values.get("received_bytes"))
        second = values.get("remote_size_bytes", values.get("expected_bytes"))
        if isinstance(first, int) and isinstance(second, int):
            yield told(
                codes.SLICE_SIZES, kind="log", text=event.text, first_bytes=first,
                second_bytes=second, source=f"{log.file}:{event.line}",
            )  # fmt: skip
            return


def _actions() -> tuple[Message, ...]:
    return message(codes.DIFF_ENVIRONMENT), message(codes.CHECK_ORDERING)


def _who(log: JobLog, event: LogEvent, ranks: LogRanks) -> str:
    rank = ranks.rank_of(log, event)
    return f"rank {rank}" if rank >= 0 else f"{event.host or log.file} pid {event.pid}"


def _settings(job: JobEvidence, ranks: LogRanks) -> Settings:
    """Values of the settings that some process has, with the processes; a process that NCCL speaks
    of at level INFO, and that never names a setting, has it not."""
    seen: dict[Process, str] = {}
    values: dict[str, dict[Process, str]] = defaultdict(dict)
    for log in job.logs:
        for event in log.events:
            if event.values.get("level") != "INFO" or event.pid <= 0:
                continue
            process = (event.host or log.file, event.pid)
            seen.setdefault(process, _who(log, event, ranks))
            name = str(event.values.get("name", ""))
            if event.code is LogCode.NCCL_ENV and name in NEEDED_EQUAL:
                values[name][process] = str(event.values.get("value", ""))
    found: Settings = {}
    for name, own in values.items():
        by_value = found.setdefault(name, defaultdict(list))
        for process, who in seen.items():
            by_value[own.get(process, UNSET)].append(who)
    return found


def _unlike(settings: Settings) -> Iterator[tuple[str, Mapping[str, list[str]]]]:
    for name, by_value in settings.items():
        if len(by_value) > 1:
            yield name, by_value


def _versions(job: JobEvidence, ranks: LogRanks) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for log, event in lines_with(job.logs, LogCode.NCCL_VERSION):
        if "version" in event.values:
            found[str(event.values["version"])].append(_who(log, event, ranks))
    return found
