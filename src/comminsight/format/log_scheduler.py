"""Lines of what starts and ends processes: torchrun, mpirun, Slurm, Kubernetes, Ray, shells."""

from __future__ import annotations

from comminsight.format.log_pattern import table
from comminsight.model.log_event import LogCode as C

TASKS = r"tasks? (?P<tasks>\d{1,10}(?:[-,]\d{1,10}){0,2000})"
SIGNAL_NAME = r"(?P<signal_name>SIG[A-Z0-9]{1,12})"
# Python 3.11 writes the number of a signal where others write its name
SIGNAL = rf"(?:(?:Signals\.)?{SIGNAL_NAME}|(?P<signal>\d{{1,3}}))"
DIED = (
    r"(?P<signal_name>Killed|Terminated|Segmentation fault|Bus error|Aborted|Illegal instruction|"
    r"Floating point exception|Out Of Memory"
    r"|Out of memory)"
)
JOB_STATE = (
    r"(?P<state>OUT_OF_ME(?:MORY|\+)|NODE_FAIL|TIMEOUT|PREEMPTED|CANCELLED|FAILED|BOOT_FAIL|"
    r"DEADLINE)\+?"
)
SLURM_ROW = (
    rf"^ {{0,8}}(?P<job>\d[\w.+]{{0,64}})[ |].{{0,300}}?\b{JOB_STATE}[ |]{{1,20}}"
    r"(?P<exit_code>\d{1,3}):(?P<signal>\d{1,3})\b"
)
VARIABLE = (
    r"^(?:export |declare -x |-x )?(?P<name>(?:(?:TORCH|RCCL)_)?NCCL_\w{1,64}|CUDA_LAUNCH_BLOCKING)"
    r"=\"?(?P<value>[^\s\"]{0,200})\"?$"
)
# `ulimit -a` and /proc/PID/limits
LIMIT = (
    r"^(?P<name>[Mm]ax locked memory|open files|Max open files) {1,80}"
    r"(?:\((?:(?P<unit>\w{1,16}), )?-[ln]\) )?(?P<value>\d{1,20}|unlimited)\b"
)
# work that a rank does alone while the others wait: preparing data, saving, compiling, evaluating
WORK = (
    r"(?P<kind>Map|Filter|Tokeniz|tokeniz|Preprocess|preprocess|Building|building|Generating|"
    r"[Ss]aving|[Cc]ompiling|Capturing|Evaluating|Validating|Loading)"
)
DONE_PCT = r"(?P<done_pct>\d{1,3})(?:\.\d{1,3})? ?%"
PATTERNS = table(
    (C.ELASTIC_WORKER_FAILED, "(exitcode:",
     r"failed \(exitcode: (?P<exit_code>-?\d{1,6})\) local_rank: (?P<local_rank>\d{1,6}) \(pid: "
     r"(?P<pid>\d{1,10})\)"
     r"(?: of binary: (?P<file>[^\s]{1,250}))?"),
    (C.ELASTIC_CLOSING, "closing signal",
     rf"Sending process (?P<pid>\d{{1,10}}) closing signal {SIGNAL_NAME}"),
    (C.ELASTIC_CLOSING, "forcefully exiting",
     rf"Unable to shutdown process (?P<pid>\d{{1,10}}) via {SIGNAL}, forcefully"),
    (C.ELASTIC_STUCK, "did not exit after",
     rf"Process (?P<pid>\d{{1,10}}) did not exit after {SIGNAL} within "
     r"(?P<stuck_s>\d{1,10})"),
    (C.ELASTIC_RESTART, "will restart worker group",
     r"Worker group (?P<state>[A-Z]{1,16})\. (?P<n_left>\d{1,9})/(?P<n_attempts>\d{1,9}) "
     r"attempts left"),
    (C.ELASTIC_RESTART, "will restart worker group",
     r"Detected (?P<n_nodes>\d{1,7}) new nodes from group_rank=\d{1,9}; will restart"),
    (C.ELASTIC_SIGNALLED, "death signal",
     rf"Received {SIGNAL} death signal"),
    (C.ELASTIC_SIGNALLED, "got signal:",
     r"Process (?P<pid>\d{1,10}) got signal: (?P<signal>\d{1,3})"),
    (C.PYTHON_FATAL, "Fatal Python error", r"Fatal Python error: (?P<error>[\w ,.-]{1,160})"),
    (C.PROCESS_TERMINATE, "terminate called",
     r"terminate called after throwing an instance of '(?P<exception>[^']{1,160})'"),
    (C.PROCESS_SIGNAL, "Signal: ",
     r"\[(?P<host>[\w.-]{1,255}):(?P<pid>\d{1,10})\] Signal: (?P<signal_name>[A-Za-z ]{1,40}) \("
     r"(?P<signal>\d{1,3})\)"),
    (C.SPAWN_EXIT, "terminated with ",
     rf"(?:Process|process) (?P<local_rank>\d{{1,6}}) terminated with (?:exit code "
     rf"(?P<exit_code>-?\d{{1,6}})|signal {SIGNAL_NAME})"),
    (C.LAUNCHER_EXIT, "return code", r"exits with return code = (?P<exit_code>-?\d{1,6})"),
    (C.MPI_RANK_EXIT, "noticed that process rank",
     r"process rank (?P<task>\d{1,10}) with PID (?P<pid>\d{1,10}) on node "
     r"(?P<host>[\w.-]{1,255}) exited on signal (?P<signal>\d{1,3})(?: \("
     r"(?P<signal_name>[\w ]{1,40})\))?"),
    (C.MPI_ABORT, "MPI_ABORT was invoked",
     r"^MPI_ABORT was invoked on rank (?P<task>\d{1,10}) in communicator MPI_COMM_WORLD"),
    (C.MPI_ABORT, "application called MPI_Abort",
     r"Abort\((?P<exit_code>-?\d{1,10})\) on node \d{1,10} \(rank (?P<task>\d{1,10}) in comm 0\): "
     r"application called MPI_Abort\(MPI_COMM_WORLD"),
    (C.SLURM_TASK_EXIT, "srun: error",
     rf"srun: error: (?P<host>[^\s:]{{1,1024}}): {TASKS}: Exited with exit code "
     rf"(?P<exit_code>\d{{1,6}})"),
    (C.SLURM_TASK_KILLED, "srun: error",
     rf"srun: error: (?P<host>[^\s:]{{1,1024}}): {TASKS}: {DIED}"),
    (C.SLURM_NODE_FAILURE, "ode failure",
     r"(?:srun: error: |slurmstepd: error: )Node failure on (?P<host>[^\s]{1,1024})"),
    (C.SLURM_OOM, "oom",
     r"Detected (?P<n_events>\d{1,10}) oom[-_]kill event(?:\(s\))? in (?:StepId=|step )"
     r"(?P<step>\d{1,12}(?:[.+_]\w{1,32}){0,3})"),
    (C.SLURM_CANCELLED, "CANCELLED AT",
     r"\*\*\* (?:JOB|STEP) (?P<job>[\w.+]{1,64}) ON (?P<host>[^\s]{1,255}) CANCELLED AT "
     r"(?P<when>[\dT:-]{1,20})"
     r"(?: DUE TO (?P<reason>[A-Za-z ,]{1,60}))?"),
    *((C.SLURM_STATE, needle, SLURM_ROW) for needle in ("OUT_OF_ME", "NODE_FAIL", "FAILED")),
    (C.SHELL_SIGNAL, "(core dumped)",
     rf"(?:line \d{{1,6}}: {{1,4}}(?P<pid>\d{{1,10}}) )?{DIED} {{0,40}}\(core dumped\)"),
    (C.SHELL_SIGNAL, ": line ",
     rf": line \d{{1,6}}: {{1,4}}(?P<pid>\d{{1,10}}) {DIED}"),
    (C.K8S_REASON, "OOMKilled", r"\"?[rR]eason\"?: {0,20}\"?(?P<reason>OOMKilled)"),
    (C.K8S_REASON, "OOMKilled",
     r"^(?P<name>[\w.-]{1,253}) {1,80}\d{1,4}/\d{1,4} {1,40}(?P<reason>OOMKilled)\b"),
    (C.K8S_EXIT_CODE, "Exit Code:", r"Exit Code: {1,12}(?P<exit_code>\d{1,3})$"),
    (C.K8S_EXIT_CODE, "\"exitCode\"", r"\"exitCode\": ?(?P<exit_code>\d{1,3})\b"),
    (C.K8S_NODE_PRESSURE, "low on resource",
     r"node was low on resource: (?P<reason>[\w-]{1,64})"),
    (C.RAY_WORKER_DIED, "unexpected system error",
     r"A worker died or was killed while executing a task by an unexpected system error"
     r"(?:.{0,400}?Worker PID: (?P<pid>\d{1,10}))?(?:.{0,60}?Worker exit type: "
     r"(?P<worker_exit>\w{1,32}))?"),
    (C.RAY_OUT_OF_MEMORY, "due to memory pressure",
     r"killed due to memory pressure"),
    (C.PROCESS_DONE, "exits successfully",
     r"Process (?P<pid>\d{1,10}) exits successfully"),
    (C.LONG_WORK, "%", rf"\b{WORK}[\w ./:()=-]{{0,80}}?\b{DONE_PCT}"),
    (C.LONG_WORK, "aving ",
     r"\b(?P<kind>[Ss]aving) (?:the )?(?:model|optimizer|checkpoint|state|weights|dataset)"),
    (C.LONG_WORK, "heckpoint",
     r"\b(?P<kind>[Ss]aving|[Ss]aved) [\w /.-]{0,60}?[Cc]heckpoint"),
    (C.LONG_WORK, "ompiling ",
     r"\b(?P<kind>[Cc]ompiling) [\w ./:-]{0,40}?\b(?:graph|function|kernel|module|model|frame)"),
    (C.LONG_WORK, "AUTOTUNE", r"\bAUTOTUNE (?P<kind>\w{1,32})\("),
    *((C.HANG_SUSPECTED, needle,
       r"\b[Hh]ang (?:is |was )?(?:detected|suspected)|\b[Jj]ob (?:is |may be )?(?:hung|hanging)\b"
       r"|\b[Nn]o progress (?:for|in|since) (?:the last )?(?P<stuck_s>\d{1,9}) ?s")
      for needle in ("ang ", "ob ", "o progress ")),
    (C.HOST_INTERFACE, "mtu ",
     r"^ {0,4}\d{1,6}: (?P<interface>[\w.-]{1,32})(?:@[\w.-]{1,32})?: <[A-Z,_]{1,200}> mtu "),
    (C.HOST_ARCHITECTURE, "GNU/Linux",
     r"^Linux (?P<host>[\w.-]{1,255}) .{1,200} (?P<architecture>x86_64|aarch64|ppc64le) "
     r"GNU/Linux"),
    (C.SHM_FILESYSTEM, "dev/shm",
     r"^(?:shm|tmpfs|none) {1,40}(?P<capacity>\d{1,9}(?:\.\d)?[KMGT]?) .{1,80}% /dev/shm$"),
    *((C.ENVIRONMENT, needle, VARIABLE) for needle in ("NCCL_", "CUDA_LAUNCH_BLOCKING")),
    *((C.PROCESS_LIMIT, needle, LIMIT) for needle in ("locked memory", "pen files")),
    (C.SERVING_RATE, "generation throughput",
     r"generation throughput: (?P<tokens_per_s>\d{1,12}\.\d{1,6}) tokens/s"
     r"(?:.{0,40}?Running: (?P<n_running>\d{1,9}) reqs)?"
     r"(?:.{0,40}?(?:Waiting|Pending): (?P<n_waiting>\d{1,9}) reqs)?"),
    (C.SERVING_RATE, "gen throughput",
     r"(?:#running-req: (?P<n_running>\d{1,9}).{0,200}?)?"
     r"gen throughput \(token/s\): (?P<tokens_per_s>\d{1,12}\.\d{1,6})"
     r"(?:.{0,40}?#queue-req: (?P<n_waiting>\d{1,9}))?"),
)  # fmt: skip
