"""Lines of NCCL as its releases write them."""

from __future__ import annotations

from comminsight.model.log_event import LogCode as C
from comminsight.model.log_event import LogValue
from tests.builders.log_job import Job, Sample


def nccl(made: Job, level: str, text: str, source: str = "") -> str:
    place = f"{source} " if source else ""
    return f"{made.host}:{made.pid}:{made.tid} [{made.device}] {place}NCCL {level} {text}"


def nccl_info(made: Job) -> list[Sample]:
    comm = f"comm {made.comm} rank {made.rank} nranks {made.size}"
    device = f"cudaDev {made.device} nvmlDev {made.device} busId {made.bus}"
    ids: dict[str, LogValue] = {
        "comm": made.comm, "n_ranks": made.size, "cuda_device": made.device,
        "bus_id": f"{int(made.bus, 16):#x}",
    }  # fmt: skip
    with_hash = {**ids, "comm_hash": made.hash}
    where = {**made.at, "comm_rank": made.rank}

    def info(
        code: C, text: str, values: dict[str, LogValue], place: dict[str, str | int]
    ) -> Sample:
        return Sample(code, nccl(made, "INFO", text), {"level": "INFO", **values}, place)

    init = f"[Rank {made.rank}] ncclCommInitRank {comm} {device} commId {made.hash}"
    split = f"ncclCommSplit {comm} {device} parent 0x7f00 childCount 2 color 1 key 3-"
    old = f"comm {made.comm} rank {made.rank} nranks {made.size} cudaDev {made.device}"
    return [
        info(C.NCCL_INIT_START, f"{init} - Init START", with_hash, where),
        info(C.NCCL_INIT_START, f"{split} Init START", {**ids, "parent": "0x7f00"}, where),
        info(C.NCCL_INIT_COMPLETE, f"ncclCommInitRank {comm} {device} commId {made.hash}"
             " - Init COMPLETE", with_hash, where),
        info(C.NCCL_INIT_COMPLETE, f"{old} busId {made.bus} commId {made.hash} localSize 352"
             " used 99124 bytes - Init COMPLETE", with_hash, where),
        info(C.NCCL_DESTROY, f"{old} busId {made.bus} - Destroy COMPLETE", ids, where),
        info(C.NCCL_ABORT, f"{old} busId {made.bus} - Abort COMPLETE", ids, where),
        info(C.NCCL_COMM_LAYOUT, f"comm {made.comm} rank {made.rank} nRanks {made.size} nNodes 2"
             " localRanks 8 localRank 5 MNNVL 0",
             {"n_nodes": 2, "local_ranks": 8, "comm_local_rank": 5}, where),
        info(C.NCCL_INIT_TIMINGS, f"Init timings - ncclCommInitRank: rank {made.rank} nranks "
             f"{made.size} total 1.25 (kernels 0.20, alloc 0.30)", {"total_s": 1.25}, where),
        info(C.NCCL_TUNING, "AllReduce [Symmetric]: 8388608 Bytes -> Kernel AllReduce_AGxLL_R"
             " nchannels 16 nthreads 512", {"algo": "AGxLL_R", "n_channels": 16}, made.at),
        info(C.NCCL_COLL, f"AllReduce: opCount f7 sendbuff 0x7f1 recvbuff 0x7f1 count {made.count}"
             f" datatype 7 op 0 root 0 comm {made.comm} [nranks={made.size}] stream 0x55aa",
             {"op": "AllReduce", "op_count": 0xF7, "count": made.count, "datatype": 7, "root": 0,
              "comm": made.comm, "n_ranks": made.size, "stream": "0x55aa"}, made.at),
        info(C.NCCL_COLL, f"Recv: opCount 0 sendbuff (nil) recvbuff 0x7f1 count {made.count}"
             f" datatype 0 op 0 root {made.rank} comm {made.comm} [nranks={made.size}] stream"
             f" (nil)",
             {"op": "Recv", "op_count": 0, "root": made.rank, "stream": "0x0"}, made.at),
    ]  # fmt: skip


