"""``python -m comminsight_inject.site_install install|uninstall|status``: the ``.pth`` file.

It makes the site-packages of the Python that runs this start the inject, even with ``-E`` or
``-I``, but only in processes that have COMMINSIGHT_INJECT=1; all others pay one comparison.
Installing twice is installing once, uninstalling leaves nothing behind.
"""

from __future__ import annotations

import argparse
import os
import sys
import sysconfig
from typing import Optional, Sequence

PTH_NAME = "comminsight_inject.pth"
PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIBRARY_NAME = "libnccl-profiler-comminsight.so"


def site_packages() -> str:
    """The folder in which this Python looks for ``.pth`` files."""
    return sysconfig.get_paths()["purelib"]


def library() -> str:
    """Where the recorder library of the package beside this one is, or should be."""
    beside = os.path.join(PACKAGE_PARENT, "comminsight", "_native")
    return os.path.join(os.environ.get("COMMINSIGHT_NATIVE_DIR") or beside, LIBRARY_NAME)


def pth_line(folder: str, package_parent: str = PACKAGE_PARENT) -> str:
    """The one line of the file. ``site`` executes it because it begins with ``import``.

    A package that is not in ``folder`` itself is found by its absolute path, put at the end of
    ``sys.path`` and only when the inject is asked for.
    """
    calls = ['os.environ.setdefault("COMMINSIGHT_LIBRARY", %r)' % os.path.abspath(library())]
    if os.path.realpath(package_parent) != os.path.realpath(folder):
        calls.append("sys.path.append(%r)" % package_parent)
    calls.append('__import__("comminsight_inject.autoload")')
    asked = 'os.environ.get("COMMINSIGHT_INJECT") == "1"'
    return "import os, sys; %s and (%s)\n" % (asked, ", ".join(calls))


def install(folder: str) -> str:
    """What was done; writes the file in one piece.

    Raises OSError when the folder is not writable or there is no library to record with.
    """
    os.stat(library())
    path, line = os.path.join(folder, PTH_NAME), pth_line(folder)
    if _content(path) == line:
        return "already installed: " + path
    temporary = "%s.%d.tmp" % (path, os.getpid())
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(line)
    os.replace(temporary, path)
    return "installed: " + path


def uninstall(folder: str) -> str:
    """What was done.

    Raises OSError when the folder is not writable.
    """
    path = os.path.join(folder, PTH_NAME)
    if _content(path) is None:
        return "not installed: " + path
    os.unlink(path)
    return "removed: " + path


def status(folder: str) -> str:
    """``installed``, ``outdated`` (it points elsewhere) or ``not installed``, and the file."""
    path = os.path.join(folder, PTH_NAME)
    content = _content(path)
    if content is None:
        return "not installed: " + path
    return ("installed: " if content == pth_line(folder) else "outdated: ") + path


def usage() -> str:
    """What to set for a job, where its records will lie, and how to read them."""
    default = "/tmp/comminsight-%d/spool" % os.geteuid()  # noqa: S108 - as the recorder has it
    spool = os.environ.get("COMMINSIGHT_SPOOL") or default
    rows = (
        ("export COMMINSIGHT_INJECT=1", ""),
        ("export COMMINSIGHT_RUN_ID=NAME", "# a new name for each run"),
        ("export COMMINSIGHT_SPOOL=%s" % spool, "# a folder on the node's own disk"),
    )
    width = max(len(line) for line, _ in rows)
    exports = "\n".join(("  %-*s  %s" % (width, *row)).rstrip() for row in rows)
    return (
        "recorder: %s\nIn the environment of a job to be recorded:\n%s\n"
        "Only the first is needed. The records will lie in %s, on every node its own:\n"
        "  comminsight report %s" % (library(), exports, spool, spool)
    )


def _content(path: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def main(argv: Sequence[str]) -> int:
    """0, or 3 when the folder cannot be written or there is no recorder."""
    actions = {"install": install, "uninstall": uninstall, "status": status}
    parser = argparse.ArgumentParser(prog="comminsight_inject.site_install", description=__doc__)
    parser.add_argument("action", choices=sorted(actions))
    parser.add_argument("--folder", default=site_packages(), help="default: this Python's own")
    options = parser.parse_args(argv)
    try:
        said = actions[options.action](options.folder)
    except FileNotFoundError as error:
        sys.stderr.write("%s; run `make native`, or reinstall the wheel\n" % error)
        return 3
    except OSError as error:
        sys.stderr.write("%s; use a Python environment of your own\n" % error)
        return 3
    sys.stdout.write(said + "\n")
    if options.action != "uninstall" and _content(os.path.join(options.folder, PTH_NAME)):
        sys.stdout.write(usage() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
