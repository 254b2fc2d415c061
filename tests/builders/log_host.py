"""Lines of launchers, schedulers and the kernel."""

from __future__ import annotations

from comminsight.model.log_event import LogCode as C
from tests.builders.log_job import Job, Sample


def launchers(made: Job) -> list[Sample]:
    pid, host = made.pid, made.host
    return [
        Sample(C.ELASTIC_WORKER_FAILED, f"failed (exitcode: -9) local_rank: 3 (pid: {pid}) of"
                                        f" binary:"
               " /opt/bin/python", {"exit_code": -9}, {"pid": pid, "local_rank": 3}),
        Sample(C.ELASTIC_CLOSING, f"Sending process {pid} closing signal SIGTERM",
               {"signal_name": "SIGTERM"}, {"pid": pid}),
        Sample(C.ELASTIC_CLOSING, f"Unable to shutdown process {pid} via Signals.SIGTERM,"
                                  f" forcefully"
               " exiting via Signals.SIGKILL", {"signal_name": "SIGTERM"}, {"pid": pid}),
        Sample(C.ELASTIC_STUCK, f"Process {pid} did not exit after SIGKILL within 30s;"
                                f" abandoning and"
               " continuing teardown.", {"signal_name": "SIGKILL", "stuck_s": 30}, {"pid": pid}),
        Sample(C.ELASTIC_RESTART, "[default] Worker group FAILED. 2/3 attempts left; will"
                                  " restart worker"
               " group", {"state": "FAILED", "n_left": 2, "n_attempts": 3}),
        Sample(C.ELASTIC_RESTART, "[default] Detected 1 new nodes from group_rank=0; will"
                                  " restart worker"
               " group", {"n_nodes": 1}),
        Sample(C.ELASTIC_SIGNALLED, "Received Signals.SIGTERM death signal, shutting down workers",
               {"signal_name": "SIGTERM"}),
        Sample(C.ELASTIC_SIGNALLED, f"SignalException: Process {pid} got signal: 15",
               {"signal": 15},
               {"pid": pid}),
        Sample(C.PYTHON_FATAL, "Fatal Python error: Bus error", {"error": "Bus error"}),
        Sample(C.PROCESS_TERMINATE, "terminate called after throwing an instance of"
               " 'c10::DistBackendError'", {"exception": "c10::DistBackendError"}),
        Sample(C.PROCESS_SIGNAL, f"[{host}:{pid}] Signal: Segmentation fault (11)", {"signal": 11},
               {"host": host, "pid": pid}),
        Sample(C.SPAWN_EXIT, "process 3 terminated with signal SIGKILL", {"signal_name": "SIGKILL"},
               {"local_rank": 3}),
        Sample(C.SPAWN_EXIT, "Process 1 terminated with exit code 1", {"exit_code": 1},
               {"local_rank": 1}),
        Sample(C.LAUNCHER_EXIT, f"Process exits with return code = -9 after {pid}",
               {"exit_code": -9}),
        Sample(C.MPI_RANK_EXIT, f"mpirun noticed that process rank 3 with PID {pid} on node"
                                f" {host} exited"
               " on signal 9 (Killed).", {"signal": 9, "signal_name": "Killed"},
               {"task": 3, "pid": pid, "host": host}),
        Sample(C.MPI_EXIT_CODE, "  Exit code:    17", {"exit_code": 17}),
        Sample(C.MPI_ABORT, "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD", {},
               {"task": 3}),
        Sample(C.MPI_ABORT, "Abort(17) on node 3 (rank 3 in comm 0): application called"
               " MPI_Abort(MPI_COMM_WORLD, 17) - process 3", {"exit_code": 17}, {"task": 3}),
        Sample(C.SHELL_SIGNAL, f"/job/run.sh: line 12: {pid} Aborted                 (core"
                               f" dumped) python x",
               {"signal_name": "Aborted"}, {"pid": pid}),
        Sample(C.SHELL_SIGNAL, f"/job/run.sh: line 12: {pid} Killed                  python"
                               f" train.py",
               {"signal_name": "Killed"}, {"pid": pid}),
    ]  # fmt: skip


