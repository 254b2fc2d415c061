"""Options with a fixed set of words, shared by the verbs."""

from __future__ import annotations

from enum import StrEnum


class Clock(StrEnum):
    """Which clock waits are measured on."""

    RAW = "raw"
    ALIGNED = "aligned"


class Lang(StrEnum):
    """Language of text for people."""

    EN = "en"
    ZH = "zh"


class FailOn(StrEnum):
    """Which findings turn into exit code 10."""

    NEVER = "never"
    ANY = "any"
    HIGH = "high"


class EventFormat(StrEnum):
    """Form of exported events."""

    PARQUET = "parquet"
    INSPECTOR = "inspector"


class ExecutorKind(StrEnum):
    """Where the tasks of a rebuild run."""

    POOL = "pool"
    RAY = "ray"
