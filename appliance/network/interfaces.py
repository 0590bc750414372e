"""The addresses of this PC, best for colleagues first: the office network's own, then those of VPNs and the like."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import psutil

_VIRTUAL: Final = (
    *("docker", "veth", "br-", "virbr", "podman", "cni", "flannel", "cali", "lxc", "lxd", "incus", "vmnet", "vboxnet"),
    *("tun", "tap", "utun", "wg", "zt", "tailscale", "ppp", "ipsec", "nordlynx", "proton", "mullvad", "cscotun", "gpd"),
)
"""Beginnings of adapter names: containers and virtual machines, then VPNs."""
_VIRTUAL_WORDS: Final = (
    *("virtual", "vethernet", "vmware", "hyper-v", "wsl", "loopback", "bluetooth"),
    *("vpn", "wireguard", "tailscale", "zerotier", "anyconnect", "globalprotect", "fortinet", "tap-", "wintun"),
)
"""Words anywhere in them: Windows has whole phrases for names."""
_CARRIER_GRADE: Final = ipaddress.ip_network("100.64.0.0/10")
"""What VPNs like to give out; no office network does."""
_NOWHERE: Final = ("192.0.2.1", 9)
"""Kept for documentation. Connecting a datagram socket sends nothing; it only tells which adapter would."""


@dataclass(frozen=True)
class Adapter:
    """One IPv4 address of this PC and the adapter it is on."""

    name: str
    address: str
    is_tunnel: bool = False
    """The system says that it leads to one other computer only, as a VPN's does."""

    @property
    def is_virtual(self) -> bool:
        """Whether colleagues beside this PC cannot reach it, as far as name and address tell."""
        name = self.name.lower()
        by_name = name.startswith(_VIRTUAL) or any(word in name for word in _VIRTUAL_WORDS)
        return by_name or self.is_tunnel or ipaddress.ip_address(self.address) in _CARRIER_GRADE


def office_adapters(adapters: Iterable[Adapter] | None = None, default: str | None = None) -> list[Adapter]:
    """Those that another PC may reach, most likely first; virtual ones last.

    Args:
        adapters: None reads those of this PC that are up.
        default: the address that the way out of the office begins with; None asks the system.
    """
    default = _default_address() if default is None else default
    found = []
    for adapter in _adapters() if adapters is None else adapters:
        address = ipaddress.IPv4Address(adapter.address)
        if address.is_loopback or address.is_link_local or address.is_unspecified:
            continue
        rank = (adapter.is_virtual, adapter.address != default, not address.is_private)
        found.append((rank, adapter))
    return [adapter for _, adapter in sorted(found, key=_rank)]


def lan_addresses(adapters: Iterable[Adapter] | None = None, default: str | None = None) -> list[str]:
    """Their addresses; those of virtual adapters only where there are no others."""
    found = office_adapters(adapters, default)
    return [adapter.address for adapter in found if not adapter.is_virtual] or [adapter.address for adapter in found]


def _rank(entry: tuple[tuple[bool, ...], Adapter]) -> tuple[bool, ...]:
    return entry[0]


def _adapters() -> list[Adapter]:
    up = {name: stats for name, stats in psutil.net_if_stats().items() if stats.isup}
    return [
        Adapter(name, entry.address, is_tunnel="pointopoint" in getattr(up[name], "flags", ""))
        for name, entries in psutil.net_if_addrs().items()
        if name in up
        for entry in entries
        if entry.family == socket.AF_INET
    ]


def _default_address() -> str:
    """This PC's address on the adapter that leads out; "" where none does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(_NOWHERE)
        except OSError:
            return ""
        return str(sock.getsockname()[0])
