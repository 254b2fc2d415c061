"""What is fuzzed: each reader with good inputs to start from. Only InputError may come out."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from comminsight.analysis.trace_order import kept_apart
from comminsight.diagnosis.hang import judge_hang
from comminsight.errors import InputError
from comminsight.format.expanding import expanded_bytes, expanded_head
from comminsight.format.flight_recorder import (
    FlightDump,
    entry_layouts,
    is_flight_recorder,
    parse_flight_recorder,
)
from comminsight.format.kineto import is_kineto, read_kineto
from comminsight.format.log_reader import LogReader
from comminsight.format.pickle_layouts import Layouts
from comminsight.format.ras import is_ras, parse_ras
from comminsight.format.safe_pickle import load_plain
from comminsight.format.unfolding import unfolded_size
from comminsight.model.counters import CounterSeries
from comminsight.model.host_facts import GidEntry, PortState
from comminsight.model.ops import Op
from comminsight.pipeline.flight_recorder_event import flight_event, flight_job
from comminsight.pipeline.flight_recorder_files import RankDump, possible_ranks
from comminsight.pipeline.flight_recorder_groups import join_groups
from comminsight.pipeline.host_files import hosts_in, is_host_file
from comminsight.semantics.trace_activities import activities_of
from tests.builders.activities import comm, compute
from tests.builders.flight_recorder import Call, FlightJob, Group, parallel_job, torch_pickle
from tests.builders.host_files import counter_table, devinfo, ibstat, show_gids
from tests.builders.kineto import COALESCED, OLD_TORCH, TEXTUAL, TORCH, rank_trace
from tests.builders.logs import WRAPS, samples
from tests.builders.ras import TEXT_BEHIND, TEXT_DEAD, ras_comm, ras_json, ras_missing, ras_rank
from tests.fuzz import mutation
from tests.unit.format.test_gpu_links import NVLINK, TOPO
from tests.unit.format.test_lspci import tree as pci_tree
from tests.unit.format.test_nccl_tests import row as nccl_row
from tests.unit.format.test_nccl_tests import table as nccl_table
from tests.unit.format.test_nccl_tests_json import report as json_report
from tests.unit.format.test_nccl_tests_json import result as json_result
from tests.unit.format.test_net_interfaces import ETHTOOL as SETTINGS
from tests.unit.format.test_net_interfaces import RDMA as RDMA_LINKS
from tests.unit.format.test_port_counters import ETHTOOL as NIC_STATISTICS
from tests.unit.format.test_port_counters import PERFQUERY, RDMA

MAX_UNFOLDED = 1 << 20
SHARE_JUDGED = 0.03


@dataclass(frozen=True)
class Target:
    """A reader, what it is given, and how often among all inputs. ``read`` may raise InputError."""

    name: str
    read: Callable[[bytes, random.Random], Any]
    seeds: Sequence[bytes]
    kinds: Sequence[mutation.Mutate]
    share: int


def small_jobs() -> list[FlightJob]:
    stuck = parallel_job(2, 2, 1, n_steps=1)
    stuck.host_stops[1] = 9
    groups = {"0": Group("default_pg", (0, 1))}
    programs = {rank: [Call("0", "all_reduce"), Call("0", "barrier")] for rank in (0, 1)}
    gloo = FlightJob(groups, programs, backend="gloo", host_stops={1: 1})
    return [stuck.play(), gloo.play()]


JOBS = small_jobs()
DUMPS = [job.dump(rank, ring=3) for job in JOBS for rank in list(job.programs)[:2]]
PEERS = [
    parse_flight_recorder(torch_pickle(JOBS[0].dump(rank, ring=3))) for rank in JOBS[0].programs
]
LAYOUTS, DUMP_LAYOUTS = Layouts(), entry_layouts()


def read_pickle(data: bytes, _: random.Random) -> None:
    value = load_plain(data, layouts=LAYOUTS)
    size = unfolded_size(value, MAX_UNFOLDED)
    if size < 2000:
        msgspec.json.encode(value)  # plain data alone can be written so


def read_dump(data: bytes, rng: random.Random) -> None:
    is_flight_recorder(data)
    dump = parse_flight_recorder(data, layouts=DUMP_LAYOUTS)
    if rng.random() < SHARE_JUDGED or data in KNOWN_DUMPS:
        judge(dump)


def judge(dump: FlightDump) -> None:
    """The verdict on it among the dumps of other ranks."""
    possible = possible_ranks(dump)
    rank = min(possible) if possible else 0
    dumps = [RankDump(other, one, "peer") for other, one in enumerate(PEERS) if other != rank]
    dumps = sorted([*dumps, RankDump(rank, dump, "fuzzed")], key=lambda one: one.global_rank)
    job = flight_job(dumps, join_groups(dumps))
    event = flight_event(job)
    judge_hang(event, event.communicators)


def read_log(data: bytes, _: random.Random) -> None:
    reader = LogReader(io.BytesIO(data), file="fuzzed")
    events = list(reader)
    for event in events:
        reader.clock.placed(event.time, file_time_ns=1_776_183_436_000_000_000)
    tally = reader.tally
    counted = tally.n_emitted + tally.n_unknown + tally.n_truncated + tally.n_refused
    assert counted == tally.n_read, "a line is in none of the counts"


def read_answer(data: bytes, _: random.Random) -> None:
    is_ras(data)
    parse_ras(data)


def read_trace(data: bytes, rng: random.Random) -> None:
    is_kineto(data)
    trace = read_kineto(io.BytesIO(data), path="fuzzed", slice_bytes=rng.choice((1, 1 << 18)))
    kept_apart(list(activities_of(trace)))


def read_host_file(data: bytes, _: random.Random) -> None:
    is_host_file(data)
    hosts_in(data, "node1.ibstat")


def read_compressed(data: bytes, _: random.Random) -> None:
    expanded_head(data)
    expanded_bytes(data, max_bytes=1 << 22)


def pickles() -> list[bytes]:
    import_free = [{"version": "2.10", "entries": [{"a": 1, "b": [[1, 2]], "c": ("x", "y")}] * 3}]
    return [*map(torch_pickle, DUMPS), *map(torch_pickle, import_free)]


def logs() -> list[bytes]:
    rng = random.Random(3)
    lines = [sample.line for sample in samples(3)]
    wraps = [wrap for wrap, _ in WRAPS.values()]
    made = []
    for at in range(0, len(lines), 3):
        wrap = rng.choice(wraps)
        made.append("\n".join(map(wrap, lines[at : at + 3])).encode("utf-8", "replace"))
    return made


def answers_json() -> list[bytes]:
    behind = ras_comm(171, [ras_rank(r, launched=42 - (r == 2)) for r in range(3)])
    gone = ras_comm(172, [ras_rank(0)], [ras_missing(1, dead=True), ras_missing(2, silent=True)])
    return [ras_json(behind), ras_json(gone), ras_json(behind, gone)]


def traces() -> list[bytes]:
    step = [compute(0, 0, 300), comm(0, Op.ALL_REDUCE, 300, 80, size_bytes=4096)]
    styles = (TORCH, OLD_TORCH, TEXTUAL, COALESCED)
    return [json.dumps(rank_trace(0, 2, step, style)).encode() for style in styles]


def host_files() -> list[bytes]:
    ports = PortState(host="n1", device="mlx5_0", rate_gbs=50, active_mtu_bytes=4096)
    gids = [GidEntry(host="n1", device="mlx5_0", index=k, gid="fe80::1", kind="v2") for k in (0, 1)]
    series = CounterSeries(
        host="n1", device="mlx5_0", counter="symbol_error", unit="", times_ns=(1, 2), values=(0, 3)
    )
    test = nccl_table(16, nccl_row(1 << 26, 90.0, 1.875), before="./all_reduce_perf")
    texts = (
        ibstat(ports), devinfo(ports), show_gids(gids), counter_table([series]), test, NVLINK, TOPO,
        pci_tree(port=True, root=False), "# time 1777874400\n" + PERFQUERY.format(lid=7, n=3),
        RDMA.format(card=0, n=5), "# interface eth0\n" + NIC_STATISTICS.format(n=8),
        SETTINGS.format(name="eth0", speed="100000Mb/s", link="yes"), RDMA_LINKS,
        json_report(json_result(1 << 20)),
    )  # fmt: skip
    return [text.encode() for text in texts]


JSON_DUMPS = [json.dumps(dump).encode() for dump in DUMPS]
KNOWN_DUMPS = frozenset([*pickles()[: len(DUMPS)], *JSON_DUMPS])
TARGETS = (
    Target("pickle", read_pickle, pickles(), mutation.PICKLE, 40),
    Target("dump, pickle", read_dump, pickles()[: len(DUMPS)], mutation.PICKLE, 20),
    Target("dump, JSON", read_dump, JSON_DUMPS, mutation.JSON, 16),
    Target("log", read_log, logs(), mutation.TEXT, 10),
    Target("RAS, JSON", read_answer, answers_json(), mutation.JSON, 7),
    Target("RAS, text", read_answer, [TEXT_BEHIND.encode(), TEXT_DEAD.encode()], mutation.TEXT, 4),
    Target("trace", read_trace, traces(), mutation.JSON, 8),
    Target("host file", read_host_file, host_files(), mutation.TEXT, 6),
    Target("compressed", read_compressed, [gzip.compress(one) for one in logs()[:9]], mutation.ANY,
           3),
)  # fmt: skip


def run(target: Target, data: bytes, rng: random.Random) -> bool:
    """Whether the input was read; any error but InputError comes out."""
    try:
        target.read(data, rng)
    except InputError:
        return False
    return True
