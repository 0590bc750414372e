"""The FastAPI app around the page: middleware in order, own routes, and what a visitor sees of an unforeseen error."""

from __future__ import annotations

import logging

from fastapi import APIRouter, FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from appliance.errors import InputTooLong
from appliance.log import where
from appliance.person import PersonCookie, Persons

_log = logging.getLogger(__name__)

MAX_API_BODY_BYTES = 1_000_000
# A page request carries one message; the longest that is to be cut rather than refused, as a client escapes it.
MAX_PAGE_BODY_BYTES = 8_000_000
_MAX_DISCARD_BYTES = 16_000_000

_SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; object-src 'none'; "
        "base-uri 'self'; frame-ancestors 'none'"
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
                    headers[name] = value
            await send(message)

        await self._app(scope, receive, send_with_headers)


class BodyLimit:
    """Pure-ASGI middleware: refuses an over-long body before anybody parses it; counts what is really sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on with a counted body, or answer 413."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = MAX_API_BODY_BYTES if scope["path"].startswith("/v1/") else MAX_PAGE_BODY_BYTES
        announced = Headers(scope=scope).get("content-length", "0")
        if announced.isdecimal() and int(announced) > limit:
            await _discard(receive, int(announced))
            await _too_long(limit)(scope, receive, send)
            return
        n_bytes = 0
        started = False

        async def counted_receive() -> Message:
            nonlocal n_bytes
            message = await receive()
            if message["type"] == "http.request":
                n_bytes += len(message.get("body", b""))
                if n_bytes > limit:
                    raise InputTooLong(f"the request has more than {limit} bytes")
            return message

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, counted_receive, watched_send)
        except InputTooLong:
            if started:
                raise
            await _too_long(limit)(scope, receive, send)


def make_app(router: APIRouter, persons: Persons) -> FastAPI:
    """The app the page is mounted on: no schema, no documentation pages, our routes before anything else."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.include_router(router)
    app.add_exception_handler(Exception, _unforeseen)
    # The one added last is the outermost.
    app.add_middleware(PersonCookie, persons=persons)
    app.add_middleware(BodyLimit)
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


def _too_long(limit_bytes: int) -> JSONResponse:
    text = f"The request is too long: at most {limit_bytes} bytes are taken."
    return JSONResponse(error_body(text, kind="invalid_request_error", code=InputTooLong.code), status_code=413)
