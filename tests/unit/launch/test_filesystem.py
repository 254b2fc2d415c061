import pytest

from comminsight.launch.filesystem import filesystem_type

MOUNTS = """\
/dev/vda / ext4 rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
filer:/x /data nfs4 rw 0 0
/dev/vdb /data/local\\040disk xfs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/a", "ext4"),
        ("/dev/shm/x", "tmpfs"),
        ("/dev/shmx", "ext4"),
        ("/data", "nfs4"),
        ("/data/runs/1", "nfs4"),
        ("/data/local disk/r", "xfs"),
    ],
)
def test_the_deepest_mount_decides(path, kind):
    from pathlib import Path

    assert filesystem_type(Path(path), MOUNTS) == kind


def test_no_mount_table_gives_unknown():
    from pathlib import Path

    assert filesystem_type(Path("/a"), "") == ""
