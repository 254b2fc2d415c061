"""Names that a colleague elsewhere need not see, replaced alike wherever they stand.

``host-1``, ``user-1``; addresses become others of the ranges that are reserved for tests and
documentation, so that logs still read; of a path its last part is left (``.../train.py``). What a
name is is learnt first, from fields that hold one and from places of logs where one stands; only
then are texts masked, so that a name is also found where nothing tells that it is one.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator

HOST_KEYS = frozenset(
    {"host", "hostname", "hosts", "nodes", "MASTER_ADDR", "HOSTNAME", "GLOO_SOCKET_HOST"}
)
USER_KEYS = frozenset({"user", "username", "USER", "LOGNAME"})
PATH_KEYS = frozenset({"spool", "path", "filename", "file", "COMMINSIGHT_SPOOL"})
NOT_PRIVATE = frozenset({"", "localhost", "root", "nobody", "none", "unknown", "node", "host"})
PUBLIC = frozenset({"com", "org", "net", "edu", "io", "cn", "de"})
_FIRST_MASK = ipaddress.IPv4Address("255.0.0.0")
_EXPLODED_CHARS = 39
KERNEL_TREES = ("/dev/", "/proc/", "/sys/")
MAX_NAME_CHARS = 255

_NAME = r"[A-Za-z0-9][\w.-]{0,254}"
# where a host stands in what jobs, schedulers and kernels write, and what a text must hold for it
_HOST_PLACES = tuple(
    (gate, re.compile(pattern, re.MULTILINE | re.ASCII))
    for gate, pattern in (
        ("] ", rf"(?:^|[\s>\]])({_NAME}):\d{{1,10}}:\d{{1,10}} \[-?\d{{1,4}}\] "),
        (
            "",
            rf"^[A-Z][a-z]{{2}} {{1,2}}\d{{1,2}} [\d:]{{8}}(?:\.\d+)? ({_NAME}) "
            r"[\w./@-]+(?:\[\d+\])?:",
        ),
        ("", rf"^\d{{4}}-\d\d-\d\dT\S{{8,32}} ({_NAME}) [\w./@-]+(?:\[\d+\])?:"),
        ("task", rf"(?:srun|slurmstepd)(?:-[\w.]+)?: (?:error|task|Job)?:? ?({_NAME}): task"),
        ("-", rf"^(?:slurmstepd|srun)-({_NAME}):"),
        (" ON ", rf" ON ({_NAME}) CANCELLED"),
        ("host", rf"^\s*host\s*: ({_NAME})"),
        (
            "",
            r"(?:MASTER_ADDR|HOSTNAME|NODENAME|NODELIST|master_addr|hostname)"
            rf"[\"']?[=:] ?[\"']?({_NAME})",
        ),
        ("--", rf"--(?:master[_-]addr|rdzv[_-]endpoint|host)[= ]({_NAME})"),
        ("]:", rf"\[({_NAME})\]:\d{{2,5}}"),
        ("<", rf"({_NAME})<\d{{2,5}}>"),
        ("://", rf"\w://(?:[^/@\s]{{1,255}}@)?({_NAME})(?=[:/\s])"),
        ("@", rf"(?<![\w@.-])[a-z_][\w.-]{{1,31}}@({_NAME})"),
        (
            ".",
            r"(?<![\w@.-])((?:[A-Za-z0-9-]{1,63}\.){1,8}(?:com|org|net|edu|io|cn|de|local|internal|"
            r"lan|cluster))(?![\w-])",
        ),
    )
)
_USER_PLACES = tuple(
    (gate, re.compile(pattern, re.ASCII))
    for gate, pattern in (
        ("/", r"/(?:home|Users|users)/([A-Za-z_][\w.-]{0,63})"),
        ("@", rf"(?<![\w@.-])([a-z_][\w.-]{{1,31}})@(?={_NAME})"),
        ("=", r"(?:USER|LOGNAME)=([A-Za-z_][\w.-]{0,63})"),
    )
)
_CODE_NAME = re.compile(r"0x|rank\d*$|.*\.(?:py|pyc|so|cc|cpp|cu|h|c|log|txt|json)(?:\.\d+)?$")
_IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d]|\.\d)", re.ASCII)
_IPV6 = re.compile(r"(?<![\w:.])[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}(?![\w:]|\.\d)", re.ASCII)
_PART = r"[^\s/'\"<>|;:,()\[\]{}=\\]"
_PATH = re.compile(rf"(?<![\w./-])(?:~\w{{0,32}}|\.{{1,2}})?(/{_PART}+)(?:/{_PART}*)*")
# code that everybody has, or that a compiler made: rules tell it from the program's own by where
# it stands
_PUBLIC_CODE = re.compile(
    r"(?:.*/)?((?:torch|torch_npu|torchvision|triton|deepspeed|lightning|pytorch_lightning"
    r"|accelerate|transformers|datasets|megatron|vllm|c10d|nccl|inductor_cache)/.+)",
    re.ASCII,
)
_COMPILED = re.compile(r".*/torchinductor[^/]*(/.+)", re.ASCII)
_COMPILED_ASIDE = re.compile(r"/tmp/tmp\w+/\w{2}/c\w{20,}\.py", re.ASCII)  # noqa: S108 - told, not opened
_URL_PATH = re.compile(r"(\w://[^/\s'\"]*)(/[^\s'\"]*)")
_USER_FILE = re.compile(
    rf"(?<![\w./-])(?:{_PART}{{1,255}}/){{1,64}}({_PART}{{1,255}}\.(?:py|sh|json|ya?ml|toml|txt|log|pt|ckpt|ipynb|csv))\b"
)


class Masker:
    """Learns names, then masks texts. ``counts`` tells how many of each kind there were: hosts,
    users and addresses, and how many paths were shortened."""

    def __init__(self) -> None:
        self._hosts: dict[str, str] = {}
        self._users: dict[str, str] = {}
        self._addresses: dict[str, int] = {}
        self._written: set[str] = set()  # addresses as they were written
        self._paths: set[str] = set()
        self._names: Callable[[str], str] | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Distinct ones by kind."""
        return {
            "hosts": len(set(self._hosts.values())),
            "users": len(self._users),
            "addresses": len(self._addresses),
            "paths": len(self._paths),
        }

    @property
    def secrets(self) -> tuple[str, ...]:
        """The real names of hosts, users and addresses that are masked in texts."""
        named = (*self._hosts, *self._users)
        return (*(name for name in named if _is_found_in_text(name)), *self._written)

    # learning

    def learn(self, key: str, text: str) -> None:
        """What the text names, by the field that it stands in and by the places inside it."""
        if key in HOST_KEYS and re.fullmatch(_NAME, text):
            self.learn_host(text)
        elif key in USER_KEYS:
            self.learn_user(text)
        for name in _found(_HOST_PLACES, text):
            self.learn_host(name)
        for name in _found(_USER_PLACES, text):
            self.learn_user(name)

    def learn_host(self, name: str) -> None:
        """A host, with and without its domain."""
        name = name.rstrip(".-")
        short = name.partition(".")[0]
        if _is_address(name) or name.lower() in NOT_PRIVATE or _CODE_NAME.match(name):
            return
        is_site = name.rpartition(".")[2] in PUBLIC and name.count(".") < 3  # pytorch.org
        if is_site or name.isdigit() or short.lower() in NOT_PRIVATE:
            short = name
        alias = self._hosts.get(short) or f"host-{len(set(self._hosts.values())) + 1}"
        self._hosts[short] = self._hosts[name] = alias
        self._names = None

    def learn_user(self, name: str) -> None:
        """The account of a person."""
        if name.lower() in NOT_PRIVATE or _CODE_NAME.match(name) or name in self._users:
            return
        self._users[name] = f"user-{len(self._users) + 1}"
        self._names = None

    # masking

    def field(self, key: str, text: str) -> str:
        """The text of a field; one that is a name as a whole is masked whatever it is."""
        if key in HOST_KEYS and text in self._hosts:
            return self._hosts[text]
        if key in USER_KEYS and text in self._users:
            return self._users[text]
        if key in PATH_KEYS and text.startswith("/") and "\n" not in text:
            return self.text(self._short(text))
        return self.text(text)

    def text(self, text: str) -> str:
        """Any text: paths, addresses, then names."""
        text = _URL_PATH.sub(lambda m: m[1] + self._short(m[2]).removeprefix("..."), text)
        text = _PATH.sub(self._path, text)
        text = _USER_FILE.sub(self._user_file, text)
        text = _IPV4.sub(self._ipv4, text)
        text = _IPV6.sub(self._ipv6, text)
        if self._names is None:
            self._names = self._replacer()
        return self._names(text)

    def _path(self, match: re.Match[str]) -> str:
        path = match[0]
        return path if path.startswith(KERNEL_TREES) else self._short(path)

    def _short(self, path: str) -> str:
        """A path as its last part; one that ends with a slash as the folder. Of code that is not
        the program's own, also where it stands in its package."""
        if _COMPILED_ASIDE.fullmatch(path):
            return path
        self._paths.add(path)
        if match := _COMPILED.fullmatch(path):
            return f".../torchinductor{match[1]}"
        if match := _PUBLIC_CODE.fullmatch(path):
            return f".../{match[1]}"
        last = path.rstrip("/").rpartition("/")[2]
        return f".../{last}" if last else "/"

    def _user_file(self, match: re.Match[str]) -> str:
        return match[0] if _PUBLIC_CODE.fullmatch(match[0]) else self._short(match[0])

    def _ipv4(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.IPv4Address(match[0])
        except ValueError:
            return match[0]
        masked = self._masked_v4(address)
        if masked != address:
            self._written.add(match[0])
        return str(masked)

    def _masked_v4(self, address: ipaddress.IPv4Address) -> ipaddress.IPv4Address:
        """Another address of a range for tests; one that holds on its own link only stays such."""
        if address.is_loopback or address.is_unspecified or address >= _FIRST_MASK:
            return address
        base = "169.254.0.0" if address.is_link_local else "198.18.0.0"
        return ipaddress.IPv4Address(int(ipaddress.IPv4Address(base)) + self._number(str(address)))

    def _ipv6(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.IPv6Address(match[0])
        except ValueError:
            return match[0]
        masked = self._masked_v6(address)
        if masked == address:
            return match[0]
        self._written.add(match[0])
        return masked.exploded if len(match[0]) == _EXPLODED_CHARS else str(masked)

    def _masked_v6(self, address: ipaddress.IPv6Address) -> ipaddress.IPv6Address:
        """The same for the newer form; one that carries an older address carries its mask."""
        if address.is_loopback or address.is_unspecified:
            return address
        if (inner := address.ipv4_mapped) is not None:
            return ipaddress.IPv6Address((0xFFFF << 32) + int(self._masked_v4(inner)))
        base = "fe80::" if address.is_link_local else "2001:db8::"
        return ipaddress.IPv6Address(int(ipaddress.IPv6Address(base)) + self._number(str(address)))

    def _number(self, address: str) -> int:
        """The place of an address among those that were met, from 1."""
        return self._addresses.setdefault(address, len(self._addresses) + 1)

    def _replacer(self) -> Callable[[str], str]:
        names = {name: alias for name, alias in self._all_names() if _is_found_in_text(name)}
        if not names:
            return lambda text: text
        longest_first = sorted(names, key=lambda name: (-len(name), name))
        joined = "|".join(map(re.escape, longest_first))
        found = re.compile(rf"(?<![A-Za-z0-9])(?:{joined})(?![A-Za-z0-9])")
        return lambda text: found.sub(lambda match: names[match[0]], text)

    def _all_names(self) -> list[tuple[str, str]]:
        return [*self._users.items(), *self._hosts.items()]


def _found(places: Iterable[tuple[str, re.Pattern[str]]], text: str) -> Iterator[str]:
    for gate, place in places:
        if gate in text:
            yield from (match[1] for match in place.finditer(text))


def _is_found_in_text(name: str) -> bool:
    """False for what stands in any text: a digit or a letter alone."""
    return len(name) > 1 and not name.isdigit()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
