"""GPUs that are busy at little power: kernels that spin in a wait look like work to a utilisation
counter. It supports a hang, and names nobody.
"""

from __future__ import annotations

from collections import defaultdict

from msgspec.structs import replace

from comminsight.diagnosis import codes_groups as codes
from comminsight.diagnosis.codes import message
from comminsight.model.counters import CounterSeries
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import UNREMARKABLE, Cause, Evidence, Verdict

BUSY_PCT = 95.0
SPINNING_W = 150.0  # work at full utilisation draws several times this on any data centre GPU
MAX_SHOWN = 4
NO_HANG = UNREMARKABLE | {Cause.JOB_KILLED}


def with_spinning(verdict: Verdict, job: JobEvidence) -> Verdict:
    """With the hosts whose GPUs were last seen so."""
    if verdict.cause in NO_HANG or not job.counters:
        return verdict
    power_w = _last(job.counters, "power", "W")
    busy_pct = _last(job.counters, "util", "%")
    by_host: dict[str, list[str]] = defaultdict(list)
    most_w: dict[str, float] = defaultdict(float)
    for (host, device), watts in sorted(power_w.items()):
        if busy_pct.get((host, device), 0.0) >= BUSY_PCT and 0 < watts <= SPINNING_W:
            by_host[host].append(device)
            most_w[host] = max(most_w[host], watts)
    found = [
        Evidence(
            kind="counter",
            message=message(codes.SPINNING, host=host, devices=devices, power_w=most_w[host]),
        )
        for host, devices in by_host.items()
    ]
    return replace(verdict, evidence=(*verdict.evidence, *found[:MAX_SHOWN]))


def _last(series: tuple[CounterSeries, ...], named: str, unit: str) -> dict[tuple[str, str], float]:
    """The newest value of each device's counter of this name and unit."""
    return {
        (one.host, one.device): one.values[-1]
        for one in series
        if named in one.counter.lower() and one.unit == unit and one.values
    }
