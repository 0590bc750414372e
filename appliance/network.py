"""The addresses colleagues can use: this PC's IPv4 addresses on the local network, most likely first."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

import psutil

_VIRTUAL = ("docker", "veth", "br-", "virbr", "tun", "tap", "vmnet", "vboxnet", "utun", "wg", "zt", "tailscale")
_VIRTUAL_WORDS = ("virtual", "vethernet", "vmware", "hyper-v", "wsl", "vpn", "loopback", "bluetooth")


def lan_addresses(interfaces: Iterable[tuple[str, str]] | None = None) -> list[str]:
    """IPv4 addresses another PC can reach, wired and wireless ones before those of virtual adapters.

    Args:
        interfaces: (name, address) pairs; None reads those of this PC that are up.
    """
    found: list[tuple[int, str]] = []
    for name, text in _interfaces() if interfaces is None else interfaces:
        address = ipaddress.ip_address(text)
        if address.version != 4 or address.is_loopback or address.is_link_local or address.is_unspecified:
            continue
        lowered = name.lower()
        virtual = lowered.startswith(_VIRTUAL) or any(word in lowered for word in _VIRTUAL_WORDS)
        found.append((2 if virtual else 0 if address.is_private else 1, text))
    return [text for _, text in sorted(found, key=_rank)]


def _rank(entry: tuple[int, str]) -> int:
    return entry[0]


def _interfaces() -> list[tuple[str, str]]:
    up = {name for name, stats in psutil.net_if_stats().items() if stats.isup}
    return [
        (name, entry.address)
        for name, entries in psutil.net_if_addrs().items()
        if name in up
        for entry in entries
        if entry.family == socket.AF_INET
    ]
