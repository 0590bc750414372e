"""The same question asked by many at once is answered once, and each of them may leave."""

from __future__ import annotations

import asyncio

import pytest

from appliance.answers.answer import AnswerState, Origin
from appliance.base.errors import AlreadyAnswering, Busy
from appliance.engine.request import FinishReason, Message, SamplingParams
from tests.unit.chat_bench import ANN, BOB, Bench, ask_as_program
from tests.unit.engine_double import settle

EVE = ("eve", "tab-1")


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_twenty_people_cost_one_generation_and_one_place():
    bench = Bench(max_batch_size=1, look_ahead=0, queue_size=0)
    answers = []
    for number in range(20):
        waits = await bench.chat.admit(f"person {number}", "tab", "What is VAT?")
        assert waits is (number == 0)
        answers.append(await bench.chat.ask(f"person {number}", "tab", "What is VAT?"))
    await settle()
    (stream,) = bench.engine.streams
    stream.say("A tax.")
    stream.finish()
    await asyncio.gather(*(answer.wait_done() for answer in answers))
    assert {answer.text for answer in answers} == {"A tax."}
    assert [answer.origin for answer in answers] == [Origin.MODEL] + [Origin.JOINED] * 19
    for number in range(20):
        (turn,) = bench.chat.conversation(f"person {number}", "tab").turns
        assert (turn.text, turn.token_ids) == ("A tax.", tuple(map(ord, "A tax.")))
    await bench.chat.admit(*ANN, "a place is free again")


async def test_who_joins_late_reads_it_from_the_beginning(bench):
    await bench.chat.ask(*ANN, "x")
    await settle()
    bench.engine.last.say("one ")
    await settle()
    late = await bench.chat.ask(*BOB, "x")
    await settle()
    assert late.text == "one "
    bench.engine.last.say("two")
    bench.engine.last.finish()
    await late.wait_done()
    assert late.text == "one two"


@pytest.mark.parametrize("leaver", [0, 1])
async def test_one_who_stops_does_not_stop_the_others(bench, leaver):
    keys = [ANN, BOB]
    answers = [await bench.chat.ask(*key, "x") for key in keys]
    await settle()
    bench.engine.last.say("half")
    await settle()
    await bench.chat.stop(*keys[leaver])
    assert (answers[leaver].text, answers[leaver].finish) == ("half", FinishReason.ABORT)
    assert bench.engine.last.n_aborts == 0
    bench.engine.last.say(" and all")
    bench.engine.last.finish()
    other = answers[1 - leaver]
    await other.wait_done()
    assert (other.text, other.finish) == ("half and all", FinishReason.STOP)


async def test_the_last_one_who_leaves_ends_it_and_nobody_joins_what_is_ending(bench):
    await bench.chat.ask(*ANN, "x")
    await bench.chat.ask(*BOB, "x")
    await settle()
    bench.engine.obeys_abort = False
    await bench.chat.stop(*ANN)
    stopping = asyncio.create_task(bench.chat.stop(*BOB))
    await settle()
    assert bench.engine.last.n_aborts == 1
    await bench.chat.ask(*EVE, "x")
    await settle()
    assert len(bench.engine.streams) == 2
    bench.engine.streams[0].finish(FinishReason.ABORT)
    await stopping


async def test_who_began_it_and_left_may_ask_anew_and_leaves_nothing_behind(bench):
    await bench.chat.ask(*ANN, "x")
    await bench.chat.ask(*BOB, "x")
    await settle()
    await bench.chat.stop(*ANN)
    another = await bench.chat.ask(*ANN, "y")
    await settle()
    bench.engine.streams[0].finish()
    await settle()
    assert bench.engine.forgotten == [ANN], "the engine kept it under the first asker's conversation"
    assert another.state is not AnswerState.DONE


async def test_a_generation_whose_beginner_left_still_holds_its_place():
    bench = Bench(max_batch_size=1, look_ahead=0, queue_size=0)
    await bench.chat.ask(*ANN, "x")
    await bench.chat.ask(*BOB, "x")
    await bench.chat.stop(*ANN)
    with pytest.raises(Busy):
        await bench.chat.admit(*EVE, "y")


async def test_an_answer_that_is_joined_counts_for_its_person(bench):
    await bench.chat.ask(*ANN, "x")
    await bench.chat.ask(*BOB, "x")
    with pytest.raises(AlreadyAnswering):
        await bench.chat.ask(*BOB, "x")
    await bench.chat.ask("bob", "tab-2", "x")
    with pytest.raises(AlreadyAnswering):
        await bench.chat.admit("bob", "tab-3", "x")


async def test_asking_afresh_joins_nobody_and_is_joined_by_nobody(bench):
    await bench.answered(ANN, "x", "1")
    await bench.chat.ask(*BOB, "x")
    await bench.chat.again(*ANN)
    await settle()
    assert len(bench.engine.streams) == 3
    bench.engine.streams[1].finish()
    await settle()
    await bench.chat.ask(*EVE, "x")
    await settle()
    assert len(bench.engine.streams) == 4


@pytest.mark.parametrize(
    ("scope", "n_generations"),
    [("off", 2), ("first", 1), ("all", 1)],
)
async def test_the_scope_decides_whether_first_questions_are_one(scope, n_generations):
    bench = Bench(answer_cache_scope=scope)
    for key in (ANN, BOB):
        await bench.chat.ask(*key, "x")
    await settle()
    assert len(bench.engine.streams) == n_generations


@pytest.mark.parametrize(("scope", "n_generations"), [("first", 4), ("all", 3)])
async def test_later_questions_are_one_only_where_the_scope_says_so(scope, n_generations):
    bench = Bench(answer_cache_scope=scope)
    for key in (ANN, BOB):
        await bench.answered(key, "hello there", "hi")
    for key in (ANN, BOB):
        await bench.chat.ask(*key, "x")
    await settle()
    assert len(bench.engine.streams) == n_generations


async def test_what_differs_is_not_the_same():
    bench = Bench(max_batch_size=16)
    await bench.chat.ask("p", "t", "What is ＶＡＴ？")
    for number, text in enumerate(["What is  VAT?", "what is VAT?", "What is VAT", "What\nis VAT?"]):
        await bench.chat.ask(f"person {number}", "t", text)
    asked = Message("user", "What is VAT?")
    await ask_as_program(bench, asked)
    await ask_as_program(bench, Message("system", "mine"), asked)
    await bench.chat.complete([asked], person="p", max_tokens=5, sampling=SamplingParams(), stop=())
    await bench.chat.complete([asked], person="p", max_tokens=None, sampling=SamplingParams(seed=1), stop=())
    await bench.chat.complete([asked], person="p", max_tokens=None, sampling=SamplingParams(), stop=("\n",))
    await settle()
    shown = [(s.request.messages[-1].text, s.request.max_tokens) for s in bench.engine.streams]
    assert len(shown) == 8, shown


async def test_a_failure_is_everybodys(bench):
    answers = [await bench.chat.ask(*key, "x") for key in (ANN, BOB)]
    await settle()
    bench.engine.last.say("a")
    bench.engine.last.finish(FinishReason.ERROR, "engine_failed")
    for answer in answers:
        await answer.wait_done()
        assert (answer.text, answer.error) == ("a", "engine_failed")
