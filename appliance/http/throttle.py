"""What one address may take of the web process: whoever sends faster waits, and nobody else waits for them.

Every request is one task on the event loop. Its CPU time is counted step by step until its answer begins; the text of
an answer that is being written is not, so reading along is free.
"""

from __future__ import annotations

import asyncio
import time
import types
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from appliance.base.errors import TooFast
from appliance.network.hosts import counted_address

BURST_S: Final = 2.0
"""CPU seconds an address may use at once after it was quiet: a whole office behind one opens the page."""
_BY_ITSELF_S: Final = 0.0005
_BYTE_S: Final = 1.5e-9
"""CPU time of a request, and of a byte of its body, before its task begins."""
_MOST_BYTES: Final = 1_000_000
"""A body that is announced as longer is refused, and not read to its end."""
MAX_WAITING: Final = 64
"""Requests of one address that wait at a time."""
_MANY_ADDRESSES: Final = 1000


@dataclass
class _Account:
    used_s: float = 0.0
    """CPU time that is not yet made good."""
    seen_s: float = 0.0
    n_waiting: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Throttle:
    """Pure-ASGI middleware, outermost. Belongs to the event loop."""

    def __init__(
        self,
        app: ASGIApp,
        share: Callable[[], float],
        sentence: Callable[[str], str],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
    ) -> None:
        """`share`: of one core that an address may use in the long run; 0: all it wants."""
        self._app = app
        self._share = share
        self._sentence = sentence
        self._clock = clock
        self._sleep = sleep
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on as soon as the address has some of its share left; 429 where too many wait for that."""
        share = self._share()
        if scope["type"] != "http" or not share:
            await self._app(scope, receive, send)
            return
        account = self._account(counted_address(scope["client"][0] if scope.get("client") else None))
        if account.n_waiting >= MAX_WAITING:
            refusal = {"detail": self._sentence(TooFast.code)}
            headers = {"retry-after": "5", "connection": "close"}
            await JSONResponse(refusal, status_code=429, headers=headers)(scope, receive, send)
            return
        account.n_waiting += 1
        try:
            async with account.lock:  # one after another, in the order they came
                while (debt_s := self._used_s(account, share) - BURST_S) > 0:
                    await self._sleep(debt_s / share)
                account.used_s += _BY_ITSELF_S + _BYTE_S * _announced(scope)
        finally:
            account.n_waiting -= 1
        work = _Counted(account)

        async def send_and_stop(message: Message) -> None:
            work.stop()
            await send(message)

        await work.until_done(self._app(scope, receive, send_and_stop))

    def _account(self, address: str) -> _Account:
        account = self._accounts.setdefault(address, _Account(seen_s=self._clock()))
        self._accounts.move_to_end(address)
        while len(self._accounts) > _MANY_ADDRESSES and not next(iter(self._accounts.values())).n_waiting:
            self._accounts.popitem(last=False)
        return account

    def _used_s(self, account: _Account, share: float) -> float:
        now_s = self._clock()
        account.used_s = max(0.0, account.used_s - share * (now_s - account.seen_s))
        account.seen_s = now_s
        return account.used_s


def _announced(scope: Scope) -> int:
    text = Headers(scope=scope).get("content-length", "")
    return min(int(text), _MOST_BYTES) if text.isdecimal() else 0


class _Counted:
    """CPU time of one request, step by step of its task, until `stop`."""

    def __init__(self, account: _Account) -> None:
        self._account = account
        self._began_s = 0.0
        self._is_counted = True

    def stop(self) -> None:
        """Count what was done until now, and nothing from now on."""
        self._note()
        self._is_counted = False

    @types.coroutine
    def until_done(self, work: Awaitable[None]) -> Generator[Any, Any, None]:
        """Await it."""
        steps = work.__await__()
        sent: Any = None
        thrown: BaseException | None = None
        while True:
            self._began_s = time.thread_time()
            try:
                wanted = steps.send(sent) if thrown is None else steps.throw(thrown)
            except StopIteration:
                return
            finally:
                self._note()
            sent = thrown = None
            try:
                sent = yield wanted
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is for the work, which gets it
                thrown = error

    def _note(self) -> None:
        if self._is_counted:
            now_s = time.thread_time()
            self._account.used_s += now_s - self._began_s
            self._began_s = now_s
