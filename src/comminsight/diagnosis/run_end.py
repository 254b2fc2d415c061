"""A run of which every process is gone, as it stood before its end: who was gone before the others.

What ended the job ended its processes within moments, by a signal or by an exit, in no telling
order. Only who was silent long before that had left or died by itself.
"""

from __future__ import annotations

from msgspec.structs import replace

from comminsight.diagnosis.presence import STANDSTILL_RATIO, Observed
from comminsight.model.hang import HangEvent, Liveness, Presence, RankState

MIN_SILENT_NS = 250_000_000  # a recorder that lives shows it every 200 ms
MAX_SILENT_NS = 2_000_000_000  # by then whatever ends a job has ended the processes of a node


def before_the_end(event: HangEvent) -> HangEvent:
    """The event with those alive that were ended together; unknown where no sign of life is."""
    signs = (state.last_sign_ns for state in event.ranks)
    silent_ns = max(event.observed_mono_ns, *signs) - needed_silence_ns(event)
    ranks = tuple(
        replace(state, liveness=_liveness_before(state, silent_ns)) for state in event.ranks
    )
    return replace(event, ranks=ranks, is_past=True)


def needed_silence_ns(event: HangEvent) -> int:
    """How much earlier than the others' the last sign of a rank must be that was gone first."""
    return int(min(max(STANDSTILL_RATIO * event.overdue_limit_ns, MIN_SILENT_NS), MAX_SILENT_NS))


def _liveness_before(state: RankState, silent_ns: int) -> Liveness:
    if not state.last_sign_ns:
        return Liveness.UNKNOWN
    return state.liveness if state.last_sign_ns < silent_ns else Liveness.ALIVE


def left_waiting(observed: Observed) -> tuple[int, ...]:
    """Ranks gone before the end that others, who lived on, waited for all the time since."""
    needed_ns = needed_silence_ns(observed.event)
    return tuple(
        sorted(
            rank
            for rank, state in observed.states.items()
            if observed.is_gone(rank)
            and any(
                one.presence.get(rank) is Presence.ABSENT
                and any(
                    op.age_ns >= needed_ns and not observed.is_gone(op.global_rank)
                    for op in one.waiting_ops
                )
                for one in observed.instances
            )
        )
    )
