"""Lines of PyTorch, gloo, CUDA and Ascend as their releases write them."""

from __future__ import annotations

from comminsight.model.log_event import LogCode as C
from comminsight.model.log_event import LogValue
from tests.builders.log_job import Job, Sample


def work(made: Job, op: str = "ALLREDUCE") -> str:
    return (
        f"WorkNCCL(SeqNum={made.seq}, OpType={op}, NumelIn={made.count}, NumelOut={made.count},"
        " Timeout(ms)=600000)"
    )


def watchdog(made: Job) -> list[Sample]:
    rank = {"comm_rank": made.rank}
    values: dict[str, LogValue] = {
        "seq": made.seq, "op": "ALLREDUCE", "numel_in": made.count, "timeout_ms": 600000,
        "ran_ms": 600_029,
    }  # fmt: skip
    said = (
        f"[Rank {made.rank}] Watchdog caught collective operation timeout: {work(made)} ran for"
        " 600029 milliseconds before timing out."
    )
    old = (
        f"[Rank {made.rank}] Watchdog caught collective operation timeout:"
        f" WorkNCCL(OpType=BROADCAST,"
        " TensorShape=[5164000], Timeout(ms)=1800000) ran for 1801342 milliseconds before timing"
        " out."
    )
    group = f"[PG ID 2 PG GUID 3(tp_group) Rank {made.rank}]"
    counts: dict[str, LogValue] = {"seq": 31, "last_enqueued": 58, "last_completed": 30}
    named: dict[str, LogValue] = {"pg_id": "2", "pg_guid": "3", "pg": "tp_group"}
    tail = "last enqueued NCCL work: 58, last completed NCCL work: 30."
    return [
        Sample(C.TORCH_WATCHDOG_TIMEOUT, said, values, {**rank}),
        Sample(C.TORCH_WATCHDOG_TIMEOUT, old,
               {"op": "BROADCAST", "shape": "5164000", "ran_ms": 1801342}, {**rank}),
        Sample(C.TORCH_WATCHDOG_ECHO, f"{group} Process group watchdog thread terminated with"
               f" exception: {said}", named, {**rank}),
        Sample(C.TORCH_WATCHDOG_ECHO, f"  what():  {said}"),
        Sample(C.TORCH_ASYNC_ERROR, f"[Rank {made.rank}] Collective {work(made)} raised the"
                                    f" following"
               " async exception: NCCL error: remote process exited or there was a network error",
               {"seq": made.seq, "op": "ALLREDUCE"}, {**rank}),
        Sample(C.TORCH_PROGRESS, f"{group} Timeout at NCCL work: 31, {tail}", {**counts, **named},
               {**rank}),
        Sample(C.TORCH_PROGRESS, f"[PG 0 (default_pg) Rank {made.rank}] Exception (either an"
                                 f" error or"
               f" timeout) detected by watchdog at work: 31, {tail}",
               {**counts, "pg": "default_pg"}, {**rank}),
        Sample(C.TORCH_PROGRESS, f"{group}  failure detected by watchdog at work sequence id: 31 PG"
               " status: last enqueued work: 58, last completed work: 30", {**counts, **named},
               {**rank}),
        Sample(C.TORCH_PROGRESS, f"[PG 0 Rank {made.rank}] Timeout at NCCL work: 1, last"
                                 f" enqueued NCCL"
               " work: 1, last completed NCCL work: 3452013982.",
               {"seq": 1, "last_enqueued": 1}, {**rank}),
        Sample(C.TORCH_DUMP_SIGNAL, f"{group} Received a dump signal due to a collective timeout"
                                    f" from "
               " rank 7 and we will try our best to dump the debug info. Last enqueued NCCL"
               " work: 58,"
               " last completed NCCL work: 30.This is most likely",
               {"signalling_rank": 7, "last_enqueued": 58, "last_completed": 30}, {**rank}),
    ]  # fmt: skip


