"""``comminsight env``: the variables with which a launcher of one's own records.

``eval "$(comminsight env)"`` in a shell; other forms for Slurm, Kubernetes and programs.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from comminsight.launch.environment import (
    checked_run_id,
    inject_package,
    native_library,
    own_folder,
)
from comminsight.launch.own_launcher import POD_FOLDER, OwnLauncher, assignments, pod_mounts
from comminsight.launch.plugin import foreign_plugin
from comminsight.probe.settings import MASK_WORDS
from comminsight.report import environment_forms as forms
from comminsight.report.catalogue import Catalogue, catalogue

SHELLS = ("bash", "fish", "slurm", "k8s", "json")


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="comminsight env",
        description="Print the variables with which a job of your own launcher is recorded.",
        epilog='example: eval "$(comminsight env --run-id one)" && torchrun ... train.py',
    )
    made.add_argument("--shell", choices=SHELLS, default="bash", help="form (default: bash)")
    made.add_argument("--run-id", help="name of the run (default: the launcher's or scheduler's)")
    made.add_argument("--spool", type=Path, metavar="DIR", help="node-local folder for the records")
    made.add_argument("--mask", choices=MASK_WORDS, default="", help="NCCL events (default: light)")
    made.add_argument(
        "--no-inject", action="store_true",
        help="NCCL only: no start-up hook in Python, so no group names and no CPU ops",
    )  # fmt: skip
    made.add_argument("--lang", choices=("en", "zh"), default="en")
    return made


def chosen(options: argparse.Namespace) -> OwnLauncher:
    """What the options ask for; in a pod the spool must have a known place."""
    spool = options.spool
    if spool is None and options.shell == "k8s":
        spool = POD_FOLDER / "spool"
    return OwnLauncher(
        recorder_path=native_library().absolute(),
        inject_folder=None if options.no_inject else inject_package().absolute(),
        run_id="" if options.run_id is None else checked_run_id(options.run_id),
        spool=None if spool is None else spool.absolute(),
        mask=options.mask,
    )


def notes(what: OwnLauncher, shell: str, words: Catalogue) -> Iterator[str]:
    """What a reader of the variables should know, one sentence each."""
    spool = what.spool or own_folder() / "spool"
    yield words.text("env.spool", spool=str(spool), argument=shlex.quote(str(spool)))
    if not what.run_id:
        yield words.text("env.run_id")
    yield words.text("env.old_nccl", folder=str(what.recorder_path.parent))
    if shell == "k8s":
        yield words.text("env.pod_shm", size=forms.SHM_SIZE)
        yield words.text("env.pod_folders")
        if what.inject_folder is not None:
            yield words.text("env.pod_python_path")
    if shell == "slurm":
        yield words.text("env.slurm")


def text_of(what: OwnLauncher, shell: str, environment: Mapping[str, str], words: Catalogue) -> str:
    """The variables in the form that was asked for."""
    given, said = tuple(assignments(what)), list(notes(what, shell, words))
    if shell == "json":
        return forms.as_json(forms.merged(given, environment))
    if shell == "k8s":
        return forms.kubernetes(given, tuple(pod_mounts(what)), said)
    if shell == "slurm":
        if option := forms.sbatch_option(forms.merged(given, environment)):
            said.append(words.text("env.sbatch", option=option))
        return forms.bash(given, said)
    return (forms.fish if shell == "fish" else forms.bash)(given, said)


def main(argv: Sequence[str]) -> int:
    """0; raises InputError when the library or the hook is not installed."""
    options = parser().parse_args(argv)
    words = catalogue(options.lang)
    what = chosen(options)
    print(text_of(what, options.shell, os.environ, words))
    if not sys.stdout.isatty():  # ``eval`` swallows the comments
        print(next(notes(what, options.shell, words)), file=sys.stderr)
    if theirs := foreign_plugin(os.environ):
        print(words.text("env.replaced", plugin=theirs), file=sys.stderr)
    return 0
