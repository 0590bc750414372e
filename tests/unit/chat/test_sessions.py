"""Conversations: what the engine is sent of them, and when they are forgotten."""

from __future__ import annotations

import pytest

from appliance.answers.answer import Origin
from appliance.chat.sessions import MAX_TURNS, Session, SessionStore, Turn
from appliance.engine.request import FinishReason
from tests.unit.engine_double import Clock


def turn(number: int, text: str = "answer") -> Turn:
    return Turn(f"question {number}", text and f"{text} {number}", (number,), FinishReason.STOP)


def make(*turns: Turn) -> Session:
    return Session(last_used=0, turns=list(turns))


def test_history_alternates_and_leaves_out_what_was_never_answered():
    session = make(turn(0), turn(1, ""), turn(2))
    assert [message.role for message in session.history()] == ["user", "assistant"] * 2
    assert session.history()[1].token_ids == (0,)


def test_what_the_engine_dropped_is_not_sent_again():
    session = make(turn(0), turn(1, ""), turn(2), turn(3))
    session.forget_messages(2)
    assert [message.text for message in session.history()] == ["question 2", "answer 2", "question 3", "answer 3"]
    session.forget_messages(4)
    assert session.history() == []


def test_taking_back_a_turn_after_everything_was_dropped_stays_sane():
    session = make(turn(0))
    session.forget_messages(2)
    session.take_back(1)
    assert session.turns == []
    session.commit(turn(1))
    assert len(session.history()) == 2
    empty = make()
    empty.take_back(1)
    assert empty.turns == []


def test_a_very_long_conversation_is_bounded():
    session = make()
    for number in range(MAX_TURNS + 5):
        session.commit(turn(number))
    assert len(session.turns) == MAX_TURNS


class Store(SessionStore):
    """A store whose clock stands still, with what it told others to forget."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.forgotten: list[tuple[str, str]] = []
        super().__init__(60, self.clock, lambda *key: self.forgotten.append(key))


def test_an_unused_conversation_is_forgotten_after_its_ttl_here_and_elsewhere():
    store = Store()
    store.open(("p", "t"))
    store.clock.now += 59
    assert store.find(("p", "t")) is not None  # looking begins the TTL anew
    store.clock.now += 59
    store.sweep()
    assert len(store) == 1
    store.clock.now += 1
    store.sweep()
    assert len(store) == 0
    assert store.forgotten == [("p", "t")]


def test_a_running_answer_keeps_its_conversation():
    store = Store()
    store.open(("p", "t")).running = object()
    store.clock.now += 1000
    store.sweep()
    assert len(store) == 1


def test_who_comes_back_to_a_forgotten_conversation_is_told_once():
    store = Store()
    store.open(("p", "t")).commit(turn(1))
    store.open(("p", "empty"))
    store.clock.now += 60
    store.sweep()
    assert not store.open(("p", "empty")).take_expired()
    session = store.open(("p", "t"))
    assert session.take_expired()
    assert not session.take_expired()
    store.clock.now += 60
    store.sweep()
    assert not store.open(("p", "t")).take_expired()


def test_a_conversation_somebody_dropped_is_not_called_forgotten():
    store = Store()
    store.open(("p", "t")).commit(turn(1))
    store.drop(("p", "t"))
    assert not store.open(("p", "t")).take_expired()


def test_a_full_store_forgets_the_longest_unused_one_elsewhere_too(monkeypatch):
    monkeypatch.setattr("appliance.chat.sessions.MAX_SESSIONS", 2)
    store = Store()
    for name in "abc":
        store.open(("p", name))
        store.clock.now += 1
    assert store.of_person("p") == [("p", "b"), ("p", "c")]
    assert store.forgotten == [("p", "a")]


def test_looking_makes_no_conversation():
    store = Store()
    assert store.find(("p", "t")) is None
    assert len(store) == 0


def test_the_conversations_of_one_person_are_theirs_alone():
    store = Store()
    for key in (("p", "1"), ("p", "2"), ("q", "1")):
        store.open(key)
    assert store.of_person("p") == [("p", "1"), ("p", "2")]


@pytest.mark.parametrize("origin", [Origin.BLOCKED, Origin.QUICK])
def test_what_the_model_has_no_part_in_is_no_history(origin):
    session = make(turn(0), Turn("bad", "Not here.", (), FinishReason.STOP, origin=origin), turn(2))
    assert [message.text for message in session.history()] == ["question 0", "answer 0", "question 2", "answer 2"]
    session.forget_messages(2)
    assert [message.text for message in session.history()] == ["question 2", "answer 2"]


def test_an_answer_without_tokens_of_its_own_is_sent_as_text():
    session = make(Turn("hi", "Corrected!", (), FinishReason.STOP, origin=Origin.SAVED))
    assert session.history()[1].token_ids is None
