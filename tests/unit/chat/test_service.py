"""The life of one question, with an engine whose every word the test chooses."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from appliance.answers.answer import AnswerState
from appliance.base.errors import AlreadyAnswering, Busy, Closing, EmptyInput, NothingToRepeat, NotReady, UnknownPerson
from appliance.engine.client import EngineState
from appliance.engine.request import FinishReason, Message
from tests.unit.chat_bench import ANN, BOB, Bench, ask_as_program
from tests.unit.engine_double import settle


@pytest.fixture
def bench() -> Bench:
    """Everybody may say "x" here: identical questions are test_ask_once.py's."""
    return Bench(answer_cache_scope="off")


def sent(bench: Bench) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in bench.engine.last.request.messages[1:]]


async def test_an_answer_is_written_and_becomes_a_turn(bench):
    answer = await bench.answered(ANN, "Hi?", "Hello!")
    (turn,) = bench.chat.conversation(*ANN).turns
    assert (turn.question, turn.text, turn.finish) == ("Hi?", "Hello!", FinishReason.STOP)
    assert turn.token_ids == tuple(map(ord, "Hello!"))
    assert answer.state is AnswerState.DONE
    assert bench.chat.conversation(*ANN).running is None


async def test_the_system_prompt_comes_first_and_answers_go_back_as_their_tokens(bench):
    await bench.answered(ANN, "one", "1")
    await bench.answered(ANN, "two", "2")
    system, *rest = bench.engine.last.request.messages
    assert system == Message("system", bench.settings.system_prompt)
    assert rest == [Message("user", "one"), Message("assistant", "1", (ord("1"),)), Message("user", "two")]


async def test_what_the_engine_dropped_is_left_out_of_the_next_question(bench):
    await bench.answered(ANN, "one", "1")
    await bench.answered(ANN, "two", "2")
    answer = await bench.chat.ask(*ANN, "three")
    await settle()
    bench.engine.last.start(n_dropped_messages=2)
    bench.engine.last.say("3")
    bench.engine.last.finish()
    await answer.wait_done()
    assert "history_cut" in answer.notices
    await bench.answered(ANN, "four", "4")
    assert [text for _, text in sent(bench)] == ["two", "2", "three", "3", "four"]


async def test_a_turn_without_an_answer_is_not_sent_on(bench):
    await bench.chat.ask(*ANN, "lost")
    await settle()
    bench.engine.last.finish(FinishReason.ERROR, "engine_failed")
    await settle()
    await bench.answered(ANN, "again", "yes")
    assert sent(bench) == [("user", "again")]


async def test_an_over_long_question_is_cut_with_a_notice(bench):
    answer = await bench.answered(ANN, "字" * 513, "ok")
    assert len(answer.question) == 512
    assert answer.notices == ("input_cut",)


async def test_each_answer_says_why_it_ended(bench):
    answer = await bench.chat.ask(*ANN, "x")
    await settle()
    bench.engine.last.say("a")
    bench.engine.last.finish(FinishReason.LENGTH)
    await answer.wait_done()
    assert answer.notices == ("limit",)
    assert bench.chat.conversation(*ANN).can_continue


async def test_continue_goes_on_from_the_text_and_tokens_there_are(bench):
    answer = await bench.chat.ask(*ANN, "tell")
    await settle()
    bench.engine.last.say("once ")
    bench.engine.last.finish(FinishReason.LENGTH)
    await answer.wait_done()
    more = await bench.chat.go_on(*ANN)
    await settle()
    assert more.text == "once "
    assert bench.engine.last.request.messages[-1] == Message("assistant", "once ", tuple(map(ord, "once ")))
    bench.engine.last.say("more")
    bench.engine.last.finish()
    await more.wait_done()
    (turn,) = bench.chat.conversation(*ANN).turns
    assert (turn.text, turn.finish, turn.notices) == ("once more", FinishReason.STOP, ())
    with pytest.raises(NothingToRepeat):
        await bench.chat.go_on(*ANN)


async def test_a_refused_continue_or_again_leaves_the_conversation_alone(bench):
    await bench.answered(ANN, "one", "1")
    bench.engine.state = EngineState.FAILED
    with pytest.raises(NotReady):
        await bench.chat.again(*ANN)
    assert len(bench.chat.conversation(*ANN).turns) == 1


async def test_ask_again_replaces_the_last_answer(bench):
    await bench.answered(ANN, "one", "1")
    answer = await bench.chat.again(*ANN)
    await settle()
    assert sent(bench) == [("user", "one")]
    bench.engine.last.say("uno")
    bench.engine.last.finish()
    await answer.wait_done()
    assert [turn.text for turn in bench.chat.conversation(*ANN).turns] == ["uno"]