def watchdog_more(made: Job) -> list[Sample]:
    group = f"[PG ID 0 PG GUID 0(default_pg) Rank {made.rank}]"
    print_ = "CollectiveFingerPrint(SequenceNumber=0, OpType={}, TensorShape=[{}], TensorDtypes={},"
    return [
        Sample(C.TORCH_FIRST_SIGNAL, f"{group} First PG on this rank to signal dumping.",
               {"reason": "to signal dumping"}, {"comm_rank": made.rank}),
        Sample(C.TORCH_SIGNAL_SEEN, f"{group} Observed flight recorder dump signal from another"
                                    f" rank"
               " via TCPStore."),
        Sample(C.TORCH_WATCHDOG_STUCK, f"{group} ProcessGroupNCCL's watchdog got stuck for 480"
                                       f" seconds"
               " without making progress in monitoring enqueued collectives.", {"stuck_s": 480}),
        Sample(C.TORCH_WATCHDOG_STUCK, f"{group} Heartbeat monitor timed out! Process will be"
               " terminated after dumping debug info. workMetaList_.size()=3"),
        Sample(C.TORCH_GIL_HELD, f"{group} Could not acquire GIL within 300 ms on exit, possible"
                                 f" GIL"
               " induced hang", {"waited_ms": 300}),
        Sample(C.TORCH_TAKEN_DOWN, f"[Rank {made.rank}] To avoid data inconsistency, we are"
                                   f" taking the"
               " entire process down.", {}, {"comm_rank": made.rank}),
        Sample(C.TORCH_TAKEN_DOWN, f"{group} Terminating the process after attempting to dump debug"
               " info, due to collective timeout or exception."),
        Sample(C.TORCH_DESYNC_ABSENT, "\t   - [1, 3] finished collective #38, but didn't join"
                                      " collective"
               " #39 (count from 1)", {"ranks": (1, 3), "last_completed": 38, "seq": 39}),
        Sample(C.TORCH_DESYNC_STUCK, "\t   - [0, 2] joined but didn't finish collective #39"
                                     " (count from"
               " 1)", {"ranks": (0, 2), "seq": 39}),
        Sample(C.TORCH_DESYNC_TIMEOUT, "\t - [2] Timeout at collective: _ALLGATHER_BASE, #39",
               {"op": "_ALLGATHER_BASE", "seq": 39}, {"comm_rank": 2}),
        Sample(C.TORCH_MISMATCH, "RuntimeError: Detected mismatch between collectives on ranks."
                                 " Rank 1 is"
               f" running collective: {print_.format('ALLREDUCE', 1024, 'Float')} x), but Rank 0"
               f" is running"
               f" collective: {print_.format('ALLGATHER', '96, 10', 'Double')} x).",
               {"op": "ALLREDUCE", "shape": "1024", "other_op": "ALLGATHER",
               "other_shape": "96, 10",
                "dtype": "Float", "other_dtype": "Double", "other_comm_rank": 0}, {"comm_rank": 1}),
        Sample(C.TORCH_MISMATCH, "Detected mismatch between collectives on ranks. Rank 3 is running"
               " inconsistent collective: CollectiveFingerPrint(OpType=ALLGATHER, TensorShape=[6],",
               {"op": "ALLGATHER", "shape": "6"}, {"comm_rank": 3}),
        Sample(C.TORCH_DESYNC_ABSENT, "[4, 5] are the lagging ranks. They never joined any"
                                      " collectives",
               {"ranks": (4, 5)}),
        Sample(C.TORCH_BARRIER_FAILED, f"Rank {made.rank} timed out in monitoredBarrier after"
                                       f" 900 ms.",
               {"timeout_ms": 900}, {"comm_rank": made.rank}),
        Sample(C.TORCH_BARRIER_FAILED, "[Rank 0]: Ranks 2, 5 failed to pass monitoredBarrier in"
                                       " 2000 ms",
               {"ranks": (2, 5), "timeout_ms": 2000}),
    ]  # fmt: skip


def store(made: Job) -> list[Sample]:
    to: dict[str, LogValue] = {"address": made.peer, "port": made.port}
    return [
        Sample(C.TORCH_UNIQUE_ID, f"[{made.rank}] is setting up NCCL communicator and retrieving"
               " ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got"
               " error: wait timeout", {"key": "0", "other_comm_rank": 0},
               {"comm_rank": made.rank}),
        Sample(C.TORCH_STORE_TIMEOUT, "DistStoreError: wait timeout after 1800000ms, keys:"
                                      " /default_pg/0",
               {"timeout_ms": 1800000, "keys": "/default_pg/0"}),
        Sample(C.TORCH_STORE_CLIENTS, "Timed out after 301 seconds waiting for clients. 1/2"
                                      " clients joined.",
               {"timeout_s": 301, "n_joined": 1, "n_expected": 2}),
        Sample(C.TORCH_STORE_LOST, "[c10d] sendBytes failed on SocketImpl(fd=81, addr=[::1]:29500,"
               " remote=[::1]:40000): Broken pipe", {"call": "sendBytes", "error": "Broken pipe"}),
        Sample(C.TORCH_CLIENT_TIMEOUT, "[c10d] The client socket has timed out after 600000ms while"
               f" trying to connect to ({made.peer}, {made.port}).", {**to,
               "duration_ms": 600_000}),
        Sample(C.TORCH_CLIENT_FAILED, "[c10d] The client socket has failed to connect to"
               f" [{made.peer}]:{made.port} (errno: 110 - Connection timed out).",
               {**to, "number": 110, "error": "Connection timed out"}),
        Sample(C.TORCH_CLIENT_FAILED, "[c10d] The client socket has failed to connect to any"
                                      " network"
               f" address of ({made.peer}, {made.port}). The IPv4 network addresses", to),
        Sample(C.TORCH_SERVER_LISTENS, f"[c10d] The server socket has started to listen on"
               f" {made.peer}:{made.port}.", to),
        Sample(C.TORCH_BIND_FAILED, f"The server socket has failed to bind to"
                                    f" {made.peer}:{made.port}"
               " (errno: 98 - Address already in use).", {**to, "number": 98}),
        Sample(C.TORCH_DEVICE_GUESSED, f"[PG ID 0 PG GUID 0 Rank {made.rank}]  using GPU 5 as"
                                       f" device"
               " used by this process is currently unknown.", {"cuda_device": 5}),
        Sample(C.TORCH_DEVICE_GUESSED, "using GPU 3 to perform barrier as devices used by this"
                                       " process are"
               " currently unknown.", {"cuda_device": 3}),
    ]  # fmt: skip


