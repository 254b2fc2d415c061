"""Lines of the kernel log that end a process, a GPU or a link, or make a host stand still."""

from __future__ import annotations

from comminsight.format.log_pattern import table
from comminsight.model.log_event import LogCode as C

PCI = r"[0-9a-fA-F:.]{4,20}"
PATTERNS = table(
    (C.KERNEL_XID, "NVRM: Xid",
     rf"NVRM: Xid \(PCI:(?P<device>{PCI})\): (?P<xid>\d{{1,5}})"
     r"(?:, pid='?(?:(?P<pid>\d{1,10})|<unknown>)'?)?(?:, name=(?P<process>[^,]{1,64}))?(?:, "
     r"(?P<detail>.{1,160}))?"),
    (C.KERNEL_SXID, "SXid",
     rf"SXid \(PCI:(?P<device>{PCI})\): (?P<xid>\d{{1,6}})(?:, (?P<detail>.{{1,160}}))?"),
    (C.KERNEL_OOM_KILL, "Killed process",
     r"(?P<reason>Memory cgroup out of memory|Out of memory)[^:]{0,60}: Killed process "
     r"(?P<pid>\d{1,10})"
     r" \((?P<process>[^)]{1,64})\)(?:.{0,160}?anon-rss:(?P<rss_kib>\d{1,19})kB)?"),
    (C.KERNEL_OOM_INVOKED, "invoked oom-killer", r"(?P<process>[^\s]{1,64}) invoked oom-killer"),
    (C.KERNEL_SEGFAULT, "segfault at",
     r"(?P<process>[^\s\[]{1,64})\[(?P<pid>\d{1,10})\]: segfault at [0-9a-f]{1,16}(?:.{0,200}? "
     r"in (?P<library>[^\[\s]{1,128}))?"),
    (C.KERNEL_SEGFAULT, "general protection",
     r"traps: (?P<process>[^\s\[]{1,64})\[(?P<pid>\d{1,10})\] general protection"),
    (C.KERNEL_HUNG_TASK, "blocked for more than",
     r"INFO: task (?P<process>[^\s]{1,64}):(?P<pid>\d{1,10}) blocked for more than "
     r"(?P<stuck_s>\d{1,10}) seconds"),
    (C.KERNEL_LOCKUP, " lockup",
     r"BUG: (?P<kind>soft|hard) lockup.{0,20}?CPU ?#?(?P<cpu>\d{1,6})(?: stuck for "
     r"(?P<stuck_s>\d{1,10})s)?"
     r"(?:! \[(?P<process>[^:\]]{1,64}):(?P<pid>\d{1,10})\])?"),
    (C.KERNEL_LOCKUP, "detected stall", r"(?P<kind>rcu\w{0,16}) (?:self-)?detected stall"),
    (C.KERNEL_LINK, "ink ",
     rf"(?P<call>mlx5_core|mlx4_core|bnxt_en|ice|i40e|irdma) (?P<device>{PCI})(?: "
     rf"(?P<interface>[\w.]{{1,32}}))?"
     r".{0,30}?: (?:NIC )?Link (?P<link_state>[Dd][Oo][Ww][Nn]|[Uu][Pp])"),
    (C.KERNEL_LINK, "Port module event",
     rf"mlx5_core (?P<device>{PCI}):.{{0,40}}?Port module event.{{0,20}}?: module "
     rf"(?P<port>\d{{1,4}}), (?P<detail>[\w ,()-]{{1,100}})"),
    (C.KERNEL_PCIE, "AER:",
     r"AER: (?:Multiple )?(?P<kind>Correctable|Corrected|Uncorrected|Uncorrectable)(?: \("
     r"(?P<detail>[\w-]{1,20})\))? "
     rf"error.{{0,40}}?(?P<device>{PCI})?$"),
    (C.KERNEL_PCIE, "fallen off the bus",
     rf"NVRM: GPU (?P<device>{PCI}).{{0,20}}?(?P<kind>GPU has fallen off the bus)"),
    (C.KERNEL_HARDWARE, "Hardware Error]", r"\[Hardware Error\]: (?P<detail>.{1,160})"),
    (C.KERNEL_HARDWARE, "EDAC",
     r"EDAC (?P<device>\w{1,16}): (?P<number>\d{1,10}) (?P<kind>UE|CE)\b"),
    (C.KERNEL_NFS, "nfs: server",
     r"nfs: server (?P<server>[^\s]{1,255}) (?P<state>not responding|OK)"),
    (C.KERNEL_SUSPEND, "PM: suspend", r"PM: suspend (?P<state>entry|exit)"),
)  # fmt: skip
