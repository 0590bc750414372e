"""Conversations outlast a change of the model: the words stay, the old model's tokens and its saved answers do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from appliance.answers.answer import Origin
from appliance.answers.answer_cache import AnswerCache
from appliance.answers.block_list import BlockList
from appliance.answers.replies import Known
from appliance.engine.request import FinishReason
from tests.unit.chat_bench import ANN, BOB, Bench
from tests.unit.engine_double import INFO, settle

OTHER = replace(INFO, model_name="Other", fingerprint="other")


@pytest.fixture
def bench() -> Bench:
    return Bench()


def change(bench: Bench) -> None:
    bench.engine.info = OTHER
    bench.chat.model_changed()


async def test_the_next_question_brings_the_words_of_before_and_none_of_the_tokens(bench):
    await bench.answered(ANN, "one", "first answer")
    change(bench)
    await bench.chat.ask(*ANN, "two")
    await settle()
    request = bench.engine.last.request
    assert [message.text for message in request.messages[1:]] == ["one", "first answer", "two"]
    assert all(message.token_ids is None for message in request.messages)
    assert request.model == "other"
    bench.engine.last.say("second")
    bench.engine.last.finish()
    await settle()
    await bench.chat.ask(*ANN, "three")
    await settle()
    ids = [message.token_ids for message in bench.engine.last.request.messages if message.role == "assistant"]
    assert ids == [None, tuple(map(ord, "second"))]


async def test_a_question_asked_before_and_computed_after_carries_the_old_models_name(bench):
    await bench.answered(ANN, "one", "first answer")
    await bench.chat.ask(*ANN, "two")
    await settle()
    asked = bench.engine.last.request
    assert asked.model == "double"
    assert any(message.token_ids for message in asked.messages)
    assert not any(message.token_ids for message in asked.for_model("other").messages)


async def test_an_answer_is_continued_by_another_model_from_its_words(bench):
    answer = await bench.answered(ANN, "one", "beginning")
    assert answer.finish is FinishReason.STOP
    await bench.chat.ask(*BOB, "two")
    await settle()
    bench.engine.last.say("half an answer")
    bench.engine.last.finish(FinishReason.LENGTH)
    await settle()
    going_on = await bench.chat.go_on(*BOB)  # it waits for the engine while the model is changed
    change(bench)
    await settle()
    bench.engine.last.say(" and the rest")
    bench.engine.last.finish()
    await going_on.wait_done()
    assert going_on.text == "half an answer and the rest"
    assert going_on.token_ids == ()


async def test_a_saved_answer_of_the_old_model_is_not_given_by_the_new_one(tmp_path):
    saved = AnswerCache(tmp_path / "answers", limit_bytes=2**20, ttl_s=60)
    bench = Bench(Known(BlockList(tmp_path / "none"), None, saved))
    await bench.answered(ANN, "What is VAT?", "A tax.")
    repeated = await bench.chat.ask(*BOB, "What is VAT?")
    await repeated.wait_done()
    assert repeated.origin is Origin.SAVED
    change(bench)
    fresh = await bench.chat.ask("eve", "tab", "What is VAT?")
    await settle()
    assert fresh.origin is Origin.MODEL
    bench.engine.last.finish()
    await fresh.wait_done()
    await bench.chat.close()


async def test_an_answer_that_was_begun_by_one_model_and_given_by_another_is_not_saved(tmp_path):
    saved = AnswerCache(tmp_path / "answers", limit_bytes=2**20, ttl_s=60)
    bench = Bench(Known(BlockList(tmp_path / "none"), None, saved))
    answer = await bench.chat.ask(*ANN, "What is VAT?")
    await settle()
    change(bench)
    bench.engine.last.say("A tax.")
    bench.engine.last.finish()
    await answer.wait_done()
    await settle()
    bench.engine.info = INFO
    again = await bench.chat.ask(*BOB, "What is VAT?")
    await settle()
    assert again.origin is Origin.MODEL
    bench.engine.last.finish()
    await again.wait_done()
    await bench.chat.close()
