"""Conversations: what the engine is sent of them, and when they are forgotten."""

from __future__ import annotations

from appliance.engine.request import FinishReason
from appliance.sessions import MAX_TURNS, Session, SessionStore, Turn
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
    assert session.take_back() == turn(0)
    session.commit(turn(1))
    assert len(session.history()) == 2
    assert make().take_back() is None


def test_a_very_long_conversation_is_bounded():
    session = make()
    for number in range(MAX_TURNS + 5):
        session.commit(turn(number))
    assert len(session.turns) == MAX_TURNS


def test_an_unused_conversation_is_forgotten_after_its_ttl():
    clock = Clock()
    store = SessionStore(60, clock)
    store.open(("p", "t"))
    clock.now += 59
    assert store.find(("p", "t")) is not None  # looking begins the TTL anew
    clock.now += 59
    assert store.past_ttl() == []
    clock.now += 1
    assert store.past_ttl() == [("p", "t")]


def test_looking_makes_no_conversation():
    store = SessionStore(60, Clock())
    assert store.find(("p", "t")) is None
    assert len(store) == 0


def test_the_conversations_of_one_person_are_theirs_alone():
    store = SessionStore(60, Clock())
    for key in (("p", "1"), ("p", "2"), ("q", "1")):
        store.open(key)
    assert store.of_person("p") == [("p", "1"), ("p", "2")]
