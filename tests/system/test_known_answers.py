"""What a running program answers without its engine, or once for many: quick, saved, blocked and joined answers."""

from __future__ import annotations

import asyncio
import json
import time

import httpx
import pytest

from tests.system.page_client import Page, people

KNOWING = {"quick_answers": True, "answer_cache_scope": "first"}
LONG = "word, " * 60
"""About six seconds of echo."""


def client(program) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=program.url, timeout=120, trust_env=False, limits=limits)


async def ask(http: httpx.AsyncClient, text: str, headers: dict[str, str] | None = None, **more: object):
    body = {"messages": [{"role": "user", "content": text}], **more}
    return await http.post("/v1/chat/completions", json=body, headers=headers)


def text_of(response: httpx.Response) -> str:
    return response.json()["choices"][0]["message"]["content"]


def answered_by(program) -> list[str]:
    """Who gave each answer, as the log tells it."""
    return [line.split(" by=")[1].split()[0] for line in program.log().splitlines() if " by=" in line]


async def test_quick_and_saved_answers_come_past_a_full_house(start):
    program = start(max_batch_size=1, look_ahead=0, queue_size=1, **KNOWING).wait_ready()
    async with client(program) as http, people(program, 4) as (first, second, third, reader):
        assert text_of(await ask(http, "short")) == "short"
        running = [asyncio.create_task(page.ask(f"{LONG} {page.session}")) for page in (first, second)]
        await asyncio.sleep(0.5)
        assert (await third.join("no room for this")).status_code == 422
        began = time.monotonic()
        assert "chat assistant" in await third.ask("Who are you?")
        assert "short" in await reader.ask("short")
        assert (await ask(http, "hello")).headers["x-office-chat-cache"] == "miss"
        assert (await ask(http, "short")).headers["x-office-chat-cache"] == "hit"
        assert time.monotonic() - began < 3, "none of these waited for the six seconds of the running answer"
        assert not running[0].done()
        conversation = await reader.conversation()
        assert [role for role, _ in conversation] == ["user", "assistant", "assistant"]
        assert "afresh" in conversation[-1][1]
        for task in running:
            task.cancel()
    assert answered_by(program)[:5] == ["model", "quick", "saved", "quick", "saved"]


async def test_asking_again_on_the_page_writes_a_fresh_answer_in_place_of_the_saved_one(start):
    program = start(**KNOWING).wait_ready()
    async with people(program, 2) as (one, other):
        for page in (one, other):
            await page.ask("same")
        assert len(await other.conversation()) == 3
        await other.ask("", "again")
        assert [role for role, _ in await other.conversation()] == ["user", "assistant"]
    assert answered_by(program) == ["model", "saved", "model"]


async def test_a_program_can_ask_for_a_fresh_answer(start):
    program = start(**KNOWING).wait_ready()
    async with client(program) as http:
        for headers in ({}, {}, {"cache-control": "no-cache"}):
            await ask(http, "same", headers)
        stream = await ask(http, "same", stream=True)
        assert stream.headers["x-office-chat-cache"] == "hit"
        said = [json.loads(line[6:]) for line in stream.text.splitlines() if line.startswith("data: {")]
        assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in said) == "same"
    assert answered_by(program) == ["model", "saved", "model", "saved"]


async def test_saved_answers_and_rules_outlive_the_program(start):
    program = start(**KNOWING).wait_ready()
    async with client(program) as http:
        await ask(http, "same")
    program.terminate()
    again = start(data_dir=program.data_dir, **KNOWING).wait_ready()
    async with client(again) as http:
        assert (await ask(http, "same")).headers["x-office-chat-cache"] == "hit"


async def test_twenty_same_questions_on_page_and_api_are_one_generation_and_each_may_leave(start):
    program = start(max_batch_size=2, look_ahead=0, queue_size=2, **KNOWING).wait_ready()
    async with client(program) as http, people(program, 10) as pages:
        asking = [asyncio.create_task(page.ask(LONG)) for page in pages]
        asking += [asyncio.create_task(ask(http, LONG)) for _ in range(10)]
        await asyncio.sleep(2)
        asking[0].cancel()  # who began it closes the tab
        asking[-1].cancel()
        answers = await asyncio.gather(*asking, return_exceptions=True)
        assert all("word, word" in str(text) for text in answers[1:10])
        (text,) = {text_of(answer) for answer in answers[10:19]}
        assert LONG.startswith(text)
    by = answered_by(program)
    assert (by.count("model"), by.count("joined"), len(by)) == (1, 19, 20)