async def test_an_engine_that_fails_leaves_what_was_written(bench):
    answer = await bench.chat.ask(*ANN, "x")
    await settle()
    bench.engine.last.say("half an ans")
    bench.engine.last.finish(FinishReason.ERROR, "engine_failed")
    await answer.wait_done()
    (turn,) = bench.chat.conversation(*ANN).turns
    assert (turn.text, turn.error, turn.can_continue) == ("half an ans", "engine_failed", True)


async def test_stop_returns_when_the_partial_answer_is_committed(bench):
    await bench.chat.ask(*ANN, "x")
    other = await bench.chat.ask(*BOB, "y")
    await settle()
    bench.engine.streams[0].say("half")
    await settle()
    await bench.chat.stop(*ANN)
    (turn,) = bench.chat.conversation(*ANN).turns
    assert (turn.text, turn.finish, turn.notices) == ("half", FinishReason.ABORT, ("stopped",))
    assert other.state is not AnswerState.DONE
    assert bench.engine.streams[1].n_aborts == 0


async def test_stop_then_ask_at_once_many_times(bench):
    for _ in range(10):
        await bench.chat.admit(*ANN, "x")
        await bench.chat.ask(*ANN, "x")
        await settle()
        bench.engine.last.say("a")
        await bench.chat.stop(*ANN)
    assert bench.chat.n_answers == 0
    assert len(bench.chat.conversation(*ANN).turns) == 10


async def test_stop_before_the_engine_was_asked(bench):
    answer = await bench.chat.ask(*ANN, "x")
    await bench.chat.stop(*ANN)
    assert answer.finish is FinishReason.ABORT
    assert bench.engine.streams == []


async def test_new_chat_and_forget_drop_the_text(bench):
    await bench.answered(ANN, "one", "1")
    await bench.answered(("ann", "tab-2"), "two", "2")
    await bench.answered(BOB, "three", "3")
    await bench.chat.new_chat(*ANN)
    assert bench.chat.conversation(*ANN).turns == ()
    assert len(bench.chat.conversation("ann", "tab-2").turns) == 1
    running = await bench.chat.ask(*ANN, "running")
    await settle()
    await bench.chat.forget("ann")
    assert running.state is AnswerState.DONE
    assert set(bench.engine.forgotten) == {ANN, ("ann", "tab-2"), ("ann", "")}
    assert bench.chat.conversation("ann", "tab-2").turns == bench.chat.conversation(*ANN).turns == ()
    assert len(bench.chat.conversation(*BOB).turns) == 1


async def test_a_conversation_past_its_ttl_is_forgotten_here_and_by_the_engine(bench):
    await bench.answered(ANN, "one", "1")
    bench.clock.now += bench.settings.session_ttl_s
    bench.chat.sessions.sweep()
    assert bench.engine.forgotten == [ANN]
    assert bench.chat.conversation(*ANN).turns == ()


async def test_a_borrowed_tab_id_shows_nothing_to_another_person(bench):
    await bench.answered(ANN, "one", "1")
    assert bench.chat.conversation("bob", ANN[1]).turns == ()
    assert bench.chat.conversation(None, ANN[1]).turns == ()


@pytest.mark.parametrize(("person", "tab"), [(None, "t"), ("p", None), ("", "")])
async def test_nobody_in_particular_is_not_answered(bench, person, tab):
    with pytest.raises(UnknownPerson):
        await bench.chat.admit(person, tab, "x")
    with pytest.raises(UnknownPerson):
        await bench.chat.ask(person, tab, "x")


async def test_admission_says_why_not(bench):
    with pytest.raises(EmptyInput):
        await bench.chat.admit(*ANN, " \ufeff")
    with pytest.raises(NothingToRepeat):
        await bench.chat.admit(*ANN, None)
    await bench.chat.admit(*ANN, "x")
    with pytest.raises(AlreadyAnswering):
        await bench.chat.admit(*ANN, "x")
    bench.engine.state = EngineState.FAILED
    with pytest.raises(NotReady):
        await bench.chat.admit(*BOB, "x")


async def test_people_wait_for_an_engine_that_restarts(bench):
    bench.engine.state = EngineState.RESTARTING
    await bench.chat.admit(*ANN, "x")
    assert bench.chat.not_ready_code == "restarting"


async def test_the_program_and_the_page_share_every_place(bench):
    n_places = bench.settings.n_places
    for number in range(n_places - 1):
        await bench.chat.admit(f"person {number}", "t", "x")
    await ask_as_program(bench)
    with pytest.raises(Busy):
        await ask_as_program(bench)
    with pytest.raises(Busy):
        await bench.chat.admit(*BOB, "x")
    await settle()
    bench.engine.last.finish()
    await settle()
    await bench.chat.admit(*BOB, "x")


