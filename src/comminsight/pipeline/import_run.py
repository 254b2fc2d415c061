"""A run directory made of what others recorded.

manifest = import_run([Path("traces"), Path("logs")], Path("imported"))
open_run("imported").report()
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from comminsight.capture.discovery import SEGMENTS_FOLDER
from comminsight.errors import InputError
from comminsight.format.document import read_document
from comminsight.format.identity import BOOT_ID_CHARS, session_id
from comminsight.format.segment_bytes import segment_bytes
from comminsight.model.imported import ImportedFile, ImportedOps, ImportedRank, ImportManifest
from comminsight.model.manifest import LaunchManifest
from comminsight.model.topology import SessionIdentity
from comminsight.pipeline.evidence_files import EvidenceFiles, sorted_files
from comminsight.pipeline.import_forms import imported_ranks
from comminsight.pipeline.import_sources import EVIDENCE_FOLDER, keep_sources
from comminsight.pipeline.job_evidence import gather
from comminsight.pipeline.layout import RunPaths, write_whole
from comminsight.pipeline.manifest import manifest_path, write_manifest

NAME = "import.json"
SETTINGS = {"min_size_bytes": 0}
_FORM_OF_FIELD = {
    "dumps": "flight_recorder", "traces": "trace", "logs": "log", "hosts": "host"
}  # fmt: skip


def import_run(paths: Sequence[Path], out: Path, *, world_size: int = 0) -> ImportManifest:
    """Writes the run ``out`` from files and folders of any mix; it is there whole or not at all.

    Raises InputError where nothing of ``paths`` can be judged, or ``out`` holds something.
    """
    _refuse_used(out)
    files = sorted_files(paths)
    ranks = imported_ranks(files)
    if not ranks:
        gather(paths, world_size=world_size)  # says what is wrong where nothing can be read
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.part-"))
    except OSError as error:
        raise _unwritable(out, error) from error
    try:
        made = _written(staged, files, ranks, world_size)
        staged.chmod(0o777 & ~_umask())
        os.rename(staged, out)
    except OSError as error:
        raise _unwritable(out, error) from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return made


def read_import(root: Path) -> ImportManifest | None:
    """What an imported run says of itself; None for any other run.

    Raises InputError where the document is damaged.
    """
    path = RunPaths(root).metadata / NAME
    try:
        return read_document(path.read_bytes(), ImportManifest)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=str(path)) from error


def evidence_of(root: Path, manifest: ImportManifest) -> tuple[Path, ...]:
    """The files that it was imported from, as the run keeps them.

    Raises InputError for a name that leads out of the run.
    """
    folder = root / EVIDENCE_FOLDER
    for one in manifest.files:
        if Path(one.path).is_absolute() or ".." in Path(one.path).parts:
            raise InputError(
                f"names a file outside of the run: {one.path}",
                path=str(RunPaths(root).metadata / NAME), next_step="import the files again",
            )  # fmt: skip
    return tuple(folder / one.path for one in manifest.files)


def _written(
    root: Path, files: EvidenceFiles, ranks: Sequence[ImportedRank], world_size: int
) -> ImportManifest:
    paths = RunPaths(root)
    paths.create()
    kept = keep_sources(root, _sources(files))
    run_id = f"import-{_digest(kept)}"
    made = ImportManifest(
        run_id=run_id,
        imported_real_ns=time.time_ns(),
        world_size=world_size,
        files=kept,
        ranks=tuple(_write_rank(paths, one, run_id, begun_ns(ranks)) for one in ranks),
    )
    launched = LaunchManifest(run_id=run_id)
    write_manifest(manifest_path(paths, "imported", 0), launched)
    write_whole(paths.metadata / NAME, msgspec.json.format(msgspec.json.encode(made), indent=2))
    return made


def _sources(files: EvidenceFiles) -> Iterable[tuple[Path, str]]:
    """Every file once with its form; what is of no known form is kept too: it is named later."""
    found: dict[Path, str] = {}
    for name in files.__dataclass_fields__:
        form = _FORM_OF_FIELD.get(name, name)
        for one in getattr(files, name):
            found.setdefault(one[0] if isinstance(one, tuple) else one, form)
    return found.items()


def _digest(files: Iterable[ImportedFile]) -> str:
    return hashlib.sha256("".join(one.sha256 for one in files).encode()).hexdigest()[:12]


def begun_ns(ranks: Iterable[ImportedRank]) -> int:
    """The first start of all: whatever their clocks say, they are of one job."""
    return min((int(one.ops["start_ns"].min()) for one in ranks if len(one.ops)), default=0)


def _write_rank(paths: RunPaths, one: ImportedRank, run_id: str, begun_ns: int) -> ImportedOps:
    identity = identity_of(one, run_id, begun_ns)
    folder = paths.root / SEGMENTS_FOLDER / identity.session_id
    folder.mkdir(parents=True)
    with (folder / "000001.ciseg").open("xb") as stream:
        stream.writelines(segment_bytes(identity, one.ops, one.comms, SETTINGS))
    return ImportedOps(
        global_rank=one.global_rank, session_id=identity.session_id, source=one.source,
        clock=one.clock, clock_error_ns=one.clock_error_ns, n_read=one.n_read,
        n_written=len(one.ops), n_bad=one.n_bad, dropped=dict(one.dropped), inferred=one.inferred,
    )  # fmt: skip


def identity_of(one: ImportedRank, run_id: str, begun_ns: int) -> SessionIdentity:
    """A process of its own on a node of its own: ranks share a clock only where it is known."""
    boot_id = f"im{one.global_rank}"[:BOOT_ID_CHARS]
    return SessionIdentity(
        session_id=session_id(boot_id, one.global_rank + 1, 1), run_id=run_id, host=one.host,
        boot_id=boot_id, pid=one.global_rank + 1, pid_start_ticks=1, global_rank=one.global_rank,
        world_size=one.world_size or -1, created_mono_ns=begun_ns, created_real_ns=begun_ns,
    )  # fmt: skip


def _refuse_used(out: Path) -> None:
    try:
        if not any(out.iterdir()):
            return
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unwritable(out, error) from error
    raise InputError(
        "is there already, and is not empty", path=str(out),
        next_step="give --out a folder that does not exist; nothing is overwritten",
    )  # fmt: skip


def _unwritable(out: Path, error: OSError) -> InputError:
    return InputError(
        f"cannot be written: {error.strerror}", path=str(out),
        next_step="give --out a place where you may write, with room for a copy of the files",
    )  # fmt: skip


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
