"""One session as a whole: what its segments and its black box say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from comminsight.capture.box import BoxReading, process_liveness, read_box
from comminsight.capture.chain import largest_counts, newest_rows
from comminsight.capture.discovery import SessionPaths, segment_files
from comminsight.capture.merge import SeqMerger
from comminsight.capture.standing import standing_slots
from comminsight.capture.unseen import unseen_calls
from comminsight.errors import InputError
from comminsight.format.blackbox import BoxData
from comminsight.format.segment import SegmentData, read_segment
from comminsight.model.event import empty_batch
from comminsight.model.hang import Liveness
from comminsight.model.ops import LossReason, NoticeReason, OpState
from comminsight.model.records import is_op, notices
from comminsight.model.tally import Tally
from comminsight.model.topology import UNKNOWN_RANK, SessionIdentity

# Filters that somebody asked for are no loss; a record that did not reach a segment is a gap of
# the arrival numbers already, and one that a shell tool was too slow for is in the segment.
NOT_CAPTURE_LOSS = (
    LossReason.BELOW_MIN_SIZE,
    LossReason.MASKED,
    LossReason.RING_OVERWRITTEN,
    LossReason.SEGMENT_WRITE,
    LossReason.SEGMENT_CAP,
    LossReason.FIFO_FULL,
)
NOTICED_COUNTERS = (
    "n_stale_events", "n_foreign_events", "n_unknown_events", "n_captured_calls",
    "n_untracked_groups", "callback_ns", "n_sampled_ops",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SessionData:
    """Everything one session left.

    ``records`` are all kinds, markers included, in ``seq`` order, each once. ``in_flight`` are
    SLOT_DTYPE rows of ops without an end: the slots of the box, or the markers where there is no
    box. ``losses[comm_index, reason]`` counts ops the recorder passed over (row 0: no communicator
    of its own). ``problems`` are files that could not be read, as messages. From arrival number
    ``complete_from_seq`` on nothing is missing (1: nothing at all; 0: ops were passed over, and
    nobody knows when). ``nccl_counters`` is what the NCCL door counted, by name. ``is_cut``: its
    process did not close its records, and there is no box: more may have been recorded.
    ``unseen_calls`` are collectives of NCCL by ``comm_index`` that no recorder was told of.
    """

    identity: SessionIdentity
    comms: np.ndarray
    records: np.ndarray
    losses: np.ndarray
    in_flight: np.ndarray
    liveness: Liveness
    tally: Tally
    settings: dict[str, int]
    clock_pairs: np.ndarray
    pid: int = -1
    heartbeat_mono_ns: int = 0
    problems: tuple[str, ...] = ()
    complete_from_seq: int = 1
    nccl_counters: dict[str, int] = field(default_factory=dict)
    is_cut: bool = False
    unseen_calls: dict[int, int] = field(default_factory=dict)


def read_session(paths: SessionPaths) -> SessionData:
    """The session at ``paths``, living, dead or ended.

    Raises InputError when none of its files can be read; single ones are counted and named.
    """
    box, problems = _try_box(paths)
    segments, segment_problems = _try_segments(paths)
    problems += segment_problems
    if box is None and not segments:
        reason = problems[0] if problems else "it left neither segments nor a black box"
        raise InputError(f"nothing to read of session {paths.session_id}: {reason}")
    is_alive = box is not None and box.liveness is Liveness.ALIVE
    data = join_session(segments, None if box is None else box.data, is_alive=is_alive)
    data.tally.add("segment_files_unreadable", len(problems))
    if box is not None:
        liveness, pid = box.liveness, box.pid
    else:
        liveness, pid = segment_liveness(data.identity, is_sealed=segments[-1].is_sealed)
    return replace(data, liveness=liveness, pid=pid, problems=tuple(problems))


def join_session(
    segments: Sequence[SegmentData],
    box: BoxData | None,
    *,
    is_alive: bool = False,
    is_tail: bool = False,
) -> SessionData:
    """Segments in order and the box (either may be missing) as one session of unknown liveness.

    The records are the union of both by ``seq``. Numbers that neither holds are counted once:
    as torn or overwritten where the ring tells so, as ``seq_gaps`` otherwise; what a living
    process is just writing is no loss. ``is_tail``: earlier segments exist and were left aside, so
    that what precedes the first record is not missing.
    """
    tally = Tally()
    for part in segments:
        tally.merge(part.tally)
    stored = [part.records for part in segments]
    in_segments = stored[0] if len(stored) == 1 else np.concatenate([empty_batch(), *stored])
    ring = empty_batch() if box is None else box.ring
    firsts = [int(rows["seq"].min()) for rows in (in_segments, ring) if len(rows)]
    merger = SeqMerger(after_seq=min(firsts, default=1) - 1 if is_tail else 0)
    records = merge_at_end(merger, in_segments, box, has_segments=bool(segments), is_alive=is_alive)
    tally.merge(merger.tally)
    if box is not None:
        tally.merge(box.tally)
    losses = largest_counts([part.losses for part in segments] + ([box.losses] if box else []))
    tally.add("capture_lost", capture_lost(losses))
    is_cut = box is None and not segments[-1].is_sealed
    tally.add("sessions_cut", int(is_cut))
    witnesses: list[SegmentData | BoxData] = [*segments, *([box] if box else [])]
    comms = newest_rows([witness.comms for witness in witnesses])
    in_flight = unfinished_markers(records, comms) if box is None else box.in_flight
    since_seq = 0 if tally["capture_lost"] or is_cut else complete_from(records, merger)
    is_whole = since_seq == 1 and not is_tail
    unseen = unseen_calls(records, in_flight["record"], comms) if is_whole else {}
    tally.add("calls_unseen", sum(unseen.values()))
    return SessionData(
        identity=join_identity([witness.identity for witness in witnesses]),
        comms=comms,
        records=records,
        losses=losses,
        in_flight=in_flight,
        liveness=Liveness.UNKNOWN,
        tally=tally,
        settings=witnesses[-1].settings,
        clock_pairs=_clock_pairs(segments, box),
        heartbeat_mono_ns=0 if box is None else box.heartbeat_mono_ns,
        complete_from_seq=since_seq,
        nccl_counters=stated_counters(records) if box is None else box.nccl_counters,
        is_cut=is_cut,
        unseen_calls=unseen,
    )


def stated_counters(records: np.ndarray) -> dict[str, int]:
    """What the newest COUNTERS notice says, for a session without a box."""
    found = notices(records)
    found = found[found["reason"] == NoticeReason.COUNTERS][-1:]
    if not len(found):
        return {}
    counts = {name.removeprefix("n_"): int(found[name][0]) for name in NOTICED_COUNTERS}
    return {name: n for name, n in counts.items() if n > 0}


def complete_from(records: np.ndarray, merger: SeqMerger) -> int:
    """The number from which on all records up to the newest known number are there."""
    seq = np.ascontiguousarray(records["seq"])
    if not len(seq) or int(seq[-1]) < merger.delivered_seq:
        return merger.delivered_seq + 1
    breaks = np.flatnonzero(np.diff(seq) != 1)
    return int(seq[breaks[-1] + 1] if len(breaks) else seq[0])


def merge_at_end(
    merger: SeqMerger,
    in_segments: np.ndarray,
    box: BoxData | None,
    *,
    has_segments: bool,
    is_alive: bool,
) -> np.ndarray:
    """The last records of a session: everything that is left in segments and box."""
    if box is None:
        return merger.take(in_segments, empty_batch(), is_final=True)
    torn_seqs = box.torn_seqs
    if is_alive and len(torn_seqs):
        newest = max([0, *in_segments["seq"][-1:].tolist(), *box.ring["seq"][-1:].tolist()])
        torn_seqs = torn_seqs[torn_seqs < newest]
    gone_seq = 0 if has_segments else box.overwritten_seq
    return merger.take(in_segments, box.ring, gone_seq=gone_seq, torn_seqs=torn_seqs, is_final=True)


def join_identity(stated: Sequence[SessionIdentity]) -> SessionIdentity:
    """The newest identity that knows its global rank, else the newest."""
    known = [identity for identity in stated if identity.global_rank != UNKNOWN_RANK]
    return (known or list(stated))[-1]


def capture_lost(losses: np.ndarray) -> int:
    """Ops that the recorder meant to record and could not."""
    counted = losses.copy()
    counted[:, NOT_CAPTURE_LOSS] = 0
    return int(counted.sum())


def segment_liveness(identity: SessionIdentity, *, is_sealed: bool) -> tuple[Liveness, int]:
    """What is known of a process without a box: only an orderly end seals the last segment."""
    return (Liveness.CLOSED, -1) if is_sealed else process_liveness(identity)


def unfinished_markers(records: np.ndarray, comms: np.ndarray) -> np.ndarray:
    """SLOT_DTYPE rows of the ops whose last record is an OPEN or OVERDUE marker, by start."""
    at = np.flatnonzero(is_op(records))[::-1]
    key = records["comm_index"][at].astype(np.int64) << 32 | records["op_seq"][at]
    _, last_at = np.unique(key, return_index=True)
    last = records[at[last_at]]
    is_open = (last["state"] == OpState.OPEN) | (last["state"] == OpState.OVERDUE)
    slots = standing_slots(last[is_open], comms)
    return slots[np.argsort(slots["record"]["start_ns"], kind="stable")]


def _clock_pairs(segments: Sequence[SegmentData], box: BoxData | None) -> np.ndarray:
    pairs = [part.clock_pairs for part in segments]
    if box is not None and box.clock_pair[0] > 0:
        pairs.append(np.array([box.clock_pair], np.int64))
    return np.concatenate([np.zeros((0, 2), np.int64), *pairs])


def _try_box(paths: SessionPaths) -> tuple[BoxReading | None, list[str]]:
    if paths.box is None:
        return None, []
    try:
        return read_box(paths.box), []
    except InputError as error:
        return None, [str(error)]


def _try_segments(paths: SessionPaths) -> tuple[list[SegmentData], list[str]]:
    segments, problems = [], []
    for _, path in segment_files(paths.segment_dir):
        try:
            segments.append(read_segment(path))
        except InputError as error:
            problems.append(str(error))
    return segments, problems
