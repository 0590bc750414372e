"""What of Gradio a browser reaches: its own person's events, and nothing that makes Gradio stumble."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from appliance.access.person import COOKIE_NAME, Persons
from ui.site import page_gate
from ui.site.page_gate import PageEvents, PageGate, PageStreams

PERSONS = Persons(b"s" * 32)
EVENTS = PageEvents(queued={0: 1, 9: 0}, direct={3: 0})
ASK = {"fn_index": 0, "data": ["hello"], "session_hash": "mine"}


class Gradio:
    """Stands for Gradio: gives back what it was given, and streams without an end."""

    def __init__(self) -> None:
        self.n_streams_ended = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.url.path.endswith("queue/data"):
            await StreamingResponse(self._stream())(scope, receive, send)
            return
        body = await request.body()
        await JSONResponse({"path": request.url.path, "body": json.loads(body or b"null")})(scope, receive, send)

    async def _stream(self) -> AsyncIterator[str]:
        try:
            yield "data: {}\n\n"
            await asyncio.Event().wait()
        finally:
            self.n_streams_ended += 1


class Site:
    """The gate before the double, and browsers with and without a cookie."""

    def __init__(self, *known: str) -> None:
        self.gradio = Gradio()
        self.streams = PageStreams(set(known).__contains__)
        self.app = PageGate(self.gradio, EVENTS, self.streams, PERSONS)

    def browser(self, *, cookie: bool = True) -> httpx.AsyncClient:
        cookies = {COOKIE_NAME: PERSONS.issue()} if cookie else {}
        transport = httpx.ASGITransport(self.app)
        return httpx.AsyncClient(transport=transport, base_url="http://office", cookies=cookies)


async def test_what_the_page_asks_arrives_without_anything_else() -> None:
    async with Site().browser() as browser:
        body = {**ASK, "trigger_id": 5, "event_data": {"a": 1}, "batched": True, "simple_format": True}
        got = (await browser.post("/gradio_api/queue/join", json=body)).json()
        assert got["body"] == {**ASK, "trigger_id": 5, "event_data": None}
        assert (await browser.post("/gradio_api/run/predict", json={**ASK, "fn_index": 3, "data": []})).is_success
        assert (await browser.get("/gradio_api/app_id")).is_success
        assert (await browser.get("/config")).is_success


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"fn_index": 9999}, 404),
        ({"fn_index": -1}, 404),
        ({"fn_index": 3}, 404),
        ({"fn_index": False}, 404),
        ({"fn_index": [0]}, 404),
        ({"data": [None]}, 422),
        ({"data": [{"a": 1}]}, 422),
        ({"data": []}, 422),
        ({"data": ["a", "b"]}, 422),
        ({"data": "a"}, 422),
        ({"session_hash": None}, 422),
        ({"session_hash": "x" * 65}, 422),
    ],
)
async def test_a_forged_question_gets_a_sentence(change: dict[str, Any], status: int) -> None:
    async with Site().browser() as browser:
        answer = await browser.post("/gradio_api/queue/join", json={**ASK, **change})
        assert answer.status_code == status
        assert answer.json()["detail"].endswith(".")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"[" * 100_000, b"\xff", b'"x"'])
async def test_what_is_no_json_object_gets_a_sentence(body: bytes) -> None:
    async with Site().browser() as browser:
        assert (await browser.post("/gradio_api/queue/join", content=body)).status_code == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "upload"),
        ("POST", "call/ask"),
        ("GET", "heartbeat/x"),
        ("GET", "dev/reload"),
        ("GET", "proxy=http://127.0.0.1/"),
        ("GET", "file=/etc/passwd"),
        ("HEAD", "file=/etc/passwd"),
        ("GET", "info"),
        ("PUT", "queue/join"),
    ],
)
async def test_what_the_page_never_asks_is_not_there(method: str, path: str) -> None:
    async with Site().browser() as browser:
        assert (await browser.request(method, f"/gradio_api/{path}", json=ASK)).status_code == 404


async def test_a_session_belongs_to_whoever_used_it_first() -> None:
    site = Site("mine")
    cancel = {"session_hash": "mine", "fn_index": 0, "event_id": "e"}
    async with site.browser() as mine, site.browser() as other, site.browser(cookie=False) as stranger:
        # A stranger may join: the page then tells them to reload.
        assert (await stranger.post("/gradio_api/queue/join", json=ASK)).is_success
        assert (await mine.post("/gradio_api/queue/join", json=ASK)).is_success
        for somebody in (other, stranger):
            assert (await somebody.post("/gradio_api/queue/join", json=ASK)).status_code == 404
            assert (await somebody.get("/gradio_api/queue/data?session_hash=mine")).status_code == 404
            assert (await somebody.post("/gradio_api/cancel", json=cancel)).status_code == 404
        assert (await mine.post("/gradio_api/cancel", json=cancel)).is_success
        assert (await mine.post("/gradio_api/cancel", json={**cancel, "fn_index": [0]})).status_code == 404
        assert (await mine.get("/gradio_api/queue/data?session_hash=other")).status_code == 404


async def test_only_so_many_sessions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_gate, "N_SESSIONS", 2)
    streams = PageStreams(bool)
    for session in ("a", "b", "a", "c"):
        assert streams.bind(session, "me")
    assert [streams.is_of(session, "me") for session in "abc"] == [True, False, True]


async def test_closing_ends_the_streams_in_good_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_gate, "HEAR_THE_END_S", 0.01)
    monkeypatch.setattr(page_gate, "COMMIT_S", 0.01)
    site = Site("mine")
    async with site.browser() as browser:
        await browser.post("/gradio_api/queue/join", json=ASK)
        reading = asyncio.create_task(browser.get("/gradio_api/queue/data?session_hash=mine"))
        await asyncio.sleep(0.02)
        await site.streams.close()
        assert (await reading).text == "data: {}\n\n"
        assert site.gradio.n_streams_ended == 1


async def test_a_reader_that_goes_away_ends_its_stream() -> None:
    site = Site("mine")
    async with site.browser() as browser:
        await browser.post("/gradio_api/queue/join", json=ASK)
        reading = asyncio.create_task(browser.get("/gradio_api/queue/data?session_hash=mine"))
        await asyncio.sleep(0.02)
        reading.cancel()
        await asyncio.wait({reading})
        await asyncio.sleep(0.02)
        assert site.gradio.n_streams_ended == 1
        await site.streams.close()