def launchers_more(made: Job) -> list[Sample]:
    host = made.host
    return [
        Sample(C.SLURM_TASK_EXIT, f"srun: error: {host}: tasks 0-3,5: Exited with exit code 134",
               {"tasks": "0-3,5", "exit_code": 134}, {"host": host}),
        Sample(C.SLURM_TASK_KILLED, f"srun: error: {host}: task 3: Killed",
               {"tasks": "3", "signal_name": "Killed"}, {"host": host}),
        Sample(C.SLURM_TASK_KILLED, f"srun: error: {host}: task 1: Out Of Memory",
               {"tasks": "1", "signal_name": "Out Of Memory"}, {"host": host}),
        Sample(C.SLURM_OOM, "slurmstepd: error: Detected 1 oom_kill event in StepId=128.0. Some"
                            " of the"
               " step tasks have been OOM Killed.", {"n_events": 1, "step": "128.0"}),
        Sample(C.SLURM_OOM, "slurmstepd: error: Detected 2 oom-kill event(s) in StepId=9.batch."
                            " Some",
               {"n_events": 2, "step": "9.batch"}),
        Sample(C.SLURM_CANCELLED, f"slurmstepd: error: *** JOB 77 ON {host} CANCELLED AT"
               " 2026-04-14T16:17:16 DUE TO TIME LIMIT ***",
               {"job": "77", "reason": "TIME LIMIT", "when": "2026-04-14T16:17:16"},
               {"host": host}),
        Sample(C.SLURM_CANCELLED, f"slurmstepd: error: *** STEP 77.1 ON {host} CANCELLED AT"
               " 2026-04-14T16:17:16 ***", {"job": "77.1"}, {"host": host}),
        Sample(C.SLURM_NODE_FAILURE, f"srun: error: Node failure on {host}", {}, {"host": host}),
        Sample(C.SLURM_STATE, "77.0|train|gpu|OUT_OF_MEMORY|0:125|",
               {"job": "77.0", "state": "OUT_OF_MEMORY", "exit_code": 0, "signal": 125}),
        Sample(C.SLURM_STATE, "77.batch     batch     acct   16    FAILED      1:0",
               {"state": "FAILED", "exit_code": 1, "signal": 0}),
        Sample(C.SLURM_STATE, "77|train|NODE_FAIL|1:0|", {"job": "77", "state": "NODE_FAIL"}),
        Sample(C.K8S_EXIT_CODE, '"terminated": {"exitCode": 137, "finishedAt": "never"',
               {"exit_code": 137}),
        Sample(C.K8S_REASON, "      Reason:       OOMKilled", {"reason": "OOMKilled"}),
        Sample(C.K8S_EXIT_CODE, "      Exit Code:    137", {"exit_code": 137}),
        Sample(C.K8S_NODE_PRESSURE, "The node was low on resource: memory. Container trainer was"
                                    " using",
               {"reason": "memory"}),
        Sample(C.RAY_WORKER_DIED, "A worker died or was killed while executing a task by an"
                                  " unexpected"
               f" system error. Worker ID: ab Worker PID: {made.pid} Worker exit type:"
               f" SYSTEM_ERROR",
               {"worker_exit": "SYSTEM_ERROR"}, {"pid": made.pid}),
        Sample(C.RAY_OUT_OF_MEMORY, "2 Workers (tasks / actors) killed due to memory pressure"
                                    " (OOM)"),
    ]  # fmt: skip


