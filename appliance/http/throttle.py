"""What one address may take of the web process: whoever sends faster waits, and nobody else waits for them.

Every request is one task on the event loop. Its CPU time is counted step by step until its answer begins, and so is
what the server computes to read it; the text of an answer that is being written is not, so reading along is free.
"""

from __future__ import annotations

import asyncio
import time
import types
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from appliance.base.errors import TooFast
from appliance.network.hosts import counted_address

BURST_S: Final = 2.0
"""CPU seconds an address may use at once after it was quiet: a whole office behind one opens the page."""
MAX_WAITING: Final = 64
"""Requests of one address that wait at a time."""
MAX_UNANSWERED: Final = 256
"""Requests of one address whose answer has not begun: each may hold a body."""
_SHORTEST_SLEEP_S: Final = 0.001
_LONGEST_SLEEP_S: Final = 1.0
"""Then the setting is looked at again."""
_LONGEST_PAUSE_S: Final = 60.0
_MANY_ADDRESSES: Final = 1000
_SCOPE_KEY: Final = "appliance.account"


@dataclass
class Account:
    """What one address has used; the owner's browser has its own, so that nobody there keeps it out."""

    used_s: float = 0.0
    """CPU time that is not yet made good."""
    seen_s: float = 0.0
    n_waiting: int = 0
    n_unanswered: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Accounts:
    """Of all addresses. Belongs to the event loop."""

    def __init__(
        self,
        share: Callable[[], float] = float,
        is_owners: Callable[[HTTPConnection], bool] = lambda connection: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`share`: of one core that an address may use in the long run; 0: all it wants."""
        self._share = share
        self._is_owners = is_owners
        self._clock = clock
        self._accounts: OrderedDict[tuple[str, bool], Account] = OrderedDict()

    def of(self, scope: Scope) -> Account:
        """The one that pays for this request, charged already for being found."""
        began_s = time.thread_time()
        account = self.of_address(scope["client"][0] if scope.get("client") else None, HTTPConnection(scope))
        account.used_s += time.thread_time() - began_s
        return account

    def of_address(self, host: str | None, connection: HTTPConnection | None = None) -> Account:
        """That of a peer's address."""
        key = counted_address(host), connection is not None and self._is_owners(connection)
        account = self._accounts.setdefault(key, Account(seen_s=self._clock()))
        self._accounts.move_to_end(key)
        while len(self._accounts) > _MANY_ADDRESSES and not next(iter(self._accounts.values())).n_unanswered:
            self._accounts.popitem(last=False)
        return account

    def wait_s(self, account: Account) -> float:
        """How long until some of the share is left again."""
        share, now_s = self._share(), self._clock()
        made_good_s = share * (now_s - account.seen_s) if share else account.used_s
        account.used_s = max(0.0, account.used_s - made_good_s)
        account.seen_s = now_s
        return max(0.0, account.used_s - BURST_S) / share if share else 0.0

    def charge(self, scope: Mapping[str, object] | None, host: str | None, cpu_s: float) -> float:
        """Add what the server computed to read from a connection, whose newest request has this scope. Returns for how
        long it had better read no more, in seconds."""
        account = scope[_SCOPE_KEY] if scope and _SCOPE_KEY in scope else self.of_address(host)
        if not isinstance(account, Account):
            return 0.0
        account.used_s += cpu_s
        return min(self.wait_s(account), _LONGEST_PAUSE_S)


def free_of_charge(scope: Scope) -> None:
    """From now on nobody pays for this request: the owner sends a whole model."""
    scope[_SCOPE_KEY] = None


class Throttle:
    """Pure-ASGI middleware, outermost. Belongs to the event loop."""

    def __init__(
        self,
        app: ASGIApp,
        accounts: Accounts,
        sentence: Callable[[str], str],
        sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
    ) -> None:
        """`sentence` tells a person what a refusal's code means."""
        self._app = app
        self._accounts = accounts
        self._sentence = sentence
        self._sleep = sleep

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on as soon as the address has some of its share left; 429 where too many wait for that."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        account = scope[_SCOPE_KEY] = self._accounts.of(scope)
        work = _Counted(account, scope)
        if account.n_waiting >= MAX_WAITING or account.n_unanswered >= MAX_UNANSWERED:
            refusal = {"detail": self._sentence(TooFast.code)}
            headers = {"retry-after": "5", "connection": "close"}
            await work.until_done(JSONResponse(refusal, status_code=429, headers=headers)(scope, receive, send))
            return

        async def receive_in_turn() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body"):
                work.pause(True)
                await self._turn(account)  # what was held back until now is read and judged at once
                work.pause(False)
            return message

        async def send_and_stop(message: Message) -> None:
            work.stop()
            await send(message)

        account.n_unanswered += 1
        work.is_unanswered = True
        try:
            await self._turn(account)
            await work.until_done(self._app(scope, receive_in_turn, send_and_stop))
        finally:
            work.stop()

    async def _turn(self, account: Account) -> None:
        """Wait until the address has some of its share left: one request after another, in the order they came."""
        if not account.lock.locked() and not self._accounts.wait_s(account):
            return
        account.n_waiting += 1
        try:
            async with account.lock:
                while wait_s := self._accounts.wait_s(account):
                    await self._sleep(min(max(wait_s, _SHORTEST_SLEEP_S), _LONGEST_SLEEP_S))
        finally:
            account.n_waiting -= 1


class _Counted:
    """CPU time of one request, step by step of its task, until `stop`."""

    def __init__(self, account: Account, scope: Scope) -> None:
        self._account = account
        self._scope = scope
        self._began_s: float | None = None
        """Of the step that is under way; a part of the work that runs in a task of its own has none."""
        self._is_counted = True
        self._is_paused = False
        self.is_unanswered = False

    def pause(self, is_paused: bool) -> None:
        """Waiting is free: counted, it would lengthen itself."""
        self._note()
        self._is_paused = is_paused

    def stop(self) -> None:
        """Count what was done until now, and nothing from now on."""
        self._note()
        self._is_counted = False
        self._account.n_unanswered -= self.is_unanswered
        self.is_unanswered = False

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
                self._began_s = None
            sent = thrown = None
            try:
                sent = yield wanted
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is for the work, which gets it
                thrown = error

    def _note(self) -> None:
        if self._began_s is None:
            return
        now_s = time.thread_time()
        if self._is_counted and not self._is_paused and self._scope[_SCOPE_KEY] is not None:
            self._account.used_s += now_s - self._began_s
        self._began_s = now_s
