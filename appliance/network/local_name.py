"""A name for this PC on the office network, `office-chat.local`, by multicast DNS. Nothing leaves the network.

It is a convenience: whatever goes wrong here is logged and leaves colleagues with the address.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import zeroconf
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

_log = logging.getLogger(__name__)

_LOOK_S = 30.0
"""How often a change of this PC's addresses is looked for."""
_ASK_MS = 700
"""How long another PC that has the name already may take to say so."""
_N_NAMES = 9
_END_S = 1.0
_SERVICE = "_http._tcp.local."
_TROUBLE = (OSError, TimeoutError, zeroconf.Error)


class LocalName:
    """Announces the name until `run` is cancelled. Belongs to the event loop's thread."""

    def __init__(self, label: str, addresses: Callable[[], Sequence[str]]) -> None:
        """`label`: the name without `.local`. `addresses`: this PC's on the office network, best first."""
        self._label = label
        self._addresses = addresses
        self._announced: tuple[str, ...] = ()
        self._zeroconf: AsyncZeroconf | None = None
        self.name = ""
        """`office-chat.local`, or `office-chat-2.local` where another PC has that; "" while it is not announced."""

    async def run(self, port: int) -> None:
        """Announce it, again whenever the addresses change."""
        try:
            while True:
                now = tuple(self._addresses())
                if now != self._announced:
                    await self._withdraw()
                    await self._announce(now, port)
                await asyncio.sleep(_LOOK_S)
        finally:
            await self._withdraw()

    async def _announce(self, addresses: tuple[str, ...], port: int) -> None:
        if not addresses:
            return
        try:
            self._zeroconf = AsyncZeroconf(interfaces=list(addresses), ip_version=zeroconf.IPVersion.V4Only)
            label = await self._free_label(self._zeroconf.zeroconf, addresses)
            info = AsyncServiceInfo(
                _SERVICE,
                f"Office Chat ({label}).{_SERVICE}",
                port=port,
                server=f"{label}.local.",
                parsed_addresses=list(addresses),
                properties={"path": "/"},
            )
            await self._zeroconf.async_register_service(info, allow_name_change=True)
        except _TROUBLE as error:
            _log.warning("the name %s.local cannot be announced (%s)", self._label, type(error).__name__)
            await self._withdraw()
            return
        self._announced = addresses
        self.name = f"{label}.local"
        _log.info("announced as %s for %s", self.name, ", ".join(addresses))

    async def _free_label(self, running: zeroconf.Zeroconf, addresses: tuple[str, ...]) -> str:
        """The label, with a number where another PC has the name."""
        labels = [self._label, *(f"{self._label}-{number}" for number in range(2, _N_NAMES + 1))]
        for label in labels:
            asked = zeroconf.AddressResolverIPv4(f"{label}.local.")  # type: ignore[attr-defined]  # not in its __all__
            is_taken = await asked.async_request(running, _ASK_MS)
            if not is_taken or set(asked.parsed_addresses()) <= set(addresses):
                return label
            _log.warning("another PC is called %s.local", label)
        raise zeroconf.NonUniqueNameException(self._label)

    async def _withdraw(self) -> None:
        """Say goodbye; never raises what the network can cause."""
        running, self._zeroconf = self._zeroconf, None
        self._announced, self.name = (), ""
        if running is None:
            return
        try:
            async with asyncio.timeout(_END_S):
                await running.async_unregister_all_services()
                await running.async_close()
        except _TROUBLE as error:
            _log.info("the name could not be taken back (%s)", type(error).__name__)