async def test_what_the_owner_blocks_is_neither_asked_nor_answered(start, tmp_path):
    program = start(**KNOWING).wait_ready()
    rules = '[[rule]]\nwords = ["phoenix"]\nanswers = false\nsentence = "Ask HR."\n'
    rules += '[[rule]]\nwords = ["drag on"]\nquestions = false\nsentence = "No."\n'
    (program.data_dir / "block_list.toml").write_text(rules)
    began = time.monotonic()
    async with client(program) as http, people(program, 1) as (page,):
        while text_of(blocked := await ask(http, "the PHOENIX")) != "Ask HR.":
            assert time.monotonic() - began < 30
            await asyncio.sleep(0.2)  # the file is read again within two seconds
        assert blocked.json()["choices"][0]["finish_reason"] == "content_filter"
        stream = (await ask(http, "here it will drag  on for long", stream=True)).text
        assert "drag" not in stream
        assert "No." in stream
        assert '"content_filter"' in stream
        assert "Ask HR." in await page.ask("what of phoenix")
        shown = await page.ask("let it drag on now")
        assert shown.rstrip("']").endswith("No.")
        assert "it drag" not in shown.split("</pre>")[1]
    log = program.log()
    assert "phoenix" not in log.lower()


async def test_a_broken_rules_file_is_named_and_the_last_good_one_kept(start):
    program = start(**KNOWING).wait_ready()
    path = program.data_dir / "quick_answers.toml"
    path.write_text('[[rule]]\nquestions = ["wifi?"]\nanswer = "At reception."\n')
    began = time.monotonic()
    async with client(program) as http:
        while text_of(await ask(http, "wifi")) != "At reception.":
            assert time.monotonic() - began < 30
            await asyncio.sleep(0.2)
        path.write_text('[[rule]]\nquestions = ["wifi?"]\nanswer = \n')
        while "quick_answers.toml: not valid TOML" not in program.log():
            assert time.monotonic() - began < 60
            await asyncio.sleep(0.2)
        assert "line 3" in program.log()
        assert text_of(await ask(http, "wifi")) == "At reception."


@pytest.mark.parametrize("damage", ["noise", "empty", "in the way"])
async def test_a_damaged_store_of_answers_never_stops_a_chat(start, tmp_path, damage):
    folder = tmp_path / "data" / "answers"
    if damage == "in the way":
        folder.parent.mkdir(parents=True)
        folder.write_bytes(b"")
    else:
        (folder / "saved").mkdir(parents=True)
        (folder / "saved" / "cache.db").write_bytes(b"\xa5noise" * 1000 if damage == "noise" else b"")
    program = start(**KNOWING).wait_ready()
    async with client(program) as http:
        for _ in range(2):
            answer = await ask(http, "same")
            assert text_of(answer) == "same"
    is_saved = answer.headers["x-office-chat-cache"] == "hit"
    assert is_saved is (damage != "in the way")
    assert (folder / "saved.damaged").exists() is (damage == "noise")
    assert program.log().count("WARNING") <= 2


async def test_a_tab_that_stays_open_keeps_its_conversation_and_a_closed_one_does_not(start):
    program = start(session_ttl_s=10, **KNOWING).wait_ready()
    async with people(program, 2) as (here, gone):
        for page in (here, gone):
            await page.ask(f"remember {page.session}")
        for _ in range(4):
            await asyncio.sleep(4)
            await here.place()  # what an open page sends
        assert len(await here.conversation()) == 2
        assert await gone.conversation() == []
        assert "forgotten" in await gone.ask("are you there")


async def test_guessed_and_borrowed_ids_get_nothing(start):
    program = start(**KNOWING).wait_ready()
    async with people(program, 2) as (owner, thief):
        await owner.ask("a secret plan")
        thief.http.headers["X-Tab"] = owner.http.headers["X-Tab"]
        assert await thief.conversation() == []
        thief.session = owner.session
        assert (await thief.join("x")).status_code == 404
        stolen = dict(owner.http.cookies)
        name = next(iter(stolen))
        forged = Page(program)
        forged.http.cookies.set(name, stolen[name][:-2] + "xx")
        await forged.open()
        forged.http.headers["X-Tab"] = owner.http.headers["X-Tab"]
        assert await forged.conversation() == []
        await forged.http.aclose()
        assert len(await owner.conversation()) == 2
