"""A circle in which one rank's collective was called by the compiler of the program.

Compilers agree on sizes and caches over all ranks. Where only one stage of a pipeline compiles now,
the others wait for its activations, and it waits for them: no message is forgotten, the groups are
used in an order that cannot be kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from comminsight.diagnosis import codes_groups as codes
from comminsight.diagnosis.codes import CYCLE_EDGE, message
from comminsight.model.hang import HangEvent
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.ops import RecordKind
from comminsight.model.verdict import Cause, Evidence, Verdict

CIRCLES = frozenset({Cause.CROSS_GROUP_CYCLE, Cause.P2P_UNMATCHED, Cause.RANK_NOT_ENTERED})
_COMPILER = re.compile(
    r"torch[/.](?:_dynamo|_inductor|_functorch|_export|compiler)\b|compile_fx|convert_frame"
    r"|\btriton[/.]compiler\b|\btorch[/.]fx\b"
)


def with_compiler(verdict: Verdict, job: JobEvidence) -> Verdict:
    """With the frame, and as a circle over groups where it was told as something not called."""
    circle = {
        int(str(one.message.params["waiter"]))
        for one in verdict.evidence
        if one.message.code == CYCLE_EDGE
    }
    if verdict.cause not in CIRCLES or job.hang is None or not circle:
        return verdict
    found = list(_compiling(circle, job, job.hang))
    if not found:
        return verdict
    return replace(
        verdict,
        cause=Cause.CROSS_GROUP_CYCLE,
        culprits=tuple(sorted(circle)),
        victims=tuple(sorted({*verdict.victims, *verdict.culprits} - circle)),
        evidence=(*verdict.evidence, *found),
        next_actions=(message(codes.COMPILE_TOGETHER), *verdict.next_actions),
    )


def _compiling(circle: set[int], job: JobEvidence, event: HangEvent) -> Iterator[Evidence]:
    """A frame of the compiler for each rank of the circle that is in a collective."""
    inside = {op.global_rank for op in event.in_flight if op.kind != RecordKind.P2P}
    for call in job.frames:
        rank = call.global_rank
        frame = next((frame for frame in call.frames if _COMPILER.search(frame)), None)
        if frame is not None and rank in inside & circle:
            said = message(codes.COMPILER, rank=rank, frame=frame)
            yield Evidence(kind="stack", message=said, global_rank=rank, text=frame)
