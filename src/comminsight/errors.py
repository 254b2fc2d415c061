"""Every error a user can meet, each with an exit code and the next step to take.

An error names the file or setting, the place in it, and what to try next. Exit codes are those of
the verb table in the documentation; only ``cli`` turns an error into a process exit.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every verb; ``run`` passes the code of its child instead."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    BAD_INPUT = 3
    PARTIAL = 4
    UNREACHABLE = 5
    FINDING = 10
    INTERRUPTED = 130


class CommInsightError(Exception):
    """A failure the user can act on: what happened, and what to do next.

    ``code`` and ``params`` name the same sentences in the catalogue (``error.CODE``,
    ``next.CODE``), for readers of another language; without a code there is the English alone.
    """

    exit_code = ExitCode.INTERNAL

    def __init__(
        self, message: str, *, next_step: str = "", code: str = "", **params: object
    ) -> None:
        super().__init__(message)
        self.next_step = next_step
        self.code = code
        self.params = params
        self.path = ""


class UsageError(CommInsightError):
    """The command line or a setting is wrong."""

    exit_code = ExitCode.USAGE


class InputError(CommInsightError):
    """A file or directory is missing, unreadable, or not what it should be."""

    exit_code = ExitCode.BAD_INPUT

    def __init__(
        self, message: str, *, path: str = "", next_step: str = "", code: str = "", **params: object
    ) -> None:
        said = f"{path}: {message}" if path else message
        super().__init__(said, next_step=next_step, code=code, **params)
        self.path = path


class FormatError(InputError):
    """Bytes that are not in a form this version reads; carries the offset where reading stopped."""

    def __init__(
        self, message: str, *, path: str = "", offset_bytes: int = 0, next_step: str = ""
    ) -> None:
        super().__init__(f"{message} (at byte {offset_bytes})", path=path, next_step=next_step)
        self.offset_bytes = offset_bytes


class UnreachableError(CommInsightError):
    """A server, process or device that should answer does not."""

    exit_code = ExitCode.UNREACHABLE