def nccl_info_more(made: Job) -> list[Sample]:
    rows: list[tuple[C, str, dict[str, LogValue]]] = [
        (C.NCCL_VERSION, "NCCL version 2.27.3+cuda12.9", {"version": "2.27.3+cuda12.9"}),
        (C.NCCL_CHANNEL, "Channel 03/0 : 5[1] -> 13[5] [send] via NET/IB/2/GDRDMA",
         {"channel": 3, "from_rank": 5, "to_rank": 13, "direction": "send",
          "transport": "NET/IB/2/GDRDMA"}),
        (C.NCCL_CHANNEL, "Channel 00 : 0[b000] -> 1[c000] via P2P/IPC",
         {"from_rank": 0, "to_rank": 1, "transport": "P2P/IPC"}),
        (C.NCCL_CHANNEL_RANKS, "Channel 01/16 :    0   3   2   1", {"ranks": (0, 3, 2, 1)}),
        (C.NCCL_RING, "Ring 02 : 7 -> 0 -> 1", {"prev_rank": 7, "next_rank": 1}),
        (C.NCCL_TREES, "Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1", {}),
        (C.NCCL_CONNECTED, "Connected all rings", {"kind": "rings"}),
        (C.NCCL_CHANNELS, "24 coll channels, 16 collnet channels, 0 nvls channels,"
         " 32 p2p channels, 4 p2p channels per peer", {"n_coll_channels": 24,
         "n_p2p_channels": 32}),
        (C.NCCL_GRAPH, "Pattern 4, crossNic 0, nChannels 12, bw 20.000000/20.000000, type NVL/PXB,"
         " sameChannels 1", {"n_channels": 12, "kind": "NVL/PXB"}),
        (C.NCCL_TUNING, "AllReduce: 33554432 Bytes -> Algo NVLS proto SIMPLE"
                        " channel{Lo..Hi}={0..15}",
         {"op": "AllReduce", "n_bytes": 33554432, "algo": "NVLS", "proto": "SIMPLE"}),
        (C.NCCL_TUNING, "17000000 Bytes -> Algo 1 proto 2 time 12.5", {"algo": "1"}),
        (C.NCCL_ENV, "NCCL_IB_GID_INDEX set by environment to 3.",
         {"name": "NCCL_IB_GID_INDEX", "value": "3"}),
        (C.NCCL_BOOTSTRAP, f"Bootstrap : Using eth0:{made.peer}<0>",
         {"interface": "eth0", "address": made.peer}),
        (C.NCCL_NETWORK, "Using network Socket", {"network": "Socket"}),
        (C.NCCL_NETWORK, "Assigned NET plugin IB to comm", {"network": "IB"}),
        (C.NCCL_PLUGIN_FAILED, "NET/Plugin : Plugin load (libnccl-net.so) returned 2 :"
                               " libnccl-net.so:"
         " cannot open shared object file", {"library": "libnccl-net.so", "result": 2}),
        (C.NCCL_PEER_ACCESS, "P2P is disabled between connected GPUs 1 and 0", {"device": "1"}),
        (C.NCCL_CONNECT_FAILED, "Call to connect returned Connection refused, retrying",
         {"error": "Connection refused"}),
        (C.NCCL_NO_IB, "NET/IB : No device found.", {}),
        (C.NCCL_IB_DEVICES, f"NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_3:1/RoCE [RO]; OOB"
                            f" eth1:{made.peer}<0>",
         {"devices": "[0]mlx5_0:1/RoCE [1]mlx5_3:1/RoCE [RO]", "interface": "eth1"}),
        (C.NCCL_IB_MADE, "NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=400000 ndevs=2",
         {"number": 2, "name": "mlx5_0+mlx5_1"}),
        (C.NCCL_CHANNEL, "Channel 00/0 : 1[0] -> 0[0] [receive] via NET/NCCL RDMA Plugin v10/0",
         {"direction": "receive", "transport": "NET/NCCL RDMA Plugin v10/0"}),
        (C.NCCL_SOCKET_DEVICES, f"NET/Socket : Using [0]eth0:{made.peer}<0>",
         {"devices": f"[0]eth0:{made.peer}<0>"}),
        (C.NCCL_GPU_DIRECT, "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
         {"state": "Disabled"}),
        (C.NCCL_PLUGIN_FAILED, "NET/Plugin: dlopen: /opt/lib/libfabric.so.1: version `EFA_1.9' not"
         " found (required by libnccl-net.so)",
         {"library": "/opt/lib/libfabric.so.1", "version": "EFA_1.9"}),
        (C.NCCL_PLUGIN_FAILED, "NET/Plugin: Failed to find ncclNetPlugin_v4 symbol.",
         {"library": "ncclNetPlugin_v4"}),
        (C.NCCL_PLUGIN_NONE, "NET/Plugin : No plugin found, using internal implementation", {}),
        (C.NCCL_AFFINITY, "Setting affinity for GPU 3 to ffff,00000000", {"mask": "ffff,00000000"}),
        (C.NCCL_PEER_ACCESS, "Could not enable P2P between dev 0(=b000) and dev 1(=c000)",
         {"device": "0(=b000)", "peer": "1(=c000)"}),
        (C.NCCL_SERVICE_CLOSED, "[Service thread] Connection closed by localRank 2",
         {"comm_local_rank": 2}),
        (C.NCCL_RESULT_PATH, "transport/net.cc:1134 -> 6", {"source": "transport/net.cc:1134",
         "result": 6}),
    ]  # fmt: skip
    return [Sample(code, nccl(made, "INFO", text), values, made.at) for code, text, values in rows]


