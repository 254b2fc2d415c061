"""Steps and ops of a run as Arrow tables, for notebooks and for engines that read Arrow.

Every table states ``comminsight.schema_version``, ``comminsight.run_id`` and
``comminsight.step_view`` (``raw`` or ``calibrated``: whose numbers ``step`` holds) in its metadata.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from comminsight.analysis.alignment import AlignedStep
from comminsight.errors import InputError
from comminsight.model.ops import Op
from comminsight.model.step import Phase, StepEvidence, StepSummary
from comminsight.model.topology import Communicator
from comminsight.model.trace import RankTrace, RunTrace
from comminsight.pipeline.step_view import find_rank
from comminsight.store.events import EVENTS, TEXT, VERSION_KEY, SessionEvents, events_table

TABLES_SCHEMA_VERSION = "1.1.0"  # major: a column went or changed meaning; minor: a column came
RUN_ID_KEY = b"comminsight.run_id"
STEP_VIEW_KEY = b"comminsight.step_view"

PHASE = pa.struct(
    [
        ("kind", pa.string()), ("start_ns", pa.int64()), ("end_ns", pa.int64()),
        ("n_ops", pa.int64()), ("microbatch", pa.int64()),
        ("n_microbatches", pa.int64()),
    ]
)  # fmt: skip
EVIDENCE = pa.struct(
    [
        ("comm_id", pa.int32()), ("role", pa.string()), ("op", pa.string()),
        ("op_seq", pa.int64()), ("match_seq", pa.int64()), ("size_bytes", pa.int64()),
        ("start_ns", pa.int64()),
    ]
)  # fmt: skip
STEPS = pa.schema(
    [
        ("step", pa.int64()), ("local_step", pa.int64()), ("global_rank", pa.int32()),
        ("session_id", TEXT), ("host", TEXT), ("template", TEXT),
        ("template_version", pa.int32()), ("template_file_version", pa.int32()),
        ("start_ns", pa.int64()), ("end_ns", pa.int64()), ("start_real_ns", pa.int64()),
        ("span_ns", pa.int64()), ("period_ns", pa.int64()), ("gap_ns", pa.int64()),
        ("n_ops", pa.int64()), ("n_ops_between", pa.int64()), ("is_complete", pa.bool_()),
        ("end_proof", TEXT), ("n_late", pa.int64()), ("n_lost", pa.int64()),
        ("first", EVIDENCE), ("anchor", EVIDENCE), ("last", EVIDENCE),
        ("phases", pa.list_(PHASE)),
    ]
)  # fmt: skip
OPS = pa.schema(
    [("step", pa.int64()), ("role", TEXT), ("comm_label", TEXT), *EVENTS.schema]
)  # fmt: skip


def steps_table(
    trace: RunTrace, aligned: Sequence[AlignedStep], *, run_id: str, step_view: str
) -> pa.Table:
    """One row per step and rank, by step and rank.

    ``period_ns`` and ``gap_ns`` are null until the next step began; ``anchor`` is null where it was
    not seen, the ``microbatch`` of a phase (from 0) and their number where they are not known.
    Times are the session's CLOCK_MONOTONIC, ``start_real_ns`` its wall clock.
    """
    ranks = {rank.global_rank: rank for rank in trace.ranks}
    rows = [
        _step_row(aligned_step.step, aligned_step.members[global_rank], ranks[global_rank])
        for aligned_step in aligned
        for global_rank in sorted(aligned_step.members)
    ]
    return pa.Table.from_pylist(rows, schema=_with_metadata(STEPS, run_id, step_view))


def _step_row(number: int, step: StepSummary, rank: RankTrace) -> dict[str, Any]:
    identity = rank.session
    has_next = step.period_ns > 0
    return {
        "step": number,
        "local_step": step.step,
        "global_rank": step.global_rank,
        "session_id": step.session_id,
        "host": identity.host,
        "template": step.template,
        "template_version": step.template_version,
        "template_file_version": step.template_file_version,
        "start_ns": step.start_ns,
        "end_ns": step.end_ns,
        "start_real_ns": step.start_ns + identity.real_minus_mono_ns,
        "span_ns": step.span_ns,
        "period_ns": step.period_ns if has_next else None,
        "gap_ns": step.gap_ns if has_next else None,
        "n_ops": step.n_ops,
        "n_ops_between": step.n_ops_between,
        "is_complete": step.coverage_complete,
        "end_proof": step.end_proof.value,
        "n_late": step.n_late,
        "n_lost": step.n_lost,
        "first": _evidence(step.first, rank),
        "anchor": _evidence(step.anchor, rank) if step.anchor is not None else None,
        "last": _evidence(step.last, rank),
        "phases": [_phase(phase) for phase in step.phases],
    }


def _phase(phase: Phase) -> dict[str, Any]:
    return {
        "kind": phase.kind.value,
        "start_ns": phase.start_ns,
        "end_ns": phase.end_ns,
        "n_ops": phase.n_ops,
        "microbatch": phase.microbatch if phase.microbatch >= 0 else None,
        "n_microbatches": phase.n_microbatches or None,
    }


def _evidence(evidence: StepEvidence, rank: RankTrace) -> dict[str, Any]:
    return {
        "comm_id": int(rank.comm_ids_of(np.array(evidence.comm_index))),
        "role": evidence.role,
        "op": Op(evidence.op).name,
        "op_seq": evidence.op_seq,
        "match_seq": evidence.match_seq,
        "size_bytes": evidence.size_bytes,
        "start_ns": evidence.start_ns,
    }


def ops_table(
    trace: RunTrace,
    aligned: Sequence[AlignedStep],
    *,
    run_id: str,
    step_view: str,
    rank: int | None = None,
    step: int | None = None,
) -> pa.Table:
    """The finished ops of all ranks or of one, of all steps or of one, by rank and start.

    The columns are those of the exported events, before them ``step`` (null between the steps),
    ``role`` and ``comm_label`` of the communicator. A fold stands for ``n_folded`` ops.

    Raises InputError when there is no such rank, or no step of this number on any of the ranks.
    """
    ranks = trace.ranks if rank is None else (find_rank(trace, rank),)
    if step is not None:
        _check_step(aligned, [own.global_rank for own in ranks], step)
    schema = _with_metadata(OPS, run_id, step_view)
    tables = [_rank_ops(own, trace.communicators, aligned, step) for own in ranks]
    joined = pa.concat_tables(tables) if tables else OPS.empty_table()
    return joined.unify_dictionaries().replace_schema_metadata(schema.metadata)


def _check_step(aligned: Sequence[AlignedStep], ranks: Sequence[int], step: int) -> None:
    known = [own.step for own in aligned if not own.members.keys().isdisjoint(ranks)]
    if step not in known:
        told = f"{known[0]} to {known[-1]}" if known else "none"
        raise InputError(f"no step {step} on these ranks", next_step=f"closed steps: {told}")


def _rank_ops(
    rank: RankTrace,
    communicators: Sequence[Communicator],
    aligned: Sequence[AlignedStep],
    step: int | None,
) -> pa.Table:
    events = events_table(SessionEvents(rank.session, rank.ops, rank.comm_ids))
    windows = {
        a.step: a.members[rank.global_rank] for a in aligned if rank.global_rank in a.members
    }
    numbers, is_known = _numbers(events["start_ns"].to_numpy(), windows)
    comm_ids = events["comm_id"].to_numpy()
    own = (
        pa.array(numbers, pa.int64(), mask=~is_known),
        _named(comm_ids, [c.role.value for c in communicators], "UNKNOWN"),
        _named(comm_ids, [c.label for c in communicators], ""),
    )
    table = pa.Table.from_arrays([*own, *events.columns], schema=OPS)
    return table if step is None else table.filter(pa.array(is_known & (numbers == step)))


def _numbers(
    start_ns: np.ndarray, windows: Mapping[int, StepSummary]
) -> tuple[np.ndarray, np.ndarray]:
    """Per op the number of the step that it starts in, and whether it starts in one.

    A step reaches to the start of its last op: the end of that one may be told late, when the next
    op has begun.
    """
    if not windows:
        return np.zeros(len(start_ns), np.int64), np.zeros(len(start_ns), np.bool_)
    ordered = sorted(windows.items(), key=lambda entry: entry[1].start_ns)
    numbers = np.array([number for number, _ in ordered], np.int64)
    begins = np.array([step.start_ns for _, step in ordered], np.int64)
    lasts = np.array([step.last.start_ns for _, step in ordered], np.int64)
    place = np.searchsorted(begins, start_ns, side="right") - 1
    return numbers[place], (place >= 0) & (start_ns <= lasts[place])


def _named(comm_ids: np.ndarray, names: Sequence[str], unknown: str) -> pa.Array:
    """``names[comm_id]`` as text, ``unknown`` for -1."""
    words = list(dict.fromkeys([*names, unknown]))
    codes = np.array([words.index(name) for name in (*names, unknown)], np.int32)
    return pa.DictionaryArray.from_arrays(codes[comm_ids], pa.array(words, pa.string()))


def _with_metadata(schema: pa.Schema, run_id: str, step_view: str) -> pa.Schema:
    return schema.with_metadata(
        {
            VERSION_KEY: TABLES_SCHEMA_VERSION.encode(),
            RUN_ID_KEY: run_id.encode(),
            STEP_VIEW_KEY: step_view.encode(),
        }
    )
