"""Facts about ports, GIDs, GPU pairs and runs, as tables."""

from __future__ import annotations

import pytest

from comminsight.analysis.gid_table import GidScope, drifts, port_of, routed_index, scope_of, tables
from comminsight.analysis.gpu_pairs import odd_links, redirected, tried_pairs
from comminsight.analysis.port_rates import ceilings, slower_ports
from comminsight.analysis.run_differences import cores_of, op_speeds
from comminsight.analysis.sum_order import differing_results
from comminsight.model.bandwidth import BandwidthRow
from comminsight.model.host_facts import (
    DevicePath,
    GidEntry,
    NvLinkState,
    PciBridge,
    PortState,
)
from comminsight.model.ops import Op
from comminsight.model.result_digest import ResultDigest


@pytest.mark.parametrize(
    ("gid", "scope"),
    [
        ("fe80::5e25:73ff:fe00:1", GidScope.LINK),
        ("fe80:0000:0000:0000:5e25:73ff:fe00:0001", GidScope.LINK),
        ("::ffff:10.40.0.7", GidScope.ROUTED),
        ("0000:0000:0000:0000:0000:ffff:0a28:0007", GidScope.ROUTED),
        ("fd00::7", GidScope.ROUTED),
        ("0000:0000:0000:0000:0000:0000:0000:0000", GidScope.NONE),
        ("", GidScope.NONE),
        ("no gid", GidScope.NONE),
    ],
)
def test_how_far_a_gid_reaches(gid: str, scope: GidScope) -> None:
    assert scope_of(gid) is scope


def gid(host: str, index: int, value: str, *, at: int = 1, kind: str = "v2") -> GidEntry:
    return GidEntry(host=host, device="d", index=index, gid=value, kind=kind, observed_ns=at)


def test_an_entry_that_moved_is_found_where_it_is_now() -> None:
    before = [gid("a", 3, "::ffff:10.0.0.1"), gid("a", 4, "::")]
    after = [gid("a", 3, "::", at=2), gid("a", 4, "::", at=2), gid("a", 6, "::ffff:a00:1", at=2)]
    found = drifts([*after, *before])
    assert [(d.index, d.before, d.after, d.moved_to) for d in found] == [
        (3, "::ffff:10.0.0.1", "", 6)
    ]
    assert drifts(before) == []  # looked at once
    assert drifts([*before, gid("a", 3, "::ffff:a00:1", at=2)]) == []  # the same, written anew


def test_the_entry_that_all_ports_can_use() -> None:
    one = [gid("a", 1, "::ffff:1.1.1.1", kind="v1"), gid("a", 3, "::ffff:1.1.1.1")]
    other = [gid("b", 2, "::ffff:1.1.1.2"), gid("b", 3, "::ffff:1.1.1.2")]
    assert routed_index(tables([*one, *other])) == 3
    assert routed_index(tables([*one, *other[:1]])) is None
    assert routed_index({}) is None
    assert port_of("::ffff:101:102", [*one, *other]) == ("b", "d")
    assert port_of("::ffff:101:109", [*one, *other]) is None


@pytest.mark.parametrize(
    ("mask", "cores"),
    [
        ("0-3", {0, 1, 2, 3}),
        ("0-1,8-9,12", {0, 1, 8, 9, 12}),
        ("ff", None),  # two digits may be a core or a word
        ("0000ffff", set(range(16))),
        ("1,00000000", {32}),
        ("00000001,00000000,80000000", {31, 64}),
        ("zz-1", None),
        ("", None),
    ],
)
def test_cores_of_a_mask(mask: str, cores: set[int] | None) -> None:
    assert cores_of(mask) == cores


def test_interfaces_with_one_guid_are_one_link() -> None:
    ports = [
        PortState(host="h.lan", device=f"m{i}", rate_gbs=12.5, guid=guid, state=state)
        for i, (guid, state) in enumerate(
            [("x", "active"), ("x", "active"), ("y", ""), ("", "active"), ("z", "down")]
        )
    ]
    found = ceilings(ports)
    assert [(c.host, c.ceiling_gbs, c.n_links, c.n_listed) for c in found] == [("h", 37.5, 3, 4)]


