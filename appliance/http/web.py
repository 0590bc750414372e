"""The FastAPI app around the page: middleware in order, who may pass, and what is seen of an unforeseen error."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlencode

from fastapi import APIRouter, FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from appliance.access.person import PersonCookie, Persons
from appliance.access.rights import FOR_PROGRAMS, Access
from appliance.base.errors import (
    ForeignOrigin,
    InputTooLong,
    LoginNeeded,
    NeedsAdmin,
    NeedsKey,
    NotAdmin,
    Refused,
    UnknownHost,
)
from appliance.base.log import where
from appliance.http.throttle import Accounts, Throttle
from appliance.network.hosts import is_foreign, parse_authority

_log = logging.getLogger(__name__)

MAX_BODY_BYTES: Final = {
    "/v1/": 1_000_000,
    "/conversation": 1_000_000,
    "/gradio_api/": 1_000_000,
    "/admin/": 1_000_000,
    "": 10_000,
}
"""The longest body by the beginning of a path, the first that fits. A page's event carries one message, or a
conversation to be shown; what is read of it at once holds up everybody, so it is no more than that."""
MAX_PARTS: Final = 20_000
"""Brackets and braces in a body. A list of a million empty lists is a megabyte, and takes 300 ms to read."""
MAX_SEPARATORS: Final = 100_000
"""Commas and colons in a body: as many as the longest text taken has characters. A quarter of a million numbers take
50 ms to read."""
UPLOADS: Final = "/admin/models/"
"""Where the admin sends model files: they have no limit but the disk's, which the route looks at."""
_MAX_DISCARD_BYTES = 16_000_000
_NO_STORE: Final = {"cache-control": "no-store"}

_SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; object-src 'none'; "
        "base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


class SecurityHeaders:
    """Pure-ASGI middleware: what a page of ours may load, and from where. Model output is the reason."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on; add the headers to every answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)


_STATUS: Final = {
    UnknownHost.code: 421,
    ForeignOrigin.code: 403,
    LoginNeeded.code: 401,
    NeedsKey.code: 401,
    NeedsAdmin.code: 401,
    NotAdmin.code: 403,
}


class Doorkeeper:
    """Pure-ASGI middleware: nobody gets past it under a foreign name, from a foreign page or without the right.

    Everything behind it may ask `caller_of`.
    """

    def __init__(self, app: ASGIApp, access: Access, sentence: Callable[[str], str]) -> None:
        self._app = app
        self._access = access
        self._sentence = sentence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may pass; the rest gets a sentence, or the login page where a person is looking."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"there is no door for {scope['type']}")
        connection = HTTPConnection(scope)
        try:
            self._judge(connection)
        except Refused as refusal:
            await self._refusal(connection, refusal.code)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _judge(self, connection: HTTPConnection) -> None:
        scope = connection.scope
        named = connection.headers.getlist("host")
        host = parse_authority(named[0]) if len(named) == 1 else None
        local_address = scope["server"][0] if scope.get("server") else None
        if host is None or not self._access.hosts.knows(host, local_address):
            raise UnknownHost("not a name of this PC")
        if is_foreign(connection.headers, scope["method"], host):
            raise ForeignOrigin("a foreign page is behind this")
        self._access.check(self._access.identify(connection, host), scope["path"])

    def _refusal(self, connection: HTTPConnection, code: str) -> Response:
        scope = connection.scope
        path = scope["path"]
        if path.startswith(FOR_PROGRAMS):
            body = error_body(self._sentence(code), kind="authentication_error", code=code)
            headers = {"www-authenticate": "Bearer"} if _STATUS[code] == 401 else {}
            return JSONResponse(body, status_code=_STATUS[code], headers=headers)
        is_looking = scope["method"] == "GET" and "text/html" in connection.headers.get("accept", "")
        ways_in = {LoginNeeded.code: "/login", NeedsAdmin.code: "/admin/login", NotAdmin.code: "/admin/login"}
        if is_looking and code in ways_in:
            wanted = path + (f"?{query}" if (query := scope["query_string"].decode("latin-1")) else "")
            return RedirectResponse(
                f"{ways_in[code]}?{urlencode({'next': wanted})}", status_code=303, headers=_NO_STORE
            )
        if is_looking:
            return PlainTextResponse(self._sentence(code), status_code=_STATUS[code], headers=_NO_STORE)
        return JSONResponse({"detail": self._sentence(code)}, status_code=_STATUS[code], headers=_NO_STORE)


class BodyLimit:
    """Pure-ASGI middleware: takes a body whole before anybody parses it, and refuses one that is too long.

    It is read here and not while the app asks for it: an error out of `receive` would be anything in there.
    """

    def __init__(self, app: ASGIApp, sentence: Callable[[str], str]) -> None:
        self._app = app
        self._sentence = sentence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on with the body that was read, or answer 413."""
        if scope["type"] != "http" or (scope["method"] == "PUT" and scope["path"].startswith(UPLOADS)):
            await self._app(scope, receive, send)
            return
        limit = next(most for start, most in MAX_BODY_BYTES.items() if scope["path"].startswith(start))
        announced = Headers(scope=scope).get("content-length", "0")
        if announced.isdecimal() and int(announced) > limit:
            await _discard(receive, int(announced))
            await self._too_long(scope["path"], limit)(scope, receive, send)
            return
        messages: deque[Message] = deque()
        n_bytes = n_parts = n_separators = 0
        while not messages or messages[-1].get("more_body"):
            messages.append(message := await receive())
            body = message.get("body", b"")
            n_bytes += len(body)
            n_parts += body.count(b"[") + body.count(b"{")
            n_separators += body.count(b",") + body.count(b":")
            if n_bytes > limit or n_parts > MAX_PARTS or n_separators > MAX_SEPARATORS:
                await self._too_long(scope["path"], limit)(scope, receive, send)
                return

        async def read_already() -> Message:
            return messages.popleft() if messages else await receive()

        await self._app(scope, read_already, send)

    def _too_long(self, path: str, limit_bytes: int) -> JSONResponse:
        if path.endswith("/queue/join"):  # a question: the page shows the sentence above the box, as a validator's
            word = {"__type__": "validate", "is_valid": False, "message": self._sentence(InputTooLong.code)}
            return JSONResponse({"detail": [word]}, status_code=422)
        text = (
            f"The request is too long: at most {limit_bytes} bytes are taken, {MAX_PARTS} brackets "
            f"and {MAX_SEPARATORS} commas and colons in them."
        )
        return JSONResponse(error_body(text, kind="invalid_request_error", code=InputTooLong.code), status_code=413)


