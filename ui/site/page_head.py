"""What a messenger shows of a link to the page: our title and picture, where Gradio puts its own, from elsewhere."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers, MutableHeaders

from ui.words.messages import LANGUAGES, say

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PREVIEW: Final = re.compile(rb'<meta\s+(?:property="og:|name="twitter:)[^>]*>\s*')
ICON: Final = "/favicon.ico"


class OwnHead:
    """Pure-ASGI middleware: replaces the preview in the head of every HTML page that has one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on; an HTML page is held until it is whole."""
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        parts: list[bytes] = []

        async def send_with_own_head(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_html(message):
                start = message
            elif start is None:
                await send(message)
            else:
                parts.append(message.get("body", b""))
                if not message.get("more_body"):
                    page = with_own_preview(b"".join(parts), _base(scope))
                    MutableHeaders(scope=start)["content-length"] = str(len(page))
                    await send(start)
                    await send({"type": "http.response.body", "body": page})

        await self._app(scope, receive, send_with_own_head)


def with_own_preview(page: bytes, base: str) -> bytes:
    """The page's HTML with our title, description and picture in place of Gradio's, if it has any. `base`: where the
    page was reached, without a slash."""
    if not _PREVIEW.search(page):
        return page
    title, description = (" · ".join(say(language, key) for language in LANGUAGES) for key in ("title", "preview"))
    shown = {"og:type": "website", "og:title": title, "og:description": description, "og:image": base + ICON}
    ours = "".join(f'<meta property="{name}" content="{escape(text)}">' for name, text in shown.items())
    return _PREVIEW.sub(b"", page).replace(b"</head>", ours.encode() + b"</head>", 1)


def _is_html(message: Message) -> bool:
    return Headers(raw=message["headers"]).get("content-type", "").startswith("text/html")


def _base(scope: Scope) -> str:
    return f"{scope['scheme']}://{Headers(scope=scope).get('host', '')}"
