"""Why a run has no steps: nothing to record, nothing ended, or no template that matches its ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from comminsight.diagnosis import codes
from comminsight.model.ops import CommRole, Op
from comminsight.model.trace import RunTrace
from comminsight.model.verdict import Cause, Message, MessageParam, Verdict
from comminsight.model.views import TemplateScore
from comminsight.pipeline.load import LoadedRun
from comminsight.pipeline.pauses import is_nccl_masked, n_switched_off
from comminsight.pipeline.rebuild import SessionSteps

MAX_KINDS = 8
# reasons of templates that more of the same ops may lift
UNDECIDED = frozenset({
    "too_few_ops", "too_few_anchored_steps", "gradient_bytes_undecided", "pipeline_steps_undecided",
})  # fmt: skip


def explained(
    verdicts: Sequence[Verdict],
    loaded: LoadedRun,
    trace: RunTrace,
    n_steps: int,
    scores: Iterable[TemplateScore] = (),
) -> tuple[Verdict, ...]:
    """The verdicts; one that lacks steps where there are none at all says why there are none.
    ``scores`` are how the templates fared on a rank without steps."""
    if n_steps:
        return tuple(verdicts)
    missing, actions = why_no_steps(loaded, trace)
    if early := tuple(_not_learned(scores)):
        missing, actions = (*missing, *early), (Message("reason.record_more"), *actions)
    return tuple(
        msgspec.structs.replace(verdict, missing=(*_kept(verdict), *missing), next_actions=actions)
        if verdict.cause is Cause.NO_VERDICT
        and any(message.code == codes.MISSING_STEPS for message in verdict.missing)
        else verdict
        for verdict in verdicts
    )


def _not_learned(scores: Iterable[TemplateScore]) -> Iterator[Message]:
    """That nothing was learned yet: the first template that may still fit, and what it lacks."""
    for one in scores:
        if one.reason in UNDECIDED and one.n_ops:
            params: dict[str, MessageParam] = {
                "template": one.template, "n_ops": one.n_ops, "reason": f"refusal.{one.reason}"
            }  # fmt: skip
            yield Message("reason.not_learned", params)
            return


def _kept(verdict: Verdict) -> tuple[Message, ...]:
    """What is missing besides steps, and would be with them."""
    return tuple(message for message in verdict.missing if message.code == codes.MISSING_COUNTS)


def why_no_steps(
    loaded: LoadedRun, trace: RunTrace
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """(what is missing, what to do next)."""
    n_ops = sum(len(rank.ops) for rank in trace.ranks)
    if n_ops:
        params: dict[str, MessageParam] = {"n_ops": n_ops, "seen": roles_and_ops(trace)}
        return (Message("reason.no_template", params),), (Message("reason.see_templates"),)
    if n_off := sum(map(n_switched_off, (*loaded.sessions, *loaded.without_rank))):
        return (Message("reason.switched_off", {"n_ops": n_off}),), (Message("reason.switch_on"),)
    if any(map(is_nccl_masked, (*loaded.sessions, *loaded.without_rank))):
        return (Message("reason.nccl_masked"),), (Message("reason.switch_on"),)
    if loaded.sessions or loaded.without_rank:
        return (Message("reason.no_ops"),), ()
    return (Message("reason.no_group"),), (Message("reason.create_group"),)


def roles_and_ops(trace: RunTrace) -> str:
    """``GLOBAL all_reduce (400), TP all_gather (40)``: the most frequent kinds of finished ops."""
    counts: Counter[str] = Counter()
    for rank in trace.ranks:
        ops = rank.ops
        keys = np.stack([rank.comm_ids_of(ops["comm_index"]), ops["op"].astype(np.int64)])
        kinds, n_each = np.unique(keys, axis=1, return_counts=True)
        for (comm_id, op), n in zip(kinds.T.tolist(), n_each.tolist(), strict=True):
            role = trace.communicators[comm_id].role if comm_id >= 0 else CommRole.UNKNOWN
            counts[f"{role.value} {Op(op).name.lower()}"] += n
    shown = [f"{kind} ({n:,})" for kind, n in counts.most_common(MAX_KINDS)]
    return ", ".join(shown) + (", ..." if len(counts) > MAX_KINDS else "")


def template_scores(rebuilt: Iterable[SessionSteps]) -> tuple[TemplateScore, ...]:
    """How the templates fared on the first rank that has no steps."""
    return next((one.scores for one in rebuilt if not one.steps and one.scores), ())