def make_app(
    routers: Sequence[APIRouter],
    persons: Persons,
    access: Access,
    sentence: Callable[[str], str],
    accounts: Accounts | None = None,
) -> FastAPI:
    """The app the page is mounted on: no schema, no documentation pages, our routes before anything else.

    `sentence` tells a person what a refusal's code means, in every language; `accounts`: who pays for the work.
    """
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    for router in routers:
        app.include_router(router)
    app.add_exception_handler(Exception, _unforeseen)
    # The one added last is the outermost.
    app.add_middleware(PersonCookie, persons=persons)
    app.add_middleware(BodyLimit, sentence=sentence)
    app.add_middleware(Doorkeeper, access=access, sentence=sentence)
    app.state.accounts = accounts or Accounts()
    app.add_middleware(Throttle, accounts=app.state.accounts, sentence=sentence)
    app.add_middleware(SecurityHeaders)
    return app


def error_body(message: str, *, kind: str, code: str, param: str | None = None) -> dict[str, dict[str, str | None]]:
    """An error in OpenAI's shape."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


async def _unforeseen(request: Request, error: Exception) -> JSONResponse:
    _log.error("%s %s failed: %s", request.method, request.url.path, where(error))
    body = error_body("Something went wrong here. The log names it.", kind="server_error", code="internal_error")
    # This answer is made outside the middleware.
    return JSONResponse(body, status_code=500, headers=_SECURITY_HEADERS)


async def _discard(receive: Receive, n_announced: int) -> None:
    """Read the body away: a client that is cut off while it sends never sees our answer."""
    if n_announced > _MAX_DISCARD_BYTES:
        return
    while True:
        message = await receive()
        if message["type"] != "http.request" or not message.get("more_body"):
            return
