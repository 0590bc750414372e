"""The rule that lets colleagues through this PC's firewall, spelled out for the one that is found here.

It only looks and never changes anything: the owner runs the line. Reading the rules themselves would take more rights
than this program has, so a firewall that is installed counts as one that may be in the way.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Kind = Literal["ufw", "firewalld", "nftables", "iptables", "windows", "macos", "none"]

_NFT_INPUT: Final = re.compile(
    r"table\s+(?P<family>\w+)\s+(?P<table>[\w-]+)\s*\{(?:(?!\btable\b).)*?chain\s+(?P<chain>[\w-]+)\s*\{[^}]*?\bhook\s+input\b",
    re.DOTALL,
)
_NFT_USUAL: Final = "inet filter input"
_ADMIN_FOLDERS: Final = "/usr/sbin:/sbin:/usr/local/sbin"
"""Where firewalls are, and what is not on every user's PATH."""


@dataclass(frozen=True)
class FirewallRule:
    """`kind` names the sentence about it in ui/words/messages.py."""

    kind: Kind
    command: str
    """For the terminal of whoever may change the firewall; "" where there is nothing to do."""


def firewall_rule(
    port: int,
    platform: str = sys.platform,
    which: Callable[[str], str | None] | None = None,
    etc: Path = Path("/etc"),
) -> FirewallRule:
    """What to run so that `port` can be reached from the office network.

    Args:
        which: finds a program; None looks where this user's programs and the system's are.
        etc: where the system keeps its configuration.
    """
    if platform == "win32":
        rule = f'name="Office Chat" dir=in action=allow protocol=TCP localport={port} profile=private,domain'
        return FirewallRule("windows", f"netsh advfirewall firewall add rule {rule}")
    if platform == "darwin":
        return FirewallRule("macos", "")
    which = which or _which
    if which("ufw"):
        return FirewallRule("ufw", f"sudo ufw allow {port}/tcp")
    if which("firewall-cmd"):
        add = f"sudo firewall-cmd --permanent --add-port={port}/tcp --add-service=mdns"
        return FirewallRule("firewalld", f"{add} && sudo firewall-cmd --reload")
    if which("nft"):
        return FirewallRule("nftables", f"sudo nft insert rule {_nft_chain(etc)} tcp dport {port} accept")
    if which("iptables"):
        return FirewallRule("iptables", f"sudo iptables -I INPUT -p tcp --dport {port} -j ACCEPT")
    return FirewallRule("none", "")


def _nft_chain(etc: Path) -> str:
    """Family, table and chain of what comes in, as this system has named them."""
    try:
        text = (etc / "nftables.conf").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _NFT_USUAL
    found = _NFT_INPUT.search(re.sub(r"#.*", "", text))
    return " ".join(found.group("family", "table", "chain")) if found else _NFT_USUAL


def _which(program: str) -> str | None:
    return shutil.which(program) or shutil.which(program, path=_ADMIN_FOLDERS)
