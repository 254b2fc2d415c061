"""``python -m comminsight.launch.judging DIR LANG IS_BAD_END``: the first verdict in one sentence,
and the metadata of the run beside its manifests.

Nothing is printed for a run that ended well and in which nobody is accused.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

from comminsight.errors import InputError
from comminsight.pipeline.metadata import write_metadata
from comminsight.report.catalogue import catalogue
from comminsight.report.verdict_text import headline
from comminsight.run import open_run


def main(argv: Sequence[str]) -> int:
    """0; errors are the caller's to pass over."""
    path, lang, is_bad_end = argv
    opened = open_run(path)
    report = opened.report()
    for verdict in report.verdicts[:1]:
        if verdict.culprits or is_bad_end == "1":
            line = headline(verdict, report, catalogue(lang))
            sys.stdout.buffer.write(line.encode("utf-8", "surrogateescape"))
            sys.stdout.flush()
    with suppress(InputError):  # the verdict stands, and a rebuild writes them too
        write_metadata(opened.paths, opened.metadata(is_fresh=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
