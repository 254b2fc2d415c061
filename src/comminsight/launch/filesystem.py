"""Whether a directory lies on this node's own disk.

A drain thread that writes to a network file system can end up in uninterruptible sleep, and with
it the training process; so segments go to a node-local spool unless the target is local.
"""

from __future__ import annotations

from pathlib import Path

NETWORK_TYPES = frozenset(
    (
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "9p", "ceph", "lustre", "glusterfs",
        "gpfs", "beegfs", "pvfs2", "orangefs", "wekafs", "fuse", "fuseblk", "virtiofs", "hf3fs",
    )
)  # fmt: skip


def filesystem_type(path: Path, mounts_text: str) -> str:
    """File system type of ``path``, from the text of /proc/self/mounts; "" when unknown."""
    resolved = str(path.resolve())
    best, best_type = -1, ""
    for line in mounts_text.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        mount_point = fields[1].replace("\\040", " ")
        inside = resolved == mount_point or resolved.startswith(mount_point.rstrip("/") + "/")
        if inside and len(mount_point) >= best:
            best, best_type = len(mount_point), fields[2]
    return best_type


def is_network(path: Path) -> bool:
    """True when ``path`` is on a network or FUSE file system; false when that cannot be told."""
    try:
        mounts_text = Path("/proc/self/mounts").read_text()
    except OSError:
        return False
    kind = filesystem_type(path, mounts_text)
    return kind in NETWORK_TYPES or kind.startswith("fuse.")
