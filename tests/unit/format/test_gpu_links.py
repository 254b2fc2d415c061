"""NVLinks and paths between devices as nvidia-smi prints them."""

import pytest

from comminsight.errors import InputError
from comminsight.format.gpu_links import is_gpu_links, parse_gpu_links
from comminsight.model.host_facts import HostDevice, NumaNode, NvLinkState

NVLINK = (
    "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
    "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)\n\t Link 0: 26.562 GB/s\n"
)
TOPO = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tPXB\t0-1,4\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tSYS\t2-3\t1\t\tN/A\n"
    "NIC0\tPXB\tNODE\t X \t\t\t\t\n\n"
    "NIC Legend:\n\n  NIC0: mlx5_bond_0\n"
)


def behind(name: str, text: str) -> str:
    return "".join(f"{name}: {line}\n" for line in text.splitlines())


@pytest.mark.parametrize("text", [f"# host n1\n{NVLINK}", behind("n1", NVLINK)])
def test_nvlinks(text: str) -> None:
    assert is_gpu_links(text.encode())
    assert parse_gpu_links(text).nvlinks == [
        NvLinkState(host="n1", device="gpu0", link=0, is_up=True),
        NvLinkState(host="n1", device="gpu0", link=1, is_up=False),
        NvLinkState(host="n1", device="gpu1", link=0, is_up=True),
    ]


@pytest.mark.parametrize("text", [f"# host n1\n{TOPO}", behind("n1", TOPO)])
def test_paths_are_those_on_which_both_ends_agree(text: str) -> None:
    assert is_gpu_links(text.encode())
    found = parse_gpu_links(text)
    assert [(p.host, p.device, p.other, p.path) for p in found.paths] == [
        ("n1", "gpu0", "gpu1", "NV18"), ("n1", "gpu0", "mlx5_bond_0", "PXB"),
    ]  # fmt: skip
    assert [p.is_working for p in found.paths] == [None, None]
    assert found.devices == [
        HostDevice(host="n1", device=f"gpu{n}", is_nic=False, numa_node=n) for n in (0, 1)
    ]
    assert found.numa_nodes == [
        NumaNode(host="n1", numa_node=0, cores=(0, 1, 4)),
        NumaNode(host="n1", numa_node=1, cores=(2, 3)),
    ]


@pytest.mark.parametrize("numa", ["N/A", "0-1", ""])
def test_a_node_that_is_not_told_is_unknown(numa: str) -> None:
    text = TOPO.replace("0-1,4\t0\t", f"0-1,4\t{numa}\t")
    found = parse_gpu_links(text, file_name="n1.topo")
    assert [one.device for one in found.devices] == ["gpu1"]
    assert [one.numa_node for one in found.numa_nodes] == [1]


def test_a_row_that_was_cut_tells_no_path() -> None:
    found = parse_gpu_links(TOPO.replace("GPU1\tNV18\t X \tSYS", "GPU1\tNV18"), file_name="n1.topo")
    assert [(p.device, p.other) for p in found.paths] == [("gpu0", "mlx5_bond_0")]


def test_without_a_host_nothing_is_used() -> None:
    for text, n_devices in ((NVLINK, 2), (TOPO, 1)):
        found = parse_gpu_links(text)
        assert (found.n_homeless, found.nvlinks, found.paths) == (n_devices, [], [])


def test_what_is_neither() -> None:
    lists_only = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n"
    assert not is_gpu_links(lists_only.encode())
    assert not is_gpu_links(b"a log that shows it later\n" + NVLINK.encode())
    with pytest.raises(InputError, match=r"n1\.nvlink: no NVLink and no path"):
        parse_gpu_links(lists_only, path="n1.nvlink")
