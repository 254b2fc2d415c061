"""All members inside an op that does not end, in a job whose environment makes launches blocking.

With CUDA_LAUNCH_BLOCKING the launch of a kernel returns when the kernel is over. A kernel of NCCL
over the network is over when a thread of the host has served it, and early versions of NCCL woke
that thread only after the launch. The flag is a reason only where nobody is absent.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from comminsight.analysis.log_index import lines_in_order
from comminsight.diagnosis import codes_groups as codes
from comminsight.diagnosis.codes import message
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.log_event import LogCode, LogEvent
from comminsight.model.verdict import Cause, Evidence, Verdict

VARIABLES = frozenset({"CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING"})
OFF = frozenset({"", "0"})
STATED_BY = frozenset({LogCode.ENVIRONMENT, LogCode.NCCL_ENV})


def with_blocking_launch(verdict: Verdict, job: JobEvidence) -> Verdict:
    """With the flag and the advice to take it away, first of all."""
    found = next(_settings(job), None) if verdict.cause is Cause.ALL_PRESENT_STUCK else None
    if found is None or verdict.culprits:
        return verdict
    name = str(found.values["name"])
    said = message(
        codes.BLOCKING_LAUNCH, variable=name, value=str(found.values["value"]),
        source=f"{found.file}:{found.line}",
    )  # fmt: skip
    return replace(
        verdict,
        evidence=(*verdict.evidence, Evidence(kind="log", message=said, text=found.text)),
        next_actions=(message(codes.UNSET_VARIABLE, variable=name), *verdict.next_actions),
    )


def _settings(job: JobEvidence) -> Iterator[LogEvent]:
    for _, event in lines_in_order(job.logs, STATED_BY):
        value = str(event.values.get("value", "")).strip()
        if event.values.get("name") in VARIABLES and value not in OFF:
            yield event
