"""The page's events against the real chat service: refusals are sentences, and nothing of an error reaches a person."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
from starlette.requests import Request

from appliance.access.person import COOKIE_NAME, Persons
from appliance.access.rate_limits import RateLimits
from appliance.access.rights import Access
from appliance.base.paths import Paths
from appliance.chat.service import ChatService
from appliance.network.hosts import Authority
from appliance.settings.schema import Settings
from tests.unit.engine_double import ScriptedEngine
from ui.chat import handlers as chat_handlers
from ui.chat.handlers import ChatHandlers
from ui.chat.queue_policy import CHAT_GROUP, N_SPARE_EVENTS, QueuePolicy
from ui.session_link import SessionLink

PERSONS = Persons(b"s" * 32)
TAB = "t" * 20
ADDRESS = "192.168.1.7"
ACCESS = Access.of(Settings(), Paths(Path("no such folder")), PERSONS, b"s" * 32)


def request(language: str = "en", cookie: str | None = None, tab: str = TAB) -> gr.Request:
    headers = [(b"x-lang", language.encode()), (b"x-tab", tab.encode())]
    if cookie is not None:
        headers.append((b"cookie", f"{COOKIE_NAME}={cookie}".encode()))
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, "client": (ADDRESS, 1234)}
    connection = Request(scope)
    ACCESS.identify(connection, Authority("office.test"))
    return gr.Request(connection)


class Page:
    """Handlers over a scripted engine, without a server."""

    def __init__(self, **settings: Any) -> None:
        self.engine = ScriptedEngine()
        self.settings = Settings(backend="echo", **settings)
        self.chat = ChatService(self.engine, self.settings)
        self.link = SessionLink(PERSONS)
        self.policy = QueuePolicy(2, self.link.identify)
        with gr.Blocks(analytics_enabled=False) as demo:
            gr.Markdown()
        self.policy.open_queue(demo)
        self.demo = demo
        self.handlers = ChatHandlers(
            self.chat, self.link, self.policy, RateLimits(20, 200), self.settings.max_input_chars
        )


@contextmanager
def toasts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    said: list[str] = []

    def warn(message: str, title: str) -> None:
        said.append(f"{title}: {message}")

    monkeypatch.setattr(chat_handlers, "gr", SimpleNamespace(**{**vars(gr), "Warning": warn}))
    yield said


@pytest.mark.parametrize(("language", "sentence"), [("en", "Busy right now"), ("zh", "位置已满")])
async def test_a_full_house_is_refused_in_the_persons_language(language: str, sentence: str) -> None:
    page = Page(max_batch_size=1, look_ahead=0, queue_size=0)
    assert (await page.handlers.may_ask("one", request(cookie=PERSONS.issue())))["is_valid"]
    refused = await page.handlers.may_ask("two", request(language, PERSONS.issue()))
    assert not refused["is_valid"]
    assert sentence in refused["message"]


async def test_who_asks_too_fast_hears_how_long_to_wait() -> None:
    page, cookie = Page(), PERSONS.issue()
    for _ in range(20):
        await page.handlers.may_ask("hello", request(cookie=cookie, tab="x" * 20))
    refused = await page.handlers.may_ask("hello", request(cookie=cookie))
    assert not refused["is_valid"]
    assert "Please ask again in 60 seconds" in refused["message"]
    assert "60 秒" in (await page.handlers.may_repeat("", request("zh", cookie)))["message"]
    assert (await page.handlers.may_ask("hello", request(cookie=PERSONS.issue())))["is_valid"]


async def test_a_stranger_is_told_to_reload() -> None:
    refused = await Page().handlers.may_ask("hello", request(cookie="forged"))
    assert refused["message"] == "This page does not know you any more. Please reload it."


async def test_a_fault_in_the_validator_is_a_sentence_and_a_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    page = Page()

    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret words")

    monkeypatch.setattr(page.chat, "admit", fail)
    with caplog.at_level(logging.ERROR):
        refused = await page.handlers.may_ask("hello", request(cookie=PERSONS.issue()))
    assert refused["message"] == "Something went wrong here. Please try again."
    assert "ZeroDivisionError" in caplog.text
    assert "secret words" not in caplog.text


async def test_a_fault_while_streaming_is_a_toast(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page()

    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret words")

    monkeypatch.setattr(page.chat, "ask", fail)
    with toasts(monkeypatch) as said:
        shown = [value async for value in page.handlers.ask("hello", request(cookie=PERSONS.issue()))]
    assert shown == []
    assert said == ["Sorry: Something went wrong here. Please try again."]


async def test_a_fault_in_a_plain_event_shows_an_empty_page(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page()

    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret words")

    monkeypatch.setattr(page.chat, "conversation", fail)
    assert await page.handlers.commit(request(cookie=PERSONS.issue())) == ([], "")


async def test_an_answer_streams_and_is_committed() -> None:
    page = Page()
    asking = request(cookie=PERSONS.issue())
    assert (await page.handlers.may_ask("hello", asking))["is_valid"]
    shown = page.handlers.ask("hello", asking)
    first = await anext(shown)
    assert "hello" in first
    await asyncio.sleep(0.01)  # the service's own task asks the engine
    page.engine.streams[0].say("Good day.")
    assert "Good day." not in first
    page.engine.streams[0].finish()
    rest = [value async for value in shown]
    assert rest[-1].endswith("Good day.")
    conversation, live = await page.handlers.commit(asking)
    assert [message["role"] for message in conversation] == ["user", "assistant"]
    assert live == ""


async def test_an_answer_cut_off_by_the_end_of_the_program_says_so_before_its_stream_ends() -> None:
    page = Page()
    asking = request(cookie=PERSONS.issue())
    shown = page.handlers.ask("hello", asking)
    await anext(shown)
    page.chat.refuse_new()
    drained = asyncio.create_task(page.chat.drain(0.01))
    rest = [value async for value in shown]
    await drained
    assert "shut down" in rest[-1]


async def test_who_waits_while_the_program_ends_is_told_by_the_page_not_by_a_toast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = Page()
    page.chat.refuse_new()
    with toasts(monkeypatch) as said:
        assert [value async for value in page.handlers.ask("hello", request(cookie=PERSONS.issue()))] == []
    assert said == []


async def test_a_reader_that_ends_before_its_answer_leaves_the_page_as_it_is() -> None:
    page = Page()
    asking = request(cookie=PERSONS.issue())
    await page.handlers.may_ask("hello", asking)
    shown = page.handlers.ask("hello", asking)
    await anext(shown)
    await shown.aclose()
    assert await page.handlers.commit(asking) == (gr.skip(), gr.skip())
    conversation, live = await page.handlers.stop(asking)
    assert live == ""
    assert "Stopped" in conversation[-1]["content"][0]["text"]


async def test_forget_drops_what_gradio_remembers_as_well() -> None:
    page = Page()
    app = gr.routes.App.create_app(page.demo)
    assert page.demo.state_holder is app.state_holder
    _ = app.state_holder["somebody"]
    await page.handlers.forget(request(cookie=PERSONS.issue()))
    assert "somebody" not in app.state_holder


async def test_the_queue_looks_often_only_while_somebody_is_there() -> None:
    page = Page()
    queue = page.demo._queue
    assert queue.sleep_when_free >= 0.1
    assert not page.policy.is_somebody_there()
    await page.handlers.hello(request(cookie=PERSONS.issue()))
    assert queue.sleep_when_free <= 0.02
    page.policy._quieten()
    assert queue.sleep_when_free >= 0.1


async def test_gradio_builds_no_statistics_and_has_no_bound_of_its_own() -> None:
    queue = Page().demo._queue
    assert queue.max_size is None
    before = queue.cached_event_analytics_summary
    queue.events_recorded = 10_000
    assert queue.compute_analytics_summary([{"function": "ask"}]) is before


def test_how_many_questions_run_at_once_can_change_while_the_program_runs():
    page = Page()
    queue = page.demo._queue
    group = queue.event_queue_per_concurrency_id[CHAT_GROUP]
    queue.active_jobs = [None] * (2 + N_SPARE_EVENTS)
    for n in (5, 3):
        page.policy.resize(n)
        assert group.concurrency_limit == n
    assert len(queue.active_jobs) == 5 + N_SPARE_EVENTS
    page.policy.let_all_start()
    page.policy.resize(4)
    assert group.concurrency_limit is None
