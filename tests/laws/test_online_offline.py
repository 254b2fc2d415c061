"""Online = offline: live in pieces, over segments and over Parquet the steps are the same bytes.

For any chunking, any crashes with a snapshot behind them (whole, damaged or none), and a change of
the templates on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comminsight.model.event import OP_DTYPE
from comminsight.model.ops import DType, Op, OpState, RecordKind
from comminsight.model.step import PhaseKind, StepSummary
from comminsight.pipeline.rebuild import settings_with
from comminsight.pipeline.rebuild_archive import ParquetTask, rebuild_parquet
from comminsight.pipeline.rebuild_tasks import SegmentsTask, rebuild_segments
from comminsight.pipeline.session_steps import SessionStepper
from comminsight.pipeline.snapshots import snapshot_path
from comminsight.semantics import phases as phases_module
from comminsight.semantics.engine import SessionEngine
from comminsight.semantics.template import Template
from comminsight.store import events
from comminsight.store.archive import Archive
from comminsight.store.events import SessionEvents, block_name, export_all
from comminsight.store.sessions import export_sessions, session_entry
from tests.builders import (
    MS,
    comm_row,
    identity,
    net_summary,
    notice,
    segment_bytes,
    write_segment,
)
from tests.builders.segment import header_json
from tests.laws.test_engine_laws import COMMS, CUTS, TEMPLATES, streams
from tests.unit.semantics.snapshots import carried

RECORDER = {"safe_window_ns": 400 * MS, "overdue_limit_ns": 15_000 * MS}
WHO = identity(0, 8)
LAW = settings(
    max_examples=15, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip


def whole(batch: np.ndarray, templates: Sequence[Template] = TEMPLATES) -> bytes:
    engine = SessionEngine(templates, settings_with(RECORDER), WHO)
    engine.add_comms(COMMS)
    return lines(engine.push(batch) + engine.finish())


def lines(steps: list[StepSummary]) -> bytes:
    return b"".join(msgspec.json.encode(step) + b"\n" for step in steps)


def with_others(batch: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Network summaries and a notice between the records, numbered anew with the old gaps."""
    rows, gap = [], np.diff(batch["seq"], prepend=0) - 1
    for row, missing in zip(np.split(batch, len(batch)), gap.tolist(), strict=True):
        extra = [net_summary(row, 0)] if row["start_ns"] > 0 and rng.random() < 0.3 else []
        extra += [notice(0, 1500.0)] if rng.random() < 0.02 else []
        for n, one in enumerate([row, *extra]):
            numbered = one.copy()
            last = int(rows[-1]["seq"][0]) if rows else 0
            numbered["seq"] = last + 1 + (missing if n == 0 else 0)
            rows.append(numbered)
    found = np.concatenate(rows)
    found["seq_low"] = found["seq"]
    return found


def from_segments(folder: Path, batch: np.ndarray, cuts: list[int]) -> bytes:
    session = folder / "inspector_logs" / WHO.session_id
    parts = np.split(batch, sorted({cut % (len(batch) + 1) for cut in cuts[:3]}))
    for number, part in enumerate(parts, 1):
        header = header_json(WHO, settings=RECORDER)
        data = segment_bytes(part, COMMS, WHO, number=number, frame_records=7, header=header)
        write_segment(session, data, number=number)
    (rebuilt,) = rebuild_segments(SegmentsTask(str(session), str(folder / "steps")))
    assert rebuilt.n_records == len(batch)
    return Path(rebuilt.steps_path).read_bytes()


def from_parquet(folder: Path, batch: np.ndarray) -> bytes:
    archive = Archive.local(folder / "archive")
    comm_ids = np.arange(-1, len(COMMS), dtype=np.int32)
    other = identity(1, 8, pid=77)  # a neighbour in the same row groups
    with patch.object(events, "ROW_GROUP_ROWS", 29):
        own = SessionEvents(WHO, batch, comm_ids)
        export_all([own, SessionEvents(other, batch[::2], comm_ids)], archive, "")
    heads = [session_entry(who, COMMS, RECORDER, is_over=True) for who in (WHO, other)]
    export_sessions(heads, archive, "")
    task = ParquetTask(str(folder / "archive"), block_name(0), str(folder / "steps-parquet"))
    found = {one.identity.session_id: one for one in rebuild_parquet(task)}
    assert found[WHO.session_id].n_records == len(batch)
    return Path(found[WHO.session_id].steps_path).read_bytes()


