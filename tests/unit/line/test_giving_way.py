"""What each level of the ladder does to the questions people ask."""

from __future__ import annotations

import pytest

from appliance.answers.answer import AnswerState, Origin
from appliance.base.errors import Overloaded, SavedOnly
from appliance.chat.service import ChatService
from appliance.engine.request import Finished, FinishReason, Message, Running, SamplingParams
from appliance.line.load_shedding import LoadLevel
from appliance.settings.schema import Settings
from tests.unit.engine_double import Clock, ScriptedEngine, settle

ANN, BOB, EVE = ("ann", "tab-1"), ("bob", "tab-1"), ("eve", "tab-1")


class Bench:
    """A chat service that can be put on a level: by an engine that fails, as it is climbed for real."""

    def __init__(self, **changes: object) -> None:
        self.engine, self.clock = ScriptedEngine(), Clock()
        settings = Settings(max_batch_size=2, max_answer_tokens=200, short_answer_tokens=50, **changes)
        self.chat = ChatService(self.engine, settings, self.clock)
        self.chat.attach_page_queue(list)

    def climb(self, level: LoadLevel) -> None:
        assert self.engine.on_finished is not None
        for _ in range(40):
            self.engine.on_finished(Finished(FinishReason.ERROR, 0, 0, 0, "engine_failed"))
        while self.chat.watch.load_shedding.level < level:
            self.clock.now += 0.5
            self.chat.watch.tick()
        self.engine.running = [Running(1, 0)]


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_on_the_ground_nothing_is_shorter(bench):
    await bench.chat.ask(*ANN, "Hi")
    await settle()
    request = bench.engine.last.request
    assert (request.max_tokens, request.short_history) == (200, False)


async def test_first_answers_get_shorter_and_one_that_is_cut_says_why(bench):
    bench.climb(LoadLevel.SHORT_ANSWERS)
    answer = await bench.chat.ask(*ANN, "Hi")
    await settle()
    request = bench.engine.last.request
    assert (request.max_tokens, request.short_history) == (50, False)
    bench.engine.last.say("text")
    bench.engine.last.finish(FinishReason.LENGTH)
    await answer.wait_done()
    assert answer.notices == ("limit", "short_answer")
    assert bench.chat.conversation(*ANN).turns[-1].notices == answer.notices


async def test_an_answer_that_came_to_its_own_end_says_nothing(bench):
    bench.climb(LoadLevel.SHORT_ANSWERS)
    answer = await bench.chat.ask(*ANN, "Hi")
    await settle()
    bench.engine.last.finish()
    await answer.wait_done()
    assert answer.notices == ()


@pytest.mark.parametrize(("asked", "given"), [(None, 50), (300, 50), (20, 20)])
async def test_programs_give_way_too(bench, asked, given):
    bench.climb(LoadLevel.SHORT_ANSWERS)
    message = [Message("user", "Hi")]
    await bench.chat.complete(message, person="p", max_tokens=asked, sampling=SamplingParams(), stop=())
    await settle()
    assert bench.engine.last.request.max_tokens == given


async def test_then_histories_get_shorter_and_what_was_left_out_stays_out(bench):
    first = await bench.chat.ask(*ANN, "one")
    await settle()
    bench.engine.last.say("1")
    bench.engine.last.finish()
    await first.wait_done()
    bench.climb(LoadLevel.SHORT_HISTORY)
    answer = await bench.chat.ask(*ANN, "two")
    await settle()
    assert bench.engine.last.request.short_history
    bench.engine.last.start(n_dropped_messages=2, history_shortened=True)
    bench.engine.last.say("2")
    bench.engine.last.finish()
    await answer.wait_done()
    assert answer.notices == ("short_history",)
    await bench.chat.ask(*ANN, "three")
    await settle()
    assert [message.text for message in bench.engine.last.request.messages[1:]] == ["two", "2", "three"]


async def test_then_the_model_takes_nothing_new_but_what_costs_nothing_is_given(bench):
    asked = await bench.chat.ask(*ANN, "What is new?")
    await settle()
    bench.climb(LoadLevel.SAVED_ONLY)
    with pytest.raises(SavedOnly):
        await bench.chat.admit(*BOB, "Something else?")
    assert await bench.chat.admit(*BOB, "What is new?") is False
    joined = await bench.chat.ask(*BOB, "What is new?")
    await settle()
    assert len(bench.engine.streams) == 1
    assert joined.origin is Origin.JOINED
    bench.engine.last.say("This.")
    bench.engine.last.finish()
    await joined.wait_done()
    assert (asked.text, joined.text, joined.state) == ("This.", "This.", AnswerState.DONE)


async def test_at_last_nobody_new_is_taken(bench):
    await bench.chat.ask(*ANN, "What is new?")
    await settle()
    bench.climb(LoadLevel.BUSY)
    with pytest.raises(Overloaded):
        await bench.chat.admit(*BOB, "Something else?")
    for attempt in (bench.chat.admit, bench.chat.ask):
        with pytest.raises(Overloaded):
            await attempt(*EVE, "What is new?")


async def test_whoever_was_let_in_before_is_answered(bench):
    assert await bench.chat.admit(*BOB, "Hi")
    bench.climb(LoadLevel.BUSY)
    await bench.chat.ask(*BOB, "Hi")
    await settle()
    assert bench.engine.last.request.messages[-1].text == "Hi"


async def test_who_asks_the_same_is_answered_with_it_although_answers_have_become_shorter(bench):
    await bench.chat.ask(*ANN, "What is new?")
    await settle()
    bench.climb(LoadLevel.SHORT_ANSWERS)
    joined = await bench.chat.ask(*BOB, "What is new?")
    await settle()
    assert joined.origin is Origin.JOINED
    assert len(bench.engine.streams) == 1
