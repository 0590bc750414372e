"""Names in requests: which hosts are this PC, which origin is foreign, and what is said on this PC itself.

A foreign web page can make a browser send requests here (CSRF), also under a name of its own that resolves to this PC
(DNS rebinding). It can choose neither the Host nor the Origin header. No name is looked up.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers

_AUTHORITY = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9._-]{1,253}))(?::(?P<port>[0-9]{1,5}))?"
)
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_DEFAULT_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
_MAX_PORT = 65535
_PASSED_ON: Final = frozenset({"forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"})
"""Headers of somebody who passes requests on for others; besides every X-Forwarded-*."""


@dataclass(frozen=True)
class Authority:
    """Host and port, in one spelling: lower case, no trailing dot, addresses as `ipaddress` writes them."""

    host: str
    port: int | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether it names the PC it is said on."""
        address = _address(self.host)
        return self.host == "localhost" if address is None else address.is_loopback


def parse_authority(text: str) -> Authority | None:
    """The value of a Host header; None for anything with user, path or blank, and for what can be no host."""
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        return None
    port = int(found["port"]) if found["port"] else None
    if port is not None and not 0 < port <= _MAX_PORT:
        return None
    if found["v6"]:
        address = _address(found["v6"])
        return None if address is None else Authority(str(address), port)
    name = found["name"].lower().removesuffix(".")
    address = _address(name)
    return Authority(name if address is None else str(address), port) if name else None


def is_same_origin(origin: str, host: Authority) -> bool:
    """Whether an Origin header names the very place the request went to. "null" names none."""
    scheme, separator, rest = origin.partition("://")
    default = _DEFAULT_PORTS.get(scheme.lower())
    there = parse_authority(rest)
    if not separator or default is None or there is None:
        return False
    # Whether a proxy in front speaks https cannot be seen here, so the origin's scheme says what a missing port is.
    return there.host == host.host and (there.port or default) == (host.port or default)


class KnownHosts:
    """The hosts this PC answers to: its loopback names, the address asked, its names, and the owner's list."""

    def __init__(
        self,
        extra: Iterable[str],
        own_name: Callable[[], str] = socket.gethostname,
        announced: Callable[[], str] = str,
    ) -> None:
        """
        Args:
            extra: the owner's names and addresses, as `parse_host_list` gives them.
            announced: the name it has on the office network at present; "" for none.
        """
        self._extra = frozenset(extra)
        self._own_name = own_name
        self.announced = announced

    def knows(self, host: Authority, local_address: str | None) -> bool:
        """Whether `host` is ours. `local_address` is this end of the connection: what was reached is ours."""
        if host.is_loopback or host.host in self._extra:
            return True
        address = _address(host.host)
        if address is not None:
            return local_address is not None and address == _address(local_address)
        name = self._own_name().lower().removesuffix(".")
        short = name.partition(".")[0]
        return host.host in {name, short, f"{short}.local", self.announced()} - {""}


def parse_host_list(text: str) -> tuple[str, ...] | None:
    """Names and addresses, without ports, of a list like "chat.example, 10.0.0.5"; None where one cannot be read."""
    hosts = [_bare_host(part.strip()) for part in text.split(",") if part.strip()]
    return None if None in hosts else tuple(host for host in hosts if host is not None)


def is_label(text: str) -> bool:
    """Whether it can stand before `.local` in a name on the network."""
    return _LABEL.fullmatch(text) is not None


def _bare_host(text: str) -> str | None:
    bare = _address(text)
    if bare is not None:
        return str(bare)
    found = parse_authority(text)
    return found.host if found is not None and found.port is None else None


def is_on_this_pc(headers: Headers, peer: str | None, host: Authority) -> bool:
    """Whether a request was made on this PC itself, and not passed on for somebody else.

    A foreign Origin has been refused before. A program on this PC that passes requests on without any of the usual
    headers and with a loopback Host cannot be told apart: docs/security.md.
    """
    address = _address(peer or "")
    if address is None or not address.is_loopback or not host.is_loopback:
        return False
    return not any(name in _PASSED_ON or name.startswith("x-forwarded") for name in headers)


def is_foreign(headers: Headers, method: str, host: Authority) -> bool:
    """Whether a foreign page is behind a request. Programs send neither Origin nor Sec-Fetch-Site.

    Plain http on the LAN has no Sec-Fetch-Site, so there Origin alone tells; a browser sends it with every POST, and
    with every GET whose answer a script is to read. Following a link to us is allowed.
    """
    origins = headers.getlist("origin")
    if origins and not (len(origins) == 1 and is_same_origin(origins[0], host)):
        return True
    if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return False
    follows_link = (
        headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest", "document") == "document"
    )
    return not (method in ("GET", "HEAD") and follows_link)


def counted_address(peer: str | None) -> str:
    """The address limits count by: of IPv6 the /64, because one PC has all of it."""
    address = _address(peer or "")
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((address, 64), strict=False))
    return str(address) if address is not None else ""


def local_path(text: str) -> str:
    """`text` if it is a path on this server, to go to after a login; else "/"."""
    parts = urlsplit(text) if text.isascii() and text.isprintable() else None
    is_ours = parts is not None and text.startswith("/") and not text.startswith(("//", "/\\")) and not parts.netloc
    return text if is_ours else "/"


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address