def warns(made: Job, rows: list[tuple[C, str, dict[str, LogValue]]]) -> list[Sample]:
    return [
        Sample(code, nccl(made, "WARN", text, "misc/some.cc:57"), {"level": "WARN", **values},
               made.at)
        for code, text, values in rows
    ]  # fmt: skip


def nccl_warn(made: Job) -> list[Sample]:
    peer, port = made.peer, made.port
    addressed: dict[str, LogValue] = {"peer": peer, "port": port}
    roce: dict[str, LogValue] = {
        "local_gid": "::ffff:10.9.0.7", "remote_gid": f"::ffff:{peer}", "device": "mlx5_4",
    }  # fmt: skip
    gids = f"localGid ::ffff:10.9.0.7 remoteGids::ffff:{peer} hca mlx5_4"
    done = f"NET/IB : Got completion from peer {peer}<{port}> with"
    return warns(made, [
        (C.NCCL_IB_COMPLETION, f"{done} error 12, opcode 0, len 0, vendor err 129 (Recv)",
         {**addressed, "status": 12, "vendor_error": 129}),
        (C.NCCL_IB_COMPLETION, f"{done} status=5 opcode=2 len=0 vendor err 244 (Send) {gids}",
         {**addressed, **roce, "status": 5, "vendor_error": 244}),
        (C.NCCL_IB_COMPLETION, f"{done} status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0)"
         f" vendor_err=129 {gids}", {**addressed, **roce, "status": 12, "vendor_error": 129}),
        (C.NCCL_IB_EVENT, "NET/IB : mlx5_7:1 Got async event : port error",
         {"device": "mlx5_7", "port": 1, "event": "port error"}),
        (C.NCCL_IB_EVENT, "NET/IB: mlx5_7:1 async fatal event on QP: local access violation",
         {"device": "mlx5_7", "event": "local access violation"}),
        (C.NCCL_QP_MODIFY, "Call to ibv_modify_qp failed with 110 Connection timed out, on dev"
         " mlx5_2:1, curr state INIT, next state RTR, local GID index 1, local GID fe80::7,"
         f" remote GID ::ffff:{peer}",
         {"number": 110, "error": "Connection timed out", "device": "mlx5_2", "gid_index": 1,
          "local_gid": "fe80::7", "remote_gid": f"::ffff:{peer}"}),
        (C.NCCL_QP_MODIFY, "Call to ibv_modify_qp failed with error Invalid argument",
         {"error": "Invalid argument"}),
        (C.NCCL_IB_CALL, "Call to ibv_create_cq failed with error Cannot allocate memory",
         {"call": "ibv_create_cq", "error": "Cannot allocate memory"}),
        (C.NCCL_IB_CALL, "Call to ibv_reg_mr failed", {"call": "ibv_reg_mr", "error": ""}),
        (C.NCCL_CONNECT_FAILED, f"socketStartConnect: Connect to {peer}<{port}> failed : Connection"
         " refused", {**addressed, "error": "Connection refused"}),
        (C.NCCL_CONNECT_FAILED, f"socketPollConnect: Connect to {peer}<{port}> returned 113(No"
                                f" route"
         " to host) errno 115", {**addressed, "number": 113, "error_name": "No route to host"}),
        (C.NCCL_CONNECTION_CLOSED, f"socketProgress: Connection closed by remote peer"
                                   f" {peer}<{port}>",
         addressed),
        (C.NCCL_CONNECTION_CLOSED, "socketProgress: Connection closed by remote peer"
                                   " elm-4.example<41>",
         {"peer": "elm-4.example", "port": 41}),
        (C.NCCL_SOCKET_FAILED, f"Call to recv from {peer}<{port}> failed : Connection reset by"
                               f" peer",
         {**addressed, "call": "recv", "error": "Connection reset by peer"}),
        (C.NCCL_SOCKET_FAILED, "Call to bind failed: Address already in use",
         {"call": "bind", "error": "Address already in use"}),
    ])  # fmt: skip


