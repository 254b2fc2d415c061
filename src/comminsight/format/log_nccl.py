"""Lines of NCCL and RCCL: the header, and a table of what stands behind it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from comminsight.format.log_pattern import Values, first_match, hex_number, table, words
from comminsight.model.log_event import LogCode as C
from comminsight.model.log_event import LogValue

HEADER = re.compile(
    r"(?<![\w.-])(?P<host>[\w.-]{1,255}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) \[-?\d{1,4}\] (?:"
    r"(?P<source>[^\s:]{1,250}:\d{1,6}) )?NCCL (?P<level>INFO|WARN) ",
    re.ASCII,
)
HEX = r"(?:0x)?[0-9a-f]{1,16}(?!\w)|\(nil\)"
COMM = rf"comm (?P<comm>{HEX}) rank (?P<comm_rank>\d{{1,10}}) n[rR]anks (?P<n_ranks>\d{{1,10}})"
DEVICE = (
    r"cudaDev (?P<cuda_device>-?\d{1,6})(?: nvmlDev (?P<nvml_device>-?\d{1,6}))? "
    rf"busId (?P<bus_id>{HEX})"
)
PARENT = (
    rf"(?: parent (?P<parent>{HEX}))?(?: (?:childCount|splitCount) (?P<child_count>\d{{1,9}}))?"
    r"(?: color -?\d{1,10})?(?: key -?\d{1,10})?"
)
HASH = rf"(?: commId (?P<comm_hash>{HEX}))?"
PEER = r"(?P<peer>[\w.:%-]{1,255})(?:<(?P<port>\d{1,5})>)?"
OP = (
    r"(?P<op>AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|Send|Recv|AlltoAll|"
    r"AllToAll\w{0,4}|Gather|Scatter)"
)
GID = r"[0-9a-f:.]{1,45}"

INFO = table(
    (C.NCCL_COLL, "opCount ",
     rf"{OP}: opCount (?P<op_count>[0-9a-f]{{1,16}}) sendbuff (?:{HEX}) recvbuff (?:{HEX})"
     r" (?:acc (?:0x[0-9a-f]{1,16}|\(nil\)) )?count (?P<count>\d{1,20}) datatype "
     r"(?P<datatype>\d{1,3})"
     rf" op (?P<red_op>\d{{1,10}}) root (?P<root>-?\d{{1,10}}) comm (?P<comm>{HEX})"
     rf"(?: \[nranks=(?P<n_ranks>\d{{1,10}})\])?(?: stream (?P<stream>{HEX}))?"),
    (C.NCCL_CHANNEL, " via ",
     r"Channel (?P<channel>\d{1,6})(?:/\d{1,6})? ?: (?P<from_rank>\d{1,10})"
     r"(?:\[[0-9a-f]{1,16}\])? -> (?P<to_rank>\d{1,10})(?:\[[0-9a-f]{1,16}\])?(?: \["
     r"(?P<direction>send|receive)\])? via "
     r"(?P<transport>NET/[\w .-]{1,48}/\d{1,4}[\w/()-]{0,48}|[\w/()-]{1,64})"),
    (C.NCCL_CHANNEL_RANKS, "Channel ",
     r"Channel (?P<channel>\d{1,6})/\d{1,6} ?: {1,12}(?P<ranks>\d{1,10}(?: "
     r"{1,12}\d{1,10}){0,4096})$"),
    (C.NCCL_RING, "Ring ",
     r"Ring (?P<channel>\d{1,6}) : (?P<prev_rank>-?\d{1,10}) -> (?P<comm_rank>\d{1,10}) -> "
     r"(?P<next_rank>-?\d{1,10})"),
    (C.NCCL_TREES, "Trees [", r"Trees (?P<tree>\[\d{1,6}\] [-\d/>\[\] ]{1,4096})"),
    (C.NCCL_CONNECTED, "Connected all", r"Connected all (?P<kind>rings|trees)"),
    (C.NCCL_INIT_START, "Init START", rf"{COMM} {DEVICE}{PARENT}{HASH} ?- Init START"),
    (C.NCCL_INIT_COMPLETE, "Init COMPLETE",
     rf"{COMM} {DEVICE}{PARENT}{HASH}(?: localSize \d{{1,10}} used \d{{1,20}} bytes)? ?- Init "
     rf"COMPLETE"),
    (C.NCCL_DESTROY, "Destroy COMPLETE", rf"{COMM} {DEVICE} - Destroy COMPLETE"),
    (C.NCCL_ABORT, "Abort COMPLETE", rf"{COMM} {DEVICE} - Abort COMPLETE"),
    (C.NCCL_COMM_LAYOUT, "nNodes",
     rf"{COMM} nNodes (?P<n_nodes>\d{{1,10}}) localRanks (?P<local_ranks>\d{{1,10}})"
     r" localRank (?P<comm_local_rank>\d{1,10})"),
    (C.NCCL_INIT_TIMINGS, "Init timings",
     r"Init timings - (?P<call>\w{1,64}): rank (?P<comm_rank>\d{1,10}) nranks "
     r"(?P<n_ranks>\d{1,10}) total (?P<total_s>\d{1,9}\.\d{1,9})"),
    (C.NCCL_ENV, " set ",
     r"(?P<name>(?:NCCL|RCCL)_[A-Z0-9_]{1,64}) set (?:by environment )?to "
     r"(?P<value>[^\s]{1,256}?)\.?$"),
    (C.NCCL_BOOTSTRAP, "Bootstrap",
     r"Bootstrap ?: Using (?P<interface>[^\s:]{1,64}):(?P<address>[0-9a-fA-F.:%]{1,64})"),
    (C.NCCL_NETWORK, "Using network", r"Using network (?P<network>[\w /.-]{1,64})"),
    (C.NCCL_NETWORK, "NET plugin", r"Assigned NET plugin (?P<network>[\w/.-]{1,64}) to comm"),
    (C.NCCL_NO_IB, "NET/IB", r"NET/IB ?: No device found"),
    (C.NCCL_IB_DEVICES, "NET/IB",
     r"NET/IB ?: Using (?P<devices>\[\d{1,4}\][^;]{1,4096})(?:; OOB "
     r"(?P<interface>[^\s:]{1,64}):)?"),
    (C.NCCL_IB_MADE, "Made virtual device",
     r"NET/IB ?: Made virtual device \[(?P<number>\d{1,4})\] name=(?P<name>[\w.+-]{1,250})(?= )"),
    (C.NCCL_SOCKET_DEVICES, "NET/Socket",
     r"NET/Socket ?: Using (?P<devices>\[\d{1,4}\].{1,4096})"),
    (C.NCCL_GPU_DIRECT, "GPU Direct RDMA",
     r"GPU Direct RDMA (?P<state>Enabled|Disabled) for (?:HCA|GPU) (?P<device>[\w '/]{1,64})"),
    (C.NCCL_PLUGIN_FAILED, "version `",
     r"(?<![\w./-])(?P<library>[\w./-]{1,256}): version `(?P<version>[\w.]{1,64})' not found"),
    (C.NCCL_PLUGIN_FAILED, "symbol",
     r"[Ff]ailed to find (?P<library>\w{1,64}) symbol"),
    (C.NCCL_PLUGIN_FAILED, "Plugin load",
     r"NET/Plugin ?: Plugin load \((?P<library>[\w./-]{1,256})\) returned (?P<result>\d{1,6}) ?: "
     r"(?P<error>.{1,300})"),
    (C.NCCL_PLUGIN_NONE, "Plugin",
     r"NET/Plugin ?: (?:No plugin found|Could not find: ?(?P<library>[\w./ -]{0,256}))"),
    (C.NCCL_AFFINITY, "Setting affinity",
     r"Setting affinity for GPU (?P<cuda_device>\d{1,6}) to (?P<mask>[\w,-]{1,1024})"),
    (C.NCCL_CHANNELS, "coll channels",
     r"(?P<n_coll_channels>\d{1,6}) coll channels,.{1,100}? (?P<n_p2p_channels>\d{1,6}) p2p "
     r"channels"),
    (C.NCCL_GRAPH, "Pattern ",
     r"Pattern (?P<pattern>\d{1,4}), crossNic \d{1,4}, nChannels (?P<n_channels>\d{1,6}), (?:bw|"
     r"speed) (?P<value>[\d./]{1,32}), type (?P<kind>[\w/]{1,32})"),
    (C.NCCL_TUNING, "Bytes -> Algo",
     rf"(?:{OP}: )?(?P<n_bytes>\d{{1,20}}) Bytes -> Algo (?P<algo>\w{{1,32}}) proto "
     rf"(?P<proto>\w{{1,32}})"),
    (C.NCCL_TUNING, "[Symmetric]",  # symmetric memory: a kernel of its own, no protocol
     rf"{OP} \[Symmetric\]: (?P<n_bytes>\d{{1,20}}) Bytes -> Kernel [A-Za-z]{{1,32}}_"
     r"(?P<algo>\w{1,64}) nchannels (?P<n_channels>\d{1,6})"),
    (C.NCCL_PEER_ACCESS, "Could not enable P2P",
     r"Could not enable P2P between dev (?P<device>[\w()=]{1,64}) and dev (?P<peer>[\w()=]{1,64})"),
    (C.NCCL_PEER_ACCESS, "P2P is disabled",
     r"P2P is disabled between .{0,40}?GPUs (?P<device>\d{1,6}) and (?P<peer>\d{1,6})"),
    (C.NCCL_SERVICE_CLOSED, "Connection closed by localRank",
     r"Connection closed by localRank (?P<comm_local_rank>\d{1,10})"),
    (C.NCCL_RESULT_PATH, " -> ",
     r"(?:^|\s)(?P<source>[^\s:]{1,250}:\d{1,6}) -> (?P<result>\d{1,3})(?:\s|$)"),
)  # fmt: skip

WARN = table(
    (C.NCCL_IB_COMPLETION, "Got completion from peer",
     rf"Got completion from peer {PEER} with (?:error|status=) ?(?:IBV_\w{{1,64}}\()?"
     rf"(?P<status>\d{{1,6}})"
     r"\)?.{0,120}?vendor[ _]err[ =](?P<vendor_error>\d{1,10})"
     rf"(?:.{{0,60}}?localGid ?(?P<local_gid>{GID}))?(?:.{{0,20}}?remoteGids? ?"
     rf"(?P<remote_gid>{GID}))?"
     r"(?:.{0,20}?hca (?P<device>[\w.]{1,64}))?"),
    (C.NCCL_IB_COMPLETION, "Got completion from peer",
     rf"Got completion from peer {PEER} with (?:error|status=) ?(?:IBV_\w{{1,64}}\()?"
     rf"(?P<status>\d{{1,6}})"),
    (C.NCCL_IB_EVENT, "async ",
     r"NET/IB ?: (?P<device>[\w.]{1,64}):(?P<port>\d{1,5}) (?:Got )?async (?:fatal )?event"
     r"(?: on \w{1,16})? ?: ?(?P<event>[\w ]{1,100})"),
    (C.NCCL_QP_MODIFY, "ibv_modify_qp",
     r"ibv_modify_qp failed with (?:error )?(?:(?P<number>\d{1,5}) )?(?P<error>[A-Za-z ]{1,80})"
     r"(?:,? errno \d{1,5})?(?:, on dev (?P<device>[\w.]{1,64}):(?P<port>\d{1,5}))?"
     r"(?:.{0,80}?local GID index (?P<gid_index>\d{1,5}))?"
     rf"(?:.{{0,10}}?local GID (?P<local_gid>{GID}))?(?:.{{0,10}}?remote GID "
     rf"(?P<remote_gid>{GID}))?"),
    (C.NCCL_IB_CALL, "ibv_",
     r"Call to (?P<call>ibv_\w{1,64}) failed(?: with)?(?: error)?:? ?(?P<error>.{0,160})"),
    (C.NCCL_FD_LIMIT, "Too many open files",
     r"(?:Call to (?P<call>\w{1,64}) failed|[\w: ]{1,80}?) ?: ?Too many open files"),
    (C.NCCL_SHM, "shared memory segment",
     r"shared memory segment (?P<file>[^\s]{1,250}) \(size (?P<size_bytes>\d{1,20})\)"
     r"(?:, error: (?P<error>[A-Za-z ]{1,80}))?"),
    (C.NCCL_SHM, "failed to extend",
     r"failed to extend (?P<file>/dev/shm/[^\s]{1,250}) to (?P<size_bytes>\d{1,20}) bytes(?:, "
     r"error: (?P<error>[A-Za-z ]{1,80}))?"),
    (C.NCCL_SHM, "posix_fallocate", r"Call to posix_fallocate failed ?: (?P<error>.{1,80})"),
    (C.NCCL_NO_INTERFACE, "ocket interface found", r"[nN]o socket interface found"),
    (C.NCCL_NO_NET, "Could not find NET", r"Could not find NET with id (?P<number>\d{1,19})"),
    (C.NCCL_DUPLICATE_GPU, "uplicate GPU",
     r"Duplicate GPU detected ?: rank (?P<comm_rank>\d{1,10}) and rank "
     r"(?P<other_comm_rank>\d{1,10})"
     rf" both on (?:CUDA|HIP) device (?P<bus_id>{HEX})"),
    (C.NCCL_CUDA_FAILURE, " failure ",
     r"(?:Cuda|CUDA|HIP) failure (?:(?P<number>\d{1,6}) )?'(?P<error>[^']{1,160})'"),
    (C.NCCL_OUT_OF_MEMORY, "ailed to ",
     r"[Ff]ailed to (?P<call>(?:CUDA |cuda)?\w{0,8}alloc(?:ate)?(?: async)?) "
     r"(?P<size_bytes>\d{1,20})"),
    (C.NCCL_WRONG_MAGIC, "wrong magic", r"wrong magic [0-9a-f]{1,16} != [0-9a-f]{1,16}"),
    (C.NCCL_SIZE_MISMATCH, "bytes instead of",
     r"(?:received|receiving) (?P<received_bytes>\d{1,20}) bytes instead of "
     r"(?P<expected_bytes>\d{1,20})"),
    (C.NCCL_SIZE_MISMATCH, "ollective mismatch",
     r"[cC]ollective mismatch(?: error)?, local (?:size )?(?P<local_size_bytes>\d{1,20}),? "
     r"remote (?:size )?(?P<remote_size_bytes>\d{1,20})"),
    (C.NCCL_COLL_MISMATCH, "Mismatched collective",
     r"Mismatched collective detected.{0,120}? rank (?P<near_rank>\d{1,10})"),
    (C.NCCL_CONNECTION_CLOSED, "Connection closed by remote peer",
     rf"Connection closed by remote peer(?: {PEER})?"),
    (C.NCCL_CONNECT_FAILED, "onnect to ",
     rf"Connect to {PEER} (?:failed ?: (?P<error>[\w ]{{1,80}})|returned (?P<number>\d{{1,5}})\("
     rf"(?P<error_name>[\w ]{{1,80}})\))"),
    (C.NCCL_CONNECT_FAILED, "Call to connect",
     r"Call to connect (?:returned|failed:?) (?P<error>[\w ]{1,80})"),
    (C.NCCL_SOCKET_FAILED, "Call to ",
     rf"Call to (?P<call>recv|send|accept|poll|bind|listen|getsockopt|socket)(?: (?:from|to) "
     rf"{PEER})?"
     r" failed(?: with error)? ?:? ?(?P<error>[\w ]{1,80})"),
    (C.NCCL_INVALID_ARGUMENT, " : ",
     r"(?P<call>\w{1,64}) : (?:invalid (?P<name>\w{1,32}) (?P<number>-?\d{1,19})"
     r"|(?P<error>\w{1,32} argument \w{1,32}|\w{1,32} 0x[0-9a-f]{1,16} is not a valid pointer))"),
    (C.NCCL_PROXY_FAILED, "retcode",
     r"Failed to execute operation (?P<op>\w{1,32}) from rank (?P<comm_rank>\d{1,10}), retcode "
     r"(?P<result>\d{1,6})"),
    (C.NCCL_PROXY_FAILED, "ncclProxy",
     r"(?P<call>ncclProxy\w{1,64}) call to tp[rR]ank (?P<peer_rank>\d{1,10}).{0,80}? failed ?: "
     r"(?P<result>\d{1,6})"),
)  # fmt: skip

# rows that are unmistakable without a header: PyTorch repeats the last warning alone on a line
BARE = tuple(
    one
    for one in WARN
    if one.code
    in {
        C.NCCL_IB_COMPLETION, C.NCCL_QP_MODIFY, C.NCCL_IB_CALL, C.NCCL_SHM, C.NCCL_NO_NET,
        C.NCCL_DUPLICATE_GPU, C.NCCL_COLL_MISMATCH, C.NCCL_CONNECTION_CLOSED,
    }
)  # fmt: skip
VERSION = table(
    (C.NCCL_VERSION, "CCL version",
     r"(?:N|R)CCL version ?:? (?P<version>\d{1,3}\.\d{1,3}[\w.+:-]{0,80})(?:\s|$)"),
)  # fmt: skip

WARN_FIRST = WARN + INFO + VERSION
INFO_FIRST = INFO + WARN + VERSION


def body(text: str, level: str, *, is_torn: bool = False) -> tuple[C, Values] | None:
    """Code and values of what stands behind the header; a warning that no row knows is one too.

    Raises AbsurdNumberError for a number that cannot be.
    """
    found = None if is_torn or level == "WARN" else _call(text)
    if found is None:
        found = first_match(WARN_FIRST if level == "WARN" else INFO_FIRST, text, is_torn=is_torn)
    if found is None and level == "WARN":
        found = C.NCCL_WARN, {"message": words(text)}
    if found is not None:
        found[1]["level"] = level
    return found


COUNTED = ": opCount "
COUNT = re.compile(r"[0-9a-f]{1,16}", re.ASCII)


def _call(text: str) -> tuple[C, Values] | None:
    """The call in a line; None where only the whole table tells what it is. A program makes the
    same calls again and again, and their lines differ in their number alone."""
    before, counted, rest = text.partition(COUNTED)
    number, blank, behind = rest.partition(" ")
    if not counted or not blank or COUNTED in behind or not COUNT.fullmatch(number):
        return None
    alike = _call_like(before, behind)
    return None if alike is None else (C.NCCL_COLL, {**alike, "op_count": hex_number(number)})


@lru_cache(maxsize=1 << 11)
def _call_like(before: str, behind: str) -> Mapping[str, LogValue] | None:
    """The values of a call whose line has these parts around its number."""
    found = first_match(INFO_FIRST, f"{before}{COUNTED}0 {behind}")
    return found[1] if found is not None and found[0] is C.NCCL_COLL else None
