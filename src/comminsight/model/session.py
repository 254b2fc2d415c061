"""What became of one session's steps: how many, under which template, and why they were given up.

The breaker closes a session whose ops give no steps. Its records, metrics and hang evidence are
not touched by that; the steps can be rebuilt from the records at any time.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from comminsight.model.views import TemplateScore

SESSION_SCHEMA_VERSION = 1


class BreakReason(StrEnum):
    """Why the breaker opened; each is a catalogue code under ``broken``."""

    NO_TEMPLATE = "no_template_matches"
    TOPOLOGY = "topology_not_met"
    NO_STEP = "no_step_closes"


class SessionBreak(msgspec.Struct, frozen=True, kw_only=True):
    """The breaker opened at the op that starts at ``at_ns`` (session's CLOCK_MONOTONIC).

    ``n_ops`` ops had been committed by then, ``n_ops_without_step`` of them since the step in
    progress began (since the first op, when no template had won and ``template`` is empty);
    ``active_ns`` is their time without long pauses.
    """

    reason: BreakReason
    at_ns: int
    n_ops: int
    n_ops_without_step: int
    active_ns: int
    template: str = ""
    n_ops_before_first_step: int = 0
    n_ops_between_steps: int = 0
    is_step_open: bool = False


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One session beside its steps: ``real_minus_mono_ns`` turns its times into wall time."""

    session_id: str
    global_rank: int
    schema_version: int = SESSION_SCHEMA_VERSION
    template: str = ""
    n_steps: int = 0
    real_minus_mono_ns: int = 0
    broken: SessionBreak | None = None
    tally: dict[str, int] = {}
    scores: tuple[TemplateScore, ...] = ()
