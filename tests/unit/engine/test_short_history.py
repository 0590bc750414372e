"""Under pressure less of a conversation is read anew, but never less than is kept of it; and what took how long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from appliance.engine.request import Message, Request, Started, Timings
from tests.unit.engine.scripted import Bench

SYSTEM = Message("system", "Be kind.")
TURNS = tuple(
    message
    for number in range(8)
    for message in (Message("user", f"question {number} " + "x" * 30), Message("assistant", f"answer {number}"))
)
LATEST = Message("user", "and now?")
ASKED = Request("later", (SYSTEM, *TURNS, LATEST), 20, person="ann", conversation="tab", short_history=True)


def make(**more: object) -> Bench:
    return Bench(n_ctx_seq=1024, max_answer_tokens=200, max_input_tokens=200, **more)


def started(bench: Bench, request: Request) -> Started:
    bench.submit(request)
    (update,) = bench.updates[request.request_id][:1]
    assert isinstance(update, Started)
    return update


@pytest.mark.parametrize("reuses", [True, False])
def test_where_nothing_is_kept_only_the_newest_part_is_read(reuses):
    bench = make(reuses=reuses)
    whole = started(bench, replace(ASKED, request_id="whole", short_history=False))
    short = started(bench, ASKED)
    assert (whole.n_dropped_messages, whole.history_shortened) == (0, False)
    assert short.history_shortened
    assert 0 < short.n_dropped_messages < len(TURNS)
    assert short.n_dropped_messages % 2 == 0
    assert short.n_prompt <= (1024 - 200) // 4 < whole.n_prompt
    bench.finish()
    assert bench.text("later") == LATEST.text


def test_what_is_kept_of_a_conversation_is_gone_on_from():
    bench = make(reuses=True)
    before = Request("before", (SYSTEM, *TURNS[:-1]), 100, person="ann", conversation="tab")
    bench.submit(before)
    bench.finish()
    answer = Message("assistant", bench.text("before"), tuple(bench.token_ids("before")))
    asked = replace(ASKED, messages=(*before.messages, answer, LATEST))
    assert not started(bench, asked).history_shortened
    bench.finish()
    end = bench.end("later")
    assert end is not None
    assert end.n_cached > end.n_prompt * 0.9


def test_a_system_prompt_everybody_shares_is_not_a_conversation_that_is_kept():
    bench = make(reuses=True)
    bench.submit(Request("other", (SYSTEM, LATEST), 20, person="bob", conversation="tab"))
    bench.finish()
    assert started(bench, ASKED).history_shortened


def test_the_question_itself_always_stays():
    bench = make()
    long = Message("user", "y" * 200)
    update = started(bench, replace(ASKED, messages=(SYSTEM, *TURNS, long)))
    assert update.n_dropped_messages == len(TURNS)
    bench.finish()
    assert bench.text("later") == long.text[:20]


def test_a_conversation_that_is_short_already_is_left_as_it_is():
    update = started(make(), replace(ASKED, messages=(SYSTEM, *TURNS[:2], LATEST)))
    assert (update.n_dropped_messages, update.history_shortened) == (0, False)


def test_waiting_reading_and_writing_are_timed_apart():
    bench = Bench(n_slots=1)
    bench.ask("first", "x" * 20)
    bench.ask("second", "y" * 10)
    bench.finish()
    first, second = bench.end("first").timings, bench.end("second").timings
    assert first.waited_s < 0.1 < second.waited_s
    assert second.waited_s == pytest.approx(first.first_token_s + first.decode_s + 0.02, abs=0.03)
    # One step for each token after the first.
    assert second.decode_s == pytest.approx(9 * (bench.step_s + bench.row_s))
    assert second.first_token_s > bench.step_s


def test_what_never_came_to_a_slot_or_a_token_took_no_time():
    bench = Bench(n_slots=1)
    bench.ask("first", "x" * 20)
    bench.ask("second", "y")
    bench.step(2)
    bench.abort("second")
    assert bench.end("second").timings == Timings()
