"""Template files: the shipped ones, and a user's own folder, read and handed to the pure parser."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from comminsight.errors import InputError
from comminsight.semantics.template import Template, parse_template_file


def shipped_templates() -> tuple[Template, ...]:
    """Every template of the package, in file order."""
    folder = resources.files("comminsight.semantics") / "templates"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    return tuple(t for f in files for t in parse(f.name, f.read_text(encoding="utf-8")))


def parse(name: str, text: str) -> tuple[Template, ...]:
    """The templates of one file.

    Raises InputError naming the file and the place.
    """
    try:
        return parse_template_file(tomllib.loads(text), path=name).templates
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            str(error), path=name, next_step="see docs/templates.md for the form of a template"
        ) from error


def load_templates(folders: Iterable[Path] = ()) -> tuple[Template, ...]:
    """The shipped templates, then those of the given folders."""
    own = tuple(
        template
        for folder in folders
        for path in sorted(folder.glob("*.toml"))
        for template in parse(str(path), path.read_text(encoding="utf-8"))
    )
    return shipped_templates() + own
