"""``open_run(path)``: a recorded run, for notebooks and for the command line.

Everything is computed on first use and kept: sessions, steps, the aligned trace, the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from comminsight.analysis.alignment import AlignedStep, align_steps
from comminsight.analysis.calibrated import calibrated_steps
from comminsight.analysis.measured_bandwidth import run_bandwidth
from comminsight.analysis.measures import Clock, straggler_measures
from comminsight.capture.session import SessionData
from comminsight.diagnosis.ras import with_ras
from comminsight.diagnosis.slow_link import placed
from comminsight.diagnosis.verdicts import is_unresolved, judge_run
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.hang import HangEvent
from comminsight.model.manifest import LaunchManifest
from comminsight.model.measures import StragglerMeasures
from comminsight.model.metadata import RunMetadata
from comminsight.model.ras import RasReading
from comminsight.model.report import RunFacts, RunReport, StepRow
from comminsight.model.session import SessionRecord
from comminsight.model.step import StepSummary
from comminsight.model.tally import Tally
from comminsight.model.template_view import TemplateView
from comminsight.model.trace import RunTrace
from comminsight.model.verdict import Coverage, Message, Verdict
from comminsight.model.views import OpStories, StepOps, TemplateScore
from comminsight.pipeline.calibration import RunCalibration
from comminsight.pipeline.coverage import run_coverage, run_tally
from comminsight.pipeline.data_quality import with_data
from comminsight.pipeline.devices import devices
from comminsight.pipeline.facts import ENDED, run_facts
from comminsight.pipeline.final_view import final_view, with_places
from comminsight.pipeline.hang_event import renumbered
from comminsight.pipeline.hang_store import read_hangs
from comminsight.pipeline.kernels import pair_sweep
from comminsight.pipeline.layout import RunPaths, run_paths
from comminsight.pipeline.load import LoadedRun, load_run, no_records, sort_out, world_size
from comminsight.pipeline.lost import with_losses
from comminsight.pipeline.manifest import read_manifests
from comminsight.pipeline.metadata import read_metadata, run_metadata, session_records
from comminsight.pipeline.moment import read_moment
from comminsight.pipeline.notes import calibration_notes, run_notes, stack_notes
from comminsight.pipeline.observe import killed
from comminsight.pipeline.op_view import op_stories
from comminsight.pipeline.parallel import RunRoles, role_notes, run_roles, stepped, with_roles
from comminsight.pipeline.pauses import doubted, off_ratio, without_pauses
from comminsight.pipeline.ras_store import ras_of, read_kept_ras
from comminsight.pipeline.rebuild import SessionSteps, rebuild_session
from comminsight.pipeline.rebuild_run import is_archive
from comminsight.pipeline.report import rank_rows, run_report, step_rows
from comminsight.pipeline.step_changes import step_changes
from comminsight.pipeline.step_store import write_steps
from comminsight.pipeline.step_view import step_ops
from comminsight.pipeline.stepless import explained, roles_and_ops, template_scores
from comminsight.pipeline.tables import arrow
from comminsight.pipeline.template_view import ANY_RANK, template_view
from comminsight.pipeline.templates import load_templates
from comminsight.pipeline.trace import run_trace
from comminsight.semantics.template import Template

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_OVERDUE_NS = 60_000_000_000


class Run:
    """One run, made by ``open_run``: ``report()``, ``trace``; tables: ``steps()``, ``ops()``."""

    def __init__(
        self,
        paths: RunPaths,
        load: Callable[[Sequence[LaunchManifest]], LoadedRun],
        *,
        template_folders: Sequence[Path] = (),
    ) -> None:
        self.paths = paths
        self._load = load
        self._template_folders = tuple(template_folders)
        self._measures: dict[Clock, StragglerMeasures] = {}

    @cached_property
    def manifests(self) -> tuple[LaunchManifest, ...]:
        """What the launchers wrote, in order of their start."""
        return tuple(self._manifest_files[0])

    @cached_property
    def _manifest_files(self) -> tuple[list[LaunchManifest], list[str]]:
        return read_manifests(self.paths)

    @cached_property
    def _hang_files(self) -> tuple[list[HangEvent], list[str]]:
        return read_hangs(self.paths)

    @cached_property
    def _ras_files(self) -> tuple[list[RasReading], list[str]]:
        return read_kept_ras(self.paths)

    @cached_property
    def loaded(self) -> LoadedRun:
        """Sessions, earlier lives of restarted ranks, and files that could not be read."""
        return self._load(self.manifests)

    @property
    def sessions(self) -> tuple[SessionData, ...]:
        """One session per global rank, ascending."""
        return self.loaded.sessions

    @cached_property
    def _templates(self) -> tuple[Template, ...]:
        return load_templates(self._template_folders)

    @cached_property
    def _rebuilt(self) -> dict[str, SessionSteps]:
        templates = self._templates  # a folder that is none is an error also without sessions
        return {s.identity.session_id: rebuild_session(s, templates) for s in self.sessions}

    @cached_property
    def session_steps(self) -> dict[str, tuple[StepSummary, ...]]:
        """Closed steps by session id."""
        return {name: rebuilt.steps for name, rebuilt in self._rebuilt.items()}

    @cached_property
    def tally(self) -> Tally:
        """Every count of every stage, over all sessions."""
        return run_tally(self.sessions, self._rebuilt.values())

    @cached_property
    def _ops(self) -> RunTrace:
        return run_trace(self.sessions, {}, world_size(self.sessions))

    @cached_property
    def roles(self) -> RunRoles:
        """Communicators with their roles, named or inferred, and the parallel layout."""
        return run_roles(self._ops)

    @cached_property
    def trace(self) -> RunTrace:
        """Finished ops and steps of all ranks."""
        steps = without_pauses(self.session_steps, self.sessions)
        return stepped(self._ops, steps, self.roles)

    @cached_property
    def aligned_steps(self) -> tuple[AlignedStep, ...]:
        """Steps over all ranks, numbered as the state of the calibration says."""
        correction = self.calibration.correction
        if correction is None:
            return align_steps(self.trace)
        return calibrated_steps(self.trace, correction)

    @cached_property
    def calibration(self) -> RunCalibration:
        """The state of the step numbers, and what changes it."""
        sessions = (*self.sessions, *self.loaded.earlier_lives)
        return RunCalibration(self.paths, self.facts.run_id, sessions, self._steps_of)

    def _steps_of(self, session: SessionData) -> tuple[StepSummary, ...]:
        known = self._rebuilt.get(session.identity.session_id)
        return (known or rebuild_session(session, self._templates)).steps

    def coverage(self) -> Coverage:
        """What was seen of the run."""
        return run_coverage(self.trace, self.aligned_steps, self.tally, off_ratio(self.sessions))

    @property
    def _origin(self) -> dict[str, str]:
        return {"run_id": self.facts.run_id, "step_view": self.calibration.state.view.value}

    def steps(self) -> pa.Table:
        """One row per step and rank, numbered as the state of the calibration says; the columns
        stand in ``pipeline.arrow.STEPS``. Raises InputError without pyarrow."""
        return arrow().steps_table(self.trace, self.aligned_steps, **self._origin)

    def ops(self, *, rank: int | None = None, step: int | None = None) -> pa.Table:
        """Finished ops of all ranks or one, of all steps or one; the columns stand in
        ``pipeline.arrow.OPS``. Raises InputError without pyarrow, such a rank or such a step."""
        return arrow().ops_table(
            self.trace, self.aligned_steps, rank=rank, step=step, **self._origin
        )

    def step_rows(self) -> tuple[StepRow, ...]:
        """One row per step over all ranks."""
        return step_rows(self.aligned_steps, self.trace.world_size)

    def step_changes(self) -> tuple[Message, ...]:
        """What became different from one step to the next: template, ranks, what is recorded."""
        return step_changes(self.aligned_steps, self.sessions)

    def roles_and_ops(self) -> str:
        """The most frequent kinds of finished ops in words."""
        return roles_and_ops(self.trace)

    def template_scores(self) -> tuple[TemplateScore, ...]:
        """How the templates fared on the first rank that has no steps."""
        return template_scores(self._rebuilt.values())

    def template_view(self, *, global_rank: int = ANY_RANK) -> TemplateView:
        """How the templates were chosen on all ranks, scored on one, and checked on the data."""
        return template_view(
            self.trace, self._rebuilt, self._templates,
            run_id=self.facts.run_id, global_rank=global_rank,
        )  # fmt: skip

    def step_ops(self, *, global_rank: int, step: int) -> StepOps:
        """The ops of one rank in one step; raises InputError when there is no such."""
        return step_ops(
            self.trace, self.aligned_steps, run_id=self.facts.run_id,
            global_rank=global_rank, step=step, step_view=self.calibration.state.view,
        )  # fmt: skip

    def op_stories(self, text: str, *, global_rank: int | None = None) -> OpStories:
        """The op ``COMM:SEQ`` on all ranks or on one; raises InputError when there is no such."""
        comm_ids = {rank.session.session_id: rank.comm_ids for rank in self.trace.ranks}
        return op_stories(
            self.sessions, self.trace.communicators, comm_ids,
            text=text, run_id=self.facts.run_id, global_rank=global_rank,
        )  # fmt: skip

    @cached_property
    def facts(self) -> RunFacts:
        """What the run was and how it ended."""
        identities = [s.identity for s in self.sessions]
        facts = run_facts(
            str(self.paths.root),
            self.manifests,
            world_size=world_size(self.sessions),
            ranks_seen=len(self.sessions),
            hosts=[i.host for i in identities],
            killed_ranks=killed(self.sessions),
            liveness=[s.liveness for s in self.sessions],
        )
        named = facts.run_id or next((i.run_id for i in identities), "")  # a spool has no manifest
        moment = read_moment(self.paths)
        return msgspec.structs.replace(facts, run_id=named, end=moment.end if moment else facts.end)

    @property
    def overdue_limit_ns(self) -> int:
        """The limit that was in force: the launchers' word, else that of the recorders."""
        limits = [m.overdue_limit_ns for m in self.manifests if m.overdue_limit_ns]
        limits = limits or [s.settings.get("overdue_limit_ns", 0) for s in self.sessions]
        return max(limits, default=0) or DEFAULT_OVERDUE_NS

    def final_view(self) -> HangEvent:
        """Who is where now, or was where at the first failure or at the last sign of life."""
        return final_view(
            self.sessions, self.manifests, end=self.facts.end,
            overdue_limit_ns=self.overdue_limit_ns, moment=read_moment(self.paths),
        )  # fmt: skip

    def measures(self, clock: Clock = "aligned") -> StragglerMeasures:
        """Waits and blame per step and rank, on the aligned or the nodes' own wall clocks."""
        if clock not in self._measures:
            self._measures[clock] = straggler_measures(
                self.trace, clock, aligned_steps=self.aligned_steps, sweep=pair_sweep()
            )
        return self._measures[clock]

    def bandwidth(self) -> tuple[BandwidthRow, ...]:
        """Bus bandwidth by op, size, communicator or pair, and window of steps."""
        return run_bandwidth(self.trace, self.aligned_steps)

    def report(self, *, clock: Clock = "aligned", ras: Sequence[RasReading] = ()) -> RunReport:
        """The report: facts, coverage, steps, ranks, verdicts; ``ras`` are answers of NCCL's RAS
        that were not asked for by ``run``."""
        measures, coverage = self.measures(clock), self.coverage()
        comms, is_past = self.trace.communicators, self.facts.end in ENDED
        events = [renumbered(e, comms, is_past=is_past) for e in self._hang_files[0]]
        at_end = with_roles(self.final_view(), comms)
        verdicts = judge_run(self.trace, measures, coverage, events, at_end, self.aligned_steps)
        verdicts = placed(verdicts, self.bandwidth)
        verdicts, ras_notes = self._with_ras(verdicts, ras, events, at_end)
        n_steps = len(self.aligned_steps)
        verdicts = explained(verdicts, self.loaded, self.trace, n_steps, self.template_scores())
        verdicts = doubted(with_losses(verdicts, self.sessions, n_steps), self.sessions)
        verdicts = with_data(verdicts, self.sessions, self.trace, coverage)
        step_view = self.calibration.state.view
        facts = msgspec.structs.replace(self.facts, clock=clock, step_view=step_view)
        made = run_report(
            facts, self.roles, self.step_rows(),
            rank_rows(measures, devices(self.sessions)), coverage, verdicts,
            notes=(*self.notes(), *stack_notes(self._hang_files[0], verdicts), *ras_notes),
            tally=self.tally,
        )  # fmt: skip
        return with_places(made, self.trace, self.aligned_steps)

    def _with_ras(
        self,
        verdicts: tuple[Verdict, ...],
        given: Sequence[RasReading],
        events: Sequence[HangEvent],
        at_end: HangEvent,
    ) -> tuple[tuple[Verdict, ...], tuple[Message, ...]]:
        """The verdicts with what RAS says of the moment that they judge."""
        lasting = [event for event in events if is_unresolved(event, self.trace)]
        readings = ras_of(given, self._ras_files[0], lasting)
        judged_by = lasting[-1] if lasting else at_end
        return with_ras(verdicts, readings, judged_by, self.trace.communicators)

    def notes(self) -> tuple[Message, ...]:
        """What a reader should know besides the verdicts."""
        files = (*self._manifest_files[1], *self._hang_files[1], *self._ras_files[1])
        unreadable = (*files, *self.loaded.problems, *self.calibration.problems)
        notes = run_notes(self.loaded, self.manifests, self._rebuilt, unreadable, self.trace)
        return (*notes, *role_notes(self.roles.communicators), *self.calibration_notes())

    def calibration_notes(self) -> tuple[Message, ...]:
        """Whose the step numbers are, where they are not simply raw."""
        return calibration_notes(self.calibration.state)

    def write_steps(self) -> Path:
        """Write the step summaries of every session into the run's ``steps/``."""
        return write_steps(self.paths, self.session_steps)

    def metadata(self, *, is_fresh: bool = False) -> RunMetadata:
        """Ranks, communicators, roles, layout, versions, templates: as stored, or made now."""
        is_final = self.paths.is_tables or not (is_fresh or self.facts.end == "running")
        stored = read_metadata(self.paths) if is_final else None
        return stored or self.metadata_with(session_records(self.sessions, self._rebuilt))

    def metadata_with(self, records: Iterable[SessionRecord]) -> RunMetadata:
        """The same, with what is known of the sessions' steps."""
        return run_metadata(self.facts.run_id, self.sessions, self.roles, records, self.manifests)


def open_run(
    path: str | Path, *, template_folders: Sequence[Path] = (), is_segments_only: bool = False
) -> Run:
    """The run at ``path``; nothing is read until it is asked for. Of exported tables that is only
    ``metadata()``. Raises InputError when there is no run."""
    if is_archive(Path(path)):
        return Run(RunPaths(Path(path), is_tables=True), partial(no_records, Path(path)))
    paths = run_paths(path)
    load = partial(load_run, paths, is_segments_only=is_segments_only)
    return Run(paths, load, template_folders=template_folders)


def run_of_sessions(sessions: Sequence[SessionData]) -> Run:
    """A run that is in memory only, such as a simulated one."""
    return Run(RunPaths(Path()), lambda _: sort_out(sessions, ()))
