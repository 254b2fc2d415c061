"""How a run ended, whose life counts, what is set aside, what is noted, and when a hang is over."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from comminsight.diagnosis.verdicts import is_unresolved, judge_end
from comminsight.errors import InputError
from comminsight.model.hang import HangEvent, InFlightOp, Liveness, RankState, Stack, StackSource
from comminsight.model.manifest import LaunchManifest
from comminsight.model.ops import Op, OpState, RecordKind
from comminsight.model.session import BreakReason, SessionBreak
from comminsight.model.tally import Tally
from comminsight.model.topology import UNKNOWN_RANK
from comminsight.model.verdict import Cause, Confidence, Coverage, Evidence, Message, Verdict
from comminsight.pipeline import facts
from comminsight.pipeline.facts import run_end
from comminsight.pipeline.hang_store import read_hangs, write_hang
from comminsight.pipeline.layout import RunPaths
from comminsight.pipeline.load import elsewhere, find_sessions, sort_out, with_settled_fate
from comminsight.pipeline.manifest import manifest_path, read_manifests, write_manifest
from comminsight.pipeline.notes import run_notes, stack_notes
from comminsight.pipeline.rebuild import SessionSteps
from comminsight.pipeline.step_store import write_steps
from comminsight.pipeline.trace import run_trace
from tests.builders.box import box_bytes
from tests.builders.records import allreduce, comm_row, comm_rows, identity, ops, overdue_marker
from tests.builders.segment import segment_bytes, write_segment
from tests.unit.pipeline.test_ends import session

ALIVE, DEAD, CLOSED, UNKNOWN = Liveness.ALIVE, Liveness.DEAD, Liveness.CLOSED, Liveness.UNKNOWN
HERE, OTHER = "b007b007-1111-4222-8333-444455556666", "0f0f0f0f-0000-4000-8000-000000000000"
RUNNING, GONE = 10, 11


def launcher(pid=RUNNING, boot=HERE, code=None, exit_signal=0, **fields):
    return LaunchManifest(
        run_id="run-1", launcher_pid=pid, boot_id=boot, exit_code=code, exit_signal=exit_signal,
        **fields,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _this_node(monkeypatch):
    monkeypatch.setattr(facts, "boot_id", lambda: HERE)
    monkeypatch.setattr(facts, "is_running", lambda pid, _: pid == RUNNING)


@pytest.mark.parametrize(
    ("manifests", "liveness", "end"),
    [
        ([], [], "unknown"),
        ([], [CLOSED, CLOSED], "exited"),
        ([], [CLOSED, DEAD], "killed"),
        ([], [UNKNOWN, CLOSED], "unknown"),
        ([launcher()], [], "running"),
        ([launcher()], [CLOSED], "running"),
        ([launcher(GONE)], [ALIVE], "running"),
        ([launcher(GONE)], [CLOSED, CLOSED], "exited"),
        ([launcher(GONE)], [CLOSED, DEAD], "killed"),
        ([launcher(GONE)], [], "killed"),
        ([launcher(RUNNING, OTHER)], [], "unknown"),
        ([launcher(RUNNING, OTHER)], [UNKNOWN], "unknown"),
        ([launcher(RUNNING, OTHER)], [CLOSED], "exited"),
        ([launcher(code=0)], [CLOSED], "exited"),
        ([launcher(code=0)], [], "exited"),
        ([launcher(code=1)], [DEAD, CLOSED], "killed"),
        ([launcher(code=137, exit_signal=9)], [CLOSED], "killed"),
        ([launcher(code=0), launcher(GONE, OTHER)], [CLOSED, UNKNOWN], "unknown"),
        ([launcher(code=0), launcher()], [CLOSED], "running"),
    ],
)
def test_run_end(manifests, liveness, end):
    assert run_end(manifests, liveness) == end


@pytest.mark.parametrize(
    ("manifests", "before", "after"),
    [
        ([launcher(code=1)], UNKNOWN, DEAD),
        ([launcher(code=1)], CLOSED, CLOSED),
        ([launcher()], UNKNOWN, UNKNOWN),
        ([launcher(code=0), launcher()], UNKNOWN, UNKNOWN),
        ([launcher(code=0, boot=OTHER)], UNKNOWN, UNKNOWN),
        ([launcher(code=0, boot="")], UNKNOWN, UNKNOWN),
        ([], UNKNOWN, UNKNOWN),
    ],
)
def test_a_process_that_its_launcher_outlived_is_dead(manifests, before, after):
    assert with_settled_fate(session(0, liveness=before), manifests).liveness is after


def life(rank, created_ns, **fields):
    made = session(max(rank, 0), **fields)
    who = identity(rank, created_real_ns=created_ns, pid=5000 + created_ns)
    return replace(made, identity=who)


def test_the_newest_life_of_a_rank_counts():
    first, second, third = life(0, 1), life(0, 2), life(0, 3)
    other, unplaced = life(1, 2), life(UNKNOWN_RANK, 9)
    loaded = sort_out([third, unplaced, first, other, second], ["a.box: torn"])
    assert loaded.sessions == (third, other)
    assert loaded.earlier_lives == (first, second)
    assert loaded.without_rank == (unplaced,)
    assert loaded.problems == ("a.box: torn",)


def test_problems_of_every_life_are_kept():
    torn = replace(life(0, 1), problems=("000001.ciseg: torn",))
    assert sort_out([torn, life(0, 2)], []).problems == ("000001.ciseg: torn",)


def test_notes_come_in_a_fixed_order():
    loaded = sort_out([life(0, 1), life(0, 2), life(UNKNOWN_RANK, 3)], [])
    at = SessionBreak(
        reason=BreakReason.NO_TEMPLATE, at_ns=9_000_000_000, n_ops=700, n_ops_without_step=700,
        active_ns=0,
    )  # fmt: skip
    broken = SessionSteps((), Tally(), "", at)
    session_id = loaded.sessions[0].identity.session_id
    after_ns = at.at_ns - loaded.sessions[0].identity.created_mono_ns
    found = run_notes(
        loaded,
        [launcher(notes=("disk full",), messages=(Message("launch.stopped"),))],
        {session_id: broken},
        ["x.json", "y"],
        run_trace((), {}, 0),
    )
    assert found == (
        Message("note.unreadable", {"n_files": 2, "first": "x.json"}),
        Message("note.earlier_lives", {"ranks": [0]}),
        Message("note.without_rank", {"n_sessions": 1}),
        Message(
            "note.no_steps_because",
            {
                "reason": "broken.no_template_matches",
                "ranks": [0],
                "after_ns": after_ns,
                "n_ops": 700,
            },
        ),
        Message("note.launcher", {"text": "disk full"}),
        Message("launch.stopped"),
    )
    assert run_notes(sort_out([life(0, 1)], []), [launcher()], {}, [], run_trace((), {}, 0)) == ()


def waiting(rank, op_seq=2, *, is_overdue=True):
    return InFlightOp(
        global_rank=rank, comm_id=0, kind=RecordKind.COLLECTIVE, op=Op.ALL_REDUCE, op_seq=op_seq,
        match_seq=op_seq, start_ns=5, age_ns=9, is_overdue=is_overdue,
    )  # fmt: skip


def event(*in_flight, stacks=()):
    return HangEvent(
        observed_mono_ns=50, observed_real_ns=0, overdue_limit_ns=4, world_size=2, ranks=(),
        in_flight=in_flight, progress=(), stacks=stacks,
    )  # fmt: skip


def rows(*last):
    """One all-reduce that is done, then what became of the second."""
    return ops(allreduce(1, 1.0), *last)


SECOND = allreduce(2, 5.0)
MARKED = overdue_marker(SECOND, 2)


@pytest.mark.parametrize(
    ("in_flight", "records", "expected"),
    [
        ((waiting(0),), rows(), True),
        ((waiting(0),), rows(MARKED), True),
        ((waiting(0),), rows(MARKED, allreduce(2, 5.0, state=OpState.FAILED)), True),
        ((waiting(0),), rows(MARKED, allreduce(2, 5.0, state=OpState.ABORTED)), True),
        ((waiting(0),), rows(MARKED, SECOND), False),
        ((waiting(0), waiting(1)), rows(MARKED, SECOND), True),  # rank 1 left nothing
        ((waiting(0), waiting(0, 3)), rows(MARKED, SECOND), True),
        ((waiting(0), waiting(0, 3, is_overdue=False)), rows(MARKED, SECOND), False),
        ((waiting(0, is_overdue=False),), rows(), True),
    ],
)
def test_a_stall_is_over_when_every_overdue_op_has_ended_well(in_flight, records, expected):
    comms = comm_rows(comm_row(1, "0-1", me=0))
    sessions = (replace(session(0), records=records, comms=comms),)
    assert is_unresolved(event(*in_flight), run_trace(sessions, {}, 2)) is expected


@pytest.mark.parametrize(("observed_real_ns", "expected"), [(5, False), (50, True), (0, True)])
def test_a_hang_of_an_earlier_life_is_over(observed_real_ns, expected):
    sessions = (life(0, 20),)
    then = msgspec.structs.replace(event(waiting(0)), observed_real_ns=observed_real_ns)
    assert is_unresolved(then, run_trace(sessions, {}, 2)) is expected


def at_end(*in_flight, liveness=ALIVE):
    ranks = tuple(RankState(global_rank=rank, liveness=liveness, is_whole=True) for rank in (0, 1))
    return msgspec.structs.replace(event(*in_flight), ranks=ranks)


@pytest.mark.parametrize(
    ("lasting", "last", "causes"),
    [
        ([], at_end(), []),
        ([], at_end(liveness=CLOSED), []),
        ([], at_end(waiting(0, is_overdue=False)), []),
        ([], at_end(waiting(0)), [Cause.RANK_NOT_ENTERED]),
        ([], at_end(waiting(0), liveness=CLOSED), []),
        # killed while it hung
        ([], at_end(waiting(0), liveness=DEAD), [Cause.RANK_NOT_ENTERED]),
        ([], at_end(waiting(0, is_overdue=False), liveness=DEAD), [Cause.JOB_KILLED]),
        ([], at_end(liveness=DEAD), [Cause.JOB_KILLED]),
        ([at_end(waiting(0))], at_end(liveness=DEAD), [Cause.RANK_NOT_ENTERED]),
    ],
)
def test_what_a_run_hangs_in_or_ended_by(lasting, last, causes):
    comms = comm_rows(comm_row(1, "0-1", me=0, desc=b"dp"))
    trace = run_trace((replace(session(0), comms=comms),), {}, 2)
    assert [v.cause for v in judge_end(lasting, last, trace)] == causes


@pytest.mark.parametrize(
    ("liveness", "causes"),
    [(ALIVE, [Cause.NO_VERDICT]), (DEAD, [Cause.JOB_KILLED, Cause.NO_VERDICT])],
)
def test_a_hang_in_a_fan_out_is_told_though_nobody_is_named(liveness, causes):
    fold = msgspec.structs.replace(
        waiting(0), kind=RecordKind.P2P, op=Op.ALL_TO_ALL, n_folded=20, pending_peers=(1,)
    )
    comms = comm_rows(comm_row(1, "0-1", me=0, desc=b"ep"))
    trace = run_trace((replace(session(0), comms=comms),), {}, 2)
    found = judge_end([], at_end(fold, liveness=liveness), trace)
    assert [verdict.cause for verdict in found] == causes
    assert [e.message.params["peers"] for e in found[-1].evidence] == [[1]]


def verdict_with_stacks(*ranks):
    stacks = tuple(
        Evidence(kind="stack", message=Message("evidence.stack"), global_rank=rank)
        for rank in ranks
    )
    return Verdict(
        rule="hang", cause=Cause.RANK_NOT_ENTERED, confidence=Confidence.HIGH,
        coverage=Coverage(ranks_expected=2, ranks_seen=2), evidence=stacks,
    )  # fmt: skip


def stack(rank, source, reason):
    return Stack(global_rank=rank, pid=1, source=source, text="t", reason=reason)


def test_why_a_stack_is_not_the_best_there_could_be():
    stacks = (
        stack(0, StackSource.PROC, "stack.py_spy_denied"),
        stack(1, StackSource.PROC, "stack.py_spy_denied"),
        stack(2, StackSource.FAULTHANDLER, "stack.py_spy_missing"),
        stack(3, StackSource.PY_SPY, ""),
        stack(4, StackSource.PROC, "stack.py_spy_slow"),
        stack(5, StackSource.NONE, "stack.process_gone"),
    )
    found = stack_notes([event(stacks=stacks)], [verdict_with_stacks(0, 1, 2, 3, 5)])
    assert [message.params for message in found] == [
        {"ranks": [0, 1], "source": "proc", "reason": "stack.py_spy_denied"},
        {"ranks": [2], "source": "faulthandler", "reason": "stack.py_spy_missing"},
    ]
    assert stack_notes([], [verdict_with_stacks(0)]) == ()


def test_events_and_manifests_on_disk(tmp_path):
    paths = RunPaths(tmp_path)
    paths.create()
    for number in (1, 2):
        write_hang(paths, event(waiting(0, number)))
    (paths.hangs / "hang-0003-9.json").write_bytes(b"{")
    events, unreadable = read_hangs(paths)
    assert [e.in_flight[0].op_seq for e in events] == [1, 2]
    assert unreadable == ["hang-0003-9.json"]
    for pid, started_ns in ((7, 20), (8, 10)):
        made = launcher(pid, started_real_ns=started_ns)
        write_manifest(manifest_path(paths, "node", pid), made)
    (paths.metadata / "launch-x-1.json").write_text('{"run_id": 3}')
    found, bad = read_manifests(paths)
    assert [m.launcher_pid for m in found] == [8, 7]
    assert bad == ["launch-x-1.json"]


def test_steps_that_cannot_be_written_are_an_error_of_the_place(tmp_path):
    paths = RunPaths(tmp_path)
    paths.steps.write_text("in the way")
    with pytest.raises(InputError, match="steps: cannot be written"):
        write_steps(paths, {"s": ()})


@pytest.mark.parametrize(
    ("box_run_id", "found"), [("run-1", ["box", "segments"]), ("run-2", ["segments"])]
)
def test_live_boxes_count_only_for_their_run(box_run_id, found, tmp_path, monkeypatch):
    live = tmp_path / "live"
    live.mkdir()
    monkeypatch.setenv("COMMINSIGHT_BOX_DIR", str(live))
    paths = RunPaths(tmp_path / "run")
    paths.create()
    stored, boxed = identity(0), identity(1, run_id=box_run_id)
    write_segment(paths.segments / stored.session_id, segment_bytes(ops(), who=stored))
    (live / "1-1-1.box").write_bytes(box_bytes(ops(), who=boxed))
    sessions, problems = find_sessions(paths, [launcher()], is_segments_only=False)
    assert problems == []
    assert sorted("box" if entry.box else "segments" for entry in sessions) == found
    alone, _ = find_sessions(paths, [launcher()], is_segments_only=True)
    assert [entry.session_id for entry in alone] == [stored.session_id]


def test_boxes_in_the_folder_that_recorders_fall_back_to(tmp_path, monkeypatch):
    monkeypatch.setenv("COMMINSIGHT_BOX_DIR", str(tmp_path / "none"))
    monkeypatch.delenv("COMMINSIGHT_BOX_FALLBACK", raising=False)
    paths = RunPaths(tmp_path / "run")
    paths.create()
    (paths.segments / "boxes").mkdir()
    (paths.segments / "boxes" / "1-1-1.box").write_bytes(box_bytes(ops(), who=identity(1)))
    sessions, _ = find_sessions(paths, [], is_segments_only=False)
    assert [entry.session_id for entry in sessions] == [identity(1).session_id]


def test_a_spool_elsewhere_is_read_as_long_as_it_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr("comminsight.pipeline.load.boot_id", lambda: HERE)
    spool = tmp_path / "spool" / "run-1-10"
    write_segment(spool / identity(0).session_id, segment_bytes(ops(), who=identity(0)))
    paths = RunPaths(tmp_path / "run")
    paths.create()
    own, inside = launcher(spool=str(spool)), launcher(spool=str(paths.segments))
    foreign = launcher(boot=OTHER, spool="/spool/elsewhere")
    assert elsewhere([own, inside, foreign, own]) == [Path(spool)]
    sessions, _ = find_sessions(paths, [own], is_segments_only=False)
    assert [entry.segment_dir for entry in sessions] == [spool / identity(0).session_id]
