"""Lines of PyTorch: watchdog, heartbeat, store, gloo, desync report, CUDA; and Ascend's codes.

An echo repeats an earlier line of its own process, or reports that another rank said it first. Each
has a code of its own, so that nobody counts it as a second finding.
"""

from __future__ import annotations

from comminsight.format.log_pattern import Pattern, Values, table
from comminsight.model.log_event import LogCode as C

PG = (
    r"\[PG (?:ID )?(?P<pg_id>\d{1,10})(?: PG GUID (?P<pg_guid>[\w.:/-]{1,128}?))? ?"
    r"(?:\((?P<pg>[^()]{1,128})\))? Rank (?P<comm_rank>\d{1,10})\]"
)
ANY_PG = rf"(?:{PG}.{{0,8}})?"
WORK = (
    r"Work\w{0,8}CCL\w{0,4}\((?:SeqNum=(?P<seq>\d{1,20}), )?OpType=(?P<op>\w{1,64})"
    r"(?:, TensorShape=\[(?P<shape>[\d, ]{0,200})\])?"
    r"(?:, NumelIn=(?P<numel_in>\d{1,20}), NumelOut=(?P<numel_out>\d{1,20}))?"
    r", Timeout\(ms\)=(?P<timeout_ms>\d{1,20})\)"
)
GROUP_RANK = r"(?:\[Rank (?P<comm_rank>\d{1,10})\] )?"
TIMEOUT = (
    rf"Watchdog caught collective operation timeout: {WORK}"
    r"(?: ran for (?P<ran_ms>\d{1,20}) milliseconds)?"
)
ENDED = rf"{ANY_PG}(?:\w{{1,16}} ){{0,3}}watchdog thread terminated with exception: "
ITS_TIMEOUT = r"\[(?:PG [^\]]{1,200} )?Rank \d{1,10}\] Watchdog caught.{0,200}"
# a fault that the watchdog found stands behind its rank: it is no echo
FAULT_OF = r"(?:\[(?:PG [^\]]{1,200} )?Rank (?P<comm_rank>\d{1,10})\] .{0,100}?)?"
ENQUEUED = r"[Ll]ast enqueued (?:\w{1,8} )?work: (?P<last_enqueued>-?\d{1,20})"
COMPLETED = (
    r"(?:, last started work: (?P<last_started>-?\d{1,20})(?: \(\w{1,64}\))?)?"
    r", last completed (?:\w{1,8} )?work: (?P<last_completed>-?\d{1,20})"
)
FINGERPRINT = (
    r"CollectiveFingerPrint\((?:SequenceNumber=(?P<{0}seq>\d{{1,20}}),? ?)?"
    r"OpType=(?P<{0}op>[A-Z_]{{1,64}})(?:, TensorShape=\[(?P<{0}shape>[\d, ]{{0,200}})\])?(?:, "
    r"TensorDtypes=(?P<{0}dtype>\w{{1,32}}))?"
)
GUESSED = (
    r"[Uu]sing (?:GPU|device) (?P<cuda_device>\d{1,6}) (?:to perform barrier as devices|as device) "
    r"used by this process"
)
RANKS = r"\[(?P<ranks>[\d, ]{1,8192})\]"
ADDRESS = r"\(?\[?(?P<address>[\w.:%-]{1,255}?)\]?[,:] ?(?P<port>\d{1,5})"


def without_garbage(values: Values) -> None:
    """PyTorch 2.3 printed a counter that it had not set: completed beyond what was enqueued."""
    done, enqueued = values.get("last_completed"), values.get("last_enqueued")
    if isinstance(done, int) and isinstance(enqueued, int) and done > enqueued:
        del values["last_completed"]