def nccl_warn_more(made: Job) -> list[Sample]:
    return warns(made, [
        (C.NCCL_FD_LIMIT, "Call to socket failed : Too many open files", {"call": "socket"}),
        (C.NCCL_SHM, "Error while creating shared memory segment /dev/shm/nccl-Qz81xy (size"
                     " 9637888),"
         " error: No space left on device (28)",
         {"file": "/dev/shm/nccl-Qz81xy", "size_bytes": 9637888, "error": "No space left on"
                                                                          " device"}),
        (C.NCCL_SHM, "Error: failed to extend /dev/shm/nccl-Qz81xy to 9637892 bytes",
         {"size_bytes": 9637892}),
        (C.NCCL_SHM, "Call to posix_fallocate failed: No space left on device",
         {"error": "No space left on device"}),
        (C.NCCL_NO_INTERFACE, "Bootstrap : no socket interface found", {}),
        (C.NCCL_NO_NET, "Could not find NET with id 0", {"number": 0}),
        (C.NCCL_DUPLICATE_GPU, f"Duplicate GPU detected : rank {made.rank} and rank 1 both on CUDA"
         f" device {made.bus}", {"other_comm_rank": 1, "bus_id": f"{int(made.bus, 16):#x}"}),
        (C.NCCL_CUDA_FAILURE, "Cuda failure 2 'out of memory'", {"number": 2,
         "error": "out of memory"}),
        (C.NCCL_CUDA_FAILURE, "Cuda failure 'peer access is not supported between these two"
                              " devices'",
         {"error": "peer access is not supported between these two devices"}),
        (C.NCCL_OUT_OF_MEMORY, "Failed to CUDA calloc async 608 bytes", {"size_bytes": 608}),
        (C.NCCL_WRONG_MAGIC, "socketFinalizeAccept: wrong magic 12ab != 34cd", {}),
        (C.NCCL_SIZE_MISMATCH, "NET/Socket : message truncated : receiving 524288 bytes instead of"
         " 65536. If you believe", {"received_bytes": 524288, "expected_bytes": 65536}),
        (C.NCCL_SIZE_MISMATCH, "Message truncated : received 524288 bytes instead of 65536",
         {"received_bytes": 524288, "expected_bytes": 65536}),
        (C.NCCL_SIZE_MISMATCH, "NET/IB : collective mismatch error, local size 496640 remote"
                               " size 65536",
         {"local_size_bytes": 496640, "remote_size_bytes": 65536}),
        (C.NCCL_COLL_MISMATCH, "Mismatched collective detected, please check your collective"
                               " calls at"
         f" and around rank {made.rank}. You can use NCCL_DEBUG=INFO", {"near_rank": made.rank}),
        (C.NCCL_INVALID_ARGUMENT, "Broadcast : invalid root 9 (root should be in the 0..4 range)",
         {"call": "Broadcast", "name": "root", "number": 9}),
        (C.NCCL_PROXY_FAILED, "[Proxy Service 1] Failed to execute operation Connect from rank 1,"
         " retcode 3", {"op": "Connect", "result": 3}),
        (C.NCCL_PROXY_FAILED, "ncclProxyClientGetFd call to tpRank 4 handle 0x155 failed : 6",
         {"peer_rank": 4, "result": 6}),
        (C.NCCL_WARN, "a warning of a later release", {"message": "a warning of a later release"}),
    ])  # fmt: skip
