"""The HTTP routes, with an engine that repeats the question."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from appliance.access.person import COOKIE_NAME, Persons
from appliance.access.rate_limits import RateLimits
from appliance.access.rights import Access
from appliance.base.paths import Paths
from appliance.chat.service import ChatService
from appliance.engine.client import EngineState
from appliance.engine.request import FinishReason, Message, Request, Running
from appliance.http.api import make_router
from appliance.http.api_request import ApiError, conversation, parse
from appliance.http.event_stream import make_stream_router
from appliance.http.web import make_app
from appliance.settings.schema import Settings
from tests.unit.engine_double import ScriptedEngine, ScriptedStream

USER = {"role": "user", "content": "Hello, you"}


class ParrotEngine(ScriptedEngine):
    """Answers with the last message, or with what the test sets."""

    reason = FinishReason.STOP
    error = ""
    answers = True

    def submit(self, request: Request) -> ScriptedStream:
        stream = super().submit(request)
        if self.answers:
            if not self.error:
                stream.say(request.messages[-1].text)
            stream.finish(self.reason, self.error)
        return stream


class Site:
    """The app without the page, and a client of it."""

    def __init__(self, data_dir: Path) -> None:
        self.engine = ParrotEngine()
        self.settings = Settings(
            max_batch_size=2, look_ahead=0, queue_size=0, answer_cache_scope="off", keyless_here=True
        )
        self.chat = ChatService(self.engine, self.settings)
        self.persons = Persons(b"k" * 32)
        access = Access.of(self.settings, Paths(data_dir), self.persons, b"k" * 32)
        limits = RateLimits(self.settings.questions_per_minute, self.settings.questions_per_minute_and_address)
        routers = [
            make_router(self.chat, self.persons, self.settings, limits),
            make_stream_router(self.chat, self.settings, limits),
        ]
        self.app = make_app(routers, self.persons, access, str)

        @self.app.get("/")
        async def page() -> str:
            return "page"

        @self.app.get("/breaks")
        async def breaks() -> None:
            raise ValueError("a secret")

        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    async def complete(self, **body: object) -> httpx.Response:
        return await self.http.post("/v1/chat/completions", json={"messages": [USER], **body})


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    async with site.http:
        yield site


def events(response: httpx.Response) -> list[dict]:
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


async def test_a_completion_has_the_shape_clients_expect(site):
    body = (await site.complete(model="any name")).json()
    assert body["id"].startswith("chatcmpl-")
    assert (body["object"], body["model"]) == ("chat.completion", "any name")
    (choice,) = body["choices"]
    assert choice["message"]["content"] == "Hello, you"
    assert choice["finish_reason"] == "stop"
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"]


async def test_without_a_model_the_one_that_answers_is_named(site):
    assert (await site.complete()).json()["model"] == "Double"


async def test_a_stream_has_role_text_reason_usage_and_an_end(site):
    response = await site.complete(stream=True, stream_options={"include_usage": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    first, *middle, last, usage = events(response)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in middle) == "Hello, you"
    assert last["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 10
    assert len({chunk["id"] for chunk in (first, *middle, last, usage)}) == 1


async def test_an_answer_at_its_limit_says_length(site):
    site.engine.reason = FinishReason.LENGTH
    assert (await site.complete()).json()["choices"][0]["finish_reason"] == "length"


async def test_parameters_reach_the_engine(site):
    await site.complete(temperature=0, top_p=0.5, top_k=3, seed=7, stop="END", max_tokens=9)
    request = site.engine.last.request
    assert (request.sampling.temperature, request.sampling.top_p, request.sampling.top_k) == (0, 0.5, 3)
    assert (request.sampling.seed, request.stop, request.max_tokens) == (7, ("END",), 9)


@pytest.mark.parametrize(
    ("name", "value"),
    [("n", 2), ("tools", [{}]), ("logprobs", True), ("response_format", {}), ("presence_penalty", 1), ("nonsense", 0)],
)
async def test_a_parameter_that_is_not_supported_is_refused_by_name(site, name, value):
    response = await site.complete(**{name: value})
    assert response.status_code == 422
    error = response.json()["error"]
    assert error["param"] == name
    assert name in error["message"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "unsupported_parameter")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("n", 1),
            ("presence_penalty", 0),
            ("logprobs", False),
            ("response_format", {"type": "text"}),
            ("tools", None),
        ),
        *(("tools", []), ("tool_choice", "auto"), ("parallel_tool_calls", True), ("metadata", {})),
        *(("modalities", ["text"]), ("service_tier", "auto"), ("top_logprobs", 0)),
    ],
)
async def test_a_parameter_that_asks_for_nothing_is_taken(site, name, value):
    assert (await site.complete(**{name: value})).status_code == 200


async def test_the_newer_name_of_the_longest_answer_counts_where_a_client_sends_both(site):
    await site.complete(max_tokens=5, max_completion_tokens=7)
    assert site.engine.last.request.max_tokens == 7


async def test_an_answer_is_taken_back_with_every_field_it_came_with(site):
    message = (await site.complete()).json()["choices"][0]["message"]
    assert "refusal" in message
    assert (await site.complete(messages=[USER, {**message, "tool_calls": None}, USER])).status_code == 200
    response = await site.complete(messages=[{**USER, "tool_calls": []}])
    assert response.json()["error"]["param"] == "messages.0.tool_calls"


async def test_the_numbers_one_and_true_are_not_the_same(site):
    assert (await site.complete(n=True)).status_code == 422


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1),
        ("temperature", "hot"),
        ("top_p", 0),
        ("max_tokens", 0),
        ("stop", ""),
        ("stop", ["a"] * 5),
        ("messages", []),
        ("messages", [{"role": "assistant", "content": "x"}]),
        ("messages", [{"role": "user"}]),
        ("messages", [{"role": "robot", "content": "x"}]),
        ("messages", [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
        ("messages", [{"role": "user", "content": " "}]),
        ("stream_options", {"other": 1}),
    ],
)
async def test_a_bad_value_is_refused_in_the_shape_clients_expect(site, name, value):
    response = await site.complete(**{name: value})
    assert response.status_code == 422
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert site.engine.streams == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 10_000])
async def test_a_body_that_is_no_json_object_is_refused(site, body):
    response = await site.http.post("/v1/chat/completions", content=body)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_json"


async def test_text_parts_are_one_text():
    wanted = parse(b'{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}')
    assert conversation(wanted.messages, 10) == [Message("user", "ab")]


async def test_neighbours_of_one_role_become_one_message():
    body = json.dumps({"messages": [{"role": role, "content": role} for role in ("developer", "user", "user")]})
    merged = conversation(parse(body.encode()).messages, 512)
    assert merged == [Message("system", "developer"), Message("user", "user\n\nuser")]


@pytest.mark.parametrize(
    ("roles", "told"),
    [
        ("au", [("user", ""), ("assistant", "0"), ("user", "1")]),
        ("sau", [("system", "0"), ("user", ""), ("assistant", "1"), ("user", "2")]),
        ("usu", [("user", "0\n\n1\n\n2")]),
        ("uasu", [("user", "0"), ("assistant", "1"), ("user", "2\n\n3")]),
        ("us", [("user", "0\n\n1")]),
        ("uas", [("user", "0"), ("assistant", "1"), ("user", "2")]),
        ("ssu", [("system", "0\n\n1"), ("user", "2")]),
        ("uaau", [("user", "0"), ("assistant", "1\n\n2"), ("user", "3")]),
    ],
)
def test_messages_in_any_order_become_a_conversation(roles, told):
    names = {"u": "user", "a": "assistant", "s": "system"}
    body = {"messages": [{"role": names[role], "content": str(n)} for n, role in enumerate(roles)]}
    assert conversation(parse(json.dumps(body).encode()).messages, 512) == [Message(*each) for each in told]


def test_what_a_client_keeps_of_messages_is_taken():
    answer = {"role": "assistant", "content": None, "name": "bot", "annotations": [], "refusal": None, "audio": None}
    body = {"messages": [{"role": "user", "content": "a", "name": "Ann"}, answer, {"role": "user", "content": "b"}]}
    told = conversation(parse(json.dumps(body).encode()).messages, 512)
    assert [message.text for message in told] == ["a", "", "b"]


def test_a_later_system_message_may_be_long_and_a_question_in_pieces_may_not():
    long = {"role": "system", "content": "s" * 600}
    question = {"role": "user", "content": "q" * 300}
    conversation(parse(json.dumps({"messages": [question, long]}).encode()).messages, 512)
    with pytest.raises(ApiError) as caught:
        conversation(parse(json.dumps({"messages": [question, question]}).encode()).messages, 512)
    assert caught.value.status == 413


@pytest.mark.parametrize("message", [{"role": "tool", "content": "x"}, {"role": "assistant", "tool_calls": [{}]}])
def test_tools_are_refused(message):
    with pytest.raises(ApiError):
        parse(json.dumps({"messages": [{"role": "user", "content": "x"}, message]}).encode())


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "seed"])
@pytest.mark.parametrize("value", ["true", "false", '"1"', "[1]", "1e400", "-1e400"])
def test_what_is_no_number_is_refused_where_one_belongs(name, value):
    body = f'{{"messages": [{{"role": "user", "content": "x"}}], "{name}": {value}}}'
    with pytest.raises(ApiError) as caught:
        parse(body.encode())
    assert (caught.value.status, caught.value.param) == (422, name)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_pythons_own_numbers_are_no_json(value):
    with pytest.raises(ApiError) as caught:
        parse(f'{{"messages": [], "temperature": {value}}}'.encode())
    assert caught.value.status == 400


@pytest.mark.parametrize("field", [{"stop": "x" * 501}, {"user": "x" * 501}, {"model": "x" * 501}])
def test_names_and_stops_are_short(field):
    with pytest.raises(ApiError):
        parse(json.dumps({"messages": [{"role": "user", "content": "x"}], **field}).encode())


@pytest.mark.parametrize("n_chars", [513, 1_000_000])
async def test_a_message_that_is_too_long_is_refused_at_once_with_413(site, n_chars):
    began = time.monotonic()
    for character in ("a", "字"):
        response = await site.complete(messages=[{"role": "user", "content": character * n_chars}])
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "too_long"
    assert time.monotonic() - began < 1
    assert site.engine.streams == []


async def test_the_limit_itself_is_taken(site):
    assert (await site.complete(messages=[{"role": "user", "content": "字" * 512}])).status_code == 200


async def test_a_body_without_a_length_is_counted_while_it_comes(site):
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(300):
            yield b" " * 10_000

    response = await site.http.post("/v1/chat/completions", content=endless())
    assert response.status_code == 413


def test_many_messages_are_bounded_in_number_and_size():
    message = {"role": "user", "content": "x"}
    with pytest.raises(ApiError) as caught:
        conversation(parse(json.dumps({"messages": [message] * 501}).encode()).messages, 512)
    assert caught.value.status == 413
    long = {"role": "assistant", "content": "x" * 50_000}
    with pytest.raises(ApiError) as caught:
        conversation(parse(json.dumps({"messages": [message, long] * 5}).encode()).messages, 512)
    assert caught.value.status == 413


async def test_too_many_at_once_are_told_when_to_come_back(site):
    site.engine.answers = False
    held = [asyncio.create_task(site.complete()) for _ in range(2)]
    await asyncio.sleep(0.05)
    for stream in (True, False):
        response = await site.complete(stream=stream)
        assert response.status_code == 503
        assert int(response.headers["retry-after"]) >= 1
        assert response.json()["error"]["code"] == "busy"
    for stream in site.engine.streams:
        stream.finish()
    assert [response.status_code for response in await asyncio.gather(*held)] == [200, 200]
    assert site.chat.n_answers == 0


@pytest.mark.parametrize(("code", "status"), [("too_long", 413), ("engine_failed", 503), ("bad_conversation", 422)])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_refusal_by_the_engine_is_a_status(site, code, status, stream):
    site.engine.error, site.engine.reason = code, FinishReason.ERROR
    response = await site.complete(stream=stream)
    assert response.status_code == status
    assert response.json()["error"]["code"] == code


async def test_a_failure_in_mid_stream_is_an_event_and_then_the_end(site):
    site.engine.answers = False
    asking = asyncio.create_task(site.complete(stream=True))
    await asyncio.sleep(0.05)
    site.engine.last.say("half")
    site.engine.last.finish(FinishReason.ERROR, "engine_failed")
    *_, text, error = events(await asking)
    assert text["choices"][0]["delta"]["content"] == "half"
    assert error["error"]["code"] == "engine_failed"


async def test_a_client_that_is_cut_off_ends_its_answer(site):
    site.engine.answers = False
    asking = asyncio.create_task(site.complete(stream=True))
    await asyncio.sleep(0.05)
    site.engine.last.start()
    await asyncio.sleep(0.05)
    asking.cancel()
    await asyncio.sleep(0.05)
    assert site.engine.last.n_aborts >= 1
    assert site.chat.n_answers == 0


async def test_health_lives_and_ready_says_why_not(site):
    assert (await site.http.get("/health")).json() == {"status": "ok"}
    assert (await site.http.get("/ready")).status_code == 200
    for state in (EngineState.LOADING, EngineState.RESTARTING, EngineState.FAILED):
        site.engine.state = state
        response = await site.http.get("/ready")
        assert (response.status_code, response.json()) == (503, {"status": state.value})
        assert (await site.http.get("/health")).status_code == 200
    await site.chat.drain(0)
    assert (await site.http.get("/ready")).json() == {"status": "closing"}


async def test_the_page_gives_a_cookie_once(site):
    first = await site.http.get("/")
    cookie = first.headers["set-cookie"]
    assert COOKIE_NAME in cookie
    assert all(part in cookie for part in ("HttpOnly", "SameSite=Lax", "Path=/"))
    assert first.headers["cache-control"] == "no-store"
    assert "set-cookie" not in (await site.http.get("/")).headers
    assert "set-cookie" not in (await site.http.get("/health")).headers


async def test_the_place_is_told_to_its_owner_only(site):
    await site.http.get("/")
    person = site.persons.of({COOKIE_NAME: site.http.cookies[COOKIE_NAME]})
    tab = "t" * 20
    site.chat.attach_page_queue(lambda: [("other", tab), (person, tab)])
    nothing = {"ahead": None, "wait_s": None, "closing": False, "running": False, "n_turns": 0}
    waiting = nothing | {"ahead": 1, "wait_s": 0}
    assert (await site.http.get("/place", headers={"X-Tab": tab})).json() == waiting
    assert (await site.http.get("/place")).json() == nothing
    site.http.cookies.clear()
    assert (await site.http.get("/place", headers={"X-Tab": tab})).json() == nothing


async def test_every_answer_carries_the_security_headers(site):
    for path in ("/", "/health", "/none", "/breaks"):
        headers = (await site.http.get(path)).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


async def test_an_unforeseen_error_shows_and_logs_no_words(site, caplog):
    response = await site.http.get("/breaks")
    assert response.status_code == 500
    assert "secret" not in response.text + caplog.text
    assert "Traceback" not in response.text
    assert "ValueError at test_api.py" in caplog.text


async def test_no_schema_and_no_documentation_pages(site):
    for path in ("/openapi.json", "/docs", "/redoc"):
        assert (await site.http.get(path)).status_code == 404


async def test_the_model_is_listed_and_found_by_its_name(site):
    listed = (await site.http.get("/v1/models")).json()
    assert (listed["object"], [model["id"] for model in listed["data"]]) == ("list", ["Double"])
    assert (await site.http.get("/v1/models/Double")).json() == listed["data"][0]
    for path in ("/v1/models/other", "/v1/embeddings", "/v1/"):
        missing = await site.http.get(path)
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
    site.engine.info = None
    assert (await site.http.get("/v1/models")).json()["data"] == []


async def test_each_who_is_busy_is_told_a_later_moment(site):
    site.engine.running, site.engine.n_running = [Running(1, 0), Running(2, 0)], 2
    site.engine.answers = False
    held = [asyncio.create_task(site.complete()) for _ in range(2)]
    await asyncio.sleep(0.05)
    told = [int((await site.complete(user=f"u{number}")).headers["retry-after"]) for number in range(6)]
    assert told == sorted(told)
    assert told[-1] > told[0] >= 1
    for stream in site.engine.streams:
        stream.finish()
    await asyncio.gather(*held)


async def test_what_happens_is_counted_and_no_word_of_it_is_kept(site):
    await site.complete(messages=[{"role": "user", "content": "Zanzibar"}], user="Zanzibar")
    await site.complete(tools=[{}])
    site.engine.reason, site.engine.error = FinishReason.ERROR, "engine_failed"
    await site.complete()
    response = await site.http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = dict(line.rsplit(" ", 1) for line in response.text.splitlines() if not line.startswith("#"))
    assert lines['office_chat_answers_total{end="stop",origin="model"}'] == "1.0"
    assert lines['office_chat_answers_total{end="error",origin="model"}'] == "1.0"
    assert lines['office_chat_errors_total{code="engine_failed"}'] == "1.0"
    assert lines['office_chat_errors_total{code="unsupported_parameter"}'] == "1.0"
    assert lines['office_chat_ttft_server_seconds_count{origin="model"}'] == "1.0"
    assert float(lines['office_chat_memory_bytes{process="web"}']) > 1e6
    assert "Zanzibar" not in response.text


class Events(NamedTuple):
    """What an EventSource makes of a response."""

    texts: list[str]
    named: dict[str, dict]
    last_id: str


def read_events(response: httpx.Response) -> Events:
    """By the rules of the HTML standard: data lines are joined, one space after the colon goes."""
    events = Events([], {}, "")
    for block in response.text.split("\n\n"):
        fields = [line.partition(":")[::2] for line in block.split("\n") if line and not line.startswith(":")]
        data = "\n".join(value.removeprefix(" ") for name, value in fields if name == "data")
        name = next((value.strip() for name, value in fields if name == "event"), "")
        events = events._replace(last_id=next((v.strip() for n, v in fields if n == "id"), events.last_id))
        if name:
            events.named[name] = json.loads(data)
        elif data:
            events.texts.append(data)
    return events


@pytest.fixture
async def page(site) -> Site:
    """A site whose client has loaded the page."""
    await site.http.get("/")
    site.http.headers["accept"] = "text/event-stream"
    return site


def ask_events(site: Site, prompt: str, **headers: str):
    return site.http.get("/api/stream", params={"prompt": prompt}, headers=headers)


@pytest.mark.parametrize(
    "text", ["Hello, you", " two  spaces", "one\n\ntwo\n", "a\r\nb\rc", "data: x\n: y\nevent: z", "字🙂"]
)
async def test_an_event_source_gets_exactly_the_text_and_an_end(page, text):
    page.engine.answers = False
    asking = asyncio.create_task(ask_events(page, "question"))
    await asyncio.sleep(0.05)
    page.engine.last.say(text)
    page.engine.last.finish()
    response = await asking
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-store"
    events = read_events(response)
    assert "".join(events.texts) == text.replace("\r\n", "\n").replace("\r", "\n")
    assert events.named["done"]["finish_reason"] == "stop"
    assert events.named["done"]["usage"]["completion_tokens"] == len(text)


async def test_an_event_source_that_connects_again_does_not_ask_again(page):
    events = read_events(await ask_events(page, "Hi"))
    assert events.last_id
    assert (await ask_events(page, "Hi", **{"Last-Event-ID": events.last_id})).status_code == 204
    assert len(page.engine.streams) == 1


async def test_an_event_source_belongs_to_the_pages_person_and_is_its_answer(page):
    page.engine.answers = False
    person = page.persons.of({COOKIE_NAME: page.http.cookies[COOKIE_NAME]})
    asking = [asyncio.create_task(ask_events(page, f"Hi {number}")) for number in range(2)]
    await asyncio.sleep(0.05)
    assert {stream.request.person for stream in page.engine.streams} == {person}
    third = read_events(await ask_events(page, "Hi 3"))
    assert third.named["error"]["code"] == "already_answering"
    assert third.named["error"]["retry_after_s"] >= 1
    for stream in page.engine.streams:
        stream.finish()
    await asyncio.gather(*asking)


@pytest.mark.parametrize(
    ("prompt", "code"), [("", "empty"), ("  ", "empty"), ("字" * 513, "too_long"), ("x" * 9000, "too_long")]
)
async def test_a_question_an_event_source_may_not_ask_is_an_event_with_a_sentence(page, prompt, code):
    response = await ask_events(page, prompt)
    assert response.status_code == 200
    error = read_events(response).named["error"]
    assert error["code"] == code
    assert error["message"]
    assert page.engine.streams == []


async def test_a_failure_in_mid_stream_is_an_event_for_an_event_source_too(page):
    page.engine.answers = False
    asking = asyncio.create_task(ask_events(page, "Hi"))
    await asyncio.sleep(0.05)
    page.engine.last.say("half")
    page.engine.last.finish(FinishReason.ERROR, "engine_failed")
    events = read_events(await asking)
    assert events.texts == ["half"]
    assert events.named["error"]["code"] == "engine_failed"
    assert "done" not in events.named


async def test_an_event_source_that_leaves_ends_its_answer(page):
    page.engine.answers = False
    asking = asyncio.create_task(ask_events(page, "Hi"))
    await asyncio.sleep(0.05)
    page.engine.last.start()
    asking.cancel()
    await asyncio.sleep(0.05)
    assert page.engine.last.n_aborts >= 1
    assert page.chat.n_answers == 0


async def test_strangers_links_and_other_sites_get_no_stream(page):
    link = await ask_events(page, "Hi", accept="text/html,*/*;q=0.8")
    assert (link.status_code, link.json()["error"]["code"]) == (406, "not_an_event_source")
    assert (await ask_events(page, "Hi", **{"sec-fetch-site": "cross-site"})).status_code == 403
    assert (await ask_events(page, "Hi", origin="http://evil.example")).status_code == 403
    page.http.cookies.clear()
    assert (await ask_events(page, "Hi")).status_code == 401
    assert page.engine.streams == []


async def test_forget_me_ends_what_an_event_source_reads_and_nothing_of_it_is_kept(page):
    page.engine.answers = False
    person = page.persons.of({COOKIE_NAME: page.http.cookies[COOKIE_NAME]})
    asking = asyncio.create_task(ask_events(page, "Hi"))
    await asyncio.sleep(0.05)
    page.engine.last.say("half")
    await asyncio.sleep(0.05)
    await page.chat.forget(person)
    assert page.engine.last.n_aborts >= 1
    assert page.engine.forgotten[-1] == (person, "")
    events = read_events(await asking)
    assert (events.texts, events.named["error"]["code"]) == (["half"], "stopped")
