"""Variables as text that a shell, Slurm, Kubernetes or a program takes as it is.

Notes stand behind the assignments, as comments: ``eval $(...)`` without quotes joins the lines, and
a comment in front would swallow the rest.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SHM_SIZE = "2Gi"


@dataclass(frozen=True, slots=True)
class Assignment:
    """A variable; ``is_prefix`` puts the value before the paths that the variable has."""

    name: str
    value: str
    is_prefix: bool = False


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the node that a container must see at the same path."""

    name: str
    path: str
    is_read_only: bool = True


def comments(notes: Sequence[str]) -> list[str]:
    """The notes as comment lines; a line break in a note cannot end the comment."""
    return [f"# {line}" for note in notes for line in note.splitlines()]


def bash(assignments: Sequence[Assignment], notes: Sequence[str]) -> str:
    """``export`` lines of POSIX shells."""
    lines = []
    for one in assignments:
        behind = f'"${{{one.name}:+:${one.name}}}"' if one.is_prefix else ""
        lines.append(f"export {one.name}={shlex.quote(one.value)}{behind};")
    return "\n".join([*lines, *comments(notes)])


def fish(assignments: Sequence[Assignment], notes: Sequence[str]) -> str:
    """``set -gx`` lines; fish takes only the backslash and the quote as special inside quotes."""
    lines = []
    for one in assignments:
        quoted = "'" + one.value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        words = (
            f"--path {one.name} {quoted} ${one.name}" if one.is_prefix else f"{one.name} {quoted}"
        )
        lines.append(f"set -gx {words};")
    return "\n".join([*lines, *comments(notes)])


def merged(assignments: Sequence[Assignment], environment: Mapping[str, str]) -> dict[str, str]:
    """Values by name, those of path lists put before what ``environment`` has."""
    values = {}
    for one in assignments:
        present = environment.get(one.name, "") if one.is_prefix else ""
        folders = dict.fromkeys([one.value, *filter(None, present.split(":"))])
        values[one.name] = ":".join(folders) if one.is_prefix else one.value
    return values


def as_json(values: Mapping[str, str]) -> str:
    """One flat JSON object."""
    return json.dumps(values, indent=2, ensure_ascii=False)


def sbatch_option(values: Mapping[str, str]) -> str:
    """``--export=ALL,NAME=value,...`` as one shell word; "" where a comma would split a value."""
    if any("," in value for value in values.values()):
        return ""
    pairs = [f"{name}={value}" for name, value in values.items()]
    return shlex.quote(",".join(["--export=ALL", *pairs]))


def kubernetes(
    assignments: Sequence[Assignment], mounts: Sequence[Mount], notes: Sequence[str]
) -> str:
    """YAML with ``env`` and ``volumeMounts`` of the container and ``volumes`` of the pod.

    JSON strings are YAML strings; ``$`` is doubled, since Kubernetes expands ``$(NAME)``.
    """
    lines = [*comments(notes), "env:"]
    for one in assignments:
        value = json.dumps(one.value.replace("$", "$$"), ensure_ascii=False)
        lines.append(f"- name: {one.name}\n  value: {value}")
    lines.append("volumeMounts:\n- name: comminsight-shm\n  mountPath: /dev/shm")
    for mount in mounts:
        read_only = "\n  readOnly: true" if mount.is_read_only else ""
        lines.append(f"- name: {mount.name}\n  mountPath: {json.dumps(mount.path)}{read_only}")
    lines.append(
        "volumes:\n- name: comminsight-shm\n  emptyDir:\n    medium: Memory\n"
        f"    sizeLimit: {SHM_SIZE}"
    )
    for mount in mounts:
        kind = "Directory" if mount.is_read_only else "DirectoryOrCreate"
        host_path = f"    path: {json.dumps(mount.path)}\n    type: {kind}"
        lines.append(f"- name: {mount.name}\n  hostPath:\n{host_path}")
    return "\n".join(lines)
