from __future__ import annotations

import pytest

from comminsight.analysis.log_limits import (
    FILES,
    LOCKED,
    UNLIMITED,
    limits,
    setting,
    shm_capacity_bytes,
    size_bytes,
)
from comminsight.analysis.log_versions import version_of, version_text
from tests.unit.analysis.log_texts import job_log


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("max locked memory           (kbytes, -l) 8192", LOCKED, 8192 * 1024),
        ("max locked memory           (kbytes, -l) unlimited", LOCKED, UNLIMITED),
        ("Max locked memory         65536                65536            bytes", LOCKED, 65536),
        ("open files                  (-n) 1024", FILES, 1024),
        ("Max open files            4096                 524288               files", FILES, 4096),
    ],
)  # fmt: skip
def test_a_limit_is_read_in_bytes_or_files(line: str, name: str, value: int) -> None:
    assert [one.value for one in limits([job_log(line)], name)] == [value]


@pytest.mark.parametrize(
    ("text", "size"),
    [("64M", 64 << 20), ("2.0G", 2 << 30), ("512", 512), ("x", 0), ("", 0), ("1Z", 0)],
)
def test_a_size_with_its_unit(text: str, size: int) -> None:
    assert size_bytes(text) == size


def test_the_smallest_file_system_counts() -> None:
    lines = [f"shm              {size}     0   64M   0% /dev/shm" for size in ("2.0G", "64M")]
    assert shm_capacity_bytes([job_log(*lines)]) == 64 << 20
    assert shm_capacity_bytes([job_log("nothing")]) == 0


def test_a_setting_is_its_largest_number() -> None:
    line = "n1:7:8 [0] NCCL INFO NCCL_SOCKET_NTHREADS set by environment to {}."
    log = job_log(line.format(4), line.format(8), line.format("odd"))
    assert setting([log], "NCCL_SOCKET_NTHREADS", 1) == 8
    assert setting([log], "NCCL_NSOCKS_PERTHREAD", 1) == 1


@pytest.mark.parametrize(
    ("text", "version"),
    [("2.27.3+cuda12.9", (2, 27, 3)), ("2.15.5-1", (2, 15, 5)), ("2.4", (2, 4, 0)), ("x", None)],
)
def test_a_version_as_numbers(text: str, version: tuple[int, int, int] | None) -> None:
    assert version_of(text) == version
    assert version is None or version_of(version_text(version)) == version
