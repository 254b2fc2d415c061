"""Simulated runs as streams to learn from, and what a template saved and loaded makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from comminsight.format.toml_text import write_toml
from comminsight.model.records import is_ended_op
from comminsight.model.topology import SessionIdentity
from comminsight.pipeline.templates import parse
from comminsight.semantics.comm_table import CommTable
from comminsight.semantics.communicators import join_communicators
from comminsight.semantics.period import RankStream
from comminsight.semantics.reorder import Reorder
from comminsight.semantics.template import Template
from comminsight.semantics.template_document import template_document
from comminsight.semantics.template_learning import Learned, learn_template
from comminsight.sim import SimRun


def streams_of(run: SimRun) -> list[RankStream]:
    """The streams of a simulated run."""
    return rank_streams([(rank.session, rank.comms, rank.records) for rank in run.ranks])


def rank_streams(
    ranks: Sequence[tuple[SessionIdentity, np.ndarray, np.ndarray]],
) -> list[RankStream]:
    """One stream per (session, communicators, records), as the engine would commit its ops."""
    _, comm_ids = join_communicators([(who, comms) for who, comms, _ in ranks])
    streams = []
    for who, rows_of_comms, records in ranks:
        comms = CommTable(who.world_size)
        comms.add(rows_of_comms)
        order = Reorder()
        rows = np.concatenate([order.push(records), order.drain()])
        streams.append(RankStream(who, rows[is_ended_op(rows)], comms, comm_ids[who.session_id]))
    return streams


def cut_off(stream: RankStream, first: int, end: int) -> RankStream:
    """A recorder that began late and whose job had not ended."""
    rows = stream.rows[first:end]
    return replace(stream, rows=rows, is_from_start=False, is_to_end=False)


def learn(run: SimRun) -> Learned:
    """What is learnt from a run that was seen from beginning to end."""
    return learn_template(streams_of(run), "learned")


def reloaded(learned: Learned) -> Template:
    """The proposal as it comes back from its file."""
    assert learned.template is not None, learned.learning.refusal
    text = write_toml(template_document(learned.template))
    (template,) = parse("learned.toml", text)
    return template
