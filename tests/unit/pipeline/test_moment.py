"""What only the nodes could tell, kept with a copy of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from comminsight.errors import InputError
from comminsight.model.hang import Liveness
from comminsight.pipeline.layout import RunPaths
from comminsight.pipeline.moment import (
    Moment,
    as_then,
    moment_path,
    now_ns,
    read_moment,
    write_moment,
)
from tests.unit.pipeline.test_ends import session

THEN = Moment(observed_mono_ns=5, observed_real_ns=7, end="running")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    assert read_moment(paths) is None
    paths.create()
    write_moment(paths, THEN)
    assert read_moment(paths) == THEN


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"observed_mono_ns": "x"}', b"\xff"])
def test_a_copy_without_its_moment_is_not_judged_by_this_machine(
    tmp_path: Path, data: bytes
) -> None:
    paths = RunPaths(tmp_path)
    paths.create()
    moment_path(paths).write_bytes(data)
    with pytest.raises(InputError, match=r"observed\.json"):
        read_moment(paths)


def test_processes_are_as_they_were_then() -> None:
    own = session(0)
    name = own.identity.session_id
    then = Moment(
        observed_mono_ns=5, observed_real_ns=7, end="running",
        liveness={name: Liveness.ALIVE}, pids={name: 4},
    )  # fmt: skip
    assert (as_then(own, then).liveness, as_then(own, then).pid) == (Liveness.ALIVE, 4)
    assert (as_then(own, THEN).liveness, as_then(own, THEN).pid) == (Liveness.UNKNOWN, -1)
    assert as_then(own, None) is own
    assert now_ns(THEN) == (5, 7)
    assert min(now_ns(None)) > 7
