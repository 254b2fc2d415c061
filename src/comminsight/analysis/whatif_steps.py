"""The aligned steps of a run as what-if takes them: programs, and what each op belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from comminsight.analysis.alignment import AlignedStep
from comminsight.analysis.batches import share_layout
from comminsight.analysis.matching import Instances
from comminsight.analysis.measures import RunSources, step_instances
from comminsight.analysis.program import StepProgram, program_order, step_program
from comminsight.analysis.whatif_grid import LabelledStep
from comminsight.model.ops import CommRole, Op
from comminsight.model.topology import Communicator


@dataclass(frozen=True, slots=True)
class LinkName:
    """A communicator, or the P2P ops from one of its ranks to another (global ranks, -1: none)."""

    comm_id: int
    sender: int = -1
    receiver: int = -1


@dataclass(frozen=True, slots=True)
class OpClass:
    """Ops that do the same in the parallel layout: the role of the communicator, the op."""

    role: CommRole
    op: Op


@dataclass(frozen=True, slots=True)
class LabelledRun:
    """``steps`` with the names of their numbers: ``links[link]``, ``op_classes[op_class]``."""

    steps: tuple[LabelledStep, ...]
    links: tuple[LinkName, ...]
    op_classes: tuple[OpClass, ...]


def labelled_run(run: RunSources, steps: Sequence[AlignedStep]) -> LabelledRun:
    """The steps in their order; steps without ops are left out."""
    communicators, world_size = run.trace.communicators, run.trace.world_size
    layouts: dict[bytes, StepProgram] = {}
    labels: dict[bytes, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
    links: dict[LinkName, int] = {}
    classes: dict[OpClass, int] = {}
    labelled = []
    for step in steps:
        found, entry_ns = step_instances(run, step)
        program = step_program(found, entry_ns, communicators, world_size)
        if not len(program.rank):
            continue
        key = share_layout(program, layouts)
        if key not in labels:
            order = program_order(found)
            labels[key] = (
                _links(found, order, communicators, links),
                _op_classes(found, order, communicators, classes),
                (~found.is_p2p[found.instance] | (found.ops.op == Op.RECV))[order],
            )
        labelled.append(LabelledStep(program, *labels[key]))
    return LabelledRun(tuple(labelled), tuple(links), tuple(classes))


def _links(
    found: Instances,
    order: np.ndarray,
    communicators: Sequence[Communicator],
    links: dict[LinkName, int],
) -> np.ndarray:
    ops = found.ops
    is_p2p = found.is_p2p[found.instance]
    is_send = ops.op == Op.SEND
    own, peer = ops.comm_rank, ops.peer
    ends = np.stack(
        [
            ops.comm_id,
            np.where(is_p2p, np.where(is_send, own, peer), -1),
            np.where(is_p2p, np.where(is_send, peer, own), -1),
        ],
        axis=1,
    )[order]
    known, number = np.unique(ends, axis=0, return_inverse=True)
    names = [_link(communicators, *row) for row in known.tolist()]
    numbers = np.array([links.setdefault(name, len(links)) for name in names])
    return numbers[number.ravel()]


def _link(
    communicators: Sequence[Communicator], comm_id: int, sender: int, receiver: int
) -> LinkName:
    members = communicators[comm_id].members
    ends = [members[i] if 0 <= i < len(members) else -1 for i in (sender, receiver)]
    return LinkName(comm_id, *ends)


def _op_classes(
    found: Instances,
    order: np.ndarray,
    communicators: Sequence[Communicator],
    classes: dict[OpClass, int],
) -> np.ndarray:
    pairs = np.stack([found.ops.comm_id, found.ops.op], axis=1)[order]
    known, number = np.unique(pairs, axis=0, return_inverse=True)
    names = [OpClass(communicators[comm_id].role, Op(op)) for comm_id, op in known.tolist()]
    numbers = np.array([classes.setdefault(name, len(classes)) for name in names])
    return numbers[number.ravel()]
