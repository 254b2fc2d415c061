from __future__ import annotations

import pytest

from comminsight.diagnosis import codes_groups as codes
from comminsight.diagnosis.rules.foreign_root import foreign_root_rule
from comminsight.model.job_evidence import JobEvidence, JobLog
from comminsight.model.log_event import LogCode, LogEvent, LogValue
from comminsight.model.verdict import Cause


def log(rank: int, calls: list[tuple[str, int]], size: int) -> JobLog:
    """(op, root) each, after the making of a communicator of ``size`` ranks."""
    ids: dict[str, LogValue] = {"comm": "0x1", "n_ranks": size}
    made = [(LogCode.NCCL_INIT_COMPLETE, {**ids, "comm_hash": "0xa"})]
    made += [
        (LogCode.NCCL_COLL, {**ids, "op": name, "op_count": 0, "count": 8, "datatype": 7,
                             "root": root})
        for name, root in calls
    ]  # fmt: skip
    events = tuple(
        LogEvent(
            code=code, file=f"{rank}.log", line=n, text="", host="a", pid=rank + 1,
            comm_rank=rank % size, values=values,
        )
        for n, (code, values) in enumerate(made, 1)
    )  # fmt: skip
    return JobLog(file=f"{rank}.log", rank=rank, events=events)


BEFORE = [("AllReduce", 0)]


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ({4: ("Broadcast", 0), 5: ("Broadcast", 4)}, [(5,)]),
        ({4: ("Reduce", 4), 5: ("Reduce", 4)}, [(4, 5)]),
        ({4: ("Broadcast", 1), 5: ("Broadcast", 1)}, []),
        ({4: ("AllReduce", 9), 5: ("AllReduce", 9)}, []),  # has no root
    ],
)
def test_a_root_that_is_no_member(
    last: dict[int, tuple[str, int]], expected: list[tuple[int, ...]]
) -> None:
    logs = tuple(log(rank, [*BEFORE, call], 2) for rank, call in last.items())
    found = [claim.verdict for claim in foreign_root_rule(JobEvidence(logs=logs, world_size=8))]
    assert [verdict.culprits for verdict in found] == expected
    for verdict in found:
        assert verdict.cause is Cause.ROOT_MISMATCH
        assert [a.code for a in verdict.next_actions] == [codes.CHECK_ROOT]
        said = next(e for e in verdict.evidence if e.message.code == codes.ROOT_OUTSIDE)
        assert (said.message.params["root"], said.message.params["n_ranks"]) == (4, 2)
