"""Places as people on the page meet them, spoken to as their browsers do: exact under bursts, and none is lost."""

from __future__ import annotations

import asyncio
import secrets
import time

import httpx
import pytest

from tests.system.page_client import people
from tests.system.program import Program

N_PLACES = 5
LONG = "word, " * 60
"""About six seconds of echo."""


@pytest.fixture
def program(start) -> Program:
    return start(
        max_batch_size=2, look_ahead=1, queue_size=2, disconnect_grace_s=1, disconnect_grace_busy_s=1
    ).wait_ready()


async def ask_as_program(http: httpx.AsyncClient) -> int:
    body = {"messages": [{"role": "user", "content": "x"}]}
    return (await http.post("/v1/chat/completions", json=body)).status_code


async def test_a_burst_of_twelve_is_let_in_exactly_and_everybody_let_in_is_answered(program):
    async with people(program, 12, "zh-CN") as pages:
        for _ in range(2):
            joined = await asyncio.gather(*(page.join("你好，请问一下") for page in pages))
            inside = [page for page, answer in zip(pages, joined, strict=True) if answer.status_code == 200]
            refused = [answer for answer in joined if answer.status_code != 200]
            assert len(inside) == N_PLACES
            assert {answer.status_code for answer in refused} == {422}
            assert all("忙" in answer.text or "稍" in answer.text for answer in refused)
            shown = await asyncio.gather(*(page.read() for page in inside))
            assert all("你好，请问一下" in text for text in shown)


async def test_places_are_told_and_shared_with_programs_and_come_back(program):
    async with people(program, N_PLACES) as pages:
        readers = []
        for page in pages:
            assert (await page.join(LONG)).status_code == 200
            readers.append(asyncio.create_task(page.read()))
            await asyncio.sleep(0.2)
        assert await ask_as_program(pages[0].http) == 503
        assert [await page.place() for page in pages] == [None, None, 0, 1, 2]
        readers[-1].cancel()  # the last one in line closes the tab
        left = time.monotonic()
        while await ask_as_program(pages[0].http) == 503:
            await asyncio.sleep(0.1)
            assert time.monotonic() - left < 3
        assert "word" in (await asyncio.gather(*readers[:-1]))[0]
        joined = await asyncio.gather(*(page.join("hi") for page in pages))
        assert [answer.status_code for answer in joined] == [200] * N_PLACES


async def test_a_closed_tab_frees_its_answer_after_the_grace(program):
    async with people(program, 1) as (page,):
        assert (await page.join(LONG)).status_code == 200
        reading = asyncio.create_task(page.read())
        await asyncio.sleep(1)
        before = program.log().count("reason=abort")
        reading.cancel()
        left = time.monotonic()
        while program.log().count("reason=abort") == before:
            await asyncio.sleep(0.1)
            assert time.monotonic() - left < 4


@pytest.mark.parametrize("n_chars", [513, 300_000])
async def test_an_over_long_message_is_cut_quickly_whatever_sends_it(program, n_chars):
    async with people(program, 1) as (page,):
        began = time.monotonic()
        assert (await page.join("字" * n_chars)).status_code == 200
        assert time.monotonic() - began < 1.5
        reading = asyncio.create_task(page.read())
        assert "512" in await reading


@pytest.mark.parametrize(("language", "words"), [("en", "too long"), ("zh-CN", "消息太长了")])
async def test_a_megabyte_is_refused_in_the_readers_language_before_it_is_read(program, language, words):
    async with people(program, 1, language) as (page,):
        began = time.monotonic()
        answer = await page.join("字" * 1_000_000)
        assert time.monotonic() - began < 1.5
        assert answer.status_code == 422
        assert words in answer.json()["detail"][0]["message"]
        assert "hello" in await page.ask("hello"), "the next one is answered"


async def test_a_stranger_without_cookie_or_tab_is_told_to_reload(program):
    async with people(program, 1) as (page,):
        page.http.cookies.clear()
        answer = await page.join("hi")
        assert answer.status_code == 422
        assert "reload" in answer.text


async def test_guessed_ids_cancel_nobody(program):
    async with people(program, 2) as (reader, other):
        assert (await reader.join("hello there")).status_code == 200
        reading = asyncio.create_task(reader.read())
        for path in ("cancel", "reset"):
            body = {"session_hash": "guess1234", "fn_index": 0, "event_id": secrets.token_hex(16)}
            await other.http.post(f"/gradio_api/{path}", json=body)
        assert "hello there" in await reading
