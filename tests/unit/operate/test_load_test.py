"""People who ask and ask again: what they see of an engine, and that they leave nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from appliance.base.errors import ApplianceError
from appliance.engine.config import USUAL_ANSWER_TOKENS
from appliance.engine.request import FinishReason
from appliance.operate.load_test import Level, LoadTest, answer_tokens, question
from tests.unit.engine.scripted import FakeClock
from tests.unit.engine.test_client import engine
from tests.unit.engine.waiting import until
from tests.unit.engine_double import ScriptedEngine, settle


@pytest.mark.parametrize(("slow", "ttft", "is_comfortable"), [(4.0, 2.9, True), (3.9, 1.0, False), (9.0, 3.0, False)])
def test_comfortable_is_four_tokens_a_second_and_a_first_word_within_three(slow, ttft, is_comfortable):
    assert Level(5, 10.0, slow, ttft, 50.0).is_comfortable is is_comfortable


def test_no_two_questions_are_the_same_and_answers_are_as_long_as_said_on_average():
    assert len({question(number) for number in range(500)}) == 500
    lengths = [answer_tokens(number) for number in range(810)]
    assert sum(lengths) / len(lengths) == USUAL_ANSWER_TOKENS


async def test_a_crowd_on_an_engine_is_measured():
    async with engine(n_slots=4, echo_step_s=0.02) as (client, _asker):
        await client.wait_ready()
        measured = await LoadTest(client, "Be brief.").measure(4, warm_s=0.2, level_s=2.0)
        assert measured.n_people == 4
        assert 0 < measured.slow_per_s <= measured.each_per_s <= 50
        assert measured.ttft_p90_s > 0
        assert 0 < measured.all_per_s <= 4 * 50
        await until(lambda: client.n_running == 0)


async def test_an_engine_that_fails_ends_the_measurement():
    double = ScriptedEngine()
    measuring = asyncio.create_task(LoadTest(double, "x").measure(1))
    await settle()
    double.last.finish(FinishReason.ERROR, "engine_failed")
    with pytest.raises(ApplianceError, match="failed"):
        await measuring


async def test_what_was_asked_is_stopped_with_the_measurement():
    double = ScriptedEngine()
    measuring = asyncio.create_task(LoadTest(double, "x").measure(3))
    await settle()
    measuring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await measuring
    assert [stream.n_aborts for stream in double.streams] == [1, 1, 1]


async def test_questions_are_nobodys_and_leave_no_state_behind():
    double = ScriptedEngine()
    measuring = asyncio.create_task(LoadTest(double, "Be brief.").measure(2))
    await settle()
    requests = [stream.request for stream in double.streams]
    assert len({request.person for request in requests}) == 2
    assert {request.conversation for request in requests} == {""}
    assert len({request.messages for request in requests}) == 2
    measuring.cancel()
    await asyncio.wait({measuring})


async def test_speed_wait_and_sum_are_those_after_the_beginning():
    clock, double = FakeClock(), ScriptedEngine()
    measuring = asyncio.create_task(LoadTest(double, "x", clock).measure(1, warm_s=1.0, level_s=0.3))
    await settle()
    clock.now_s = 100.5
    double.last.say("ab")  # before the beginning: not counted
    await settle()
    for moment, text in ((102.0, "c"), (103.0, "defg"), (104.0, "hijk")):
        clock.now_s = moment
        double.last.say(text)
        await settle()
    clock.now_s = 105.0
    measured = await measuring
    assert measured == Level(1, each_per_s=4.0, slow_per_s=4.0, ttft_p90_s=0.5, all_per_s=9 / 4)
