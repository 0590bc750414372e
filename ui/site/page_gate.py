"""What a browser may ask of Gradio: only what our page asks, and only for its own person.

Gradio serves far more than the page uses (uploads, direct calls, a proxy, events nobody can press), takes any number
for an event's, prints a traceback for what does not fit, and gives a stream to whoever names its session.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse

if TYPE_CHECKING:
    import gradio as gr
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from appliance.access.person import Persons

PREFIX: Final = "/gradio_api/"
N_SESSIONS: Final = 4096
"""Pages whose person is remembered; the one asked least recently is forgotten first."""
MAX_ID_CHARS: Final = 64
HEAR_THE_END_S: Final = 0.5
COMMIT_S: Final = 0.3
"""At the end of the program: how long pages may take to hear that their answers are over, and to ask for the result."""

_ANYBODY: Final = "anybody"
_OPEN: Final = frozenset({"app_id", "startup-events", "theme.css"})
"""What anybody may GET: the page's style sheet, the start of the queue, and whether the program is back."""


class PageStreams:
    """Whose the pages are, and the streams that are open to them. Belongs to the event loop's thread."""

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        """`is_known`: whether Gradio has anything to say to a session; it logs an error for one it does not know."""
        self._is_known = is_known
        self._persons: OrderedDict[str, str] = OrderedDict()
        self._open: set[asyncio.Task[None]] = set()

    def bind(self, session: str, person: str | None) -> bool:
        """Whether `session` is this person's; one that nobody has used becomes theirs.

        A stranger may use a new one: their event tells them to reload. Without a person it gets no stream.
        """
        if person is None:
            return session not in self._persons
        owner = self._persons.setdefault(session, person)
        self._persons.move_to_end(session)
        if len(self._persons) > N_SESSIONS:
            self._persons.popitem(last=False)
        return owner == person

    def is_of(self, session: object, person: str | None) -> bool:
        """Whether this person has asked something in `session`."""
        return isinstance(session, str) and person is not None and self._persons.get(session) == person

    def may_read(self, session: str | None, person: str | None) -> bool:
        """Whether this person's stream can be opened."""
        return session is not None and self.is_of(session, person) and self._is_known(session)

    async def carry(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one stream until it ends or `close` is called; then its connection is closed in good order."""
        has_begun = False

        async def watched_send(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        async def serve() -> None:
            await app(scope, receive, watched_send)

        task = asyncio.get_running_loop().create_task(serve())
        self._open.add(task)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            was_ended = task not in self._open
            self._open.discard(task)
        if not was_ended:
            await task  # raises what it raised
        elif has_begun:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            await _refusal(503, "The program is shutting down.")(scope, receive, send)

    async def close(self) -> None:
        """Let pages hear how their answers ended and ask for the result; then end every open stream.

        Gradio's own would wait up to ten seconds before they look whether they should end.
        """
        if self._open:
            await asyncio.wait(set(self._open), timeout=HEAR_THE_END_S)
            await asyncio.sleep(COMMIT_S)
        tasks, self._open = self._open, set()
        for task in tasks:
            task.cancel()


@dataclass(frozen=True)
class PageEvents:
    """The events that can be pressed: their number and how many texts they take."""

    queued: dict[int, int]
    direct: dict[int, int]

    @classmethod
    def of(cls, demo: gr.Blocks) -> PageEvents:
        """Those of a Blocks. An event without a function only cancels others, and the page never sends it."""
        fns = {number: fn for number, fn in demo.fns.items() if fn.fn is not None and fn.api_name}
        return cls(
            {number: len(fn.inputs) for number, fn in fns.items() if fn.queue},
            {number: len(fn.inputs) for number, fn in fns.items() if not fn.queue},
        )


class PageGate:
    """Pure-ASGI middleware around Gradio's app. Whatever passes fits; the rest gets one sentence in JSON."""

    def __init__(
        self, app: ASGIApp, events: PageEvents, streams: PageStreams | None, persons: Persons | None, at: str = ""
    ) -> None:
        """`at`: the path the page is mounted at. `streams` and `persons` None: a page without queued events, on which
        all who get this far are one, as on the admin's."""
        self._app = app
        self._events = events
        self._streams = streams or PageStreams(_nothing_to_say)
        self._persons = persons
        self._prefix = at + PREFIX

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what the page asks."""
        if scope["type"] != "http" or not scope["path"].startswith(self._prefix):
            await self._app(scope, receive, send)
            return
        request = HTTPConnection(scope)
        person = self._persons.of(request.cookies) if self._persons is not None else _ANYBODY
        path = scope["path"].removeprefix(self._prefix)
        if scope["method"] == "GET":
            if path in _OPEN:
                await self._app(scope, receive, send)
            elif path == "queue/data" and self._streams.may_read(request.query_params.get("session_hash"), person):
                await self._streams.carry(self._app, scope, receive, send)
            else:
                await _refusal(404, "There is nothing here.")(scope, receive, send)
            return
        body = _parsed(await _read(receive)) if scope["method"] == "POST" else None
        passed = self._judge(path, body or {}, person)
        if isinstance(passed, JSONResponse):
            await passed(scope, receive, send)
        else:
            await self._app(scope, _replay(passed, receive), send)

    def _judge(self, path: str, body: dict[str, Any], person: str | None) -> dict[str, Any] | JSONResponse:
        """What Gradio is given of a POST, or why it gets nothing."""
        if path == "queue/join":
            return self._event(self._events.queued, body, person)
        if path.startswith("run/"):
            return self._event(self._events.direct, body, person)
        if path in ("cancel", "reset"):
            names = ("session_hash", "event_id", "fn_index")
            session, event_id, number = (body.get(name) for name in names)
            if path == "reset" and isinstance(event_id, str):
                return {"event_id": event_id}  # Gradio does nothing with it
            is_event = isinstance(event_id, str) and isinstance(number, int) and number in self._events.queued
            if is_event and self._streams.is_of(session, person):
                return dict(zip(names, (session, event_id, number), strict=True))
        return _refusal(404, "There is nothing here.")

    def _event(self, events: dict[int, int], body: dict[str, Any], person: str | None) -> dict[str, Any] | JSONResponse:
        number, texts, session = body.get("fn_index"), body.get("data"), body.get("session_hash")
        if type(number) is not int or number not in events:
            return _refusal(404, "There is no such event.")
        if self._persons is None and isinstance(texts, list):
            texts = ["" if text is None else text for text in texts]  # a list from which nothing was picked
        if not isinstance(session, str) or not 0 < len(session) <= MAX_ID_CHARS:
            return _refusal(422, "session_hash must be a short text.")
        if not isinstance(texts, list) or len(texts) != events[number] or not all(isinstance(t, str) for t in texts):
            return _refusal(422, f"data must be a list of {events[number]} texts.")
        if not self._streams.bind(session, person):
            return _refusal(404, "There is no such session.")
        trigger = body.get("trigger_id")
        return {
            "fn_index": number,
            "data": texts,
            "session_hash": session,
            "trigger_id": trigger if type(trigger) is int else None,
            "event_data": None,
        }


def _nothing_to_say(_session: str) -> bool:
    return False


def _refusal(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"detail": sentence}, status_code=status)


async def _read(receive: Receive) -> bytes:
    """The whole body; how long it may be is decided further out."""
    parts = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b""
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _parsed(body: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _replay(body: dict[str, Any], receive: Receive) -> Receive:
    """A `receive` that gives `body` first."""
    first: Message | None = {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

    async def replayed() -> Message:
        nonlocal first
        if first is None:
            return await receive()
        message, first = first, None
        return message

    return replayed
