from __future__ import annotations

from pathlib import Path

import pytest

from comminsight.diagnosis.codes import message
from comminsight.diagnosis.codes_logs import EVENTS_BEYOND
from comminsight.model.log_event import LogCode
from comminsight.pipeline import job_logs
from comminsight.pipeline.job_evidence import gather
from comminsight.pipeline.job_logs import local_rank_of_log, rank_of_name, read_logs

LINE = "[rank{}]: CUDA error: x\n"
NCCL = "n1:7{}:9 [0] NCCL INFO Using network Socket\n"


@pytest.mark.parametrize(
    ("name", "rank"),
    [("rank_3.log", 3), ("rank12.out", 12), ("run.rank-7.err", 7), ("node3.log", -1),
     ("ranking.log", -1)],
)  # fmt: skip
def test_a_name_tells_a_rank(name: str, rank: int) -> None:
    assert rank_of_name(Path(name)) == rank


@pytest.mark.parametrize(
    ("path", "local_rank"),
    [("x/attempt_0/3/stderr.log", 3), ("attempt_12/0/stdout.log.gz", 0), ("a/3/stderr.log", -1)],
)
def test_a_folder_of_torchrun_tells_a_local_rank(path: str, local_rank: int) -> None:
    assert local_rank_of_log(Path(path)) == local_rank


@pytest.mark.parametrize(
    ("texts", "ranks"),
    [
        ((LINE.format(3), LINE.format(4)), [3, 4]),
        # the only log may be of all ranks, though one alone said something
        ((LINE.format(3),), [-1]),
        ((LINE.format(3) + LINE.format(4), LINE.format(5)), [-1, 5]),
        # several processes wrote it: what one of them says is not of all
        ((LINE.format(3) + NCCL.format(1) + NCCL.format(2), LINE.format(5)), [-1, 5]),
    ],
)
def test_a_log_is_of_the_rank_that_wrote_all_of_it(
    texts: tuple[str, ...], ranks: list[int], tmp_path: Path
) -> None:
    paths = [tmp_path / f"{place}.log" for place in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    logs, unread = read_logs(paths)
    assert ([log.rank for log in logs], unread) == (ranks, [])


def test_many_lines_of_calls_do_not_push_out_how_a_process_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_logs, "MAX_EVENTS", 3)
    call = (
        "n1:7:9 [0] NCCL INFO AllReduce: opCount {:x} sendbuff 0x1 recvbuff 0x2 count 9 datatype 7 "
        "op 0 root 0 comm 0x7 [nranks=2] stream 0x5\n"
    )
    (tmp_path / "a.log").write_text("".join(call.format(n) for n in range(9)) + LINE.format(1))
    job = gather([tmp_path]).job
    codes = [event.code for event in job.logs[0].events]
    assert codes == [LogCode.NCCL_COLL] * 3 + [LogCode.CUDA_ERROR]
    assert message(EVENTS_BEYOND, n_lines=6) in job.missing
