"""The calibration of a run in the archive: each file as it was written, never changed.

State and history are the files themselves, so copying those that are missing, in either direction,
is all there is to do; two archives that went different ways are refused, not merged.
"""

from __future__ import annotations

import re
from pathlib import Path

from comminsight.errors import InputError
from comminsight.store.archive import Archive

FOLDER = "calibration"
_NAME = re.compile(r"(?:history-\d{6}|correction-[0-9a-f]{16})\.json", re.ASCII)


def archive_calibration(archive: Archive, prefix: str, folder: Path) -> list[str]:
    """Puts the files of a run's ``calibration`` folder into the archive; their names there.

    Corrections go first, so that no entry of the history names one that is missing. Idempotent;
    raises InputError when the archive holds another file of such a name.
    """
    names = []
    for path in sorted(folder.glob("*.json")):
        if _NAME.fullmatch(path.name):
            name = f"{prefix}/{FOLDER}/{path.name}"
            archive.put_evidence(name, path.read_bytes())
            names.append(name)
    return names


def fetch_calibration(archive: Archive, prefix: str, folder: Path) -> list[Path]:
    """Writes the archived files that ``folder`` lacks; their paths.

    Raises InputError when a file of the same name has other content.
    """
    written = []
    folder.mkdir(parents=True, exist_ok=True)
    for name in archive.list(f"{prefix}/{FOLDER}"):
        path = folder / name.rpartition("/")[2]
        if not _NAME.fullmatch(path.name):
            continue
        data = archive.get(name)
        if not path.exists():
            path.write_bytes(data)
            written.append(path)
        elif path.read_bytes() != data:
            raise InputError(
                "is not what the archive holds", path=str(path),
                next_step="move the folder away and fetch again, or keep the run's own",
            )  # fmt: skip
    return written
