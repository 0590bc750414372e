"""Load clients: a program on the chat completions API, and a person on the page.

Both measure as their user would: `ttft` is from sending to the first visible text of the answer.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
import secrets
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx

from bench.exchange import Exchange
from bench.sse import LiveText, event_data, visible_answer

_TIMEOUT_S = 600.0
_UNLIMITED = httpx.Limits(max_connections=None, max_keepalive_connections=None)


@functools.cache
def _tls() -> ssl.SSLContext:
    """One for all clients: making it costs 20 ms of CPU, and nothing here is encrypted."""
    return ssl.create_default_context()


def http_client(base_url: str, headers: Mapping[str, str] | None = None, address: str = "") -> httpx.AsyncClient:
    """`address`: of this PC, that the connections come from."""
    transport = httpx.AsyncHTTPTransport(
        verify=_tls(), trust_env=False, limits=_UNLIMITED, local_address=address or None
    )
    return httpx.AsyncClient(
        base_url=base_url, headers=headers, timeout=_TIMEOUT_S, transport=transport, trust_env=False
    )


class ApiClient:
    """Speaks to any server of chat completions, ours or a peer's."""

    def __init__(self, base_url: str, key: str = "") -> None:
        self._http = http_client(base_url, {"authorization": f"Bearer {key}"} if key else None)

    async def ask(
        self,
        messages: Sequence[Mapping[str, str]],
        max_tokens: int,
        *,
        arrivals: list[float] | None = None,
        **parameters: Any,
    ) -> Exchange:
        """One streamed answer. `arrivals` fills as it comes; `parameters` go into the request as they are."""
        body = {
            "messages": list(messages),
            "max_tokens": max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            **parameters,
        }
        sent_s = time.perf_counter()
        arrivals = [] if arrivals is None else arrivals
        pieces: list[str] = []
        usage: dict[str, Any] = {}
        failure = ""
        try:
            async with self._http.stream("POST", "/v1/chat/completions", json=body) as reply:
                if reply.status_code != 200:
                    return Exchange(sent_s, (), time.perf_counter(), failure=f"HTTP {reply.status_code}")
                async for line in reply.aiter_lines():
                    if (event := event_data(line)) is None:
                        continue
                    if "error" in event:
                        failure = str(event["error"].get("code") or "error event")
                    usage = event.get("usage") or usage
                    if text := _content(event):
                        arrivals.append(time.perf_counter())
                        pieces.append(text)
        except httpx.HTTPError as error:
            failure = type(error).__name__
        return Exchange(
            sent_s,
            tuple(arrivals),
            time.perf_counter(),
            n_tokens=int(usage.get("completion_tokens") or len(pieces)),
            n_prompt=int(usage.get("prompt_tokens") or 0),
            n_cached=int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0),
            text="".join(pieces),
            failure=failure,
        )

    async def close(self) -> None:
        """Drop its connections."""
        await self._http.aclose()


class PageClient:
    """One person with one tab, in the protocol of the page's own front end."""

    def __init__(self, base_url: str, address: str = "") -> None:
        """`address`: see http_client."""
        headers = {"x-tab": secrets.token_urlsafe(16), "accept-language": "en"}
        self._http = http_client(base_url, headers, address)
        self._session = secrets.token_hex(6)
        self._events: dict[str, int] = {}
        self._commit = ""

    async def open(self) -> PageClient:
        """Load the page: the cookie, the list of events, and the event every page load fires."""
        (await self._http.get("/")).raise_for_status()
        config = (await self._http.get("/config")).json()
        self._events = {event["api_name"]: event["id"] for event in config["dependencies"] if event["api_name"]}
        self._commit = next(name for name in self._events if name.startswith("commit"))  # what follows `ask`
        await self._run("restore", [])
        return self

    async def ask(self, text: str, length: str = "") -> Exchange:
        """Send a message and follow the answer to its end; then the conversation is shown, as in the browser.

        `length`: what the person wishes of every answer; "" leaves it to the owner.
        """
        wishes = {"x-wishes": quote(json.dumps({"length": length}))} if length else {}
        sent_s = time.perf_counter()
        arrivals: list[float] = []
        failure = ""
        shown = ""
        try:
            body = self._body("ask", [text])
            joined = await self._http.post("/gradio_api/queue/join", json=body, headers=wishes)
            if joined.status_code != 200:
                return Exchange(sent_s, (), time.perf_counter(), failure=f"HTTP {joined.status_code}")
            live = LiveText()
            params = {"session_hash": self._session}
            async with self._http.stream("GET", "/gradio_api/queue/data", params=params) as stream:
                async for line in stream.aiter_lines():
                    if (message := event_data(line)) is None:
                        continue
                    if message["msg"] == "process_generating":
                        live.take(message)
                        answer = visible_answer(live.text)
                        if answer and answer != shown:
                            arrivals.append(time.perf_counter())
                            shown = answer
                    elif message["msg"] == "process_completed":
                        failure = "" if message.get("success") else "the event failed"
                        break
        except httpx.HTTPError as error:
            failure = type(error).__name__
        end_s = time.perf_counter()
        await self._run(self._commit, [])
        return Exchange(sent_s, tuple(arrivals), end_s, text=shown, failure=failure)

    async def place(self) -> dict[str, Any]:
        """Its place in line, as the page asks for it while it waits."""
        place: dict[str, Any] = (await self._http.get("/place")).json()
        return place

    async def new_chat(self) -> None:
        """Begin another conversation."""
        await self._run("new_chat", [])

    async def close(self) -> None:
        """Close the tab."""
        await self._http.aclose()

    async def _run(self, event: str, data: list[Any]) -> None:
        """An event without the queue."""
        reply = await self._http.post("/gradio_api/run/predict", json=self._body(event, data))
        reply.raise_for_status()

    def _body(self, event: str, data: list[Any]) -> dict[str, Any]:
        return {"data": data, "fn_index": self._events[event], "session_hash": self._session}


