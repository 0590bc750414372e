"""KV state that is used again: the right tokens, of the right person, or not at all (case 13)."""

from __future__ import annotations

import dataclasses
import multiprocessing
import threading
import time

import pytest

from appliance.engine import process
from appliance.engine.core import CrossedSequence
from appliance.engine.prefix_cache import KvState, Owner, PrefixCache
from appliance.engine.request import Finished, Message, Request
from appliance.engine.wire import Close
from tests.unit.engine.scripted import Bench, FakeClock

SYSTEM = Message("system", "You are a kind and helpful assistant.")
N_SYSTEM = len(SYSTEM.text) + 3 + 2
"""Tokens that everybody's prompt begins with: the system prompt, its markers, and what comes before a question."""


class Chat:
    """One conversation of one person, turn by turn."""

    def __init__(self, bench: Bench, person: str, conversation: str = "tab") -> None:
        self.bench = bench
        self.person = person
        self.conversation = conversation
        self.messages: list[Message] = [SYSTEM]
        self.n_turns = 0

    def ask(self, text: str, max_tokens: int = 200) -> str:
        self.n_turns += 1
        request_id = f"{self.person} {self.conversation} {self.n_turns}"
        self.messages.append(Message("user", text))
        self.bench.submit(
            Request(request_id, tuple(self.messages), max_tokens, person=self.person, conversation=self.conversation)
        )
        return request_id

    def keep(self, request_id: str) -> Finished:
        end = self.bench.end(request_id)
        assert end is not None
        answer = tuple(self.bench.token_ids(request_id))
        self.messages.append(Message("assistant", self.bench.text(request_id), answer))
        return end


def watch_reuse(bench: Bench) -> list[list[int]]:
    """Collects what every slot holds just before a prompt's first rows are evaluated; checked in every step."""
    seen: list[list[int]] = []

    def look(batch):
        for rows in batch:
            held = bench.backend.held(rows.slot)
            assert len(held) == rows.first_position
            if len(rows.token_ids) > 1 and held:
                seen.append([*held, *rows.token_ids])

    bench.backend.before_decode = look
    return seen


def test_the_next_turn_computes_only_what_is_new():
    bench = Bench(reuses=True)
    chat = Chat(bench, "ann")
    for turn in range(5):
        request_id = chat.ask(f"question {turn}")
        bench.finish()
        end = chat.keep(request_id)
        assert bench.text(request_id) == f"question {turn}"
        if turn:
            # the last answer's end marker, the question with what surrounds it, and the last token drawn
            assert end.n_prompt - end.n_cached <= len(f"question {turn}") + 9


def test_at_every_reuse_the_slot_holds_the_prompt_token_by_token():
    bench = Bench(reuses=True, n_slots=4)
    seen = watch_reuse(bench)
    chats = [Chat(bench, person, tab) for person in ("ann", "bob", "cy") for tab in ("1", "2")]
    for turn in range(4):
        ids = [chat.ask(f"{chat.person}{chat.conversation} asks {turn} " + "x" * 7 * turn) for chat in chats]
        bench.finish()
        for chat, request_id in zip(chats, ids, strict=True):
            end = chat.keep(request_id)
            assert bench.text(request_id).startswith(f"{chat.person}{chat.conversation} asks {turn}")
            assert turn == 0 or end.n_cached > 0
    prompts = [chat.messages for chat in chats]
    assert len(prompts) == 6
    assert seen
    for tokens in seen:
        text = "".join(chr(i) for i in tokens if i < 256)
        people = {f"{chat.person}{chat.conversation}" for chat in chats if f"u{chat.person}{chat.conversation}" in text}
        assert len(people) == 1, f"one slot holds words of {people}"


def test_the_system_prompt_is_computed_once_for_everybody():
    bench = Bench(reuses=True, n_slots=4)
    chats = [Chat(bench, f"p{i}") for i in range(6)]
    ids = [chat.ask(f"hello {i}") for i, chat in enumerate(chats)]
    bench.finish()
    n_cached = [chat.keep(request_id).n_cached for chat, request_id in zip(chats, ids, strict=True)]
    assert sum(n > 0 for n in n_cached) == 5
    assert [bench.text(r) for r in ids] == [f"hello {i}" for i in range(6)]


def test_somebody_with_the_same_words_in_the_same_tab_gets_none_of_anothers_state():
    bench = Bench(reuses=True)
    Chat(bench, "ann").ask("the very same question")
    bench.finish()
    bob = Chat(bench, "bob")
    request_id = bob.ask("the very same question")
    bench.finish()
    assert bob.keep(request_id).n_cached == N_SYSTEM


