"""Class 12: watchdogs, heartbeats and time limits, and what they do not tell."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from comminsight.diagnosis import codes_calls, codes_logs
from comminsight.model.verdict import Cause
from tests.builders.flight_recorder import Call, FlightJob, Group, write_dumps
from tests.builders.log_files import Line, init, nccl, progress, timeout, waiting, write_logs
from tests.cases.class_01_dead_ranks import others, variants
from tests.cases.field_case import Expected, FieldCase, Scene

NONE = (Cause.NO_VERDICT,)


def saving(rank: int, at_s: Iterable[float], text: str) -> list[Line]:
    return [Line(second, rank, text, source="trainer.py:77") for second in at_s]


def long_save(
    folder: Path, *, n_ranks: int, culprit: int, limit_s: int, form: str, seq: int
) -> Scene:
    """One rank saves for longer than the others wait at their flag."""
    rest = others(n_ranks, culprit)
    lines = init(range(n_ranks), world=n_ranks)
    given_up = waiting(limit_s + 1, rest, seq=seq, limit_s=limit_s, n_elements=1)
    save = saving(culprit, (1, limit_s / 2, limit_s + 10), "saving checkpoint to /data/step_900")
    write_logs(folder / "fault", [*lines, *given_up, *save], form=form)
    # the last save was over long ago: who is silent now is not known to be at work
    early = saving(culprit, (-9000,), "saving checkpoint to /data/step_100")
    write_logs(folder / "twin", [*lines, *given_up, *early], form=form)
    told = (codes_logs.WORK_SEEN, codes_logs.RAISE_LIMIT)
    expected = Expected((Cause.LONG_LEGIT_OP,), (culprit,), told=told)
    return Scene(folder / "fault", expected, folder / "twin")


def never_called(folder: Path, *, n_ranks: int, absent: int, late_s: int) -> Scene:
    """The first op blocks in the making of the communicator, which no limit of an op covers."""
    rest = others(n_ranks, absent)
    begun = [line for line in init(rest, world=n_ranks, at_s=1) if "START" in line.text]
    begun += [
        nccl(1.2, rank, f"comm 0x55{rank:04x}00 rank {rank} nRanks {n_ranks} nNodes 1 localRanks "
             f"{n_ranks} localRank {rank} MNNVL 0")
        for rank in rest
    ]  # fmt: skip
    version = [nccl(0.5, rank, "Bootstrap : Using eth0:10.0.0.9<0>") for rank in range(n_ranks)]
    late = [nccl(late_s, rank, "NET/Plugin : No plugin found") for rank in range(n_ranks)]
    stamped = [
        Line(line.at_s, line.rank, f"[{line.when:%Y-%m-%d %H:%M:%S}] {line.text}", "", is_bare=True)
        for line in (*version, *begun, *late)
    ]
    write_logs(folder / "fault", stamped, form="files")
    write_logs(folder / "twin", [line for line in stamped if line.at_s < 100], form="files")
    expected = Expected((Cause.INIT_STUCK,), (absent,), told=(codes_logs.INIT_PHASE,))
    return Scene(folder / "fault", expected, folder / "twin")


def heartbeat(at_s: float, rank: int, *, n_pending: int, stuck_s: int = 480) -> list[Line]:
    group = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
    return [
        Line(at_s, rank, f"{group} Heartbeat monitor timed out! Process will be terminated after "
             f"dumping debug info. workMetaList_.size()={n_pending}"),
        Line(at_s + 0.1, rank, f"{group} ProcessGroupNCCL's watchdog got stuck for {stuck_s} "
             "seconds without making progress in monitoring enqueued collectives. "
             f"workMetaList_.size()={n_pending}"),
    ]  # fmt: skip


def first_and_later(
    folder: Path, *, n_ranks: int, first: int, later: tuple[int, ...], seq: int, form: str
) -> Scene:
    """One rank gives up in an op; minutes later heartbeats end others. The twin has the heartbeats
    alone, with nothing pending: a false alarm."""
    lines = [
        timeout(1800, first, seq=seq, op="_ALLGATHER_BASE", limit_s=1800),
        progress(1800, first, seq=seq, enqueued=seq, completed=seq - 1),
    ]
    beats = [line for rank in later for line in heartbeat(2286, rank, n_pending=3)]
    quiet = [line for rank in later for line in heartbeat(2286, rank, n_pending=0)]
    write_logs(folder / "fault", [*init([first], world=n_ranks), *lines, *beats], form=form)
    write_logs(folder / "twin", quiet, form=form)
    told = (codes_logs.HEARTBEAT_LATER, codes_logs.SILENT_RANKS)
    twin = Expected((Cause.HEARTBEAT_FALSE_ALARM,), later, told=(codes_logs.HEARTBEAT_ALONE,))
    return Scene(folder / "fault", Expected(told=told), folder / "twin", twin)


def stood_still(
    folder: Path, *, n_ranks: int, limit_s: int, ran_s: int, form: str, is_slept: bool
) -> Scene:
    """Every watchdog tells of hours at a limit of minutes: none of them was running."""
    lines = init(range(n_ranks), world=n_ranks)
    for rank in range(n_ranks):
        for seq in range(40, 40 + rank % 3 + 1):
            lines.append(timeout(ran_s, rank, seq=seq, limit_s=limit_s, ran_s=ran_s - 0.1 * seq))
        lines.append(progress(ran_s, rank, seq=40, enqueued=40 + rank % 3, completed=39))
    slept = [Line(5.0, -1, "2026-04-14T16:00:05+00:00 node00 kernel: [ 12.250000] PM: suspend "
                  "entry (deep)")]  # fmt: skip
    write_logs(folder / "fault", [*lines, *(slept if is_slept else [])], form=form)
    healthy = init(range(n_ranks), world=n_ranks)
    write_logs(folder / "twin", healthy, form=form)
    told: tuple[str, ...] = (codes_logs.WATCHER_STOOD, codes_logs.LOOK_FOR_SUSPEND)
    told += (codes_logs.HOST_SLEPT,) if is_slept else ()
    return Scene(folder / "fault", Expected(told=told), folder / "twin")


def idle_between_steps(
    folder: Path, *, n_ranks: int, n_calls: int, is_json: bool, stopped: int
) -> Scene:
    """Nothing is pending on any rank: the job does something else between its steps."""
    world = {"0": Group("default_pg", tuple(range(n_ranks)))}
    calls = {rank: [Call("0", "all_reduce")] * n_calls for rank in range(n_ranks)}
    (folder / "fault").mkdir()
    (folder / "twin").mkdir()
    job = FlightJob(dict(world), dict(calls)).play()
    write_dumps(folder / "fault", job, is_json=is_json)
    claim = [Line(900.0, -1, "[monitor] training hang detected: no step for 900 s")]
    for place in ("fault", "twin"):
        write_logs(folder / place, claim)
    hung = FlightJob(world, calls, host_stops={stopped: n_calls - 1}).play()
    write_dumps(folder / "twin", hung, is_json=is_json)
    twin = Expected((Cause.RANK_NOT_ENTERED,), (stopped,))
    expected = Expected((Cause.HEALTHY_IDLE,), (), told=(codes_calls.NOTHING_PENDING,))
    return Scene(folder / "fault", expected, folder / "twin", twin)


def wrong_limit(
    folder: Path, *, n_ranks: int, culprit: int, limit_s: int, variable: str, raised_s: int
) -> Scene:
    """The limit that was raised is not the one that runs out during work of one rank."""
    rest = others(n_ranks, culprit)
    lines = init(range(n_ranks), world=n_ranks)
    env = [Line(0.0, -1, f"{variable}={raised_s}")]
    given_up = waiting(limit_s + 1, rest, seq=2, op="BARRIER", limit_s=limit_s, n_elements=1)
    work = [
        Line(limit_s * share / 100 * 1.2, culprit, f"Map:  {share}%|##| {share}/100 [00:10<00:06]",
             source="data.py:5")
        for share in (1, 40, 80, 100)
    ]  # fmt: skip
    write_logs(folder / "fault", [*lines, *env, *given_up, *work], form="mixed")
    write_logs(folder / "twin", [*lines, *env, *work], form="mixed")
    expected = Expected((Cause.TIMEOUT_CONFIG,), (), told=(codes_logs.LIMIT_SEEN,))
    return Scene(folder / "fault", expected, folder / "twin")


CASES: tuple[FieldCase, ...] = (
    FieldCase(92, "saving takes longer than the others wait", long_save, variants(
        "n_ranks culprit limit_s form seq",
        (4, 0, 600, "mixed", 28956), (8, 3, 1800, "files", 12), (16, 15, 300, "docker", 7),
    )),
    FieldCase(93, "a limit that does not cover init", never_called, variants(
        "n_ranks absent late_s", (2, 1, 900), (4, 0, 1200), (8, 5, 4000),
    )),
    FieldCase(94, "heartbeats after a timeout", first_and_later, variants(
        "n_ranks first later seq form",
        (8, 2, (5, 7), 120049, "mixed"), (16, 0, (1, 2, 3), 8, "files"), (4, 3, (0,), 31, "cri"),
    )),
    FieldCase(95, "watchdogs that stood still", stood_still, variants(
        "n_ranks limit_s ran_s form is_slept",
        (8, 1800, 25624, "mixed", False), (4, 600, 4000, "files", True),
        (16, 300, 90_000, "unstamped", False),
    )),
    FieldCase(96, "idle between steps", idle_between_steps, variants(
        "n_ranks n_calls is_json stopped", (4, 12, False, 2), (8, 30, True, 0), (2, 5, False, 1),
    )),
    FieldCase(97, "the wrong limit was raised", wrong_limit, variants(
        "n_ranks culprit limit_s variable raised_s",
        (4, 0, 600, "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", 7200), (8, 2, 300, "NCCL_TIMEOUT", 3600),
        (16, 0, 1800, "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", 9000),
    )),
)  # fmt: skip
