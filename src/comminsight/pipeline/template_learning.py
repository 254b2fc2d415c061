"""A template proposed from the sessions of a run, and its text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from comminsight.capture.session import SessionData
from comminsight.format.toml_text import write_toml
from comminsight.model.event import concatenate_rows
from comminsight.model.hang import Liveness
from comminsight.model.learning import TemplateLearning
from comminsight.model.records import is_ended_op
from comminsight.pipeline.rebuild import chunks, engine_settings
from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.communicators import join_communicators
from comminsight.semantics.period import RankStream
from comminsight.semantics.reorder import Reorder
from comminsight.semantics.template import Template
from comminsight.semantics.template_document import template_document
from comminsight.semantics.template_learning import Learned, learn_template


def learn_from(sessions: Sequence[SessionData], name: str) -> Learned:
    """A template for the run of these sessions, or why there is none."""
    _, comm_ids = join_communicators([(s.identity, s.comms) for s in sessions])
    streams = [rank_stream(s, comm_ids[s.identity.session_id]) for s in sessions]
    return learn_template(streams, name)


def rank_stream(session: SessionData, comm_ids: np.ndarray) -> RankStream:
    """The session's ops in the order in which the engine would take them."""
    comms = CommTable(session.identity.world_size)
    comms.add(session.comms)
    order = Reorder(engine_settings(session).order)
    parts = [order.push(chunk) for chunk in chunks(session.records)]
    rows = concatenate_rows([*parts, order.drain()])
    is_from_start = (
        session.complete_from_seq == 1 and int(session.records["seq"].min(initial=1)) <= 1
    )
    return RankStream(
        session.identity,
        rows[is_ended_op(rows)],
        comms,
        comm_ids,
        is_from_start=is_from_start,
        is_to_end=session.liveness is Liveness.CLOSED,
    )


def template_text(template: Template, learning: TemplateLearning, run: str) -> str:
    """The template file: a comment that says what it was learnt from, and the template."""
    comment = (
        f"# Learnt from {_one_line(run)}: {learning.n_regular} of {learning.n_periods} periods on "
        f"{learning.n_ranks} rank(s) are alike;\n"
        f"# every step lies where they say on {learning.n_fitting_ranks} of {learning.n_ranks} "
        "rank(s). Read it, and change what is only true of this run.\n"
    )
    return comment + write_toml(template_document(template))


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)
