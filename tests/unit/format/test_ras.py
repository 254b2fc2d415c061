"""Answers of NCCL's RAS: JSON and text give one shape, odd ones a clear error, torn ones say so."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comminsight.errors import InputError
from comminsight.format import ras
from comminsight.format.ras import parse_ras
from comminsight.model.ops import Op
from comminsight.model.ras import RasForm, RasPresence, RasProcess, launched_by
from tests.builders.ras import (
    TEXT_BEHIND,
    TEXT_DEAD,
    TEXT_HEAD,
    ras_comm,
    ras_json,
    ras_missing,
    ras_rank,
)

ANSWERED, LEFT, SILENT, DEAD = RasPresence
BEHIND = ras_json(
    ras_comm(0xAB, [ras_rank(rank, launched=41 if rank == 2 else 42) for rank in range(8)])
)


@pytest.mark.parametrize("data", [BEHIND, TEXT_BEHIND.encode()], ids=["json", "text"])
def test_both_forms_tell_who_is_behind(data: bytes) -> None:
    answer = parse_ras(data)
    (comm,) = answer.communicators
    assert (comm.comm_hash, comm.comm_size, answer.is_whole, answer.n_unread) == (0xAB, 8, True, 0)
    assert launched_by(comm, Op.ALL_REDUCE) == dict.fromkeys(range(8), 42) | {2: 41}
    (third,) = [rank for rank in comm.ranks if rank.comm_rank == 2]
    assert (third.process, third.cuda_device) == (RasProcess(host="10.0.0.1", pid=5002), 2)
    assert third.presence is ANSWERED


def test_the_form_is_told_by_the_content() -> None:
    assert parse_ras(BEHIND).form is RasForm.JSON
    assert parse_ras(BEHIND).nccl_version == "2.28.9"
    assert parse_ras(TEXT_BEHIND.encode()).form is RasForm.TEXT
    assert parse_ras(TEXT_BEHIND.encode()).nccl_version == "2.27.5"


def test_lines_of_the_protocol_before_an_answer_are_no_part_of_it() -> None:
    said = b"SERVER PROTOCOL 2\r\nOK\nOK\n"
    assert parse_ras(said + BEHIND) == parse_ras(BEHIND)
    assert parse_ras(said + TEXT_DEAD.encode()) == parse_ras(TEXT_DEAD.encode())


def test_who_is_gone_in_json() -> None:
    missing = [ras_missing(1), ras_missing(2, silent=True), ras_missing(3, dead=True)]
    answer = parse_ras(ras_json(ras_comm(0xAB, [ras_rank(0)], missing)))
    (comm,) = answer.communicators
    assert {rank.comm_rank: rank.presence for rank in comm.ranks} == {
        0: ANSWERED, 1: LEFT, 2: SILENT, 3: DEAD,
    }  # fmt: skip
    assert answer.gone == {
        SILENT: (RasProcess(host="10.0.0.1", pid=5002),),
        DEAD: (RasProcess(host="10.0.0.1", pid=5003),),
    }
    assert launched_by(comm, Op.ALL_REDUCE) == {0: 42}


def test_who_is_gone_and_what_failed_in_text() -> None:
    answer = parse_ras(TEXT_DEAD.encode())
    assert answer.gone == {
        SILENT: (RasProcess(host="10.0.0.1", pid=5003),),
        DEAD: (RasProcess(host="10.0.0.2", pid=5007),),
    }
    assert (answer.n_gone, answer.n_timeouts) == ({SILENT: 1, DEAD: 1}, 1)
    assert (answer.is_whole, answer.n_unread) == (True, 0)
    (comm,) = answer.communicators
    assert {rank.comm_rank: (rank.presence, rank.async_error) for rank in comm.ranks} == {
        3: (SILENT, ""), 4: (ANSWERED, "ncclRemoteError"), 6: (ANSWERED, "ncclRemoteError"),
        7: (DEAD, ""),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, ("RUNNING", "", "")),
        ({"init_state": 7}, ("INIT", "", "")),
        ({"init_state": 2}, ("INIT", "ncclSystemError", "")),
        ({"async_error": 6}, ("RUNNING", "", "ncclRemoteError")),
        ({"async_error": 7}, ("RUNNING", "", "")),
        ({"async_error": 11}, ("RUNNING", "", "ncclResult 11")),
        ({"destroy_flag": True}, ("FINALIZE", "", "")),
        ({"abort_flag": True, "destroy_flag": True}, ("ABORT", "", "")),
    ],
)
def test_status_and_errors_of_a_member(status: dict[str, object], expected: object) -> None:
    answer = parse_ras(ras_json(ras_comm(1, [ras_rank(0, status=status)])))
    (rank,) = answer.communicators[0].ranks
    assert (rank.status, rank.init_error, rank.async_error) == expected


def test_groups_in_text_that_are_not_named_stay_unknown() -> None:
    text = TEXT_BEHIND.replace("7 ranks", "6 ranks")
    (comm,) = parse_ras(text.encode()).communicators
    assert launched_by(comm, Op.ALL_REDUCE) == {2: 41}


def test_named_groups_and_different_status_in_text() -> None:
    where = "GPU 0 managed by process 1 on node n"
    text = TEXT_HEAD.format(errors="MISMATCH") + (
        "Warnings\n========\n\n#0-0 (ab) MISMATCH\n"
        "  Communicator ranks have different status\n"
        "  6 ranks have status RUNNING\n"
        f"  Rank 1 has status ABORT -- {where}\n"
        f"  Rank 5 has status NOCOMM -- {where}\n"
        "  Communicator ranks have different Broadcast operation counts\n"
        "  6 ranks have not launched any operations\n"
        "  2 ranks have launched up to operation 3\n"
        f"  Rank 1 -- {where}\n  Rank 4 -- [process information not found]\n\n"
    )
    answer = parse_ras(text.encode())
    (comm,) = answer.communicators
    assert launched_by(comm, Op.BROADCAST) == dict.fromkeys(range(8), 0) | {1: 3, 4: 3}
    assert {r.comm_rank: (r.status, r.presence, r.process.pid) for r in comm.ranks} == {
        1: ("ABORT", ANSWERED, 1), 4: ("", ANSWERED, -1), 5: ("NOCOMM", LEFT, 1),
    }  # fmt: skip
    assert answer.n_unread == 0


def test_a_torn_text_is_not_whole_and_new_lines_are_counted() -> None:
    torn = parse_ras(TEXT_DEAD[: TEXT_DEAD.index("Warnings")].encode())
    assert (torn.is_whole, len(torn.gone)) == (False, 2)
    assert parse_ras((TEXT_DEAD + "A line of the future\n").encode()).n_unread == 1


def test_members_that_cannot_be_are_passed_over_and_counted() -> None:
    """NCCL 2.27.3 lists such beside good ones."""
    odd = TEXT_DEAD.replace("Rank 3 ", "Rank 1057455228 ").replace("Rank 4 ", "Rank 8 ")
    answer = parse_ras(odd.encode())
    assert [rank.comm_rank for rank in answer.communicators[0].ranks] == [6, 7]
    assert answer.n_unread == 2
    comms = [ras_comm(1, [ras_rank(0), ras_rank(1) | {"rank": n}]) for n in (-1, 2, 1057455228)]
    answer = parse_ras(ras_json(*comms, ras_comm(2, [ras_rank(0)]) | {"size": -3}))
    assert [[r.comm_rank for r in comm.ranks] for comm in answer.communicators] == [[0]] * 4
    assert (answer.n_unread, answer.communicators[3].comm_size) == (4, 0)


@pytest.mark.parametrize("kind", ["Initialization", "Asynchronous"])
def test_one_member_that_failed_and_one_that_launched_nothing_in_text(kind: str) -> None:
    where = "GPU 1 (NVML 6) managed by process 77 on node fe80::1"
    text = TEXT_HEAD.format(errors="ERROR,MISMATCH") + (
        f"#0-0 (ab) ERROR\n  {kind} error on 1 rank\n  Rank 1 reported System error -- {where}\n\n"
        "Warnings\n========\n\n#0-0 (ab) MISMATCH\n"
        "  Communicator ranks have different Reduce operation counts\n"
        "  7 ranks have launched up to operation 5\n"
        f"  Rank 1 has not launched any operations -- {where}\n\n"
    )
    answer = parse_ras(text.encode())
    (comm,) = answer.communicators
    (rank,) = comm.ranks
    assert (rank.init_error or rank.async_error) == "ncclSystemError"
    assert bool(rank.init_error) == (kind == "Initialization")
    assert (rank.process, rank.cuda_device) == (RasProcess(host="fe80::1", pid=77), 1)
    assert launched_by(comm, Op.REDUCE) == dict.fromkeys(range(8), 5) | {1: 0}
    assert answer.n_unread == 0


def test_uneven_jobs_have_another_summary_and_it_is_read() -> None:
    text = TEXT_DEAD.replace(
        "      2          4            1          8        8\n",
        "      1          8            1\n      1          2            1\n\n"
        "  Nodes  Processes         GPUs\n(total)    (total)      (total)\n"
        "      2         10           10\n\n"
        "The outlier node:\n  Node 10.0.0.2 running processes 5004,5005\n",
    )
    assert parse_ras(text.encode()) == parse_ras(TEXT_DEAD.encode())


def test_keys_may_be_missing_or_new() -> None:
    little = json.dumps({"communicators": [{"hash": "0xAB", "ranks": [{"rank": 0}, {}]}]})
    answer = parse_ras(little.encode())
    (comm,) = answer.communicators
    assert (comm.comm_size, [rank.comm_rank for rank in comm.ranks]) == (0, [0])
    assert answer.n_unread == 1
    newer = ras_rank(0) | {"colour": 7}
    newer["collective_counts"] |= {"AlltoAll": 3}
    assert parse_ras(ras_json(ras_comm(1, [newer]), extra=[])).n_unread == 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "neither the JSON nor the text"),
        (b"\x7fELF\0\0", "neither the JSON nor the text"),
        (b"{", "not the JSON"),
        (BEHIND[:-300], "not the JSON"),
        (b'{"a": 1}', "missing required field `communicators`"),
        (b'{"communicators": {}}', r"\$.communicators"),
        (b'{"communicators": [{"hash": "0x1", "size": "x"}]}', r"\$.communicators\[0\].size"),
        (b'{"communicators": [{"hash": "zz"}]}', r"\$.communicators\[0\].hash"),
        (b'{"communicators": ' + b"[" * 100_000, "not the JSON"),
    ],
)
def test_what_is_no_answer_is_refused_with_file_and_place(data: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        parse_ras(data, path="x.json")
    assert str(caught.value).startswith("x.json: ")


def test_size_and_number_of_members_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "MAX_MEMBERS", 7)
    with pytest.raises(InputError, match="8 members"):
        parse_ras(BEHIND)
    monkeypatch.setattr(ras, "MAX_ANSWER_BYTES", 1 << 20)
    with pytest.raises(InputError, match="larger than 1 MiB"):
        parse_ras(b"x" * ((1 << 20) + 1))


@given(st.binary(max_size=60), st.integers(0, 1500), st.sampled_from([BEHIND, TEXT_DEAD.encode()]))
def test_damage_is_read_or_refused_and_nothing_else(junk: bytes, at: int, good: bytes) -> None:
    data = good[:at] + junk + good[at + len(junk) :]
    try:
        answer = parse_ras(data)
    except InputError:
        return
    assert all(0 <= rank.comm_rank <= 1 << 20 for c in answer.communicators for rank in c.ranks)
