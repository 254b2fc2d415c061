"""Sentences for codes, in English and Chinese.

A catalogue is a TOML file beside this one; nested tables only group, so ``[headline] HEALTHY`` has
the code ``headline.HEALTHY``. A sentence names its parameters as ``{name}`` or ``{name:form}`` with
a form of ``FORMS``; there is no other syntax: no attributes, no indexing, no expressions. The
forms ``s`` and ``es`` are the ending of an English noun after its number: ``{n:count} op{n:s}``.
A code that no catalogue knows is shown as the code with its parameters, and a missing parameter as
``?``, since a report written by a newer version must still be readable.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
import string
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from comminsight.errors import UsageError
from comminsight.model.verdict import Message
from comminsight.report import numbers

LANGUAGES = ("en", "zh")
# each a file of sentences beside that of the language
TOPICS: tuple[str, ...] = (
    "bench", "calls", "data", "ends", "explain", "fit", "exposed", "groups", "host", "import",
    "job", "link", "logs", "pairs", "records", "speed", "what_if",
)  # fmt: skip
ENDINGS = frozenset({"s", "es"})  # of nouns: grammar of one language, no parameter of a message

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_EXIT_CODE = re.compile(r"exit code (\d+)", re.ASCII)
_SIGNAL = re.compile(r"signal (\d+) \((\w+)\)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Field:
    """A named hole in a sentence."""

    name: str
    form: str


Template = tuple[str | Field, ...]


def parse(text: str) -> Template:
    """The pieces of a sentence; raises ValueError for a field that is not ``{name:form}``."""
    pieces: list[str | Field] = []
    for literal, name, form, conversion in string.Formatter().parse(text):
        if literal:
            pieces.append(literal)
        if name is None:
            continue
        if conversion or not _NAME.fullmatch(name) or form not in FORMS:
            raise ValueError(f"field {{{name}:{form}}} of {text!r} is not allowed")
        pieces.append(Field(name, form))
    return tuple(pieces)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All sentences of one language, by code."""

    lang: str
    templates: Mapping[str, Template]

    def text(self, code: str, /, **params: object) -> str:
        """The sentence of ``code`` with its parameters filled in."""
        template = self.templates.get(code)
        if template is None:
            return _bare(code, params)
        return "".join(
            piece if isinstance(piece, str) else self._filled(piece, params) for piece in template
        )

    def message(self, message: Message) -> str:
        """The sentence of a coded message."""
        template = self.templates.get(message.code)
        if template is None:
            return _bare(message.code, message.params)
        return self.text(message.code, **message.params)

    def word(self, group: str, value: str, /, **params: object) -> str:
        """The word for an enumeration's value, the value itself where the catalogue has none."""
        code = f"{group}.{value}"
        return self.text(code, **params) if code in self.templates else value

    def parameters(self, code: str) -> frozenset[Field]:
        """The fields of a sentence, without the endings of nouns."""
        fields = (piece for piece in self.templates[code] if isinstance(piece, Field))
        return frozenset(field for field in fields if field.form not in ENDINGS)

    def _filled(self, field: Field, params: Mapping[str, object]) -> str:
        if field.name not in params:
            return numbers.UNREADABLE
        return FORMS[field.form](self, params[field.name])


def _bare(code: str, params: Mapping[str, object]) -> str:
    if not params:
        return code
    return f"{code} ({', '.join(f'{name}={value}' for name, value in params.items())})"


def _plain(_: Catalogue, value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return numbers.count(value)
    return str(value)


def _ranks(_: Catalogue, value: object) -> str:
    return numbers.rank_list(whole_numbers(value))


def _who(catalogue: Catalogue, value: object) -> str:
    ranks = whole_numbers(value)
    number = "none" if not ranks else "one" if len(set(ranks)) == 1 else "many"
    return catalogue.text(f"who.{number}", ranks=ranks)


def _word(catalogue: Catalogue, value: object) -> str:
    return catalogue.word("word", str(value))


def _known(catalogue: Catalogue, value: object) -> str:
    """Text that may be empty, or a rank that may be -1, where nobody knows it."""
    is_unknown = value == "" or (isinstance(value, int) and value < 0)
    return catalogue.text("word.unknown") if is_unknown else _plain(catalogue, value)


def _rank_or_none(catalogue: Catalogue, value: object) -> str:
    is_none = isinstance(value, int) and value < 0
    return catalogue.text("word.none") if is_none else _plain(catalogue, value)


def _code(catalogue: Catalogue, value: object) -> str:
    """A reason that is a code itself; text that is none is shown as it is."""
    code = str(value) or "stack.not_asked"
    return catalogue.text(code) if code in catalogue.templates else code


def _status(catalogue: Catalogue, value: object) -> str:
    """How a process ended, as ``exit code 1`` or ``signal 9 (SIGKILL)`` tell it."""
    text = str(value)
    if match := _EXIT_CODE.fullmatch(text):
        return catalogue.text("status.code", code=match[1])
    if match := _SIGNAL.fullmatch(text):
        return catalogue.text("status.signal", number=match[1], name=match[2])
    return _known(catalogue, value)


def _ending(letters: str) -> Callable[[Catalogue, object], str]:
    return lambda _, value: "" if value == 1 else letters


def whole_numbers(value: object) -> list[int]:
    """The integers in ``value``, which may be one integer or a list."""
    values: Iterable[object] = value if isinstance(value, list | tuple) else (value,)
    return [one for one in values if isinstance(one, int) and not isinstance(one, bool)]


def _form(function: Callable[[object], str]) -> Callable[[Catalogue, object], str]:
    return lambda _, value: function(value)


FORMS: dict[str, Callable[[Catalogue, object], str]] = {
    "": _plain,
    "count": _form(numbers.count),
    "time": _form(numbers.duration),
    "ms": _form(lambda value: f"{numbers.milliseconds(value)} ms"),
    "when": _form(numbers.instant),
    "pct": _form(numbers.percent),
    "pct100": _form(numbers.percent_of_100),
    "bytes": _form(numbers.size),
    "gbs": _form(numbers.bandwidth),
    "ranks": _ranks,
    "who": _who,
    "word": _word,
    "known": _known,
    "rank": _rank_or_none,
    "code": _code,
    "status": _status,
    "s": _ending("s"),
    "es": _ending("es"),
}


@functools.cache
def catalogue(lang: str) -> Catalogue:
    """The catalogue of ``en`` or ``zh``, read once. Raises UsageError for another language."""
    if lang not in LANGUAGES:
        raise UsageError(f"no messages in {lang!r}", next_step=f"use --lang {'|'.join(LANGUAGES)}")
    entries: dict[str, str] = {}
    for name in (lang, *(f"{lang}_{topic}" for topic in TOPICS)):
        text = importlib.resources.files(__name__).joinpath(f"{name}.toml").read_text("utf-8")
        entries |= dict(_flat("", tomllib.loads(text)))
    return Catalogue(lang, {code: parse(sentence) for code, sentence in entries.items()})


def _flat(prefix: str, table: Mapping[str, object]) -> Iterable[tuple[str, str]]:
    for key, value in table.items():
        code = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flat(f"{code}.", value)
        else:
            yield code, str(value)


def language_of(locale: str) -> str:
    """The catalogue language for a locale such as ``zh_CN.UTF-8``; English for what we lack."""
    return "zh" if locale.lower().startswith("zh") else "en"