def gloo_and_cuda(made: Job) -> list[Sample]:
    place = "[/src/third_party/gloo/gloo/transport/tcp/pair.cc:534]"
    return [
        Sample(C.GLOO_CLOSED, f"{place} Connection closed by peer [{made.peer}]:{made.port}",
               {"peer": made.peer, "port": made.port}),
        Sample(C.GLOO_CLOSED, f"{place} Read error [{made.peer}]:{made.port}: Connection reset"
                              f" by peer."
               " This is typically", {"peer": made.peer, "port": made.port,
               "error": "Connection reset by peer"}),
        Sample(C.TORCH_BARRIER_REACHED, f"Rank {made.rank} successfully reached"
                                        f" monitoredBarrier, but"
               " received errors while waiting for send/recv from rank 0. Please check",
               {"other_comm_rank": 0}, {"comm_rank": made.rank}),
        Sample(C.GLOO_TIMEOUT, f"{place} Timed out waiting 1800000ms for recv operation to"
                               f" complete",
               {"waited_ms": 1800000, "direction": "recv"}),
        Sample(C.GLOO_TIMEOUT, f"{place} Application timeout caused pair closure"),
        Sample(C.GLOO_CONNECT_FAILED, "timed out connecting: SO_ERROR: Connection refused,"
               f" remote=[{made.peer}]", {"error": "Connection refused", "peer": made.peer}),
        Sample(C.CUDA_OUT_OF_MEMORY, "CUDA error: out of memory"),
        Sample(C.GLOO_SIZE_MISMATCH, f"{place} op.preamble.length <= op.nbytes. 194478720 vs 4",
               {"received_bytes": 194478720, "expected_bytes": 4}),
        Sample(C.GLOO_CONNECT_FAILED, f"Gloo connectFullMesh failed with {place} no error"),
        Sample(C.CUDA_OUT_OF_MEMORY, "CUDA out of memory. Tried to allocate 18.50 GiB. GPU 2 has"
                                     " a total"
               " capacity of 79.14 GiB", {"wanted_bytes": 19_864_223_744, "cuda_device": 2}),
        Sample(C.CUDA_ERROR, "CUDA error: an illegal memory access was encountered",
               {"error": "an illegal memory access was encountered"}),
        Sample(C.CUDA_ERROR, f"[PG ID 0 PG GUID 0(default_pg) Rank {made.rank}] Process group"
                             f" watchdog"
               " thread terminated with exception: CUDA error: an illegal memory access was"
               " encountered",
               {"error": "an illegal memory access was encountered"}, {"comm_rank": made.rank}),
        Sample(C.CUDA_ERROR, "  what():  CUDA error: unspecified launch failure",
               {"error": "unspecified launch failure"}),
        Sample(C.TORCH_NCCL_ERROR, f"[Rank {made.rank}] NCCL watchdog thread terminated with"
                                   f" exception:"
               " NCCL error: remote process exited or there was a network error, NCCL version"
               " 2.19.3",
               {"error": "remote process exited or there was a network error", "version": "2.19.3"},
               {"comm_rank": made.rank}),
        Sample(C.TORCH_WATCHDOG_DIED, f"[PG 0 (default_pg) Rank {made.rank}] Process group watchdog"
               " thread terminated with exception: of another kind", {"message": "of another kind"},
               {"comm_rank": made.rank}),
        Sample(C.TORCH_NCCL_ERROR, "NCCL error in: /src/ProcessGroupNCCL.cpp:1251, internal"
                                   " error - please"
               " report, NCCL version 2.18.6",
               {"source": "/src/ProcessGroupNCCL.cpp:1251", "version": "2.18.6"}),
        Sample(C.TORCH_NCCL_RESULT, "ncclRemoteError: A call failed possibly due to a network"
                                    " error",
               {"error_name": "ncclRemoteError"}),
        Sample(C.ASCEND_ERROR, "EI0002: The wait execution of the Notify register times out."
                               " remote rank"
               f" id: {made.rank}", {"error_name": "EI0002", "remote_rank": made.rank}),
    ]  # fmt: skip
