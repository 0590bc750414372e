"""The front door: the port, the addresses colleagues open, their QR code, and what of it has changed since last time.

It knows nothing of rights: whether a name in a request is ours is decided in hosts.py.
"""

from __future__ import annotations

import errno
import io
import json
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from appliance.base.errors import StartFailed
from appliance.base.private_file import json_object, read_sound, write_sound
from appliance.network.firewall import FirewallRule, firewall_rule
from appliance.network.interfaces import Adapter, office_adapters
from appliance.network.server import bind

if TYPE_CHECKING:
    from appliance.network.local_name import LocalName

_log = logging.getLogger(__name__)

FIRST_PORT: Final = 7860
"""Tried first when a port is chosen."""
_N_PORTS: Final = 100
_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 -- compared, not bound
_ERROR_LEVEL: Final = "m"
"""A printed code may lose a sixth to a stain."""


@dataclass(frozen=True)
class DoorView:
    """What there is to hand out, and to be said about it."""

    own_url: str
    """For this PC."""
    urls: tuple[str, ...]
    """For colleagues, the best first; () where nobody else can come, or no network is there."""
    virtual_urls: tuple[str, ...]
    """Of VPNs and virtual machines: good for those on the same one."""
    name_url: str
    """With the name announced on the office network; "" without one."""
    changed_from: str
    """What colleagues may still have in their bookmarks; "" when that is still right."""
    is_shared: bool
    """Whether it listens for other PCs at all."""
    firewall: FirewallRule

    @property
    def url(self) -> str:
        """The one to hand out; "" without any."""
        return next(iter(self.urls), "")


class FrontDoor:
    """Belongs to the main thread until `open` is through, then to the event loop's."""

    def __init__(
        self,
        note: Path,
        host: str,
        port: int,
        label: str,
        adapters: Callable[[], list[Adapter]] = office_adapters,
    ) -> None:
        """
        Args:
            note: the file that remembers the port and the address.
            port: the owner's; 0 takes the remembered one, or a free one at the first start.
            label: the name on the office network without `.local`; "" for none.
        """
        self._note = note
        self._host = host
        self._adapters = adapters
        self._known = _read(note)
        self._at_start = ""
        self._before = str(self._known.get("url", ""))
        self.port = port or _port_of(self._known)
        """0 until `open` has chosen one."""
        self._label = label
        self._local_name: LocalName | None = None

    @property
    def is_shared(self) -> bool:
        """Whether other PCs can reach the address it listens on."""
        return not (self._host.startswith("127.") or self._host in ("::1", "localhost"))

    @property
    def own_url(self) -> str:
        """For this PC, once the door is open."""
        return self._url("127.0.0.1" if self._host in _EVERYWHERE else self._host)

    @property
    def local_name(self) -> str:
        """The name announced now; "" for none."""
        return self._local_name.name if self._local_name is not None else ""

    def open(self) -> socket.socket:
        """A bound socket that does not listen yet. Chooses the port where there is none, and remembers it.

        Raises:
            StartFailed: with the port or address and the remedy.
        """
        sock = bind(self._host, self.port) if self.port else self._bind_free()
        self.port = int(sock.getsockname()[1])
        self._at_start = next(iter(self._urls()[0]), "")
        self._remember(self._at_start or self._before)
        return sock

    async def announce(self) -> None:
        """Keep the name announced until cancelled; returns at once where there is none to announce."""
        if self._label and self.is_shared:
            from appliance.network.local_name import (
                LocalName,  # here: it takes a tenth of a second, and the page comes first
            )

            self._local_name = LocalName(self._label, self._office_addresses)
            await self._local_name.run(self.port)

    def look(self) -> DoorView:
        """As it is now; asks the system for its addresses, some milliseconds."""
        urls, virtual = self._urls()
        if urls and self.port and not self._at_start:  # when the PC starts, its network may come up after this program
            self._at_start = urls[0]
            self._remember(urls[0])
        known = (*urls, *virtual)
        outdated = [old for old in (self._at_start, self._before) if old and known and old not in known]
        name = self.local_name
        return DoorView(
            own_url=self.own_url,
            urls=urls,
            virtual_urls=virtual,
            name_url=self._url(name) if name else "",
            changed_from=outdated[0] if outdated else "",
            is_shared=self.is_shared,
            firewall=firewall_rule(self.port),
        )

    def _urls(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Those to hand out, and those of virtual adapters beside them."""
        if self._host not in _EVERYWHERE:
            return ((self._url(self._host),) if self.is_shared else ()), ()
        adapters = self._adapters()
        real = tuple(self._url(adapter.address) for adapter in adapters if not adapter.is_virtual)
        virtual = tuple(self._url(adapter.address) for adapter in adapters if adapter.is_virtual)
        return (real, virtual) if real else (virtual, ())

    def _office_addresses(self) -> list[str]:
        """What the name stands for."""
        if self._host in _EVERYWHERE:
            return [adapter.address for adapter in self._adapters() if not adapter.is_virtual]
        return [self._host] if self.is_shared and self._host[-1].isdigit() and ":" not in self._host else []

    def _url(self, host: str) -> str:
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def _bind_free(self) -> socket.socket:
        for port in range(FIRST_PORT, FIRST_PORT + _N_PORTS):
            try:
                return bind(self._host, port)
            except StartFailed as error:
                if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.EADDRINUSE:
                    raise
        last = FIRST_PORT + _N_PORTS - 1
        raise StartFailed(f"Every port from {FIRST_PORT} to {last} is taken. Choose a free one with --port.")

    def _remember(self, url: str) -> None:
        note = {"port": self.port, "url": url}
        if note == self._known:
            return
        try:
            write_sound(self._note, json.dumps(note).encode())
        except OSError as error:
            _log.warning("the port cannot be remembered (%s): %s", error.strerror, self._note)


def qr_picture(url: str) -> str:
    """The QR code of `url` as a `data:` address of an SVG picture."""
    import segno  # here, as below: nobody needs it before the page is there

    return str(segno.make_qr(url, error=_ERROR_LEVEL).svg_data_uri(scale=5, border=4, light="white"))


def qr_console(url: str) -> str:
    """The same in characters, two rows a line, for a terminal with light letters on a dark ground; most phones read
    the other way round too."""
    import segno

    out = io.StringIO()
    segno.make_qr(url, error=_ERROR_LEVEL).terminal(out, compact=True)
    return out.getvalue().rstrip("\n")


def _read(note: Path) -> dict[str, object]:
    """What was remembered; {} at the first start, and where the note cannot be read."""
    try:
        return read_sound(note, json_object)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        _log.warning("the port of last time is not known (%s)", type(error).__name__)
    return {}


def _port_of(known: dict[str, object]) -> int:
    port = known.get("port")
    return port if isinstance(port, int) and 0 < port < 65_536 else 0