def test_a_forgotten_conversation_is_computed_anew():
    bench = Bench(reuses=True)
    for person, conversation in (("ann", "tab"), ("ann", "")):
        chat = Chat(bench, "ann", "tab")
        chat.n_turns = 10 * (not conversation)
        request_id = chat.ask("first question")
        bench.finish()
        chat.keep(request_id)
        bench.engine.forget(person, conversation)
        request_id = chat.ask("second")
        bench.finish()
        assert chat.keep(request_id).n_cached == N_SYSTEM
        assert bench.text(request_id) == "second"
        bench.engine.forget("ann", "")


def test_a_question_asked_again_leaves_one_token_to_compute():
    bench = Bench(reuses=True)
    chat = Chat(bench, "ann")
    request_id = chat.ask("the question")
    bench.finish()
    bench.end(request_id)
    chat.messages.pop()
    again = chat.ask("the question")
    bench.finish()
    end = chat.keep(again)
    assert end.n_cached == end.n_prompt - 1
    assert bench.text(again) == "the question"


def test_a_stopped_answer_is_taken_up_where_it_was_left():
    bench = Bench(reuses=True)
    chat = Chat(bench, "ann")
    request_id = chat.ask("abcdefghijkl")
    bench.step(8)
    bench.abort(request_id)
    chat.keep(request_id)
    bench.submit(Request("on", tuple(chat.messages), 100, person="ann", conversation="tab"))
    bench.finish()
    end = bench.end("on")
    assert end is not None
    assert end.n_cached >= end.n_prompt - 2
    assert bench.text(request_id) + bench.text("on") == "abcdefghijkl"


@pytest.mark.parametrize("change", ["another's state", "one token differs"])
def test_a_kept_state_that_is_not_what_it_says_is_noticed_before_a_word_is_computed(change):
    bench = Bench(reuses=True)
    assert bench.cache is not None
    chat = Chat(bench, "ann")
    request_id = chat.ask("first question")
    bench.finish()
    chat.keep(request_id)
    owner = Owner.of("ann", "tab")
    state = bench.cache.take(owner)
    assert state is not None
    wrong = state.data.copy()
    if change == "one token differs":
        wrong.view("int32")[len(SYSTEM.text) + 8] += 1
    else:
        wrong.view("int32")[:] = 65
    bench.cache.park(owner, state.token_ids.tolist(), dataclasses.replace(state, data=wrong).data)
    chat.ask("second")
    n_before = len(bench.backend.batches)
    with pytest.raises(CrossedSequence):
        bench.finish()
    assert len(bench.backend.batches) == n_before
    assert isinstance(state, KvState)


@pytest.mark.parametrize("reuses", [False, True])
def test_answers_that_were_set_aside_for_others_go_on_without_losing_a_letter(reuses):
    bench = Bench(reuses=reuses, n_slots=3)
    jobs = [Request(f"job {i}", (Message("user", f"a long job {i} " * 3),), 200, person="eve") for i in range(5)]
    for job in jobs:
        bench.submit(job)
    bench.step(6)
    for person in ("ann", "bob"):
        bench.submit(Request(person, (Message("user", f"hello {person}"),), 200, person=person))
    bench.step(2)
    assert all(bench.text(person) for person in ("ann", "bob")), "they were served at once"
    bench.finish()
    assert [bench.text(job.request_id) for job in jobs] == [job.messages[0].text for job in jobs]
    assert [bench.text(person) for person in ("ann", "bob")] == ["hello ann", "hello bob"]


def test_an_answer_that_is_set_aside_can_be_stopped():
    bench = Bench(reuses=True, n_slots=1)
    bench.submit(Request("job 0", (Message("user", "abcdefghijklmnop"),), 200, person="eve"))
    bench.step(4)
    said = bench.text("job 0")
    bench.engine._preempt(bench.engine._scheduler.running[0])
    bench.abort("job 0")
    assert said
    assert bench.text("job 0") == said
    bench.ask("next", "hello")
    bench.finish()
    assert bench.text("next") == "hello"


def test_what_expired_goes_while_nobody_asks(monkeypatch):
    clock = FakeClock()
    cache = PrefixCache(ram_bytes=100_000, ttl_s=60, shelf=None, wall_clock=clock)
    bench = Bench(cache=cache, clock=clock)
    chat = Chat(bench, "ann")
    chat.ask("hello")
    bench.finish()
    assert len(cache) == 1
    clock.now_s += 60
    monkeypatch.setattr(process, "_IDLE_S", 0.0)
    monkeypatch.setattr(process, "_SWEEP_S", 0.01)
    ours, theirs = multiprocessing.Pipe()
    serving = threading.Thread(target=process._serve, args=(theirs, bench.engine, None))
    serving.start()
    try:
        until = time.monotonic() + 5
        while len(cache) and time.monotonic() < until:
            time.sleep(0.01)
        assert len(cache) == 0
    finally:
        ours.send(Close())
        serving.join(5)
