"""The HTTP API of a running program: many at once, busy, leavers, the openai client, and what the log keeps."""

from __future__ import annotations

import asyncio
import json
import time

import httpx
import openai
import pytest


def body(text: str, **more: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], **more}


def client(program) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=program.url, timeout=60, trust_env=False, limits=limits)


async def ask(http: httpx.AsyncClient, text: str, **more: object) -> httpx.Response:
    return await http.post("/v1/chat/completions", json=body(text, **more))


def text_of(response: httpx.Response) -> str:
    return response.json()["choices"][0]["message"]["content"]


async def test_ten_within_a_tenth_of_a_second_three_times(echo):
    before = echo.engine_pid()
    async with client(echo) as http:
        for turn in range(3):
            texts = [f"code {turn}-{number}" for number in range(10)]
            answers = await asyncio.gather(*(ask(http, text) for text in texts))
            assert [text_of(answer) for answer in answers] == texts
    assert echo.engine_pid() == before


async def test_excess_is_told_at_once_and_the_rest_is_answered(start):
    program = start(max_batch_size=2, look_ahead=1, queue_size=1, max_input_chars=200).wait_ready()
    async with client(program) as http:
        began = time.monotonic()
        tasks = [asyncio.create_task(ask(http, "word " * 30)) for _ in range(12)]
        answers = await asyncio.gather(*tasks)
        assert sorted(answer.status_code for answer in answers) == [200] * 4 + [503] * 8
        assert all(answer.headers["retry-after"] for answer in answers if answer.status_code == 503)
        quick = max(answer.elapsed.total_seconds() for answer in answers if answer.status_code == 503)
        assert quick < 1
        assert time.monotonic() - began > quick
        assert (await ask(http, "again")).status_code == 200


async def test_a_client_that_leaves_frees_its_place_within_a_second(start):
    program = start(max_batch_size=1, look_ahead=0, queue_size=0).wait_ready()
    async with client(program) as http:
        for stream in (True, False):
            request = http.build_request("POST", "/v1/chat/completions", json=body("word " * 100, stream=stream))
            asking = asyncio.create_task(http.send(request, stream=stream))
            await asyncio.sleep(0.5)
            assert (await ask(http, "x")).status_code == 503
            if asking.done():
                await (await asking).aclose()
            else:
                asking.cancel()
            left = time.monotonic()
            while (await ask(http, "x")).status_code == 503:  # noqa: ASYNC110 -- nothing tells us but asking
                await asyncio.sleep(0.05)
            assert time.monotonic() - left < 1


async def test_the_openai_client_works_whole_and_streamed(echo):
    async with openai.AsyncOpenAI(
        base_url=f"{echo.url}/v1", api_key="none", http_client=httpx.AsyncClient(trust_env=False), max_retries=0
    ) as api:
        messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "一句话，two words 🙂"}]
        whole = await api.chat.completions.create(model="m", messages=messages, temperature=0, seed=1)
        assert whole.choices[0].message.content == "一句话，two words 🙂"
        assert whole.choices[0].finish_reason == "stop"
        assert whole.usage.completion_tokens > 0
        stream = await api.chat.completions.create(
            model="m", messages=messages, stream=True, max_tokens=5, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert "一句话，two words 🙂".startswith(text)
        assert chunks[-2].choices[0].finish_reason == "length"
        assert chunks[-1].usage.completion_tokens == 5
        with pytest.raises(openai.UnprocessableEntityError) as caught:
            await api.chat.completions.create(model="m", messages=messages, n=2)
        assert caught.value.param == "n"
        with pytest.raises(openai.APIStatusError) as caught:
            await api.chat.completions.create(model="m", messages=[{"role": "user", "content": "x" * 513}])
        assert caught.value.status_code == 413


@pytest.mark.parametrize("character", ["a", "字", "🙂"])
async def test_a_million_characters_are_refused_within_a_second_and_disturb_nobody(echo, character):
    async with client(echo) as http:
        other = asyncio.create_task(ask(http, "somebody else"))
        content = json.dumps(body(character * 1_000_000), ensure_ascii=False).encode()
        began = time.monotonic()
        answer = await http.post("/v1/chat/completions", content=content)
        assert answer.status_code == 413
        assert time.monotonic() - began < 1
        assert text_of(await other) == "somebody else"


async def test_words_flow(echo):
    async with client(echo) as http:
        moments = []
        async with http.stream("POST", "/v1/chat/completions", json=body("word, " * 20, stream=True)) as response:
            async for line in response.aiter_lines():
                if '"delta":{"content":' in line:
                    moments.append(time.monotonic())  # noqa: PERF401 -- each when it comes
        assert len(moments) >= 3


async def test_conversations_of_many_never_mix(echo):
    async with client(echo) as http:
        for turn in range(3):
            answers = await asyncio.gather(*(ask(http, f"My code is CODE-{turn}-{n}.") for n in range(8)))
            assert [text_of(answer) for answer in answers] == [f"My code is CODE-{turn}-{n}." for n in range(8)]


async def test_the_log_has_a_line_for_each_request_and_not_a_word_of_it(echo):
    async with client(echo) as http:
        before = echo.log().count("appliance.chat.watch: request ")
        await ask(http, "Zanzibar sardines")
        await ask(http, "Zanzibar sardines", stream=True)
        await ask(http, "Zanzibar sardines" * 100)
        await http.get("/place?prompt=Zanzibar")
        await http.post("/v1/chat/completions", content=b'{"messages": "Zanzibar')
    log = echo.log()
    assert log.count("appliance.chat.watch: request ") == before + 2
    assert "Zanzibar" not in log


async def test_the_page_and_its_headers_are_served(echo):
    async with client(echo) as http:
        page = await http.get("/")
        assert page.status_code == 200
        assert "office_chat_person" in page.headers["set-cookie"]
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert "server" not in page.headers
        forged = await http.get("/", headers={"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https"})
        assert "https://" not in forged.headers.get("location", "")


async def test_an_engine_that_dies_is_replaced_and_those_who_waited_are_answered(start):
    import os
    import signal

    program = start(max_batch_size=2).wait_ready()
    async with client(program) as http:
        tasks = [asyncio.create_task(ask(http, "word " * 90, stream=True)) for _ in range(6)]
        await asyncio.sleep(1.2)
        os.kill(program.engine_pid(), signal.SIGKILL)
        killed = time.monotonic()
        fresh = await ask(http, "new question")
        answers = await asyncio.gather(*tasks)
        for answer in answers:
            assert answer.status_code == 200
            assert "engine_failed" not in answer.text, "the next engine goes on with what this one was writing"
            assert answer.text.rstrip().endswith("[DONE]")
            parts = (json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {"))
            text = "".join(part["choices"][0]["delta"].get("content") or "" for part in parts)
            assert text == ("word " * 90)[:256]
        assert fresh.status_code == 200
        assert (await ask(http, "another")).elapsed.total_seconds() < 5
        assert time.monotonic() - killed < 40
