"""Names are masked alike wherever they stand, and what reads like one is left alone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from comminsight.format.nccl_tests_json import parse_nccl_tests_json
from comminsight.pipeline.incident_members import Masking, Part, PartKind, written_part
from comminsight.pipeline.masking import Masker
from tests.builders.log_job import job
from tests.builders.logs import samples
from tests.unit.format.test_nccl_tests_json import report as json_report
from tests.unit.format.test_nccl_tests_json import result as json_result


def masked(text: str, *learnt: tuple[str, str]) -> str:
    masker = Masker()
    for key, name in learnt:
        masker.learn(key, name)
    masker.learn("", text)
    return masker.text(text)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("amber-1:12:34 [0] NCCL INFO on amber-1", "host-1:12:34 [0] NCCL INFO on host-1"),
        ("[1,3]<stderr>: amber-1:12:34 [0] NCCL", "[1,3]<stderr>: host-1:12:34 [0] NCCL"),
        ("Nov  3 01:02:03 amber-1 kernel: x", "Nov  3 01:02:03 host-1 kernel: x"),
        ("2025-11-03T01:02:03Z amber-1 sshd[3]: x", "2025-11-03T01:02:03Z host-1 sshd[3]: x"),
        ("srun: error: amber-1: task 3: Killed", "srun: error: host-1: task 3: Killed"),
        ("JOB 12 ON amber-1 CANCELLED AT", "JOB 12 ON host-1 CANCELLED AT"),
        ("  host      : amber-1.site.local", "  host      : host-1"),
        ("to [amber-1.site.local]:29500 (errno", "to [host-1]:29500 (errno"),
        ("--master_addr amber-1 MASTER_ADDR=amber-1", "--master_addr host-1 MASTER_ADDR=host-1"),
        ("10.4.0.17<4567> 10.4.0.17", "198.18.0.1<4567> 198.18.0.1"),
        ("to fe80::1ff:fe23:4567:890a port", "to fe80::1 port"),  # on its own link, as before
        ("to fd00::5 and 169.254.7.7.", "to 2001:db8::2 and 169.254.0.1."),
        (
            "GID 0000:0000:0000:0000:0000:ffff:0a04:0011 of 10.4.0.17 and ::ffff:10.4.0.17",
            "GID 0000:0000:0000:0000:0000:ffff:c612:0001 of 198.18.0.1 and ::ffff:198.18.0.1",
        ),
        (
            "f (/opt/ann/lib/site-packages/torch/_dynamo/x.py:3)", "f (.../torch/_dynamo/x.py:3)",
        ),
        ("f (/tmp/torchinductor_ann/ab/c.py:3)", "f (.../torchinductor/ab/c.py:3)"),
        ('File "/home/ann/p/train.py", line 3', 'File ".../train.py", line 3'),
        ("ann is known from /home/ann/x", "user-1 is known from .../x"),
        ("ssh ann@amber-1 ~/run.sh", "ssh user-1@host-1 .../run.sh"),
        ("python proj/train.py --out=/mnt/data/run7", "python .../train.py --out=.../run7"),
        ("tcp://amber-1:29500", "tcp://host-1:29500"),
        ("see http://wiki.corp.internal/ann/page.", "see http://host-1/page."),
        ("file:///home/ann/store", "file:///store"),
    ],
)  # fmt: skip
def test_names_and_paths_are_replaced(text: str, after: str) -> None:
    assert masked(text) == after


@pytest.mark.parametrize(
    "text",
    [
        "[rank3]:[E1103 01:02:03.456 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught",
        "NCCL INFO Channel 00/02 : 0[0] -> 1[1] [send] via NET/Socket/0 comm 0x55 busId 1b000",
        "NCCL version 2.27.3+cuda12.8, socket.cc:484, misc/utils.cc:12 -> 3",
        "PCI:0000:1b:00.0 at 12:34:56 aa:bb:cc:dd:ee:ff c10::Error std::vector 127.0.0.1 ::1",
        "f (torch/distributed/x.py:3) /tmp/tmp1/ab/cabcdefghijklmnopqrstuv.py",
        "unable to open /dev/shm/nccl-abc: No space left; GB/s, 8/8 ranks, and/or, localhost",
    ],
)
def test_what_is_no_name_stays(text: str) -> None:
    assert masked(text) == text


def test_one_name_has_one_alias_with_and_without_its_domain() -> None:
    masker = Masker()
    for name in ("b-1.site.local", "b-2", "b-1"):
        masker.learn("host", name)
    assert masker.text("b-1 b-2 b-1.site.local xb-1 b-11") == "host-1 host-2 host-1 xb-1 b-11"
    assert masker.counts["hosts"] == 2
    assert masker.field("host", "b-2") == "host-2"


def test_a_name_that_stands_in_every_text_is_masked_in_its_field_alone() -> None:
    masker = Masker()
    masker.learn("host", "7")
    assert (masker.text("rank 7 of 8"), masker.field("host", "7")) == ("rank 7 of 8", "host-1")


def test_a_path_in_its_field_is_one_path_whatever_is_in_it() -> None:
    masker = Masker()
    assert masker.field("spool", "/data/my runs/a, b") == ".../a, b"
    assert masker.counts["paths"] == 1


@pytest.mark.parametrize("seed", range(20))
def test_lines_of_every_kind_of_log_lose_the_host(seed: int) -> None:
    made = job(seed)
    masker = Masker()
    masker.learn_host(made.host)
    lines = [sample.line for sample in samples(seed)]
    assert any(made.host in line for line in lines)
    short = made.host.partition(".")[0]
    assert [line for line in map(masker.text, lines) if made.host in line or short in line] == []


@pytest.mark.parametrize("piece", ["a@", "~", "a/", "a.", "1.", "a:", "://", "/home/", "a.py/"])
def test_the_time_grows_with_the_text_and_no_faster(piece: str) -> None:
    """The same piece again and again is what makes careless patterns take hours."""
    text = piece * (200_000 // len(piece))
    began_s = time.perf_counter()
    masked(text)
    assert time.perf_counter() - began_s < 20


@pytest.mark.parametrize("is_whole", [True, False])
def test_the_environment_in_results_of_nccl_tests_is_left_out(
    tmp_path: Path, is_whole: bool
) -> None:
    """A file that was cut is left out as a whole: nothing tells where its environment ends."""
    text = json_report(json_result(1 << 20))
    path = tmp_path / "a.json"
    path.write_text(text if is_whole else text[: text.index("config")])
    part, masking = Part("a.json", path, PartKind.TEXT), Masking(Masker())
    masking.learn(part)
    written = written_part(part, masking)
    if not is_whole:
        assert written is None
        return
    assert written is not None
    assert b"secret" not in written
    assert b"gpu0" not in written
    found = parse_nccl_tests_json(written.decode())
    assert [row.busbw_gbs for row in found.rows] == [187.5]
    assert len(found.hosts) == 2
