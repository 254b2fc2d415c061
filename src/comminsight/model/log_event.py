"""What one line of a log says, as an event: a code of our own, its values, and where it stands.

An event repeats what the line claims. It judges nothing: a line may be an echo of another failure.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

LogValue = int | float | str | tuple[int, ...]

UNKNOWN_ERROR_NS = -1


class LogCode(StrEnum):
    """What a line says; docs/logs.md lists the values of each."""

    NCCL_VERSION = "nccl_version"
    NCCL_INIT_START = "nccl_init_start"
    NCCL_INIT_COMPLETE = "nccl_init_complete"
    NCCL_COMM_LAYOUT = "nccl_comm_layout"
    NCCL_INIT_TIMINGS = "nccl_init_timings"
    NCCL_DESTROY = "nccl_destroy"
    NCCL_ABORT = "nccl_abort"
    NCCL_BOOTSTRAP = "nccl_bootstrap"
    NCCL_NETWORK = "nccl_network"
    NCCL_IB_DEVICES = "nccl_ib_devices"
    NCCL_IB_MADE = "nccl_ib_made"
    NCCL_SOCKET_DEVICES = "nccl_socket_devices"
    NCCL_NO_IB = "nccl_no_ib"
    NCCL_GPU_DIRECT = "nccl_gpu_direct"
    NCCL_PLUGIN_FAILED = "nccl_plugin_failed"
    NCCL_PLUGIN_NONE = "nccl_plugin_none"
    NCCL_ENV = "nccl_env"
    NCCL_AFFINITY = "nccl_affinity"
    NCCL_CHANNEL = "nccl_channel"
    NCCL_CHANNEL_RANKS = "nccl_channel_ranks"
    NCCL_RING = "nccl_ring"
    NCCL_TREES = "nccl_trees"
    NCCL_CONNECTED = "nccl_connected"
    NCCL_CHANNELS = "nccl_channels"
    NCCL_GRAPH = "nccl_graph"
    NCCL_TUNING = "nccl_tuning"
    NCCL_COLL = "nccl_coll"
    NCCL_RESULT_PATH = "nccl_result_path"
    NCCL_SERVICE_CLOSED = "nccl_service_closed"
    NCCL_PEER_ACCESS = "nccl_peer_access"
    NCCL_CONNECT_FAILED = "nccl_connect_failed"
    NCCL_CONNECTION_CLOSED = "nccl_connection_closed"
    NCCL_SOCKET_FAILED = "nccl_socket_failed"
    NCCL_WRONG_MAGIC = "nccl_wrong_magic"
    NCCL_IB_COMPLETION = "nccl_ib_completion"
    NCCL_IB_EVENT = "nccl_ib_event"
    NCCL_QP_MODIFY = "nccl_qp_modify"
    NCCL_IB_CALL = "nccl_ib_call"
    NCCL_SHM = "nccl_shm"
    NCCL_FD_LIMIT = "nccl_fd_limit"
    NCCL_NO_INTERFACE = "nccl_no_interface"
    NCCL_NO_NET = "nccl_no_net"
    NCCL_DUPLICATE_GPU = "nccl_duplicate_gpu"
    NCCL_CUDA_FAILURE = "nccl_cuda_failure"
    NCCL_OUT_OF_MEMORY = "nccl_out_of_memory"
    NCCL_SIZE_MISMATCH = "nccl_size_mismatch"
    NCCL_COLL_MISMATCH = "nccl_coll_mismatch"
    NCCL_INVALID_ARGUMENT = "nccl_invalid_argument"
    NCCL_PROXY_FAILED = "nccl_proxy_failed"
    NCCL_WARN = "nccl_warn"

    TORCH_WATCHDOG_TIMEOUT = "torch_watchdog_timeout"
    TORCH_WATCHDOG_ECHO = "torch_watchdog_echo"
    TORCH_WATCHDOG_DIED = "torch_watchdog_died"
    TORCH_ASYNC_ERROR = "torch_async_error"
    TORCH_PROGRESS = "torch_progress"
    TORCH_FIRST_SIGNAL = "torch_first_signal"
    TORCH_DUMP_SIGNAL = "torch_dump_signal"
    TORCH_SIGNAL_SEEN = "torch_signal_seen"
    TORCH_WATCHDOG_STUCK = "torch_watchdog_stuck"
    TORCH_GIL_HELD = "torch_gil_held"
    TORCH_TAKEN_DOWN = "torch_taken_down"
    TORCH_DESYNC_TIMEOUT = "torch_desync_timeout"
    TORCH_DESYNC_STUCK = "torch_desync_stuck"
    TORCH_DESYNC_ABSENT = "torch_desync_absent"
    TORCH_MISMATCH = "torch_mismatch"
    TORCH_BARRIER_FAILED = "torch_barrier_failed"
    TORCH_BARRIER_REACHED = "torch_barrier_reached"
    TORCH_NCCL_ERROR = "torch_nccl_error"
    TORCH_NCCL_RESULT = "torch_nccl_result"
    TORCH_UNIQUE_ID = "torch_unique_id"
    TORCH_STORE_TIMEOUT = "torch_store_timeout"
    TORCH_STORE_CLIENTS = "torch_store_clients"
    TORCH_STORE_LOST = "torch_store_lost"
    TORCH_CLIENT_TIMEOUT = "torch_client_timeout"
    TORCH_CLIENT_FAILED = "torch_client_failed"
    TORCH_SERVER_LISTENS = "torch_server_listens"
    TORCH_BIND_FAILED = "torch_bind_failed"
    TORCH_DEVICE_GUESSED = "torch_device_guessed"
    GLOO_CLOSED = "gloo_closed"
    GLOO_TIMEOUT = "gloo_timeout"
    GLOO_SIZE_MISMATCH = "gloo_size_mismatch"
    GLOO_CONNECT_FAILED = "gloo_connect_failed"
    CUDA_OUT_OF_MEMORY = "cuda_out_of_memory"
    CUDA_ERROR = "cuda_error"
    ASCEND_ERROR = "ascend_error"

    ELASTIC_WORKER_FAILED = "elastic_worker_failed"
    ELASTIC_FAILURE = "elastic_failure"
    ELASTIC_ROOT_CAUSE = "elastic_root_cause"
    ELASTIC_CLOSING = "elastic_closing"
    ELASTIC_STUCK = "elastic_stuck"
    ELASTIC_RESTART = "elastic_restart"
    ELASTIC_SIGNALLED = "elastic_signalled"
    PYTHON_EXCEPTION = "python_exception"
    PYTHON_TRACEBACK_OPEN = "python_traceback_open"
    PYTHON_FATAL = "python_fatal"
    PROCESS_TERMINATE = "process_terminate"
    PROCESS_SIGNAL = "process_signal"
    SHELL_SIGNAL = "shell_signal"
    SPAWN_EXIT = "spawn_exit"
    LAUNCHER_EXIT = "launcher_exit"
    MPI_RANK_EXIT = "mpi_rank_exit"
    MPI_EXIT_CODE = "mpi_exit_code"
    MPI_ABORT = "mpi_abort"

    KERNEL_XID = "kernel_xid"
    KERNEL_SXID = "kernel_sxid"
    KERNEL_OOM_INVOKED = "kernel_oom_invoked"
    KERNEL_OOM_KILL = "kernel_oom_kill"
    KERNEL_SEGFAULT = "kernel_segfault"
    KERNEL_HUNG_TASK = "kernel_hung_task"
    KERNEL_LOCKUP = "kernel_lockup"
    KERNEL_LINK = "kernel_link"
    KERNEL_PCIE = "kernel_pcie"
    KERNEL_HARDWARE = "kernel_hardware"
    KERNEL_NFS = "kernel_nfs"
    KERNEL_SUSPEND = "kernel_suspend"
    SLURM_TASK_EXIT = "slurm_task_exit"
    SLURM_TASK_KILLED = "slurm_task_killed"
    SLURM_OOM = "slurm_oom"
    SLURM_CANCELLED = "slurm_cancelled"
    SLURM_NODE_FAILURE = "slurm_node_failure"
    SLURM_STATE = "slurm_state"
    K8S_REASON = "k8s_reason"
    K8S_EXIT_CODE = "k8s_exit_code"
    K8S_NODE_PRESSURE = "k8s_node_pressure"
    RAY_WORKER_DIED = "ray_worker_died"
    RAY_OUT_OF_MEMORY = "ray_out_of_memory"
    ENVIRONMENT = "environment"
    PROCESS_LIMIT = "process_limit"
    SERVING_RATE = "serving_rate"
    PROCESS_DONE = "process_done"
    LONG_WORK = "long_work"
    HANG_SUSPECTED = "hang_suspected"
    HOST_INTERFACE = "host_interface"
    HOST_ARCHITECTURE = "host_architecture"
    SHM_FILESYSTEM = "shm_filesystem"


# what a process writes because of something that was said before, by itself or by another rank
ECHOES = frozenset(
    {
        LogCode.NCCL_RESULT_PATH,
        LogCode.TORCH_WATCHDOG_ECHO,
        LogCode.TORCH_SIGNAL_SEEN,
        LogCode.TORCH_TAKEN_DOWN,
        LogCode.TORCH_BARRIER_REACHED,
        LogCode.ELASTIC_CLOSING,
    }
)


class ClockKind(StrEnum):
    """How much of a point in time the stamp of a line states."""

    ZONED = "zoned"  # ns is epoch time
    NO_ZONE = "no_zone"  # ns is what the wall clock showed, read as UTC
    NO_YEAR = "no_year"  # the same with the year 1972 in place of the one that is not stated
    BOOT = "boot"  # ns since the boot of the host
    NONE = "none"


class LogTime(msgspec.Struct, frozen=True, gc=False):
    """The stamp of a line. ``error_ns``: the truth lies within it on both sides of ``ns``; -1 where
    nothing bounds it, so that only the order of the lines of one file counts."""

    kind: ClockKind
    ns: int = 0
    error_ns: int = UNKNOWN_ERROR_NS


NO_TIME = LogTime(ClockKind.NONE)


class LogEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event. ``line`` counts from 1; ``first_line`` is where a text of several lines began, and
    else the same.

    ``rank`` is the global rank that a ``[rank3]:`` prefix tells. ``task`` is the launcher's number
    of the process (mpirun, srun): the rank only where one task is one rank. ``comm_rank`` is the
    rank in some process group or communicator. Each is -1 where the line does not tell it.
    ``text`` is the line without its prefixes, at most ``MAX_TEXT_CHARS`` long.
    """

    code: LogCode
    file: str
    line: int
    text: str
    time: LogTime = NO_TIME
    first_line: int = 0
    host: str = ""
    pid: int = -1
    tid: int = -1
    rank: int = -1
    local_rank: int = -1
    task: int = -1
    comm_rank: int = -1
    n_repeated: int = 1  # Ray says how often it left an equal line out
    is_cut: bool = False  # its end was not read, or never written
    values: dict[str, LogValue] = {}


class LogTail(msgspec.Struct, frozen=True):
    """The last line of a log that is not empty, whatever it says: when its writer last wrote."""

    line: int = 0
    text: str = ""
    time: LogTime = NO_TIME


class LogTally(msgspec.Struct, frozen=True, kw_only=True):
    """Where the lines of a log went: ``n_read`` is the sum of the four that follow it."""

    n_read: int = 0
    n_emitted: int = 0  # lines that are an event, or a part of one
    n_unknown: int = 0
    n_truncated: int = 0  # longer than is read, and no event in what was
    n_refused: int = 0  # with NUL bytes, or an event with a number that cannot be
    n_events: int = 0
    n_cut: int = 0  # longer than is read, whether or not they gave an event
    n_replaced: int = 0  # lines with bytes that are no UTF-8
    n_bytes: int = 0
