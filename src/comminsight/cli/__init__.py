"""``comminsight VERB …``: looks the verb up, runs it, turns errors into exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from comminsight import __version__
from comminsight.cli.verbs import VERBS
from comminsight.errors import CommInsightError, ExitCode

LANGUAGES = ("en", "zh")


def usage() -> str:
    """The text of ``comminsight --help``."""
    width = max(map(len, VERBS))
    lines = [f"  {name:<{width}}  {verb.help}" for name, verb in VERBS.items()]
    return "\n".join(
        [
            "usage: comminsight VERB [options]    (comminsight VERB --help)",
            "",
            *lines,
            "",
            "exit codes: 0 ok, 1 internal, 2 usage, 3 bad or missing input, 4 partial (--strict),",
            "            5 unreachable, 10 finding (--fail-on), 130 interrupted;",
            "            run: its child's",
        ]
    )


def fail(error: CommInsightError, lang: str = "en") -> int:
    """Print what happened and what to do next; the error's exit code."""
    text, next_line = str(error), f"next: {error.next_step}" if error.next_step else ""
    if lang != "en":
        from comminsight.report.error_text import error_in, next_in

        text, next_line = error_in(error, lang), next_in(error, lang)
    print(f"comminsight: {text}", file=sys.stderr)
    if next_line:
        print(f"  {next_line}", file=sys.stderr)
    return int(error.exit_code)


def language(words: Sequence[str]) -> str:
    """The language that the options ask for, before they are read as such; of several the last."""
    pairs = zip(words, [*words[1:], ""], strict=True)
    options = words[: words.index("--")] if "--" in words else words
    given = [
        word.partition("=")[2] or following
        for word, following in list(pairs)[: len(options)]
        if word.partition("=")[0] == "--lang"
    ]
    return given[-1] if given and given[-1] in LANGUAGES else "en"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of the verb in ``argv`` (default: the process's arguments)."""
    words = list(sys.argv[1:] if argv is None else argv)
    replace_closed_streams()
    try:
        code = dispatch(words)
        sys.stdout.flush()
    except CommInsightError as error:
        return fail(error, language(words))
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:  # the reader of our output went away: not an error of ours
        drop_output()
        return int(ExitCode.OK)
    except Exception as error:
        print(f"comminsight: internal error: {type(error).__name__}: {error}", file=sys.stderr)
        if os.environ.get("COMMINSIGHT_TRACEBACK"):
            raise
        print("  next: run again with COMMINSIGHT_TRACEBACK=1 and report it", file=sys.stderr)
        return int(ExitCode.INTERNAL)
    return code


def dispatch(words: Sequence[str]) -> int:
    """Exit code of the first word's verb; only its module is imported."""
    if not words or words[0] in {"-h", "--help", "help"}:
        print(usage())
        return int(ExitCode.OK if words else ExitCode.USAGE)
    if words[0] in {"-V", "--version"}:
        print(f"comminsight {__version__}")
        return int(ExitCode.OK)
    verb = VERBS.get(words[0])
    if verb is None:
        print(f"comminsight: no verb {words[0]!r}\n\n{usage()}", file=sys.stderr)
        return int(ExitCode.USAGE)
    return int(importlib.import_module(verb.module).main(words[1:]))


def replace_closed_streams() -> None:
    """A stream that we were started without is no reason to fail: what goes there is dropped."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - stays open


def drop_output() -> None:
    """From now on stdout goes nowhere, also what is still buffered for it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
