"""Flight Recorder dumps: every version and both forms give one shape, bad ones a clear error."""

from __future__ import annotations

import json
import pickle  # noqa: TID251 - makes the input
import random
import re
from typing import Any

import pytest

from comminsight.errors import InputError
from comminsight.format.flight_recorder import (
    FlightCounters,
    FlightGroup,
    entry_layouts,
    is_flight_recorder,
    parse_flight_recorder,
)
from comminsight.format.flight_recorder_entry import (
    MAX_FRAMES,
    BadEntryError,
    EntryReader,
    FlightEntry,
    FlightState,
)
from comminsight.model.ops import DType, Op
from tests.builders.flight_recorder import T0, FlightJob, parallel_job, torch_pickle

NEWEST: dict[str, Any] = {
    "record_id": 7, "pg_id": 3, "process_group": ("12", "DATA_PARALLEL_GROUP"),
    "collective_seq_id": 5, "p2p_seq_id": 0, "op_id": 6, "profiling_name": "nccl:all_reduce",
    "time_created_ns": T0, "input_sizes": [[8, 64]], "input_dtypes": ["Float"],
    "output_sizes": [[8, 64]], "output_dtypes": ["Float"], "state": "completed",
    "time_discovered_started_ns": None, "time_discovered_completed_ns": T0 + 5,
    "retired": True, "timeout_ms": 600_000, "is_p2p": False, "thread_id": "1",
    "frames": [{"name": "step", "filename": "train.py", "line": 7}],
}  # fmt: skip

OPEN = NEWEST | {"state": "scheduled", "retired": False}


def entry(**fields: Any) -> FlightEntry:
    (found,) = parse_flight_recorder(dumped([NEWEST | fields])).entries
    return found


def dumped(entries: list[dict[str, Any]], **top: Any) -> bytes:
    return pickle.dumps({"version": "2.10", "entries": entries, **top}, 2)


def without(*keys: str, **more: Any) -> dict[str, Any]:
    return {key: value for key, value in NEWEST.items() if key not in keys} | more


BEFORE_2 = without(
    "collective_seq_id", "p2p_seq_id", "process_group", "input_dtypes", "output_dtypes", "is_p2p",
    "timeout_ms", "thread_id", seq_id=5,
)  # fmt: skip


