"""Templates that could never win, and pairs of which chance would decide."""

from __future__ import annotations

import msgspec
import pytest

from comminsight.model.ops import CommRole, Op
from comminsight.semantics.template import Peer, Symbol, Template
from comminsight.semantics.template_check import covers, faults, rivals
from tests.unit.semantics.shipped import shipped_templates

AR = Symbol(ops=(Op.ALL_REDUCE,))
SMALL_AR = Symbol(roles=(CommRole.GLOBAL,), ops=(Op.ALL_REDUCE,), count=1, max_bytes=8)
AG = Symbol(ops=(Op.ALL_GATHER,))


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ((Symbol(),), (AR,), True),
        ((AR,), (Symbol(),), False),
        ((AR,), (SMALL_AR,), True),
        ((SMALL_AR,), (AR,), False),
        ((AR,), (SMALL_AR, AG), False),
        ((AR, AG), (SMALL_AR, AG), True),
        ((Symbol(max_bytes=8),), (Symbol(max_bytes=9),), False),
        ((Symbol(min_bytes=4),), (Symbol(min_bytes=4),), True),
        ((Symbol(min_bytes=5),), (Symbol(min_bytes=4),), False),
        ((Symbol(count=1),), (Symbol(),), False),
        ((Symbol(peer=Peer.NEXT),), (Symbol(peer=Peer.PREVIOUS),), False),
    ],
)
def test_a_position_covers_what_fits_it_only(
    outer: tuple[Symbol, ...], inner: tuple[Symbol, ...], expected: bool
) -> None:
    assert covers(outer, inner) is expected


def template(**changes: object) -> Template:
    base = Template(
        name="a", version=1, priority=5, opens=(((AG,),),), closes=(((AR,),),),
        anchors=(((SMALL_AR,),),),
    )  # fmt: skip
    return msgspec.structs.replace(base, **changes)


def test_a_sound_template_has_no_fault() -> None:
    assert list(faults(template())) == []
    assert [t.name for t in shipped_templates() if list(faults(t))] == []


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"forbids": (((AG,),),)}, "open"),
        ({"forbids": (((Symbol(roles=(CommRole.GLOBAL,)),),),)}, "anchor"),
        ({"requires": (((AG,), (AR,)),), "forbids": (((AG,), (AR,)),)}, "requires"),
        ({"anchors": (((AR,), (AG,)),)}, "anchor"),  # close completes at its first op
        ({"anchors": (((AG,), (AR,), (AG,)),)}, "anchor"),
        ({"opens": (((Symbol(min_bytes=9, max_bytes=8),),),)}, "open"),
        ({"works": (((Symbol(min_bytes=9, max_bytes=8),),),)}, "work"),
        ({"learn": "gradient_bytes"}, "close"),
        ({"learn": "until_open", "closes": (), "anchors": ()}, "learn"),
        ({"learn": "in_flight", "closes": ()}, "learn"),
        ({"learn": "in_flight", "closes": (), "anchors": (), "opens": (((AG,), (AG,)),)}, "open"),
        ({"learn": "norm", "closes": ()}, "anchor"),  # of one op: a scatter is missing
        ({"learn": "norm", "closes": (), "opens": (((AG,), (AG,)),)}, "open"),
    ],
)
def test_what_could_never_be_is_a_fault_of_its_key(changes: dict[str, object], key: str) -> None:
    assert next(faults(template(**changes))).key == key


def test_an_anchor_that_ends_with_close_or_before_it_can_be_reached() -> None:
    assert list(faults(template(anchors=(((AG,), (AR,)),)))) == []
    assert list(faults(template(closes=(((AR,), (AG,)),)))) == []


def test_equal_priority_is_refused_unless_one_excludes_the_other() -> None:
    one, other = template(), template(name="b")
    assert [(a.name, b.name) for a, b in rivals([one, other])] == [("a", "b")]
    assert list(rivals([one, msgspec.structs.replace(other, priority=6)])) == []
    needs_scatter = template(name="b", requires=(((Symbol(ops=(Op.REDUCE_SCATTER,)),),),))
    forbids_scatter = template(forbids=(((Symbol(ops=(Op.REDUCE_SCATTER, Op.REDUCE)),),),))
    assert list(rivals([forbids_scatter, needs_scatter])) == []
    assert list(rivals([needs_scatter, forbids_scatter])) == []
    assert list(rivals(shipped_templates())) == []
