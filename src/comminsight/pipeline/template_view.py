"""How the templates of a run fared: choices, one rank's scores, and the checks of the winner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from comminsight.model.step import StepSummary
from comminsight.model.template_view import TemplateChoice, TemplateView
from comminsight.model.trace import RankTrace, RunTrace
from comminsight.model.views import VIEW_SCHEMA_VERSION
from comminsight.pipeline.rebuild import SessionSteps
from comminsight.pipeline.step_view import no_rank
from comminsight.semantics.anchor_check import RankAnchors, check_anchors
from comminsight.semantics.template import Template, sequence_label

ANY_RANK = -1


def template_view(
    trace: RunTrace, rebuilt: Mapping[str, SessionSteps], templates: Sequence[Template],
    *, run_id: str, global_rank: int = ANY_RANK,
) -> TemplateView:  # fmt: skip
    """The view; the scores are those of ``global_rank``, by default of the first rank without
    steps, or of the first one. Raises InputError for a rank that the run does not have."""
    by_rank = {rank.global_rank: rebuilt[rank.session.session_id] for rank in trace.ranks}
    shown = global_rank if global_rank != ANY_RANK else _telling(by_rank)
    if shown not in by_rank:
        raise no_rank(shown, sorted(by_rank))
    won = Counter(one.template for one in by_rank.values() if one.template)
    winner = won.most_common(1)[0][0] if won else ""
    template = next((t for t in templates if t.name == winner), None)
    anchors = template.anchors if template else ()
    return TemplateView(
        schema_version=VIEW_SCHEMA_VERSION, run_id=run_id, global_rank=shown,
        choices=_choices(by_rank), scores=by_rank[shown].scores, checked=winner,
        anchor=" | ".join(sequence_label(sequence) for sequence in anchors),
        checks=check_anchors(_anchors(trace, winner)) if winner else (),
    )  # fmt: skip


def _telling(by_rank: Mapping[int, SessionSteps]) -> int:
    without = [rank for rank, one in by_rank.items() if not one.steps and one.scores]
    return min(without or by_rank, default=0)


def _choices(by_rank: Mapping[int, SessionSteps]) -> tuple[TemplateChoice, ...]:
    found: dict[tuple[str, int, int], list[int]] = {}
    for rank, one in sorted(by_rank.items()):
        first = one.steps[0] if one.steps else None
        versions = (first.template_version, first.template_file_version) if first else (0, 0)
        found.setdefault((one.template, *versions), []).append(rank)
    return tuple(
        TemplateChoice(
            template=template, version=version, file_version=file_version, ranks=tuple(ranks),
            n_steps=max(len(by_rank[rank].steps) for rank in ranks),
            reasons=tuple(sorted({own.reason.value for r in ranks if (own := by_rank[r].broken)})),
        )
        for (template, version, file_version), ranks in found.items()
    )  # fmt: skip


def _anchors(trace: RunTrace, template: str) -> list[RankAnchors]:
    found = []
    for rank in trace.ranks:
        steps = trace.steps.get(rank.session.session_id, ())
        if steps and steps[0].template == template:
            found.append(_rank_anchors(rank, steps))
    return found


def _rank_anchors(rank: RankTrace, steps: Sequence[StepSummary]) -> RankAnchors:
    """Places are counted in the rank's finished ops, which are sorted as the engine takes them."""
    order = np.argsort(rank.ops["seq"], kind="stable")
    in_order = rank.ops["seq"][order]
    seen, anchors = [], []
    for step in steps:
        if step.anchor is not None:
            anchors.append(step.anchor)
            seen.append((step.first.seq, step.anchor.seq, step.last.seq))
    numbers = np.array(seen, np.int64).reshape(-1, 3)
    if not len(order):
        return RankAnchors(rank.global_rank, (), numbers[:, 0], numbers[:, 0])
    places = order[np.minimum(np.searchsorted(in_order, numbers), len(order) - 1)]
    return RankAnchors(
        rank.global_rank, tuple(anchors), places[:, 1] - places[:, 0], places[:, 2] - places[:, 1]
    )