@pytest.mark.parametrize(
    ("document", "same"),
    [
        ([BEFORE_2 | {"time_created_us": T0 // 1000}], {"dtype", "group", "timeout"}),
        ({"version": "1.4", "entries": [BEFORE_2]}, {"dtype", "group", "timeout"}),
        ({"version": "2.1", "entries": [without("timeout_ms", "thread_id")]}, {"timeout"}),
        ({"version": "2.4", "entries": [without("thread_id")]}, set()),
        ({"version": "2.9", "nccl_version": "2.27.3", "entries": [NEWEST]}, set()),
        ({"version": "2.10", "comm_lib_version": "2.29", "entries": [NEWEST]}, set()),
        ({"version": "2.11", "entries": [NEWEST | {"new": {"deep": [1]}}]}, set()),
    ],
    ids=["2.2", "1.4", "2.1", "2.4", "2.9", "2.10", "newer"],
)
def test_every_version_gives_what_it_holds(document: Any, same: set[str]) -> None:
    (found,) = parse_flight_recorder(pickle.dumps(document, 2)).entries
    assert (found.record_id, found.pg_id, found.seq, found.op_id) == (7, 3, 5, 6)
    assert (found.op, found.backend, found.count, found.is_p2p) == (
        Op.ALL_REDUCE, "nccl", 512, False
    )  # fmt: skip
    assert found.created_ns // 1000 == T0 // 1000
    assert (found.state, found.is_over) == (FlightState.COMPLETED, True)
    assert found.dtype == (DType.UNKNOWN if "dtype" in same else DType.FLOAT32)
    assert found.size_bytes == (0 if "dtype" in same else 2048)
    assert found.group == ("" if "group" in same else "12")
    assert found.timeout_ms == (0 if "timeout" in same else 600_000)


def test_both_forms_give_one_dump() -> None:
    job = parallel_job(2, 2, 1).play()
    document = job.dump(1)
    for one in document["entries"]:
        one["frames"] = []
    text = json.dumps(document | {"entries": [*document["entries"]]}).encode()
    as_json = document | {
        "entries": [one | {"time_discovered_started_ns": 0} for one in document["entries"]],
        "pg_status": {
            key: {which: str(n) for which, n in value.items()}
            for key, value in document["pg_status"].items()
        },
    }
    expected = parse_flight_recorder(pickle.dumps(document, 2))
    assert parse_flight_recorder(text) == expected
    assert parse_flight_recorder(json.dumps(as_json).encode()) == expected


def test_groups_and_counters() -> None:
    dump = parse_flight_recorder(
        dumped(
            [],
            pg_config={
                "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"},
                "": {"name": "", "desc": "", "ranks": "[]"},
            },
            pg_status={"4": {"last_enqueued_collective": 9, "last_completed_collective": "8"}},
        )
    )
    assert dump.groups == (FlightGroup("0", "default_pg", (0, 1, 2)),)
    assert dump.counters == {4: FlightCounters(9, 8)}
    old = parse_flight_recorder(pickle.dumps({"version": "1.4", "pg_config": {0: [0, 1]}}, 2))
    assert old.groups == (FlightGroup("", "", (0, 1), 0),)


@pytest.mark.parametrize(
    ("call", "op", "place", "peer", "is_end"),
    [
        ("nccl:_all_gather_base", Op.ALL_GATHER, -1, -1, False),
        ("nccl:_reduce_scatter_base", Op.REDUCE_SCATTER, -1, -1, False),
        ("nccl:send 0->3", Op.SEND, 0, 3, False),
        ("nccl:recv 2<-1", Op.RECV, 2, 1, False),
        ("nccl:ALLGATHER_coalesced", Op.ALL_GATHER, -1, -1, True),
        ("nccl:reduce_scatter_tensor_coalesced", Op.REDUCE_SCATTER, -1, -1, True),
        ("nccl:coalesced", Op.UNKNOWN, -1, -1, True),
        ("gloo:all_to_all", Op.ALL_TO_ALL, -1, -1, False),
        ("nccl:all_reduce_barrier", Op.BARRIER, -1, -1, False),
        ("nccl2:all_reduce", Op.ALL_REDUCE, -1, -1, False),
        ("xccl:something_new", Op.UNKNOWN, -1, -1, False),
        ("", Op.UNKNOWN, -1, -1, False),
    ],
)
def test_calls_by_their_names(call: str, op: Op, place: int, peer: int, is_end: bool) -> None:
    found = entry(profiling_name=call)
    assert (found.op, found.place, found.peer, found.is_end) == (op, place, peer, is_end)
    assert found.is_p2p == (op in {Op.SEND, Op.RECV})


def test_p2p_counts_for_itself() -> None:
    found = entry(profiling_name="nccl:send 0->1", is_p2p=True, p2p_seq_id=40)
    assert (found.seq, found.p2p_seq) == (40, 40)


@pytest.mark.parametrize(
    ("name", "state", "is_retired", "is_over"),
    [
        ("nccl:all_reduce", "completed", False, True),
        ("nccl:all_reduce", "started", True, False),  # its timeout retired it
        ("gloo:all_reduce", "scheduled", True, True),  # gloo tells an end in no other way
        ("gloo:all_reduce", "scheduled", False, False),
        ("nccl:all_reduce", "odd", False, False),
    ],
)
def test_what_tells_an_end(name: str, state: str, is_retired: bool, is_over: bool) -> None:
    assert entry(profiling_name=name, state=state, retired=is_retired).is_over == is_over


def test_frames_are_bounded_and_kept_of_calls_in_flight() -> None:
    frames = [{"name": "f" * 10_000, "filename": "a.py", "line": n} for n in range(500)]
    found = entry(state="scheduled", retired=False, frames=[*frames, "odd"])
    assert len(found.frames) == MAX_FRAMES
    assert max(map(len, found.frames)) < 1_000
    assert entry(frames=frames).frames == ()


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"version": "9.1", "entries": []}, "version '9.1' of the dump is not known"),
        ({"entries": []}, "version '' of the dump is not known"),
        (7, "neither a table nor a list of entries"),
        ({"version": "2.10", "entries": {"a": 1}}, "entries is no list"),
        ({"version": "2.10", "entries": [NEWEST, 5]}, r"entries\[1\]: is no table but a int"),
        ({"version": "2.10", "entries": [NEWEST | {"record_id": "7"}]}, r"entries\[0\]: record_id"),
        ({"version": "2.10", "entries": [NEWEST | {"op_id": 1 << 80}]}, "op_id is no number of 64"),
        ({"version": "2.10", "entries": [NEWEST | {"input_sizes": [[-1]]}]}, "no numbers"),
        ({"version": "2.10", "entries": [NEWEST | {"input_sizes": [7]}]}, "what is no shape"),
        ({"version": "2.10", "entries": [NEWEST | {"process_group": ["0"]}]}, "process_group"),
        ({"version": "2.10", "entries": [OPEN | {"frames": 3}]}, "frames is no list"),
        ({"version": "2.10", "pg_config": [1]}, "pg_config is no table"),
        ({"version": "2.10", "pg_config": {"0": {"ranks": 5}}}, r"pg_config\['0'\].ranks"),
        ({"version": "2.10", "pg_config": {"0": {"ranks": "[0, 0]"}}}, "or one twice"),
        ({"version": "2.10", "pg_config": {"0": {"ranks": [-4]}}}, "what is no rank"),
        ({"version": "2.10", "pg_status": {"x": {}}}, "holds what is no number"),
        ({"version": "2.10", "pg_status": {"1": 4}}, r"pg_status\['1'\] is no table"),
    ],
)  # fmt: skip
def test_what_is_no_dump_is_named_with_its_place(document: Any, said: str) -> None:
    data = pickle.dumps(document, 2)
    with pytest.raises(InputError, match=said) as caught:
        parse_flight_recorder(data, path="nccl_trace_rank_3")
    assert str(caught.value).startswith("nccl_trace_rank_3: ")
    assert "TORCH_FR_DUMP_TEMP_FILE" in caught.value.next_step


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[" * 100_000, b'{"version": "2.10", "entries": [}', b"\xff\xfe{}", b"nonsense"],
    ids=["nothing", "torn", "deep", "bad", "encoding", "words"],
)
def test_text_that_is_no_dump_is_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        parse_flight_recorder(data, path="x")


