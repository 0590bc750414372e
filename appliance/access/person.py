"""Who asks: a person is a signed anonymous cookie, a conversation is a random id its tab sends along.

Knows nothing of logins (rights.py does), and Gradio's session hash proves nothing here.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from itsdangerous import BadSignature, Signer
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from appliance.base.errors import StartFailed
from appliance.base.private_file import read_sound, write_sound

COOKIE_NAME = "office_chat_person"
TAB_HEADER = "x-tab"
_MAX_AGE_S = 365 * 24 * 3600
_TAB = re.compile(r"[A-Za-z0-9_-]{16,64}")
_SECRET_BYTES = 32


def load_secret(path: Path) -> bytes:
    """The signing key of this data directory; made at the first start, readable by its owner only.

    Raises:
        StartFailed: it can neither be read nor made.
    """
    try:
        return _read_or_make(path)
    except OSError as error:
        problem = f"{path}: cannot be read or written ({error.strerror or type(error).__name__})"
        raise StartFailed(f"{problem}. Remove that file or make it yours.") from error


def _read_or_make(path: Path) -> bytes:
    with contextlib.suppress(FileNotFoundError, ValueError):
        return read_sound(path, _whole_secret)
    fresh = secrets.token_bytes(_SECRET_BYTES)
    write_sound(path, fresh)
    return fresh


def _whole_secret(content: bytes) -> bytes:
    if len(content) < _SECRET_BYTES:
        raise ValueError("too short")
    return content


class Persons:
    """Issues and verifies person cookies. Stateless: the signature is the proof."""

    def __init__(self, secret: bytes) -> None:
        self._signer = Signer(secret, salt="office-chat person")

    def issue(self) -> str:
        """A cookie value for somebody new."""
        return self._signer.sign(secrets.token_urlsafe(16)).decode("ascii")

    def of(self, cookies: Mapping[str, str]) -> str | None:
        """The person these cookies prove, None without a valid one."""
        value = cookies.get(COOKIE_NAME)
        if not value:
            return None
        try:
            return self._signer.unsign(value).decode("ascii")
        except (BadSignature, UnicodeError):
            return None

    @staticmethod
    def tab_of(headers: Mapping[str, str]) -> str | None:
        """The tab named by the X-Tab header (looked up in lower case), None without a well-formed one."""
        value = headers.get(TAB_HEADER)
        return value if value and _TAB.fullmatch(value) else None


class PersonCookie:
    """Pure-ASGI middleware: gives everybody who loads the page without a valid cookie one of their own."""

    def __init__(self, app: ASGIApp, persons: Persons) -> None:
        self._app = app
        self._persons = persons

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on; add Set-Cookie to the answer of a page load."""
        if scope["type"] != "http" or not _is_page_load(scope) or self._persons.of(_cookies(scope)) is not None:
            await self._app(scope, receive, send)
            return
        cookie = f"{COOKIE_NAME}={self._persons.issue()}; Max-Age={_MAX_AGE_S}; Path=/; HttpOnly; SameSite=Lax"

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.append("set-cookie", cookie)
                # A cached page would hand one person's cookie to the next.
                headers["cache-control"] = "no-store"
            await send(message)

        await self._app(scope, receive, send_with_cookie)


def _is_page_load(scope: Scope) -> bool:
    return bool(scope["method"] == "GET" and scope["path"] == "/")


def _cookies(scope: Scope) -> dict[str, str]:
    jar: dict[str, str] = {}
    for name, value in scope["headers"]:
        if name == b"cookie":
            for part in value.decode("latin-1").split(";"):
                key, _, text = part.strip().partition("=")
                jar[key] = text
    return jar
