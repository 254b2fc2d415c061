"""Template files: the shipped ones, and a user's own folder, read and handed to the pure parser."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from comminsight.errors import InputError
from comminsight.semantics.template import Template
from comminsight.semantics.template_check import rivals
from comminsight.semantics.template_file import parse_template_file

_SYNTAX_LINE = re.compile(r"\(at line (\d+)")


@dataclass(frozen=True, slots=True)
class LoadedTemplate:
    """A template and the place of its priority."""

    template: Template
    place: str


def shipped_templates() -> tuple[Template, ...]:
    """Every template of the package, in file order."""
    return tuple(loaded.template for loaded in _shipped())


def parse(name: str, text: str) -> tuple[Template, ...]:
    """The templates of one file.

    Raises InputError naming the file, the line and what to do.
    """
    return tuple(loaded.template for loaded in _load(name, text))


def _load(name: str, text: str) -> tuple[LoadedTemplate, ...]:
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = _SYNTAX_LINE.search(str(error))
        raise InputError(
            f"not TOML: {error}", code="not_toml", reason=str(error),
            path=f"{name}:{found[1]}" if found else name,
            next_step="mend the line; docs/templates.md shows the form of a template",
        ) from error  # fmt: skip
    file = parse_template_file(document, path=name, text=text)
    return tuple(
        LoadedTemplate(template, f"{name}:{line}" if line else name)
        for template, line in zip(file.templates, file.lines, strict=True)
    )


def load_templates(folders: Iterable[Path] = ()) -> tuple[Template, ...]:
    """The shipped templates, then those of the given folders; one of a shipped name replaces it.

    Raises InputError for a folder that is none, for a file that is no template, for two own
    templates of one name, and for two of equal priority that could both win.
    """
    own = [
        loaded
        for folder in folders
        for path in template_files(folder)
        for loaded in _load(str(path), read_text(path))
    ]
    _refuse_equal_names(own)
    names = {loaded.template.name for loaded in own}
    everything = [one for one in _shipped() if one.template.name not in names] + own
    _refuse_rivals(everything)
    return tuple(loaded.template for loaded in everything)


def template_files(folder: Path) -> list[Path]:
    """The TOML files of a folder; raises InputError when it has none."""
    files = sorted(folder.glob("*.toml"))
    if not files:
        what = "no template (*.toml) in it" if folder.is_dir() else "no such folder of templates"
        raise InputError(
            what, path=str(folder), next_step="give a folder of TOML files",
            code="no_template" if folder.is_dir() else "no_template_folder",
        )  # fmt: skip
    return files


def read_text(path: Path) -> str:
    """The file's text; raises InputError when it cannot be read as such."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot be read: {error}",
            path=str(path),
            next_step="give a TOML file in UTF-8",
            code="unread_template",
            reason=str(error),
        ) from error


def _shipped() -> list[LoadedTemplate]:
    folder = resources.files("comminsight.semantics") / "templates"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    return [one for f in files for one in _load(f.name, f.read_text(encoding="utf-8"))]


def _refuse_equal_names(own: Sequence[LoadedTemplate]) -> None:
    seen: dict[str, str] = {}
    for loaded in own:
        name = loaded.template.name
        if name in seen:
            raise InputError(
                f"template {name!r} is also in {seen[name]}", path=loaded.place,
                code="same_template", name=name, place=seen[name],
                next_step="give one of them another name",
            )  # fmt: skip
        seen[name] = loaded.place


def _refuse_rivals(templates: Sequence[LoadedTemplate]) -> None:
    places = {loaded.template.name: loaded.place for loaded in templates}
    for one, other in rivals([loaded.template for loaded in templates]):
        taken = sorted({loaded.template.priority for loaded in templates})
        raise InputError(
            f"template {other.name!r} and {one.name!r} ({places[one.name]}) have priority "
            f"{one.priority}, and both could win",
            path=places[other.name],
            code="rival_templates",
            name=other.name,
            other=one.name,
            place=places[one.name],
            priority=one.priority,
            taken=taken,
            next_step="give one another priority, or let it forbid what the other requires; "
            f"taken: {', '.join(map(str, taken))}",
        )
