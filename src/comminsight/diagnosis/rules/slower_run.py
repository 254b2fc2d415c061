"""A run that is slower than another one of the same job: by the one thing that differs, if any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from comminsight.analysis.run_differences import (
    Difference,
    OpSpeed,
    masks,
    op_speeds,
    plans,
    settings_that_differ,
    spread,
    versions,
)
from comminsight.diagnosis import codes_link as codes
from comminsight.diagnosis.chain import op_name
from comminsight.diagnosis.claim import Claim
from comminsight.diagnosis.codes import message
from comminsight.diagnosis.cpu_masks import MaskChange, mask_changes, mask_said, not_local
from comminsight.diagnosis.job_finding import JobFinding, Place, abstained, job_verdict, told
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause, Confidence, Evidence, Message, Verdict

RULE = "slower_run"
SLOW_RATIO = 0.7  # of the other run
FINE_RATIO = 0.85
WIDE_RATIO = 0.6  # of the highest to the lowest bandwidth within a run


@dataclass(frozen=True, slots=True)
class Comparison:
    """The two runs: ops that are slower and ops that are not, and what differs."""

    slow: tuple[OpSpeed, ...]
    fine: tuple[OpSpeed, ...]
    settings: tuple[Difference, ...]
    versions: tuple[str, str] | None
    masks: tuple[MaskChange, ...]

    @property
    def names(self) -> list[str]:
        """All that differs, by name."""
        found = [one.name for one in self.settings]
        found += ["NCCL version"] if self.versions is not None else []
        return found + (["CPU mask"] if self.masks else [])


def slower_run_rule(job: JobEvidence) -> Iterator[Claim]:
    """A finding where transfers are slower than in the other run and one kind of thing differs: a
    setting, the version, or the CPU masks. Otherwise what was seen, and nobody is accused."""
    if job.baseline is None:
        return
    found = _compare(job, job.baseline)
    if not found.slow:
        return
    if not _same_hosts(job, job.baseline):
        yield Claim(_no_verdict(job, found, message(codes.MISSING_SAME_HOSTS)))
    elif not found.names:
        yield Claim(_no_verdict(job, found, message(codes.MISSING_DIFFERENCE)))
    elif found.settings and len(found.names) == len(found.settings):
        yield Claim(job_verdict(job, _by_settings(job, found)))
    elif len(found.names) > 1:
        said = message(codes.MISSING_ONE_DIFFERENCE, names=found.names)
        yield Claim(_no_verdict(job, found, said))
    elif found.versions is not None:
        yield Claim(job_verdict(job, _by_version(job, job.baseline, found)))
    else:
        yield Claim(job_verdict(job, _by_masks(job, found)))


def _compare(job: JobEvidence, other: JobEvidence) -> Comparison:
    speeds = op_speeds(job.bandwidth, other.bandwidth)
    here, there = versions(job.logs), versions(other.logs)
    is_other = len(here) == len(there) == 1 and here != there
    return Comparison(
        slow=tuple(speed for speed in speeds if speed.ratio <= SLOW_RATIO),
        fine=tuple(speed for speed in speeds if speed.ratio >= FINE_RATIO),
        settings=tuple(settings_that_differ(job.logs, other.logs)),
        versions=(here.pop(), there.pop()) if is_other else None,
        masks=tuple(mask_changes(masks(job.logs), masks(other.logs))),
    )


def _same_hosts(job: JobEvidence, other: JobEvidence) -> bool:
    """True unless both runs name their hosts and those differ."""
    here = {host for row in job.bandwidth for host in row.hosts}
    there = {host for row in other.bandwidth for host in row.hosts}
    return not here or not there or here == there


def _by_settings(job: JobEvidence, found: Comparison) -> JobFinding:
    is_one = len(found.settings) == 1
    names = [one.name for one in found.settings]
    missing: list[Message] = []
    if not is_one:
        missing.append(message(codes.MISSING_ONE_DIFFERENCE, names=names))
    if found.fine:
        missing.append(message(codes.MISSING_PORT_COUNTERS))
    return JobFinding(
        rule=RULE,
        cause=Cause.SLOW_LINK,
        confidence=Confidence.MEDIUM if is_one else Confidence.LOW,
        evidence=(*_slower_said(job, found), *map(_setting_said, found.settings)),
        missing=tuple(missing),
        next_actions=tuple(
            message(codes.SET_BACK, name=one.name, value=one.other) for one in found.settings
        ),
        measures=_measures(found),
    )


def _by_version(job: JobEvidence, other: JobEvidence, found: Comparison) -> JobFinding:
    here, there = found.versions or ("", "")
    said = [told(codes.VERSION_DIFFERS, kind="log", version=here, other=there)]
    planned, planned_there = plans(job.logs), plans(other.logs)
    if planned and planned_there and planned != planned_there:
        said.append(told(codes.GRAPH_DIFFERS, kind="log", graph=planned, other=planned_there))
    return JobFinding(
        rule=RULE,
        cause=Cause.VERSION_SKEW,
        confidence=Confidence.MEDIUM,
        evidence=(*_slower_said(job, found), *said),
        next_actions=(message(codes.SET_BACK, name="NCCL", value=there),),
        measures=_measures(found),
    )


def _by_masks(job: JobEvidence, found: Comparison) -> JobFinding:
    hosts = sorted({change.host for change in found.masks})
    bad = not_local(job.hosts, found.masks)
    blind = [host for host in hosts if all(n.host != host for n in job.hosts.numa_nodes)]
    return JobFinding(
        rule=RULE,
        cause=Cause.AFFINITY_BAD,
        confidence=Confidence.MEDIUM if bad else Confidence.LOW,
        place=Place(node=", ".join(hosts)),
        evidence=(*_slower_said(job, found), *map(mask_said, found.masks), *bad),
        missing=tuple(message(codes.MISSING_NUMA, host=host) for host in blind),
        next_actions=tuple(message(codes.BIND_LOCAL, host=host) for host in hosts),
        measures=_measures(found),
    )


def _no_verdict(job: JobEvidence, found: Comparison, missing: Message) -> Verdict:
    said = [*_slower_said(job, found), *map(_setting_said, found.settings)]
    return abstained(job, RULE, [*said, *map(mask_said, found.masks)], [missing])


def _slower_said(job: JobEvidence, found: Comparison) -> Iterator[Evidence]:
    ops = [op_name(speed.op) for speed in found.slow]
    measured = _measures(found)
    yield told(
        codes.RUN_SLOWER, ops=ops, busbw_gbs=measured["busbw_gbs"],
        usual_gbs=measured["usual_gbs"],
    )  # fmt: skip
    low, high = spread([row for row in job.bandwidth if row.op == found.slow[0].op])
    if low < WIDE_RATIO * high and len({row.size_bytes for row in job.bandwidth}) == 1:
        yield told(codes.RUN_SPREAD, low_gbs=low, high_gbs=high)
    if found.fine:
        yield told(codes.OP_ALONE, ops=ops, others=[op_name(speed.op) for speed in found.fine])


def _setting_said(one: Difference) -> Evidence:
    return told(codes.RUN_SETTING, kind="log", name=one.name, value=one.value, other=one.other)


def _measures(found: Comparison) -> dict[str, float]:
    worst = min(found.slow, key=lambda speed: speed.ratio)
    return {"busbw_gbs": worst.busbw_gbs, "usual_gbs": worst.usual_gbs}
