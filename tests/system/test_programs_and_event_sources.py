"""A running program as programs and EventSources meet it: the openai client, streams, figures, what is left behind."""

from __future__ import annotations

import asyncio
import json
import time

import httpx
import openai
import psutil
import pytest

EVENTS = {"accept": "text/event-stream"}


def client(program, **more: object) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=program.url, timeout=60, trust_env=False, limits=limits, **more)


def openai_client(program) -> openai.AsyncOpenAI:
    http = httpx.AsyncClient(trust_env=False)
    return openai.AsyncOpenAI(base_url=f"{program.url}/v1", api_key="none", http_client=http, max_retries=0)


def stream(http: httpx.AsyncClient, prompt: str):
    return http.stream("GET", "/api/stream", params={"prompt": prompt}, headers=EVENTS)


def question(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


async def values(http: httpx.AsyncClient) -> dict[str, float]:
    lines = (await http.get("/metrics")).text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name.removeprefix("office_chat_"): float(value) for name, value in pairs}


async def until(condition, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not (holds := await condition()) and time.monotonic() < end:  # noqa: ASYNC110 -- nothing tells us but asking
        await asyncio.sleep(0.1)
    return holds


async def test_the_openai_client_lists_the_model_stops_and_raises_what_its_users_know(echo):
    async with openai_client(echo) as api:
        (model,) = [model async for model in api.models.list()]
        assert (await api.models.retrieve(model.id)).id == model.id == "Echo"
        answer = await api.chat.completions.create(
            model=model.id, messages=question("one, two, three"), stop=", th", n=1
        )
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("one, two", "stop")
        with pytest.raises(openai.NotFoundError):
            await api.models.retrieve("another")
        with pytest.raises(openai.NotFoundError):
            await api.embeddings.create(model=model.id, input="x")
        with pytest.raises(openai.UnprocessableEntityError) as caught:
            await api.chat.completions.create(model=model.id, messages=question(" "))
        assert caught.value.code == "empty"


async def test_an_event_source_is_answered_and_its_end_named(echo):
    async with client(echo) as http:
        await http.get("/")
        text, event = "", ""
        async with http.stream(
            "GET", "/api/stream", params={"prompt": "一句话, two words 🙂"}, headers=EVENTS
        ) as response:
            async for line in response.aiter_lines():
                name, _, value = line.partition(": ")
                if name == "event":
                    event = value
                elif name == "data" and not event:
                    text += value
                elif name == "data":
                    assert json.loads(value)["finish_reason"] == "stop"
        assert (text, event) == ("一句话, two words 🙂", "done")


async def test_an_event_source_that_leaves_frees_its_slot(start):
    program = start(max_batch_size=1, look_ahead=0, queue_size=0).wait_ready()
    async with client(program) as http:
        await http.get("/")
        async with stream(http, "word " * 100) as response:
            lines = response.aiter_lines()  # kept: one that is dropped closes the stream
            await anext(lines)

            async def is_written() -> bool:
                return (await values(http))["slots_used"] == 1

            assert await until(is_written, 5)

        async def is_free() -> bool:
            return (await values(http))["places_taken"] == 0

        assert await until(is_free, 5)
        assert (await values(http))['answers_total{end="abort",origin="model"}'] == 1


async def test_no_prompt_in_an_address_reaches_log_or_console(start):
    program = start().wait_ready()
    async with client(program) as http:
        await http.get("/")
        for headers in (EVENTS, {}, {"accept": "text/html"}, {**EVENTS, "last-event-id": "x"}):
            await http.get("/api/stream", params={"prompt": "Zanzibar sardines"}, headers=headers)
        http.cookies.clear()
        await http.get("/api/stream", params={"prompt": "Zanzibar sardines"}, headers=EVENTS)
        assert "Zanzibar" not in (await http.get("/metrics")).text
    program.terminate()
    assert "Zanzibar" not in program.log() + program.output()


@pytest.mark.parametrize("character", ["a", "字", "🙂"])
async def test_the_longest_question_is_taken_and_one_more_character_is_not(echo, character):
    async with client(echo) as http:
        await http.get("/")
        for n_chars, event in ((128, "done"), (513, "error"), (5000, "error")):
            answer = await http.get("/api/stream", params={"prompt": character * n_chars}, headers=EVENTS)
            assert f"event: {event}" in answer.text, n_chars
        before = await values(http)
        assert "too_long" in (await http.get("/api/stream", params={"prompt": character * 5000}, headers=EVENTS)).text
        assert (await values(http))["prompt_tokens_total"] == before["prompt_tokens_total"]


async def test_two_hundred_visits_leave_nothing_behind(echo):
    web = psutil.Process(echo.process.pid)

    async def visit(number: int) -> None:
        async with client(echo) as http:
            await http.get("/")
            async with http.stream(
                "GET", "/api/stream", params={"prompt": f"{number} " * 60}, headers=EVENTS
            ) as response:
                await anext(response.aiter_lines())
            await http.post("/v1/chat/completions", json={"messages": question(f"visit {number}")})

    for number in range(20):
        await visit(number)
    rss, n_files = web.memory_info().rss, web.num_fds()
    for first in range(20, 220, 10):
        await asyncio.gather(*(visit(first + number) for number in range(10)))

    async def is_quiet() -> bool:
        return web.num_fds() <= n_files + 10

    assert await until(is_quiet)
    assert web.memory_info().rss - rss < 50e6


async def test_when_answers_take_too_long_they_get_shorter(start):
    program = start(
        max_batch_size=1, look_ahead=20, shorter_answers_wait_s=2, shorter_history_wait_s=3, saved_only_wait_s=0,
        busy_wait_s=0, short_answer_tokens=10,
    ).wait_ready()  # fmt: skip
    async with client(program) as http:
        asking = [asyncio.create_task(ask(http, f"{number} " + "word " * 40)) for number in range(8)]

        async def is_high() -> bool:
            return (await values(http))["pressure_rung"] == 2

        assert await until(is_high)
        late = asyncio.create_task(ask(http, "word " * 40))
        for task in asking[1:]:
            task.cancel()
        answer = (await late).json()
        assert answer["usage"]["completion_tokens"] == 10
        assert answer["choices"][0]["finish_reason"] == "length"
        assert (await values(http))["expected_wait_seconds"] < 5


async def test_when_far_too_many_ask_they_are_told_when_to_come_back_and_the_engine_never_idles(start):
    program = start(
        max_batch_size=1, look_ahead=20, shorter_answers_wait_s=2, shorter_history_wait_s=3, saved_only_wait_s=4,
        busy_wait_s=5,
    ).wait_ready()  # fmt: skip
    async with client(program) as http:
        asking = [asyncio.create_task(ask(http, f"{number} " + "word " * 30)) for number in range(10)]

        async def is_busy() -> bool:
            return (await values(http))["pressure_rung"] == 4

        assert await until(is_busy)
        told = [await ask(http, f"another {number}", user=str(number)) for number in range(4)]
        assert {(answer.status_code, answer.json()["error"]["code"]) for answer in told} == {(503, "overloaded")}
        seconds = [int(answer.headers["retry-after"]) for answer in told]
        assert seconds == sorted(seconds)
        assert seconds[0] >= 1
        for task in asking:
            task.cancel()

        async def is_taken() -> bool:
            return (await ask(http, "now?", max_tokens=1)).status_code == 200

        assert await until(is_taken, 5)
        assert (await values(http))["pressure_rung"] >= 3, "it is left slowly, and answers all the same"


async def ask(http: httpx.AsyncClient, text: str, **more: object) -> httpx.Response:
    return await http.post("/v1/chat/completions", json={"messages": question(text), **more})
