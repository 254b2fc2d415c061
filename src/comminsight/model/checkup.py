"""The answer of ``comminsight doctor``: one result for each check, three-valued, as codes."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from comminsight.model.verdict import Message

CHECKUP_SCHEMA_VERSION = "1.0"


class Standing(StrEnum):
    """What a check came to. UNKNOWN: it could not be told here, which is not a problem found."""

    OK = "ok"
    PROBLEM = "problem"
    UNKNOWN = "unknown"


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """What ``check`` found, and what to do about it where something can be done."""

    check: str
    standing: Standing
    found: Message
    remedy: Message | None = None


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """All results in the order of the checks."""

    results: tuple[CheckResult, ...]
    schema_version: str = CHECKUP_SCHEMA_VERSION

    def having(self, standing: Standing) -> tuple[CheckResult, ...]:
        """The results that came to ``standing``."""
        return tuple(result for result in self.results if result.standing is standing)