WATCHDOG = table(
    (C.TORCH_WATCHDOG_ECHO, "terminated with exception", rf"{ENDED}(?P<message>{ITS_TIMEOUT})"),
    (C.TORCH_WATCHDOG_ECHO, "what():", rf"what\(\): {{1,4}}(?P<message>{ITS_TIMEOUT})"),
    (C.TORCH_WATCHDOG_TIMEOUT, "collective operation timeout", GROUP_RANK + TIMEOUT),
    (C.TORCH_ASYNC_ERROR, "async exception",
     rf"{GROUP_RANK}(?:Collective {WORK} raised|Found).{{0,40}}? async exception: "
     rf"(?P<message>.{{0,400}})"),
    (C.TORCH_DUMP_SIGNAL, "Received a dump signal",
     rf"{ANY_PG}Received a dump signal due to a collective timeout from "
     rf"(?: ?rank (?P<signalling_rank>\d{{1,10}})|(?P<reason>this local "
     rf"rank)).{{0,200}}?{ENQUEUED}{COMPLETED}"),
    (C.TORCH_PROGRESS, "ast enqueued",
     rf"{ANY_PG}(?:Timeout at \w{{1,8}} work|Exception \(either an error or timeout\) detected by "
     rf"watchdog at work"
     r"|failure detected by watchdog at work sequence id): (?P<seq>\d{1,20})"
     rf"[, ](?: PG status:|PG status:)? ?{ENQUEUED}{COMPLETED}"),
    (C.TORCH_FIRST_SIGNAL, "First PG on this rank",
     rf"{ANY_PG}First PG on this rank (?P<reason>to signal dumping|that detected no heartbeat)"),
    (C.TORCH_SIGNAL_SEEN, "dump signal from another rank",
     rf"{ANY_PG}Observed flight recorder dump signal"),
    (C.TORCH_WATCHDOG_STUCK, "watchdog got stuck",
     rf"{ANY_PG}ProcessGroup\w{{1,16}}'s watchdog got stuck for (?P<stuck_s>\d{{1,10}}) seconds"),
    (C.TORCH_WATCHDOG_STUCK, "Heartbeat monitor timed out",
     rf"{ANY_PG}Heartbeat monitor timed out"),
    (C.TORCH_GIL_HELD, "acquire GIL",
     rf"{ANY_PG}Could not acquire GIL within (?P<waited_ms>\d{{1,10}}) ms"),
    (C.TORCH_TAKEN_DOWN, "entire process down", rf"{GROUP_RANK}To avoid data inconsistency"),
    (C.TORCH_TAKEN_DOWN, "after attempting to dump",
     rf"{ANY_PG}Terminating the process after attempting to dump debug info, due to "
     rf"(?P<reason>[\w ']{{1,100}})"),
    (C.TORCH_DESYNC_ABSENT, "join collective",
     rf"{RANKS} finished collective #(?P<last_completed>\d{{1,20}}), but didn't join collective "
     rf"#(?P<seq>\d{{1,20}})"),
    (C.TORCH_DESYNC_ABSENT, "never joined any collective",
     rf"{RANKS}.{{0,80}}never joined any collective"),
    (C.TORCH_DESYNC_STUCK, "joined but didn't finish",
     rf"{RANKS} joined but didn't finish collective #(?P<seq>\d{{1,20}})"),
    (C.TORCH_DESYNC_TIMEOUT, "Timeout at collective",
     r"\[(?P<comm_rank>\d{1,10})\] Timeout at collective: (?P<op>\w{1,64}), #(?P<seq>\d{1,20})"),
)  # fmt: skip

