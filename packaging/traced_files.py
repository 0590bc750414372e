"""Reads what strace wrote: which files a program tried to open, and whom it tried to reach."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

STRACE = ("strace", "-f", "-qq", "--seccomp-bpf", "-s", "4096", "-e", "trace=open,openat,openat2,creat,execve,connect")
"""What to put before a program; `-o FILE` follows."""

_OPEN = re.compile(r'\b(open|openat|openat2|creat|execve)\((?:(\w+|\d+), )?"((?:[^"\\]|\\.)*)"(.*)$')
_CONNECT = re.compile(r"\bconnect\(\d+, \{sa_family=(AF_\w+)(.*)$")
_ASKS_THE_WAY = re.compile(r'htons\(9\), sin_addr=inet_addr\("192\.0\.2\.1"\)')
"""A UDP socket "connected" to an address nobody has sends nothing: interfaces.py learns so which adapter leads out."""
_ESCAPE = re.compile(r"\\([0-7]{1,3}|.)")
_WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT")
_LETTERS = {"n": b"\n", "t": b"\t", "r": b"\r", "v": b"\v", "f": b"\f", '"': b'"', "\\": b"\\"}

# What every program on Linux may read: the loader's and the C library's files, and what tells about the computer.
SYSTEM = (
    r"/(usr/)?lib(32|64|x32)?(/.*)?",
    r"/(proc|sys)(/.*)?",
    r"/dev/(null|urandom|random|zero|tty|shm/.*)",
    r"/etc/(ld\.so\.(cache|preload)|localtime|timezone|passwd|group|nsswitch\.conf|hosts|host\.conf|resolv\.conf|gai\.conf)",
    r"/etc/(mime\.types|ssl/openssl\.cnf|protocols|services|os-release|debian_version)",
    r"/usr/share/(zoneinfo|locale|locale-langpack|mime)(/.*)?",
)


@dataclass(frozen=True)
class Opened:
    """One try to open a file. `worked`: it was there and might be opened."""

    path: str
    writes: bool
    worked: bool


def opened(lines: Iterable[str]) -> Iterator[Opened]:
    """Every try to open a file by an absolute name; relative ones are given as they were asked for."""
    for line in lines:
        if (found := _OPEN.search(line)) is None:
            continue
        call, _, path, rest = found.groups()
        writes = call == "creat" or (call != "execve" and _WRITES.search(rest) is not None)
        yield Opened(_unescaped(path), writes, re.search(r"= -1 E", rest) is None)


def reached(lines: Iterable[str]) -> list[str]:
    """Where it tried to connect to, apart from sockets on this computer alone."""
    found = []
    for line in lines:
        match = _CONNECT.search(line)
        if match is None or match[1] in ("AF_UNIX", "AF_NETLINK", "AF_UNSPEC"):
            continue
        if _ASKS_THE_WAY.search(match[2]):
            continue
        if not re.search(r'"(127\.[0-9.]+|::1|::ffff:127\.[0-9.]+)"', match[2]):
            found.append(match[0].strip())
    return found


def outside(opens: Iterable[Opened], own: Iterable[Path]) -> list[Opened]:
    """Those neither below one of `own` nor among what every program reads; writing is for `own` alone."""
    places = [str(path) for path in own]
    found: dict[Opened, None] = {}
    for each in opens:
        is_own = any(each.path == place or each.path.startswith(place + "/") for place in places)
        is_system = any(re.fullmatch(pattern, each.path) for pattern in SYSTEM)
        if not is_own and not (is_system and (not each.writes or each.path.startswith(("/dev/", "/proc/")))):
            found[each] = None
    return list(found)


def _unescaped(text: str) -> str:
    parts = re.split(_ESCAPE, text)  # text, escape, text, escape, ...
    whole = b""
    for place, part in enumerate(parts):
        if place % 2 == 0:
            whole += part.encode()
        elif part in _LETTERS:
            whole += _LETTERS[part]
        else:
            whole += bytes([int(part, 8)])
    return whole.decode("utf-8", errors="replace")
