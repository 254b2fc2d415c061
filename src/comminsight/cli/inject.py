"""``comminsight inject install|uninstall|status``: for sites that keep their own launcher.

The work is done by the island package in the Python it is asked for, so that the hook lands in the
environment that trains, not in the one that runs this command.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from comminsight.errors import InputError
from comminsight.launch.environment import inject_package


def main(argv: Sequence[str]) -> int:
    """Exit code of the island's installer."""
    parser = argparse.ArgumentParser(
        prog="comminsight inject",
        description="Install the start-up hook into a Python environment. It stays inert until "
        "COMMINSIGHT_INJECT=1 is set for a job.",
    )
    parser.add_argument("action", choices=("install", "uninstall", "status"))
    parser.add_argument("--python", default=sys.executable, help="the Python that trains")
    options = parser.parse_args(argv)
    paths = [
        str(inject_package().parent),
        *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [options.python, "-m", "comminsight_inject.site_install", options.action]
    try:
        return subprocess.run(command, env=environment, check=False).returncode
    except OSError as error:
        raise InputError(
            f"cannot start this Python: {error.strerror}",
            path=options.python,
            next_step="give the interpreter of the training environment with --python",
        ) from error
