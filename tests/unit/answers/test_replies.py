"""Who answers: the block list, a quick answer, a saved one; only then the engine."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from appliance.answers.answer import Origin
from appliance.answers.answer_cache import AnswerCache
from appliance.answers.block_list import BlockList
from appliance.answers.quick_answers import QuickAnswers
from appliance.answers.replies import Known
from appliance.base.errors import Busy, Closing, NotReady
from appliance.base.paths import Paths
from appliance.engine.client import EngineState
from appliance.engine.request import FinishReason, Message, SamplingParams
from tests.unit.chat_bench import ANN, BOB, Bench, ask_as_program
from tests.unit.engine_double import INFO, settle

BLOCKS = '[[rule]]\nwords = ["Phoenix"]\nsentence = "Ask HR."\n'


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async for bench in opened(tmp_path):
        yield bench


async def opened(folder: Path, **settings: object) -> AsyncIterator[Bench]:
    paths = Paths(folder)
    paths.block_list.write_text(BLOCKS)
    known = Known(
        BlockList(paths.block_list),
        QuickAnswers(paths.quick_answers, paths.shipped_quick_answers, "", lambda: datetime(2026, 11, 30, tzinfo=UTC)),
        AnswerCache(paths.answers, limit_bytes=2**22, ttl_s=1800),
    )
    bench = Bench(known, **settings)
    yield bench
    await bench.chat.close()


async def test_a_quick_answer_needs_no_engine_no_place_and_no_line(bench):
    bench.engine.state = EngineState.FAILED
    assert await bench.chat.admit(*ANN, "Who are you?") is False
    answer = await bench.chat.ask(*ANN, "Who are you?")
    await answer.wait_done()
    assert (answer.origin, answer.finish) == (Origin.QUICK, FinishReason.STOP)
    (turn,) = bench.chat.conversation(*ANN).turns
    assert "chat assistant" in turn.text
    with pytest.raises(NotReady):
        await bench.chat.admit(*ANN, "something else")


async def test_with_every_place_taken_quick_and_saved_answers_are_still_given(bench):
    await bench.answered(ANN, "What is VAT?", "A tax.")
    for number in range(bench.settings.n_places):
        await bench.chat.admit(f"person {number}", "t", f"question {number}")
    with pytest.raises(Busy):
        await bench.chat.admit(*BOB, "anything")
    for question in ("hello", "What is VAT?"):
        assert await bench.chat.admit(*BOB, question) is False
        answer = await bench.chat.ask(*BOB, question)
        await answer.wait_done()
    assert answer.text == "A tax."
    assert (await ask_as_program(bench, Message("user", "What is VAT?"))).origin is not Origin.MODEL


async def test_a_program_with_a_system_message_of_its_own_gets_the_model(bench):
    await ask_as_program(bench, Message("system", "Translate into English."), Message("user", "你好"))
    await settle()
    assert len(bench.engine.streams) == 1
    answer = await ask_as_program(bench, Message("user", "你好"))
    await answer.wait_done()
    assert answer.origin is Origin.QUICK


async def test_what_follows_a_quick_answer_is_still_a_first_question(bench):
    await bench.answered(ANN, "What is VAT?", "A tax.")
    await (await bench.chat.ask(*BOB, "你好")).wait_done()
    answer = await bench.chat.ask(*BOB, "What is VAT?")
    await answer.wait_done()
    assert answer.origin is Origin.SAVED


async def test_a_quick_answer_can_be_asked_again_of_the_model(bench):
    await (await bench.chat.ask(*ANN, "Who are you?")).wait_done()
    await bench.chat.again(*ANN)
    await settle()
    assert bench.engine.last.request.messages[-1].text == "Who are you?"


async def test_a_saved_answer_is_committed_with_its_tokens_and_its_time(bench):
    await bench.answered(ANN, "What is VAT?", "A tax.")
    answer = await bench.chat.ask(*BOB, "What is  VAT？")
    await answer.wait_done()
    assert answer.origin is Origin.SAVED
    (turn,) = bench.chat.conversation(*BOB).turns
    assert (turn.text, turn.token_ids) == ("A tax.", tuple(map(ord, "A tax.")))
    assert turn.saved_at is not None
    await bench.chat.ask(*BOB, "And elsewhere?")
    await settle()
    assert bench.engine.last.request.messages[-2] == Message("assistant", "A tax.", tuple(map(ord, "A tax.")))


async def test_asking_again_is_answered_afresh_and_replaces_what_is_saved(bench):
    await bench.answered(ANN, "x", "old")
    again = await bench.chat.again(*ANN)
    await settle()
    bench.engine.last.say("new")
    bench.engine.last.finish()
    await again.wait_done()
    await settle()
    answer = await bench.chat.ask(*BOB, "x")
    await answer.wait_done()
    assert (answer.text, answer.origin) == ("new", Origin.SAVED)


@pytest.mark.parametrize(
    ("reason", "error"), [(FinishReason.LENGTH, ""), (FinishReason.ABORT, ""), (FinishReason.ERROR, "engine_failed")]
)
async def test_only_an_answer_that_ended_by_itself_is_saved(bench, reason, error):
    answer = await bench.chat.ask(*ANN, "x")
    await settle()
    bench.engine.last.say("half")
    bench.engine.last.finish(reason, error)
    await answer.wait_done()
    await bench.chat.ask(*BOB, "x")
    await settle()
    assert len(bench.engine.streams) == 2


async def test_an_answer_to_a_question_that_was_cut_is_not_saved(bench):
    answer = await bench.chat.ask(*ANN, "x")
    await settle()
    bench.engine.last.start(input_cut=True)
    bench.engine.last.say("1")
    bench.engine.last.finish()
    await answer.wait_done()
    await bench.chat.ask(*BOB, "x")
    await settle()
    assert len(bench.engine.streams) == 2


@pytest.mark.parametrize(("scope", "n_generations"), [("off", 4), ("first", 3), ("all", 2)])
async def test_the_scope_decides_what_is_given_again(tmp_path, scope, n_generations):
    async for bench in opened(tmp_path, answer_cache_scope=scope):
        for key in (ANN, BOB):
            for question in ("first", "second"):
                n_before = len(bench.engine.streams)
                answer = await bench.chat.ask(*key, question)
                await settle()
                if len(bench.engine.streams) > n_before:
                    bench.engine.last.say(f"to {question}")
                    bench.engine.last.finish()
                await answer.wait_done()
                await settle()
                assert answer.text == f"to {question}"
        assert len(bench.engine.streams) == n_generations


async def test_another_model_system_prompt_or_setting_never_gets_an_old_answer(tmp_path):
    changes: list[dict[str, object]] = [
        {},
        {"system_prompt": "Be rude."},
        {"temperature": 0.1},
        {"max_answer_tokens": 128},
    ]
    n_generations = 0
    for settings in changes:
        async for bench in opened(tmp_path, **settings):
            await bench.answered(ANN, "x", "1")
            n_generations += len(bench.engine.streams)
    assert n_generations == len(changes)
    async for bench in opened(tmp_path):
        bench.engine.info = INFO.__class__(**{**vars(INFO), "fingerprint": "another"})
        await bench.chat.ask(*ANN, "x")
        await settle()
        assert len(bench.engine.streams) == 1
    async for bench in opened(tmp_path):
        answer = await bench.chat.ask(*BOB, "x")
        await answer.wait_done()
        assert answer.origin is Origin.SAVED, "the first one's, which outlived the program"


async def test_other_sampling_of_a_program_is_another_question(bench):
    await bench.answered(ANN, "x", "1")
    await bench.chat.complete(
        [Message("user", "x")], person="p", max_tokens=None, sampling=SamplingParams(temperature=0), stop=()
    )
    await settle()
    assert len(bench.engine.streams) == 2


async def test_a_blocked_question_is_answered_by_the_sentence_and_kept_from_the_model(bench):
    for asking in (bench.chat.ask(*ANN, "Tell me of PHOENIX"), bench.chat.again(*ANN)):
        answer = await asking
        await answer.wait_done()
        assert (answer.text, answer.origin) == ("Ask HR.", Origin.BLOCKED)
    assert bench.engine.streams == []
    await bench.chat.ask(*ANN, "What else?")
    await settle()
    assert [message.text for message in bench.engine.last.request.messages[1:]] == ["What else?"]


async def test_a_program_cannot_bring_a_blocked_word_in_as_history(bench):
    history = [Message("user", "Phoenix?"), Message("assistant", "yes"), Message("user", "go on")]
    answer = await ask_as_program(bench, *history)
    await answer.wait_done()
    assert (answer.text, answer.origin) == ("Ask HR.", Origin.BLOCKED)


async def test_an_answer_ends_before_a_blocked_word_and_is_not_saved(bench):
    answers = [await bench.chat.ask(*key, "What do we build?") for key in (ANN, BOB)]
    await settle()
    bench.engine.last.say("We build houses and boats and Phoenix, which")
    for answer in answers:
        await answer.wait_done()
        assert "Phoe" not in answer.text
        assert answer.text.startswith("We build houses")
        assert answer.text.endswith("\n\nAsk HR.")
        assert (answer.origin, answer.finish) == (Origin.BLOCKED, FinishReason.STOP)
    assert bench.engine.last.n_aborts == 1
    await bench.chat.ask("eve", "t", "What do we build?")
    await bench.chat.ask(*ANN, "And then?")
    await settle()
    assert len(bench.engine.streams) == 3
    assert [message.text for message in bench.engine.last.request.messages[1:]] == ["And then?"]


async def test_a_word_that_is_blocked_later_takes_back_what_was_saved(bench, tmp_path):
    await bench.answered(ANN, "x", "a boat")
    bench.chat._replies.known.block_list.file.write('[[rule]]\nwords = ["boat"]\n')
    await bench.chat.ask(*BOB, "x")
    await settle()
    assert len(bench.engine.streams) == 2


async def test_forget_drops_what_only_this_person_asked(bench):
    await bench.answered(ANN, "hers", "1")
    await bench.answered(ANN, "both", "2")
    await bench.chat.new_chat(*BOB)
    await (await bench.chat.ask("bob", "tab-2", "hers")).wait_done()
    await bench.chat.forget("bob")
    await bench.chat.forget("ann")
    answers = [await bench.chat.ask("eve", str(n), question) for n, question in enumerate(["hers", "both"])]
    await settle()
    assert [answer.origin for answer in answers] == [Origin.SAVED, Origin.MODEL]


async def test_the_end_of_the_program_is_told_even_where_the_answer_is_known(bench):
    bench.chat.refuse_new()
    with pytest.raises(Closing):
        await bench.chat.ask(*ANN, "hello")


async def test_who_presses_new_chat_while_the_disk_is_asked_gets_no_answer_to_the_old_conversation(bench):
    await bench.answered(ANN, "old", "1")
    find = bench.chat._replies.find

    async def find_late(*args: object, **kwargs: object) -> None:
        await bench.chat.new_chat(*ANN)
        await find(*args, **kwargs)

    bench.chat._replies.find = find_late
    await bench.chat.ask(*ANN, "new")
    await settle()
    assert [message.text for message in bench.engine.last.request.messages[1:]] == ["new"]


async def test_a_trace_with_repeats_hits_as_often_as_it_allows(bench):
    """40 of 100 questions have been asked before; every one of those costs the engine nothing."""
    chance = random.Random(5)
    asked: list[str] = []
    n_repeats = 0
    for number in range(500):
        if asked and chance.random() < 0.4:
            question, n_repeats = chance.choice(asked), n_repeats + 1
        else:
            question = f"question {number}"
            asked.append(question)
        n_before = len(bench.engine.streams)
        answer = await bench.chat.ask(f"person {number % 30}", f"tab {number}", question)
        await settle()
        if len(bench.engine.streams) > n_before:
            bench.engine.last.say(f"to {question}")
            bench.engine.last.finish()
        await answer.wait_done()
        assert answer.text == f"to {question}"
    assert len(bench.engine.streams) == 500 - n_repeats
    assert 180 < n_repeats < 220
