"""Ranks whose whole process stands still: stopped by a signal, frozen by a container, or without a
CPU.

The recorder has a thread of its own in the process and shows several times a second that it runs,
whatever the program and the library do. Where all members of an op are in it, and it is silent on
some of them and not on others, the op waits for those.
"""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.diagnosis.codes import message
from comminsight.diagnosis.codes_calls import FROZEN
from comminsight.diagnosis.presence import STANDSTILL_RATIO, Instance, Observed
from comminsight.model.hang import Liveness, RankState
from comminsight.model.verdict import Evidence

MIN_SILENT_NS = 2_000_000_000  # ten times the interval of a sign: a busy machine may delay a few
LEAD_RATIO = 3.0  # how many times as long as any other member it has been silent


def frozen_ranks(observed: Observed, instance: Instance) -> tuple[int, ...]:
    """Members of the op whose recorder is silent while that of every other member shows that it
    runs, ascending; () when nobody's is or everybody's, and when not all are known."""
    states = [observed.states.get(rank) for rank in sorted(instance.presence)]
    known = [state for state in states if state is not None and _is_signing(state)]
    needed_ns = max(MIN_SILENT_NS, STANDSTILL_RATIO * observed.event.overdue_limit_ns)
    silent = {s.global_rank: silence_ns(observed, s) for s in known}
    frozen = tuple(rank for rank, since_ns in silent.items() if since_ns >= needed_ns)
    if len(known) < len(states) or not 0 < len(frozen) < len(known):
        return ()
    longest_ns = max(since_ns for rank, since_ns in silent.items() if rank not in frozen)
    is_clear = all(silent[rank] >= LEAD_RATIO * longest_ns for rank in frozen)
    return frozen if is_clear else ()


def _is_signing(state: RankState) -> bool:
    return state.liveness is Liveness.ALIVE and state.last_sign_ns > 0


def silence_ns(observed: Observed, state: RankState) -> int:
    """How long the recorder of the rank had shown nothing when it was looked at."""
    return observed.event.observed_mono_ns - state.last_sign_ns


def frozen_evidence(
    observed: Observed, instance: Instance, culprits: tuple[int, ...]
) -> Iterator[Evidence]:
    """Since when each of the culprits shows no sign, where that is what they are named for."""
    for rank in frozen_ranks(observed, instance):
        if rank in culprits:
            silent_ns = silence_ns(observed, observed.states[rank])
            said = message(FROZEN, rank=rank, silent_ns=silent_ns)
            yield Evidence(kind="process", message=said, global_rank=rank)