def test_a_port_below_at_least_three_equal_peers() -> None:
    def ports(*rates: float) -> list[PortState]:
        return [PortState(host=f"h{i}", device="m", rate_gbs=r) for i, r in enumerate(rates)]

    assert [(p.host, p.usual_gbs) for p in slower_ports(ports(50, 50, 25, 50), 0.75)] == [
        ("h2", 50)
    ]
    assert slower_ports(ports(50, 25, 50), 0.75) == []
    assert slower_ports(ports(25, 25, 50, 50), 0.75) == []
    assert slower_ports(ports(50, 50, 40, 50), 0.75) == []


def test_bridges_count_where_they_stand_above_two_of_the_gpus() -> None:
    def bridge(bus_id: str, below: str, *, redirects: bool = True) -> PciBridge:
        return PciBridge(host="h", bus_id=bus_id, is_redirecting=redirects, below=(below,))

    gpus = [0xB000, 0xF000]
    both = [bridge("0000:02:00.0", "0000:0b:00.0"), bridge("0000:03:00.0", "0000:0f:00.0")]
    assert redirected(both, gpus) == [("h", ["0000:02:00.0", "0000:03:00.0"], gpus)]
    assert redirected(both[:1], gpus) == []
    off = bridge("0000:03:00.0", "0000:0f:00.0", redirects=False)
    assert redirected([both[0], off], gpus) == []


def test_pairs_that_fail_are_told_apart_by_their_path_or_not() -> None:
    def tried(a: int, b: int, path: str, *, works: bool | None) -> DevicePath:
        return DevicePath(host="h", device=f"g{a}", other=f"g{b}", path=path, is_working=works)

    clear = [tried(0, 1, "PIX", works=False), tried(0, 2, "SYS", works=True)]
    assert [pairs.is_by_path for pairs in tried_pairs(clear)] == [True]
    mixed = [*clear, tried(2, 3, "PIX", works=True)]
    assert [pairs.is_by_path for pairs in tried_pairs(mixed)] == [False]
    assert tried_pairs([tried(0, 1, "PIX", works=None)]) == []


def test_links_that_are_down_on_one_gpu_more_than_on_the_others() -> None:
    def links(*down: int) -> list[NvLinkState]:
        return [
            NvLinkState(host="h", device=f"g{g}", link=i, is_up=i >= n)
            for g, n in enumerate(down)
            for i in range(4)
        ]

    assert [(o.device, o.n_up) for o in odd_links(links(0, 2, 0))] == [("g1", 2)]
    assert [(o.device, o.n_up) for o in odd_links(links(1, 1, 3))] == [("g2", 1)]
    assert odd_links(links(2, 2, 2)) == []
    assert odd_links(links(0, 0)) == []
    assert odd_links(links(3)) == []


def test_only_ops_of_both_runs_are_compared() -> None:
    def row(op: Op, gbs: float, n_ranks: int = 4) -> BandwidthRow:
        return BandwidthRow(op=op, size_bytes=64, busbw_gbs=gbs, ranks=tuple(range(n_ranks)))

    found = op_speeds(
        [row(Op.ALL_REDUCE, 10), row(Op.ALL_GATHER, 9), row(Op.SEND, 1, n_ranks=2)],
        [row(Op.ALL_REDUCE, 40), row(Op.SEND, 5)],
    )
    assert [(speed.op, speed.ratio) for speed in found] == [(Op.ALL_REDUCE, 0.25)]


def test_results_differ_only_where_each_run_agrees_with_itself() -> None:
    def run(*bits: str, call: int = 0) -> list[ResultDigest]:
        return [
            ResultDigest(global_rank=r, name="x", call=call, digest=one)
            for r, one in enumerate(bits)
        ]

    assert [
        (d.name, d.n_ranks, d.n_calls) for d in differing_results(run("a", "a"), run("b", "b"))
    ] == [("x", 2, 1)]
    assert differing_results(run("a", "a"), run("a", "a")) == []
    assert differing_results(run("a", "c"), run("b", "b")) == []
    assert differing_results(run("a", "a"), run("b", "b", call=1)) == []
