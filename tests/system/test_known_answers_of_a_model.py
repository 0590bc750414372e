"""Saved and shared answers of a real model: the smallest there is."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from pathlib import Path

import httpx
import pytest

from tests.system.page_client import people
from tests.system.program import Program

pytestmark = pytest.mark.model

KNOWING = {"backend": "llama", "yield_to_others": False, "quick_answers": True, "answer_cache_scope": "first"}


def answered_by(program: Program) -> list[str]:
    return [line.split(" by=")[1].split()[0] for line in program.log().splitlines() if " by=" in line]


async def ask(http: httpx.AsyncClient, text: str, **more: object) -> httpx.Response:
    return await http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": text}], **more})


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    running = Program(tmp_path_factory.mktemp("model"), **{**KNOWING, "temperature": 0}, session_ttl_s=10)
    try:
        yield running.wait_ready()
    finally:
        running.close()


@pytest.fixture
async def http(program):
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=program.url, timeout=300, trust_env=False, limits=limits) as client:
        yield client


@pytest.mark.timeout(200)
async def test_twenty_people_who_ask_the_same_cost_one_generation_and_each_goes_on_alone(program):
    before = len(answered_by(program))
    async with people(program, 20) as pages:
        shown = await asyncio.gather(*(page.ask("What is the capital of France? One word.") for page in pages))
        assert len({text.split("</pre>")[1] for text in shown}) == 1
        assert "Paris" in shown[0]
        by = answered_by(program)[before:]
        assert (by.count("model"), len(by)) == (1, 20)
        await asyncio.gather(*(page.ask(f"And which river flows there? {n}") for n, page in enumerate(pages[:3])))
        assert answered_by(program)[-3:] == ["model"] * 3
        assert [role for role, _ in await pages[0].conversation()].count("user") == 2


@pytest.mark.timeout(200)
async def test_case_42_a_saved_answer_is_the_same_words_however_many_ask_beside_it(program, http):
    question = "What is the capital of Italy? One word."
    first = (await ask(http, question)).json()["choices"][0]
    assert first["finish_reason"] == "stop"
    beside = [ask(http, f"Name something that begins with {letter}.", max_tokens=12) for letter in "ABCDEFGH"]
    answers = await asyncio.gather(*(ask(http, question) for _ in range(8)), *beside)
    assert {answer.json()["choices"][0]["message"]["content"] for answer in answers[:8]} == {
        first["message"]["content"]
    }


@pytest.mark.timeout(300)
async def test_a_trace_with_repeats_is_answered_by_the_model_as_rarely_as_it_allows(program, http):
    """What it allows: every repeat of a question whose answer had ended by itself."""
    chance = random.Random(7)
    asked: list[str] = []
    ended_well: dict[str, bool] = {}
    n_allowed = n_hits = 0
    for number in range(60):
        question = f"Is {number * 7 + 3} an even number? Answer yes or no, in one word."
        if asked and chance.random() < 0.4:
            question = chance.choice(asked)
        asked.append(question)
        n_allowed += ended_well.get(question, False)
        answer = await ask(http, question)
        n_hits += answer.headers["x-office-chat-cache"] == "hit"
        ended_well[question] = answer.json()["choices"][0]["finish_reason"] == "stop"
    assert abs(n_hits - n_allowed) <= 0.02 * len(asked)
    assert n_hits > 0.25 * len(asked), "too few of the model's answers ended by themselves for this to say anything"


@pytest.mark.timeout(200)
async def test_a_saved_answer_is_the_same_text_whatever_else_is_going_on(http):
    """Case 42: two generations may differ, a saved answer does not."""
    question = "Name three colours."
    first = (await ask(http, question)).json()["choices"][0]
    assert first["finish_reason"] == "stop"
    busy = [asyncio.create_task(ask(http, f"Count from {n} to one hundred.", max_tokens=60)) for n in range(8)]
    for _ in range(5):
        answer = await ask(http, question)
        assert answer.headers["x-office-chat-cache"] == "hit"
        assert answer.json()["choices"][0]["message"] == first["message"]
    await asyncio.gather(*busy)


@pytest.mark.timeout(120)
async def test_the_end_of_a_conversation_takes_its_text_and_its_kv_state_off_the_disk(program):
    async with people(program, 1) as (page,):
        await page.ask("Remember the number four.")
        began = time.monotonic()
        while parked(program.data_dir) == 0:  # the engine writes it once it has been idle for two seconds
            assert time.monotonic() - began < 30
            await asyncio.sleep(0.1)
            await page.place()
        closed = time.monotonic()
        while parked(program.data_dir):
            assert time.monotonic() - closed < 30
            await asyncio.sleep(0.2)
        assert time.monotonic() - closed >= 9
        assert await page.conversation() == []


def parked(data_dir: Path) -> int:
    """Conversations whose KV state is on the disk."""
    found = 0
    for path in (data_dir / "parked").glob("*/cache.db"):
        with sqlite3.connect(path) as database:
            found += database.execute("SELECT count(*) FROM Cache").fetchone()[0]
    return found