def surroundings(made: Job) -> list[Sample]:
    return [
        Sample(C.K8S_REASON, "train-0            0/1     OOMKilled   0          5m",
               {"name": "train-0", "reason": "OOMKilled"}),
        Sample(C.ENVIRONMENT, "NCCL_VERSION=2.15.5-1", {"name": "NCCL_VERSION",
               "value": "2.15.5-1"}),
        Sample(C.ENVIRONMENT, 'declare -x TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC="480"',
               {"name": "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "value": "480"}),
        Sample(C.ENVIRONMENT, "export CUDA_LAUNCH_BLOCKING=1", {"value": "1"}),
        Sample(C.PROCESS_LIMIT, "max locked memory           (kbytes, -l) 8192",
               {"name": "max locked memory", "unit": "kbytes", "value": "8192"}),
        Sample(C.PROCESS_LIMIT, "Max open files            1024                 524288       files",
               {"name": "Max open files", "value": "1024"}),
        Sample(C.SERVING_RATE, "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput:"
                               " 12.5"
               " tokens/s, Running: 4 reqs, Waiting: 2 reqs",
               {"tokens_per_s": 12.5, "n_running": 4, "n_waiting": 2}),
        Sample(C.SERVING_RATE, "Decode batch. #running-req: 4, #token: 900, gen throughput"
                               " (token/s):"
               f" {made.device}.25, #queue-req: 1",
               {"tokens_per_s": made.device + 0.25, "n_running": 4, "n_waiting": 1}),
        Sample(C.PROCESS_DONE, f"Process {made.pid} exits successfully.", {}, {"pid": made.pid}),
        Sample(C.LONG_WORK, "Map:  61%|######    | 610/1000 [00:10<00:06, 60.2 examples/s]",
               {"kind": "Map", "done_pct": 61}),
        Sample(C.LONG_WORK, "Running tokenizer on dataset (num_proc=8): 40% 4/10",
               {"kind": "tokeniz", "done_pct": 40}),
        Sample(C.LONG_WORK, "saving checkpoint at iteration 500 to /data", {"kind": "saving"}),
        Sample(C.LONG_WORK, "[I torch/_inductor] Compiling a graph for dynamic shape",
               {"kind": "Compiling"}),
        Sample(C.LONG_WORK, "AUTOTUNE mm(4096x1024, 1024x4096)", {"kind": "mm"}),
        Sample(C.HANG_SUSPECTED, "training hang detected: no progress for 900 s",
               {}),
        Sample(C.HANG_SUSPECTED, "ERROR Job is hung, sending SIGABRT"),
        Sample(C.HANG_SUSPECTED, "WARNING no progress in the last 900s", {"stuck_s": 900}),
        Sample(C.HOST_INTERFACE, "3: enp90s0np0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc",
               {"interface": "enp90s0np0"}),
        Sample(C.HOST_ARCHITECTURE, f"Linux {made.host} 6.8.0-1 #1 SMP 2026 aarch64 aarch64"
               " aarch64 GNU/Linux", {"architecture": "aarch64"}, {"host": made.host}),
        Sample(C.SHM_FILESYSTEM, "shm              64M     0   64M   0% /dev/shm",
               {"capacity": "64M"}),
    ]  # fmt: skip


def kernel(made: Job) -> list[Sample]:
    pid = made.pid
    return [
        Sample(C.KERNEL_XID, f"NVRM: Xid (PCI:0000:3b:00): 79, pid={pid}, name=python, GPU has"
                             f" fallen off"
               " the bus.", {"device": "0000:3b:00", "xid": 79, "process": "python"}, {"pid": pid}),
        Sample(C.KERNEL_XID, "NVRM: Xid (PCI:0000:3b:00): 94, pid='<unknown>', name=<unknown>,"
                             " Contained",
               {"xid": 94}, {"pid": -1}),
        Sample(C.KERNEL_SXID, "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30",
               {"device": "0000:c1:00.0", "xid": 20034}),
        Sample(C.KERNEL_OOM_INVOKED, "python3 invoked oom-killer: gfp_mask=0x100cca, order=0",
               {"process": "python3"}),
        Sample(C.KERNEL_OOM_KILL, f"Out of memory: Killed process {pid} (python3) total-vm:900kB,"
               " anon-rss:733120kB, file-rss:1kB",
               {"process": "python3", "rss_kib": 733120, "reason": "Out of memory"},
               {"pid": pid}),
        Sample(C.KERNEL_OOM_KILL, f"Memory cgroup out of memory: Killed process {pid}"
                                  f" (pt_main_thread)",
               {"reason": "Memory cgroup out of memory"}, {"pid": pid}),
        Sample(C.KERNEL_SEGFAULT, f"python[{pid}]: segfault at 10 ip 00007f sp 00007e error 4 in"
               " libnccl.so.2[7f00+1000]", {"library": "libnccl.so.2"}, {"pid": pid}),
        Sample(C.KERNEL_SEGFAULT, f"traps: python[{pid}] general protection fault ip:7f", {},
               {"pid": pid}),
    ]  # fmt: skip


def kernel_more(made: Job) -> list[Sample]:
    pid = made.pid
    return [
        Sample(C.KERNEL_HUNG_TASK, f"INFO: task python:{pid} blocked for more than 120 seconds.",
               {"process": "python", "stuck_s": 120}, {"pid": pid}),
        Sample(C.KERNEL_LOCKUP, f"watchdog: BUG: soft lockup - CPU#31 stuck for 22s!"
                                f" [python:{pid}]",
               {"kind": "soft", "cpu": 31, "stuck_s": 22}, {"pid": pid}),
        Sample(C.KERNEL_LOCKUP, "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
               {"kind": "rcu_preempt"}),
        Sample(C.KERNEL_LINK, "mlx5_core 0000:5e:00.0 ens5np0: Link down",
               {"device": "0000:5e:00.0", "interface": "ens5np0", "link_state": "down"}),
        Sample(C.KERNEL_LINK, "mlx5_core 0000:5e:00.0: Port module event: module 0, Cable error,"
                              " No",
               {"port": 0, "detail": "Cable error, No"}),
        Sample(C.KERNEL_PCIE, "pcieport 0000:3a:00.0: AER: Uncorrected (Fatal) error received:"
               " 0000:3b:00.0", {"kind": "Uncorrected", "detail": "Fatal"}),
        Sample(C.KERNEL_PCIE, "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
               {"kind": "GPU has fallen off the bus"}),
        Sample(C.KERNEL_HARDWARE, "mce: [Hardware Error]: Machine check events logged",
               {"detail": "Machine check events logged"}),
        Sample(C.KERNEL_HARDWARE, "EDAC MC0: 1 UE memory read error on CPU_SrcID#0",
               {"kind": "UE", "number": 1}),
        Sample(C.KERNEL_NFS, "nfs: server store.example not responding, timed out",
               {"server": "store.example", "state": "not responding"}),
        Sample(C.KERNEL_SUSPEND, "PM: suspend entry (deep)", {"state": "entry"}),
    ]  # fmt: skip
