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
    """The shipped templates, then those of the given folders.

    Raises InputError for a folder that is none, and for a file that is no template.
    """
    own = tuple(
        template
        for folder in folders
        for path in template_files(folder)
        for template in parse(str(path), read_text(path))
    )
    return shipped_templates() + own


def template_files(folder: Path) -> list[Path]:
    """The TOML files of a folder; raises InputError when it has none."""
    files = sorted(folder.glob("*.toml"))
    if not files:
        what = "no template (*.toml) in it" if folder.is_dir() else "no such folder of templates"
        raise InputError(what, path=str(folder), next_step="give a folder of TOML files")
    return files


def read_text(path: Path) -> str:
    """The file's text; raises InputError when it cannot be read as such."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", path=str(path)) from error
