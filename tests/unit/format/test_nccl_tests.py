"""Tables of nccl-tests of every form: the collective, ranks and hosts, and what is wrong."""

import pytest

from comminsight.errors import InputError
from comminsight.format.nccl_tests import is_nccl_tests, parse_nccl_tests
from comminsight.model.ops import Op

OLD = "# size count type redop time algbw busbw error time algbw busbw error"
NEW = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong"


def devices(n_ranks: int, per_host: int = 8, host: str = "node") -> list[str]:
    return [
        f"#  Rank {rank:2} Group  0 Pid {100 + rank} on {host}{rank // per_host} device "
        f"{rank % per_host} [0x1b] NVIDIA H100" for rank in range(n_ranks)
    ]  # fmt: skip


def row(size: int, algbw: float, factor: float, *, kind: str = "float     sum      -1") -> str:
    bus = algbw * factor
    time = f"{size / algbw / 1e3:8.2f} {algbw:7.2f} {bus:7.2f}      0"
    return f"{size:12} {size // 4:12} {kind} {time} {time}"


def table(n_ranks: int, *rows: str, header: str = NEW, before: str = "", host: str = "node") -> str:
    lines = [before, *devices(n_ranks, host=host), "#", header, "#   (B)  (elements)", *rows]
    return "\n".join([*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 12.5"])


@pytest.mark.parametrize(
    ("before", "file_name", "kind", "factor", "op"),
    [
        ("", "", "float     sum      -1", 2 * 15 / 16, Op.ALL_REDUCE),
        ("", "", "float     sum      -1", 15 / 16, Op.REDUCE_SCATTER),
        ("", "", "float     sum       0", 1.0, Op.REDUCE),
        ("", "", "float    none       0", 1.0, Op.BROADCAST),
        ("", "", "float    none      -1", 15 / 16, Op.UNKNOWN),  # all_gather or all_to_all
        ("", "all-gather.txt", "float    none      -1", 15 / 16, Op.ALL_GATHER),
        ("mpirun ./build/alltoall_perf -b 8", "", "float    none      -1", 15 / 16, Op.ALL_TO_ALL),
        ("# sendrecv_perf", "nccl_allreduce.log", "float    sum      -1", 1.0, Op.SEND),
        ("", "", "float     sum      -1", 1.4, Op.UNKNOWN),  # a factor that no op has
    ],
)  # fmt: skip
def test_the_collective(before: str, file_name: str, kind: str, factor: float, op: Op) -> None:
    rows = [row(size, 100.0, factor, kind=kind) for size in (1 << 20, 1 << 28)]
    (found,) = parse_nccl_tests(table(16, *rows, before=before), file_name=file_name)
    assert (found.op, found.n_ranks, found.hosts) == (op, 16, ("node0", "node1"))
    assert [one.size_bytes for one in found.rows] == [1 << 20, 1 << 28]
    assert found.rows[0].busbw_gbs == pytest.approx(100 * factor, abs=0.01)
    assert (found.rows[0].n_members, found.rows[0].ranks) == (16, ())


def test_two_ranks_tell_no_broadcast_from_an_all_reduce_by_the_factor_alone() -> None:
    (found,) = parse_nccl_tests(table(2, row(1 << 20, 100.0, 1.0)))
    assert found.op == Op.ALL_REDUCE  # it reduces, and has no root


def test_the_old_form_and_a_line_of_the_log_between() -> None:
    rows = [
        "node0:7:7 [0] NCCL INFO Launch mode Parallel",
        "   0   0   float     sum    35.20    0.00    0.00    N/A    34.05    0.00    0.00    N/A",
        " 1048576 262144   float  sum  74.78  14.02  26.29    N/A    76.17   13.77   24.09   N/A",
    ]
    text = table(16, *rows, header=OLD, host="localhost")
    (found,) = parse_nccl_tests(
        text.replace("localhost0", "localhost").replace("localhost1", "localhost")
    )
    assert (found.op, found.hosts, len(found.rows)) == (Op.ALL_REDUCE, (), 1)  # of the size 0: none
    assert is_nccl_tests(text.encode())


def test_two_tables_of_one_file_are_two() -> None:
    text = "\n".join(
        table(n, row(1 << 26, 90.0, 2 * (n - 1) / n), before="all_reduce_perf") for n in (8, 16)
    )
    assert [one.n_ranks for one in parse_nccl_tests(text)] == [8, 16]


def test_what_does_not_read_and_what_was_wrong_is_counted() -> None:
    wrong = row(1 << 20, 100.0, 1.875).replace("      0", "      3")
    (found,) = parse_nccl_tests(table(16, wrong, "  2097152  cut"))
    assert (found.n_wrong, found.n_bad, len(found.rows)) == (6, 1, 1)


@pytest.mark.parametrize("text", ["", "nothing", table(8), NEW])
def test_no_row_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match="no table of nccl-tests with a row"):
        parse_nccl_tests(text, path="x.log")