@pytest.mark.parametrize(
    ("data", "is_one"),
    [
        (dumped([]), True),
        (b' \n{"comm_lib_version":"","entries":[]}', True),
        (pickle.dumps([BEFORE_2], 2), True),
        (pickle.dumps({"state": [1, 2]}, 2), False),
        (b'{"0": {"name": "0", "ranks": [0]}}', False),
        (b"# notes", False),
        (b"", False),
    ],
)
def test_a_dump_is_told_by_its_content(data: bytes, is_one: bool) -> None:
    assert is_flight_recorder(data) == is_one


def spoiled(rng: random.Random, value: Any) -> Any:
    """The value with one part of it replaced by another kind of thing."""
    odd: list[Any] = [
        None,
        -1,
        1 << 90,
        "x",
        "",
        [],
        {},
        [[]],
        {"a": 1},
        1.5,
        True,
        "[0, 1",
        "9" * 40,
    ]
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        return value | {key: spoiled(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], spoiled(rng, value[at]), *value[at + 1 :]]
    return rng.choice(odd)


def test_spoiled_dumps_read_or_are_refused() -> None:
    job: FlightJob = parallel_job(2, 1, 1, n_steps=1).play()
    rng = random.Random(3)
    n_read = 0
    for _ in range(2_000):
        document = spoiled(rng, job.dump(0))
        data = json.dumps(document).encode() if rng.random() < 0.5 else pickle.dumps(document, 4)
        try:
            parse_flight_recorder(data)
        except InputError:
            continue
        n_read += 1
    assert 100 < n_read < 1_900


ODD: list[Any] = [0, 255, 70_000, -1, 1 << 31, 1 << 62, -(1 << 63), (1 << 63) - 1, None, True, "x"]
FIELDS = [*NEWEST, "seq_id", "time_created_us"]


def alike(rng: random.Random, oddity: float) -> list[dict[str, Any]]:
    """Entries of a few kinds that differ in their numbers; some fields are of another kind."""
    kinds = [
        NEWEST, OPEN, without("p2p_seq_id"), BEFORE_2,
        NEWEST | {"profiling_name": "nccl:send 0->1", "is_p2p": True},
        OPEN | {"process_group": ("3", "tp"), "input_sizes": [], "input_dtypes": []},
    ]  # fmt: skip
    made = []
    for number in range(30):
        one = rng.choice(kinds) | {
            "record_id": rng.choice((number, 300 + number, 70_000 + number)),
            "op_id": number, "collective_seq_id": number, "p2p_seq_id": rng.randrange(9),
            "time_created_ns": T0 + number,
        }  # fmt: skip
        if rng.random() < oddity:
            one[rng.choice(FIELDS)] = rng.choice(ODD)
        made.append(one)
    return made


@pytest.mark.parametrize(("oddity", "n_at_least"), [(0.0, 60), (0.02, 15), (0.3, 0)])
def test_entries_read_among_many_are_those_read_alone(oddity: float, n_at_least: int) -> None:
    layouts, n_read = entry_layouts(), 0
    for seed in range(60):
        rng = random.Random(seed)
        entries = alike(rng, oddity)
        data = torch_pickle({"version": "2.10", "group": f"{seed % 3}", "entries": entries})
        try:
            wanted = tuple(EntryReader().read(one) for one in entries)
        except BadEntryError as error:
            with pytest.raises(InputError, match=re.escape(str(error))):
                parse_flight_recorder(data, layouts=layouts)
            continue
        n_read += 1
        assert parse_flight_recorder(data, layouts=layouts).entries == wanted
        assert parse_flight_recorder(data).entries == wanted
    assert n_read >= n_at_least


def test_dumps_of_one_job_are_read_as_each_alone() -> None:
    job, layouts = parallel_job(2, 2, 2, n_steps=2), entry_layouts()
    job.host_stops[3] = 40
    for rank in job.play().programs:
        data = torch_pickle(job.dump(rank))
        assert parse_flight_recorder(data, layouts=layouts) == parse_flight_recorder(data)