class AdminPage:
    """An open admin page: what its timers ask for, as often as they do."""

    def __init__(self, base_url: str, link: str) -> None:
        """`link`: the path of one that lets the owner's browser in."""
        self._http = http_client(base_url, {"x-lang": "en"})
        self._link = link
        self._session = secrets.token_hex(6)
        self._asking: list[asyncio.Task[None]] = []
        self._events: dict[str, int] = {}

    async def open(self) -> AdminPage:
        """Load it, and begin to ask. There must be no admin password."""
        await self._http.get(self._link)
        (await self._http.get("/admin/en/")).raise_for_status()
        config = (await self._http.get("/admin/en/config")).json()
        values = {part["id"]: part["props"].get("value") for part in config["components"]}
        self._events = {event["api_name"]: event["id"] for event in config["dependencies"] if event["api_name"]}
        for event in config["dependencies"]:
            ticks = [values[target] for target, name in event["targets"] if name == "tick"]
            if ticks:
                data = [values[part] for part in event["inputs"]]
                body = {"data": data, "fn_index": event["id"], "session_hash": self._session}
                self._asking.append(asyncio.create_task(self._ask(body, ticks[0])))
        return self

    async def close(self) -> None:
        """Close the tab. Raises what went wrong while it was open."""
        for task in self._asking:
            task.cancel()
        ended = await asyncio.gather(*self._asking, return_exceptions=True)
        await self._http.aclose()
        if failures := [end for end in ended if isinstance(end, Exception)]:
            raise failures[0]

    async def use_model(self, name: str) -> bool:
        """Look at the models and choose the one of that name; whether it was offered."""
        parts = await self._run({"data": [], "fn_index": self._events["look_at_models"], "session_hash": self._session})
        offered = [key for part in parts if isinstance(part, dict) for label, key in part.get("choices") or ()]
        chosen = [key for key in offered if name in key]
        for key in chosen[:1]:
            body = {"data": [key], "fn_index": self._events["use_model"], "session_hash": self._session}
            await self._run(body)
        return bool(chosen)

    async def _ask(self, body: dict[str, Any], every_s: float) -> None:
        while True:
            await self._run(body)
            await asyncio.sleep(every_s)

    async def _run(self, body: dict[str, Any]) -> list[Any]:
        reply = await self._http.post("/admin/en/gradio_api/run/predict", json=body)
        data: list[Any] = reply.raise_for_status().json()["data"]
        return data


async def open_pages(base_url: str, n_pages: int) -> list[PageClient]:
    """That many people, each with a page of their own, loaded one after another as they would come."""
    return [await PageClient(base_url).open() for _ in range(n_pages)]


async def close_all(clients: Sequence[PageClient | ApiClient]) -> None:
    """Everybody leaves."""
    await asyncio.gather(*(client.close() for client in clients))


def _content(event: dict[str, Any]) -> str:
    return "".join((choice.get("delta") or {}).get("content") or "" for choice in event.get("choices") or ())


def in_turns(texts: Sequence[str]) -> list[dict[str, str]]:
    """Texts as a conversation: the first is the user's, the second an answer, and so on."""
    return [{"role": "assistant" if at % 2 else "user", "content": text} for at, text in enumerate(texts)]


_LOG_LINE = re.compile(r"request \S+: n_prompt=(\d+) n_cached=(\d+) n_decoded=(\d+) ")


def logged_counts(log: str) -> list[tuple[int, int, int]]:
    """(n_prompt, n_cached, n_decoded) of every finished request in the program's log: what a page is not told."""
    return [(int(m[1]), int(m[2]), int(m[3])) for m in _LOG_LINE.finditer(log)]


def as_messages(text: str, system_prompt: str = "") -> list[dict[str, str]]:
    """One question as an API conversation."""
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    return [*system, {"role": "user", "content": text}]
