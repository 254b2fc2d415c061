"""Which known peculiarities an NCCL release has; the list is data, in a TOML file beside this."""

from __future__ import annotations

import functools
import re
import tomllib
from importlib import resources

import msgspec

from comminsight.errors import FormatError
from comminsight.model.checkup import Standing

Version = tuple[int, ...]
VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


class KnownRelease(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A range of releases and the code of what is known of it; bounds as text, "" = open."""

    id: str
    first: str = msgspec.field(name="from")
    until: str
    standing: Standing
    source: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    release: tuple[KnownRelease, ...]


def version_of(text: str) -> Version:
    """The three numbers a version begins with, () when it does not begin with two."""
    match = VERSION.match(text)
    return tuple(int(number or 0) for number in match.groups()) if match else ()


def parse_releases(text: str, path: str = "") -> tuple[KnownRelease, ...]:
    """The entries of one file.

    Raises FormatError naming what is wrong.
    """
    try:
        entries = msgspec.convert(tomllib.loads(text), _File).release
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise FormatError(str(error), path=path) from error
    for entry in entries:
        for bound in filter(None, (entry.first, entry.until)):
            if not version_of(bound):
                raise FormatError(f"{bound!r} of {entry.id} is no version", path=path)
    return entries


@functools.cache
def known_releases() -> tuple[KnownRelease, ...]:
    """The shipped list."""
    name = "nccl_releases.toml"
    return parse_releases(resources.files(__package__).joinpath(name).read_text("utf-8"), name)


def about(version: Version, known: tuple[KnownRelease, ...]) -> tuple[KnownRelease, ...]:
    """The entries whose range ``version`` is in, in the order of the list."""
    return tuple(
        entry
        for entry in known
        if version_of(entry.first) <= version
        and (not entry.until or version < version_of(entry.until))
    )