OTHERS = table(
    (C.TORCH_MISMATCH, "mismatch between collectives",
     r"Rank (?P<comm_rank>\d{1,10}) is running (?:inconsistent )?collective: "
     + FINGERPRINT.format("")
     + r"(?:.{0,400}?but Rank (?P<other_comm_rank>\d{1,10}) is running collective: "
     + FINGERPRINT.format("other_") + r")?"),
    (C.TORCH_BARRIER_FAILED, "monitoredBarrier",
     r"Ranks? (?P<ranks>\d{1,10}(?:, \d{1,10}){0,4096}) failed to pass monitoredBarrier in "
     r"(?P<timeout_ms>\d{1,20}) ms"),
    (C.TORCH_BARRIER_FAILED, "monitoredBarrier",
     r"Rank (?P<comm_rank>\d{1,10}) timed out in monitoredBarrier after (?P<timeout_ms>\d{1,20})"),
    (C.TORCH_BARRIER_REACHED, "reached monitoredBarrier",
     r"Rank (?P<comm_rank>\d{1,10}) successfully reached monitoredBarrier, but received errors "
     r"while waiting for send/recv from rank (?P<other_comm_rank>\d{1,10})"),
    (C.TORCH_NCCL_ERROR, "NCCL error",
     FAULT_OF +
      r"NCCL error(?: in)?: (?:(?P<source>[^\s]{1,250}:\d{1,6}), )?(?P<error>[\w ]{1,100})"
     r"(?:.{0,100}?NCCL version (?P<version>\d{1,3}[\w.]{1,32}))?"),
    (C.TORCH_NCCL_RESULT, "nccl",
     r"^(?P<error_name>nccl(?:UnhandledCuda|System|Internal|Remote)Error|ncclInvalid(?:Usage|"
     r"Argument)): "),
    (C.TORCH_UNIQUE_ID, "ncclUniqueId",
     r"\[(?P<comm_rank>\d{1,10})\] is setting up NCCL communicator and retrieving ncclUniqueId "
     r"from "
     r"\[(?P<other_comm_rank>\d{1,10})\] via c10d key-value store by key '(?P<key>[^']{1,200})'"
     r"(?:.{0,200}?got error: (?P<error>.{1,200}))?"),
    (C.TORCH_STORE_TIMEOUT, "wait timeout after",
     r"wait timeout after (?P<timeout_ms>\d{1,20})ms, keys: (?P<keys>.{1,200})"),
    (C.TORCH_STORE_CLIENTS, "waiting for clients",
     r"Timed out after (?P<timeout_s>\d{1,10}) seconds waiting for clients\. "
     r"(?P<n_joined>\d{1,10})/(?P<n_expected>\d{1,10}) clients joined"),
    (C.TORCH_STORE_LOST, "SocketImpl(",
     r"(?P<call>sendBytes|recvBytes|recvValue|recvVector|waitForInput|readable)\w{0,32} failed on "
     r"SocketImpl\("
     r".{1,200}?\)\)?: (?P<error>.{1,100})"),
    (C.TORCH_CLIENT_TIMEOUT, "client socket has timed out",
     rf"client socket has timed out after (?P<duration_ms>\d{{1,12}}\w{{0,8}}) while trying to "
     rf"connect to {ADDRESS}"),
    (C.TORCH_CLIENT_FAILED, "client socket has failed",
     rf"client socket has failed to connect to (?:any network address of )?{ADDRESS}"
     r"\)?(?: \(errno: (?P<number>\d{1,5}) - (?P<error>[\w ]{1,80})\))?"),
    (C.TORCH_SERVER_LISTENS, "server socket has started",
     rf"server socket has started to listen on {ADDRESS}"),
    (C.TORCH_BIND_FAILED, "server socket has failed",
     rf"server socket has failed to (?:bind|listen)(?: to| on) {ADDRESS}"
     r"(?: \(errno: (?P<number>\d{1,5}) - (?P<error>[\w ]{1,80})\))?"),
    *((C.TORCH_DEVICE_GUESSED, needle, GUESSED) for needle in ("perform barrier", "as device")),
    (C.GLOO_SIZE_MISMATCH, "op.preamble",
     r"op\.preamble\.length <= op\.nbytes\. (?P<received_bytes>\d{1,20}) vs "
     r"(?P<expected_bytes>\d{1,20})"),
    (C.GLOO_CLOSED, "by peer",
     r"gloo/transport/.{1,64}?\] (?P<error>Connection closed by peer)"
     r"(?: \[(?P<peer>[0-9a-fA-F.:]{1,64})\]:(?P<port>\d{1,5}))?"),
    (C.GLOO_CLOSED, " error [",
     r"gloo/transport/.{1,64}?\] (?:Read|Write) error \[(?P<peer>[0-9a-fA-F.:]{1,64})\]"
     r":(?P<port>\d{1,5}): (?P<error>[\w ]{1,80})"),
    (C.GLOO_TIMEOUT, "Timed out waiting",
     r"Timed out waiting (?P<waited_ms>\d{1,20})ms for (?P<direction>send|recv) operation to "
     r"complete"),
    (C.GLOO_TIMEOUT, "pair closure", r"Application timeout caused pair closure"),
    (C.GLOO_CONNECT_FAILED, "connectFullMesh",
     r"Gloo connectFullMesh failed with (?P<error>.{1,200})"),
    (C.GLOO_CONNECT_FAILED, "SO_ERROR",
     r"SO_ERROR: (?P<error>[\w ]{1,80}), remote=\[(?P<peer>[0-9a-fA-F.:]{1,64})\]"),
    (C.CUDA_OUT_OF_MEMORY, "CUDA out of memory",
     FAULT_OF +
      r"CUDA out of memory(?:\. Tried to allocate (?P<wanted_bytes>[\d.]{1,20} [KMGT]?i?B))?"
     r"(?:\. GPU (?P<cuda_device>\d{1,6}) )?"),
    (C.CUDA_OUT_OF_MEMORY, "CUDA error: out of memory", FAULT_OF + r"CUDA error: out of memory"),
    (C.CUDA_ERROR, "CUDA error:", FAULT_OF + r"CUDA error: (?P<error>[\w :,()-]{1,160})"),
    (C.TORCH_WATCHDOG_DIED, "terminated with exception", rf"{ENDED}(?P<message>.{{0,400}})"),
    (C.ASCEND_ERROR, "EI00",
     r"\b(?P<error_name>EI00\d\d)\b(?:.{0,400}?remote rank ?(?:id)? ?[:=\[(]? ?"
     r"(?P<remote_rank>\d{1,10}))?"
     r"(?:.{0,400}?local rank ?(?:id)? ?[:=\[(]? ?(?P<comm_rank>\d{1,10}))?"),
)  # fmt: skip

PATTERNS = tuple(
    Pattern(one.code, one.needle, one.regex, without_garbage)
    if one.code in {C.TORCH_PROGRESS, C.TORCH_DUMP_SIGNAL}
    else one
    for one in WATCHDOG + OTHERS
)