@LAW
@given(streams(), CUTS, st.integers(0, 2**32 - 1))
def test_segments_and_parquet_give_the_steps_of_the_stream(
    tmp_path_factory: pytest.TempPathFactory, batch: np.ndarray, cuts: list[int], seed: int
) -> None:
    folder = tmp_path_factory.mktemp("run")
    batch["start_ns"] = np.maximum(batch["start_ns"], 0)  # a reader throws negative ones away
    batch = with_others(batch, np.random.default_rng(seed))
    expected = whole(batch)
    assert from_parquet(folder, batch) == expected
    assert from_segments(folder, batch, cuts) == expected
    assert not list(folder.glob("steps*/.part-*"))


NEW_TEMPLATES = (
    *TEMPLATES[1:],
    msgspec.structs.replace(TEMPLATES[0], version=TEMPLATES[0].version + 1),
    msgspec.structs.replace(
        next(t for t in TEMPLATES if t.name == "tp-pp-dp"), name="newer", priority=999, version=3
    ),
)


class Follower:
    """Somebody who follows a process, is killed now and then, and begins again."""

    def __init__(self, folder: Path, batch: np.ndarray) -> None:
        self.folder, self.batch = folder, batch
        self.refusals: list[str] = []
        self.templates = TEMPLATES
        self.begin()

    def begin(self) -> None:
        """A new life: nothing but the files is left of the one before."""
        self.stepper = SessionStepper(
            self.folder / "steps", self.folder / "snapshots", self.templates,
            settings_with(RECORDER), WHO,
        )  # fmt: skip
        if self.stepper.refusal:
            self.refusals.append(self.stepper.refusal)

    def follow(self, until: int, cuts: list[int]) -> None:
        """Feed what lies behind the stepper's own number up to the record ``until``."""
        rows = self.batch[:until]
        rows = rows[rows["seq"] > self.stepper.delivered_seq]
        for part in np.split(rows, sorted({cut % (len(rows) + 1) for cut in cuts})):
            self.stepper.push(COMMS, part)

    def damage(self, at: int) -> None:
        """One byte of the snapshot is another."""
        path = snapshot_path(self.folder / "snapshots", WHO.session_id)
        data = bytearray(path.read_bytes())
        data[at % len(data)] ^= 0x41
        path.write_bytes(data)


LIVES = st.lists(
    st.tuples(st.integers(0, 10_000), CUTS, st.sampled_from(["save", "save", "lose", "damage"])),
    max_size=5,
)


@LAW
@given(streams(), LIVES, st.booleans())
def test_a_follower_that_crashes_gives_the_steps_of_the_stream(
    tmp_path_factory: pytest.TempPathFactory,
    batch: np.ndarray,
    lives: list[tuple[int, list[int], str]],
    is_upgraded: bool,
) -> None:
    follower = Follower(tmp_path_factory.mktemp("run"), batch)
    for number, (until, cuts, fate) in enumerate(sorted(lives, key=lambda life: life[0])):
        follower.follow(until % (len(batch) + 1), cuts)
        if fate != "lose":
            follower.stepper.save()
        follower.follow(until % (len(batch) + 1) + 9, [])  # what no snapshot knows of
        if fate == "damage":
            follower.damage(until)
        if is_upgraded and number == len(lives) // 2:
            follower.templates = NEW_TEMPLATES
        n_refused = len(follower.refusals)
        follower.begin()
        if fate == "damage":
            assert len(follower.refusals) == n_refused + 1
            assert ".cisnap: " in follower.refusals[-1]
            assert follower.stepper.delivered_seq == 0
    follower.follow(len(batch), [])
    follower.stepper.finish()
    assert follower.stepper.path.read_bytes() == whole(batch, follower.templates)


