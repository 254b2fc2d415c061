"""A template and its document are each other's inverse."""

from __future__ import annotations

import tomllib

import msgspec
import pytest

from comminsight.format.toml_text import write_toml
from comminsight.model.ops import CommRole
from comminsight.pipeline.templates import parse
from comminsight.semantics.template import GroupRule, Template, Topology
from comminsight.semantics.template_document import template_document
from tests.unit.semantics.shipped import shipped_templates


@pytest.mark.parametrize("template", shipped_templates(), ids=lambda template: template.name)
def test_every_shipped_template_comes_back_from_its_file(template: Template) -> None:
    document = template_document(template)
    text = write_toml(document)
    assert parse("own.toml", text) == (template,)
    assert tomllib.loads(text) == document


def test_the_layout_and_every_flag_come_back() -> None:
    full = msgspec.structs.replace(
        shipped_templates()[0], patience_ops=7, is_close_inside_open=True, is_anchor_proof=True,
        is_refuted_by_pauses=True, is_iteration=True,
        topology=Topology(
            min_world=2, max_world=64,
            groups=(GroupRule(CommRole.TP, 2, 8), GroupRule(CommRole.PP)),
        ),
    )  # fmt: skip
    assert parse("own.toml", write_toml(template_document(full))) == (full,)


def test_alternatives_that_no_file_can_hold_are_refused() -> None:
    template = shipped_templates()[0]
    twice = msgspec.structs.replace(template, opens=template.opens * 2)
    with pytest.raises(ValueError, match="open has 2 alternatives"):
        template_document(twice)
