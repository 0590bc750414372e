"""The same program with a real model: the smallest there is."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest

pytestmark = pytest.mark.model

LONG_WINDED = (
    *("Repeat the word apple 200 times.", "List 100 city names.", "?", "a", "嗯", "…", "Go on.", "从一数到一千。"),
    *("Count to one thousand.", "Write the alphabet again and again.", "Say nothing but ha, for ever."),
    *("Write a poem in which every line is the same.", "List all prime numbers.", "Write π to 500 digits."),
    *("Write a JSON list of 200 numbers.", "Print a table of 100 rows.", "Write a Python file with 100 functions."),
    *("Tell me a story that never ends.", "请把“好的”写二百遍。", "列出一百个城市。"),
)
"""Questions on which small models go round in circles."""


def body(text: str, **more: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], **more}


@pytest.fixture
async def http(model):
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=model.url, timeout=300, trust_env=False, limits=limits) as client:
        await client.get(model.owners_link("/"))
        yield client


async def ask(http: httpx.AsyncClient, text: str, **more: object) -> httpx.Response:
    return await http.post("/v1/chat/completions", json=body(text, **more))


async def test_it_knows_the_capital_of_france(http):
    answer = await ask(http, "What is the capital of France? One word.", temperature=0)
    assert "Paris" in answer.json()["choices"][0]["message"]["content"]
    assert answer.json()["model"]


@pytest.mark.timeout(400)  # thirty answers of a real model; minutes where two processors are shared
async def test_ten_within_a_tenth_of_a_second_three_times_from_one_engine(model, http):
    before = model.engine_pid()
    for turn in range(3):
        questions = [f"Say hello to colleague {turn} {number}." for number in range(10)]
        answers = await asyncio.gather(*(ask(http, question, max_tokens=16) for question in questions))
        for answer in answers:
            assert answer.status_code == 200
            (choice,) = answer.json()["choices"]
            assert choice["message"]["content"].strip()
            assert choice["finish_reason"] in ("stop", "length")
    assert model.engine_pid() == before


async def test_leave_and_ask_again_ten_times(model, http):
    before = model.engine_pid()
    for _ in range(10):
        asking = asyncio.create_task(ask(http, "Count to one hundred.", stream=True))
        await asyncio.sleep(0.3)
        asking.cancel()
        await asyncio.sleep(0.1)
    assert (await ask(http, "Count to ten.", max_tokens=8)).status_code == 200
    assert model.engine_pid() == before


async def test_a_stop_string_is_never_shown_not_even_in_part(http):
    question = body("Count from 1 to 9 with commas.", temperature=0, max_tokens=40, stop=["4"], stream=True)
    text = (await http.post("/v1/chat/completions", json=question)).text
    assert '"content":' in text
    assert "4" not in "".join(part.split('"}')[0] for part in text.split('"content":"')[2:])


async def test_an_answer_at_its_limit_ends_there_and_says_so(http):
    answer = (await ask(http, "Repeat the word apple 200 times.", temperature=0, max_tokens=20)).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 20


@pytest.mark.timeout(400)
async def test_case_41_twenty_questions_without_an_end_end_at_their_limit_and_delay_nobody(http):
    asking = [asyncio.create_task(ask(http, question, max_tokens=160)) for question in LONG_WINDED]
    answer = (await ask(http, "What is the capital of France? One word.", max_tokens=8, user="another")).json()
    assert answer["choices"][0]["message"]["content"]
    assert not all(task.done() for task in asking), "they outlast whoever asked last and little"
    for question, task in zip(LONG_WINDED, asking, strict=True):
        ended = (await task).json()
        n_tokens, finish = ended["usage"]["completion_tokens"], ended["choices"][0]["finish_reason"]
        assert (n_tokens == 160 and finish == "length") or (n_tokens <= 160 and finish == "stop"), question


async def test_the_first_question_is_as_quick_as_the_third(start):
    for _ in range(3):  # others may use this machine too
        program = start(backend="llama", yield_to_others=False).wait_ready()
        seconds = []
        async with httpx.AsyncClient(base_url=program.url, timeout=60, trust_env=False) as http:
            for question in ("Say one.", "Say two.", "Say six."):
                began = time.monotonic()
                assert (await ask(http, question, max_tokens=1)).status_code == 200
                seconds.append(time.monotonic() - began)
        program.close()
        if seconds[0] < max(seconds[1:]) * 1.5 + 0.2:
            return
    raise AssertionError(f"seconds to the first token: {seconds}")


async def test_an_idle_program_with_a_model_ends_within_two_seconds(start):
    program = start(backend="llama", yield_to_others=False).wait_ready()
    assert await asyncio.to_thread(program.terminate) < 2
    assert program.process.returncode == 0


async def test_how_words_are_drawn_is_changed_without_a_restart(http):
    """The likeliest words are always the same; every setting in turn leaves them or comes back to them."""

    async def said(**changes: str) -> str:
        unset = dict.fromkeys(("temperature", "top_p", "top_k", "repetition_penalty"), "")
        saved = await http.post("/admin/settings", json={"changes": unset | changes})
        assert saved.status_code == 200
        answer = await ask(http, "Repeat these words: apple apple apple apple.", max_tokens=16)
        return str(answer.json()["choices"][0]["message"]["content"])

    likeliest = await said(temperature="0")
    assert await said(temperature="5", top_k="0", top_p="1") != likeliest
    assert await said(temperature="5", top_k="1") == likeliest
    assert await said(temperature="5", top_k="0", top_p="0.0001") == likeliest
    assert await said(temperature="0", repetition_penalty="2") != likeliest
    await said()
