"""In which order two runs may have summed: algorithms by size, layouts of calls, results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from comminsight.model.job_evidence import JobLog
from comminsight.model.log_event import LogCode
from comminsight.model.result_digest import ResultDigest

AlgorithmTable = dict[tuple[str, int], str]  # (op, bytes) -> "NVLS SIMPLE"
REDUCING = frozenset({"AllReduce", "Reduce", "ReduceScatter"})


@dataclass(frozen=True, slots=True)
class DifferingResult:
    """A result that is the same on all ranks of each run and not between the runs."""

    name: str
    n_ranks: int
    n_calls: int


def algorithms(logs: Iterable[JobLog]) -> AlgorithmTable:
    """Algorithm and protocol of each op and size, where all lines agree."""
    found: dict[tuple[str, int], set[str]] = defaultdict(set)
    for log in logs:
        for event in log.events:
            if event.code is LogCode.NCCL_TUNING:
                values = event.values
                key = str(values.get("op", "")), int(str(values.get("n_bytes", 0)))
                found[key].add(
                    f"{values.get('algo', '?')} {values.get('proto', '')}".strip().upper()
                )
    return {key: seen.pop() for key, seen in found.items() if len(seen) == 1}


def layouts(logs: Iterable[JobLog]) -> dict[str, list[int]]:
    """The counts of each reduction in the order of its calls, where every process made the same."""
    found: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for log in logs:
        by_process: dict[tuple[int, str], list[int]] = defaultdict(list)
        for event in log.events:
            op = str(event.values.get("op", ""))
            if event.code is LogCode.NCCL_COLL and op in REDUCING:
                by_process[event.pid, op].append(int(str(event.values.get("count", 0))))
        for (_, op), counts in by_process.items():
            found[op].add(tuple(counts))
    return {op: list(seen.pop()) for op, seen in found.items() if len(seen) == 1}


def differing_results(
    digests: Sequence[ResultDigest], others: Sequence[ResultDigest]
) -> list[DifferingResult]:
    """The results of which both runs have digests that differ, each agreeing with itself; a result
    on which the ranks of one run disagree is another fault, and left out."""
    here, there = _by_call(digests), _by_call(others)
    n_calls: dict[str, int] = defaultdict(int)
    n_ranks: dict[str, int] = defaultdict(int)
    torn = {name for run in (here, there) for (name, _), own in run.items() if len(_bits(own)) > 1}
    for key in here.keys() & there.keys():
        if _bits(here[key]) != _bits(there[key]):
            n_calls[key[0]] += 1
            n_ranks[key[0]] = max(n_ranks[key[0]], len(here[key]))
    return [
        DifferingResult(name, n_ranks[name], n)
        for name, n in sorted(n_calls.items())
        if name not in torn
    ]


def _by_call(digests: Iterable[ResultDigest]) -> dict[tuple[str, int], dict[int, str]]:
    found: dict[tuple[str, int], dict[int, str]] = defaultdict(dict)
    for one in digests:
        found[one.name, one.call][one.global_rank] = one.digest
    return found


def _bits(own: dict[int, str]) -> set[str]:
    return set(own.values())