@settings(LAW, max_examples=4)
@given(streams(max_steps=14, is_clean=True))
def test_other_templates_refuse_the_snapshot_and_give_their_own_steps(
    tmp_path_factory: pytest.TempPathFactory, batch: np.ndarray
) -> None:
    folder = tmp_path_factory.mktemp("run")
    follower = Follower(folder, batch)
    follower.follow(len(batch) // 2, [])
    follower.stepper.save()
    follower.templates = NEW_TEMPLATES
    follower.begin()
    assert follower.refusals == [
        f"{snapshot_path(folder / 'snapshots', WHO.session_id)}: made with other templates"
    ]
    follower.follow(len(batch), [])
    follower.stepper.finish()
    seen = follower.stepper.path.read_bytes()
    assert seen == whole(batch, NEW_TEMPLATES)
    assert b'"template":"newer"' in seen


MAX_TRACED = 50
PARAMETERS, NUMBER, NORM = 1 << 20, 8, 400  # sizes: of a unit, of what a checkpoint gathers


def sharded_job(plan: list[tuple[int, int]]) -> np.ndarray:
    """Records of FSDP2: per step (units, gathers of a checkpoint behind it)."""
    ops: list[tuple[Op, int, DType]] = []
    for n_units, n_between in plan:
        gather = (Op.ALL_GATHER, PARAMETERS, DType.FLOAT32)
        ops += [gather] * n_units
        ops += [gather, (Op.REDUCE_SCATTER, PARAMETERS, DType.FLOAT32)] * n_units
        ops += [(Op.ALL_REDUCE, NORM, DType.FLOAT32)]
        ops += [(Op.ALL_GATHER, NUMBER, DType.INT64)] * n_between
    rows = np.zeros(len(ops), OP_DTYPE)
    rows["op"], rows["size_bytes"], rows["dtype"] = np.array(ops).T
    rows["count"] = rows["size_bytes"] // np.where(rows["dtype"] == DType.INT64, 8, 4)
    rows["kind"], rows["state"], rows["comm_index"] = RecordKind.COLLECTIVE, OpState.DONE, 1
    rows["peer_or_root"] = -1
    rows["seq"] = rows["seq_low"] = rows["op_seq"] = rows["match_seq"] = np.arange(1, len(ops) + 1)
    rows["start_ns"] = rows["enqueue_ns"] = rows["seq"] * 10 * MS + 1000 * MS
    rows["end_ns"] = rows["start_ns"] + MS
    return rows


@LAW
@given(
    st.lists(
        st.tuples(st.sampled_from([3, 4, 15, 16, 17, 18, 30]), st.sampled_from([0, 1, 9, 60, 300])),
        min_size=4, max_size=12,
    ),
    st.sampled_from([1, 2, 7, 48, 61, 250, 1 << 20]),
    st.sampled_from([0, 1, 5]),
)  # fmt: skip
def test_phases_of_a_step_that_waits_long_for_the_next_are_those_of_the_stream(
    plan: list[tuple[int, int]], size: int, crash_every: int
) -> None:
    """With a trace of few ops: a step of more is unknown, any other is told, and inside itself."""
    batch = sharded_job(plan)
    parts = np.split(batch, range(size, len(batch), size))
    with patch.object(phases_module, "MAX_TRACED_OPS", MAX_TRACED):
        expected, found = steps_of_parts([batch], 0), steps_of_parts(parts, crash_every)
    assert lines(found) == lines(expected)
    assert [step.n_ops for step in found] == [3 * n_units + 1 for n_units, _ in plan]
    for step in found:
        kinds = [phase.kind for phase in step.phases]
        assert (kinds == [PhaseKind.UNKNOWN]) == (step.n_ops > MAX_TRACED)
        assert all(step.start_ns <= p.start_ns < p.end_ns <= step.end_ns for p in step.phases)


def steps_of_parts(parts: list[np.ndarray], crash_every: int) -> list[StepSummary]:
    """Steps of an engine that is killed behind every nth part and resumed from its snapshot."""
    engine = SessionEngine(TEMPLATES, settings_with(RECORDER), WHO)
    engine.add_comms(comm_row(1, "0-7", 0, desc=b"default_pg"))
    steps: list[StepSummary] = []
    for number, part in enumerate(parts, 1):
        steps += engine.push(part)
        if crash_every and number % crash_every == 0:
            engine = SessionEngine.resume(carried(engine), TEMPLATES)
    return steps + engine.finish()
