"""Templates: which ops open, anchor and close a step of a kind of job.

A template file is TOML; the caller reads it and gives the parsed document:

    file_version = 1
    [[template]]
    name = "fsdp2"                   # unique over all files
    version = 1                      # of this template; written into every step
    priority = 30                    # the highest that fits wins
    patience_ops = 4096              # how many ops must be seen before it may win
    topology = {min_world, max_world, groups = [{role, min_size, max_size}]}   # see GroupRule
    requires = [SEQUENCE, ...]       # each must occur
    forbids = [SEQUENCE, ...]        # none may occur
    open = SEQUENCE
    anchor = SEQUENCE                # or "close": the same ops
    close = SEQUENCE
    work = SEQUENCE                  # what training alone has, at least once per step: gradients

A SEQUENCE is a list of positions, matched by strictly consecutive ops. A position is a table
``{role, op, dtype, min_bytes, max_bytes, count, peer}`` (all optional, so ``{}`` is any op), or a
list of tables of which one must fit. In ``requires`` and ``forbids`` a single table may stand for
a sequence of one. ``template_file`` reads it.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from comminsight.model.ops import CommRole, DType, Op

TEMPLATE_FILE_VERSION = 1
ANY = -1


class Peer(StrEnum):
    """Direction of a P2P op along the ranks of its communicator."""

    ANY = ""
    NEXT = "next"
    PREVIOUS = "previous"


class Symbol(msgspec.Struct, frozen=True):
    """A predicate on one op; an empty tuple, ``ANY`` and ``Peer.ANY`` leave the property free."""

    roles: tuple[CommRole, ...] = ()
    ops: tuple[Op, ...] = ()
    dtypes: tuple[DType, ...] = ()
    min_bytes: int = 0
    max_bytes: int = ANY
    count: int = ANY
    peer: Peer = Peer.ANY

    @property
    def label(self) -> str:
        """As people read it, for example ``all_reduce@GLOBAL count=1``."""
        ops = "|".join(op.name.lower() for op in self.ops) or "any"
        roles = "|".join(role.value for role in self.roles) or "any"
        parts = [f"{ops}@{roles}"]
        parts += [f">={self.min_bytes}B"] if self.min_bytes else []
        parts += [f"<={self.max_bytes}B"] if self.max_bytes != ANY else []
        parts += ["|".join(dtype.name.lower() for dtype in self.dtypes)] if self.dtypes else []
        parts += [f"count={self.count}"] if self.count != ANY else []
        parts += [f"peer={self.peer.value}"] if self.peer else []
        return " ".join(parts)


Position = tuple[Symbol, ...]  # one of these
Sequence = tuple[Position, ...]  # strictly consecutive


class GroupRule(msgspec.Struct, frozen=True):
    """Groups of this role must be used, and all of them have a size within the bounds."""

    role: CommRole
    min_size: int = 1
    max_size: int = ANY

    @property
    def label(self) -> str:
        """As people read it, for example ``PP size >=2``."""
        least = f" >={self.min_size}" if self.min_size > 1 else ""
        most = f" <={self.max_size}" if self.max_size != ANY else ""
        return f"{self.role.value} size{least}{most}"


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """The layout that a template presupposes; by default any."""

    min_world: int = 1
    max_world: int = ANY
    groups: tuple[GroupRule, ...] = ()

    @property
    def world_label(self) -> str:
        """The bounds of the world as people read them, for example ``world >=2``."""
        least = f" >={self.min_world}" if self.min_world > 1 else ""
        most = f" <={self.max_world}" if self.max_world != ANY else ""
        return f"world{least}{most}"


def sequence_label(sequence: Sequence) -> str:
    """A sequence as people read it."""
    return ", ".join(" or ".join(symbol.label for symbol in position) for position in sequence)


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """One template. Of ``opens``, ``anchors``, ``closes`` any alternative may match.

    ``learn`` names how open and close are found in the data instead (see ``learn``); it is empty
    in a template that can be matched. ``is_close_inside_open``: Close (and Anchor) may
    use the ops of Open, but not be complete before it.
    ``is_anchor_proof``: an Anchor alone proves the end of the last step at explicit end.
    ``is_refuted_by_pauses``: it does not fit where the pauses between its steps have a period,
    since they are parts of a step then (see ``pauses``), nor where each is several steps
    (see ``rounds``).
    ``is_iteration``: a step is an iteration of a serving job, a forward pass from end to end.

    With ``works``, an Anchor or Close before any work of its step ends nothing (see ``work``).
    ``lead`` is learnt: the usual ops of a step before its work, as counts by kind (see ``lead``).
    ``is_work_behind`` too: the work stands between the Close and the next Open instead; and
    ``is_lead_work``: the job has none but an Anchor or Close with a lead before it.
    """

    name: str
    version: int
    file_version: int = TEMPLATE_FILE_VERSION
    priority: int = 0
    patience_ops: int = 0
    topology: Topology = Topology()
    requires: tuple[Sequence, ...] = ()
    forbids: tuple[Sequence, ...] = ()
    opens: tuple[Sequence, ...] = ()
    anchors: tuple[Sequence, ...] = ()
    closes: tuple[Sequence, ...] = ()
    works: tuple[Sequence, ...] = ()
    learn: str = ""
    is_close_inside_open: bool = False
    is_anchor_proof: bool = False
    is_refuted_by_pauses: bool = False
    is_iteration: bool = False
    lead: tuple[tuple[int, int], ...] = ()
    is_work_behind: bool = False
    is_lead_work: bool = False


class TemplateFile(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed template file; ``lines`` are those of the templates' priorities, 0 for unknown."""

    file_version: int
    templates: tuple[Template, ...]
    lines: tuple[int, ...] = ()
