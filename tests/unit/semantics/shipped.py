"""The templates that ship, parsed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import comminsight.semantics
from comminsight.semantics.template import Template
from comminsight.semantics.template_file import parse_template_file

FILES = sorted((Path(comminsight.semantics.__file__).parent / "templates").glob("*.toml"))


def shipped_templates() -> tuple[Template, ...]:
    """All templates of all shipped files."""
    return tuple(
        template
        for path in FILES
        for template in parse_template_file(tomllib.loads(path.read_text()), str(path)).templates
    )
