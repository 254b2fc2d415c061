"""Real tables of nccl-tests, and a topology that was printed on a host."""

from __future__ import annotations

from pathlib import Path

import pytest

from comminsight.format.gpu_links import parse_gpu_links
from comminsight.format.nccl_tests import is_nccl_tests, parse_nccl_tests
from comminsight.model.ops import Op

SAMPLES = Path(__file__).resolve().parents[3] / "shared/samples"
TABLES = SAMPLES / "superbench-logs"
TOPO = SAMPLES / "topo/own-nvidia-smi-topo-m.txt"


@pytest.mark.skipif(not TABLES.exists(), reason=f"no sample at {TABLES}")
@pytest.mark.parametrize(
    ("name", "op", "busbw_gbs"),
    [
        ("nccl_allreduce.log", Op.ALL_REDUCE, 235.26),
        ("nccl_broadcast.log", Op.BROADCAST, 232.81),
        ("nccl_reducescatter.log", Op.REDUCE_SCATTER, 231.52),
    ],
)
def test_tables_of_nccl_tests(name: str, op: Op, busbw_gbs: float) -> None:
    data = (TABLES / name).read_bytes()
    assert is_nccl_tests(data)
    (table,) = parse_nccl_tests(data.decode())
    assert (table.op, table.n_ranks, table.hosts, table.n_bad) == (op, 8, (), 0)
    last = table.rows[-1]
    assert (last.size_bytes, last.busbw_gbs, last.n_members) == (1 << 33, busbw_gbs, 8)


@pytest.mark.skipif(not TABLES.exists(), reason=f"no sample at {TABLES}")
def test_the_name_of_the_file_may_tell_the_collective() -> None:
    name = "nccl_allgather.log"
    text = (TABLES / name).read_text()
    assert [table.op for table in parse_nccl_tests(text)] == [Op.UNKNOWN]
    (table,) = parse_nccl_tests(text, file_name=name)
    assert (table.op, table.rows[-1].busbw_gbs) == (Op.ALL_GATHER, 223.39)


@pytest.mark.skipif(not TOPO.exists(), reason=f"no sample at {TOPO}")
def test_a_topology() -> None:
    found = parse_gpu_links(TOPO.read_text(), file_name="n1.topo")
    paths = {(path.device, path.other): path.path for path in found.paths}
    assert {paths["gpu0", "gpu3"], paths["gpu1", "gpu2"]} == {"NV12"}
    assert (paths["gpu0", "mlx5_0"], paths["gpu2", "mlx5_2"]) == ("PXB", "PIX")
    assert [device.numa_node for device in found.devices] == [0, 0, 1, 1]
    assert found.numa_nodes[0].cores == (*range(32), *range(64, 96))