async def test_a_program_may_bring_its_own_system_message(bench):
    await ask_as_program(bench, Message("system", "mine"), Message("user", "x"))
    await settle()
    assert [message.text for message in bench.engine.last.request.messages] == ["mine", "x"]
    assert bench.engine.last.request.refuse_long_input


async def test_the_engine_is_given_no_more_than_it_can_put_in_order(bench):
    answers = [await bench.chat.ask(f"person {number}", "t", "x") for number in range(4)]
    await settle()
    bench.engine.streams[2].start()
    bench.engine.streams[2].ahead = 7
    await settle()
    assert answers[2].ahead == 7, "an engine may take a question before it has a slot for it"
    assert len(bench.engine.streams) == bench.settings.n_engine_places == 3
    bench.engine.n_waiting = 1
    assert answers[3].ahead == 1
    assert bench.chat.place("person 3", "t") == 1
    bench.waiting.append(BOB)
    assert bench.chat.place(*BOB) == 2
    bench.engine.streams[0].finish()
    await settle()
    assert bench.engine.streams[3].request.messages[-1].text == "x"


async def test_an_answer_nobody_reads_ends_after_its_grace(bench):
    answer = await bench.chat.ask(*ANN, "x")
    await settle()
    bench.clock.now += 9.9
    bench.housekeep()
    assert bench.engine.last.n_aborts == 0
    bench.clock.now += 0.1
    bench.housekeep()
    await answer.wait_done()
    assert answer.notices == ("unread",)


async def test_the_grace_is_short_while_others_wait(bench):
    await bench.chat.ask(*ANN, "x")
    await settle()
    bench.clock.now += 2
    bench.housekeep()
    assert bench.engine.last.n_aborts == 0
    await bench.chat.admit(*BOB, "y")
    bench.housekeep()
    assert bench.engine.last.n_aborts == 1


async def test_a_reader_who_comes_back_in_time_keeps_the_answer(bench):
    answer = await bench.chat.ask(*ANN, "x")
    await settle()
    async with contextlib.aclosing(answer.follow()) as updates:
        await anext(updates)
        assert answer.alone_since is None
    assert answer.alone_since == bench.clock.now
    bench.clock.now += 9
    async with contextlib.aclosing(bench.chat.conversation(*ANN).running.follow()) as updates:
        await anext(updates)
        bench.clock.now += 500
        bench.housekeep()
        assert bench.engine.last.n_aborts == 0


async def test_an_answer_in_its_grace_still_holds_its_place():
    bench = Bench(max_batch_size=1, look_ahead=0, queue_size=0)
    answer = await bench.chat.ask(*ANN, "x")
    bench.engine.obeys_abort = False
    await settle()
    bench.clock.now += 100
    bench.housekeep()
    bench.housekeep()
    assert bench.engine.last.n_aborts == 1
    with pytest.raises(Busy):
        await bench.chat.admit(*BOB, "x")
    bench.engine.last.finish(FinishReason.ABORT)
    await answer.wait_done()
    await bench.chat.admit(*BOB, "x")


async def test_a_drain_lets_answers_end_and_takes_nothing_new(bench):
    answer = await bench.chat.ask(*ANN, "x")
    await settle()
    draining = asyncio.create_task(bench.chat.drain(5))
    await settle()
    with pytest.raises(Closing):
        await bench.chat.admit(*BOB, "x")
    bench.engine.last.say("done")
    bench.engine.last.finish()
    await draining
    assert answer.finish is FinishReason.STOP


async def test_a_drain_ends_what_takes_too_long_and_says_so(bench):
    answer = await bench.chat.ask(*ANN, "x")
    await settle()
    await bench.chat.drain(0.01)
    assert (answer.finish, answer.notices) == (FinishReason.ABORT, ("closing",))


async def test_an_unforeseen_error_ends_the_answer_and_frees_the_place(bench, caplog):
    bench.engine.submit = None  # calling it raises TypeError
    answer = await bench.chat.ask(*ANN, "a secret")
    await answer.wait_done()
    await settle()
    assert (answer.finish, answer.error, bench.chat.n_answers) == (FinishReason.ERROR, "internal_error", 0)
    assert "TypeError" in caplog.text
    assert "secret" not in caplog.text


async def test_one_line_is_logged_for_a_request_and_none_of_its_words(bench, caplog):
    caplog.set_level(logging.INFO)
    await bench.answered(ANN, "a secret question", "a secret answer")
    (record,) = [record for record in caplog.records if record.name == "appliance.chat.watch"]
    assert "n_prompt=10 n_cached=3 n_decoded=15" in record.getMessage()
    assert "reason=stop" in record.getMessage()
    assert "secret" not in caplog.text
