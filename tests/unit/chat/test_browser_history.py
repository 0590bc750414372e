"""A conversation goes to its browser and comes back: as plain text, within the limits, to its own person only."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from starlette.testclient import TestClient

from appliance.access.person import COOKIE_NAME, TAB_HEADER, Persons
from appliance.answers.answer import Origin
from appliance.chat import browser_history as kept
from appliance.chat.service import ChatService
from appliance.chat.sessions import MAX_TURNS, Session, Turn
from appliance.engine.request import FinishReason
from appliance.http.page_routes import make_page_router
from appliance.settings.schema import Settings
from tests.unit.engine_double import INFO, ScriptedEngine

TAB = "t" * 20


def turn(question: str, text: str = "yes", **more: Any) -> Turn:
    return Turn(question, text, (1, 2, 3), FinishReason.STOP, **more)


def body(*turns: dict[str, Any]) -> str:
    return json.dumps({"turns": list(turns)})


def test_what_is_given_can_be_taken_back() -> None:
    given = turn("q", "a", notices=("limit",), origin=Origin.SAVED, saved_at=1.5, verdict="good")
    (back,) = kept.take(body(kept.give(given)), 100)
    assert (back.question, back.text, back.notices, back.origin, back.saved_at, back.verdict) == (
        "q",
        "a",
        ("limit",),
        Origin.SAVED,
        1.5,
        "good",
    )
    assert back.token_ids == ()
    assert not back.can_continue


def test_an_answer_without_an_end_can_still_be_continued() -> None:
    cut_off = Turn("q", "half", (1,), FinishReason.LENGTH)
    (back,) = kept.take(body(kept.give(cut_off)), 100)
    assert back.can_continue


def test_what_comes_back_passes_the_same_limits_as_a_message() -> None:
    (back,) = kept.take(body({"question": "\ufeffabc\x00def", "text": "\x00x"}, {"question": " \n"}), 4)
    assert (back.question, back.text) == ("abcd", "x")


def test_what_the_block_list_took_out_stays_out_of_the_history() -> None:
    (back,) = kept.take(body({"question": "q", "text": "refused", "origin": "blocked"}), 100)
    assert not back.is_history


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "nonsense",
        '{"turns": 3}',
        '{"turns": [{"question": 5}]}',
        '{"turns": [{"question": "q", "origin": "me"}]}',
        body(*[{"question": "q"}] * (MAX_TURNS + 1)),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(kept.BadConversation):
        kept.take(text, 100)


def test_what_it_has_no_name_for_is_left_out() -> None:
    (taken,) = kept.take('{"turns": [{"question": "q", "token_ids": [1]}], "more": 1}', 100)
    assert (taken.question, taken.token_ids) == ("q", ())


def test_an_edited_conversation_is_sent_from_its_beginning_again_where_that_had_been_left_out() -> None:
    session = Session(0.0, [turn(f"q{n}") for n in range(6)], n_forgotten_turns=4)
    assert [message.text for message in session.history(n_without=4)] == ["q0", "yes", "q1", "yes"]
    session.take_back(4)
    assert [message.text for message in session.history()] == ["q0", "yes", "q1", "yes"]


class Page:
    """The routes over a scripted engine, as one browser or another calls them."""

    def __init__(self) -> None:
        self.persons = Persons(b"s" * 32)
        settings = Settings(backend="echo", max_input_chars=50, max_batch_size=1, look_ahead=0, queue_size=0)
        self.chat = ChatService(ScriptedEngine(), settings)
        self.app = FastAPI()
        self.app.include_router(make_page_router(self.chat, self.persons, settings))

    def browser(self) -> TestClient:
        client = TestClient(self.app, headers={TAB_HEADER: TAB})
        client.cookies.set(COOKIE_NAME, self.persons.issue())
        return client


def test_a_forgotten_conversation_is_put_back_and_shown_to_its_person_only() -> None:
    page = Page()
    one, other = page.browser(), page.browser()
    assert one.get("/conversation").json()["turns"] == []
    assert one.put("/conversation", content=body({"question": "q", "text": "a"})).status_code == 204
    shown = one.get("/conversation").json()
    assert [(t["question"], t["text"]) for t in shown["turns"]] == [("q", "a")]
    assert 1700 < shown["forgotten_in_s"] <= 1800
    assert other.get("/conversation").json()["turns"] == []
    one.delete("/conversation")
    assert one.get("/conversation").json()["turns"] == []


def test_what_the_server_still_has_is_not_replaced() -> None:
    browser = Page().browser()
    browser.put("/conversation", content=body({"question": "first"}))
    browser.put("/conversation", content=body({"question": "second"}))
    assert [t["question"] for t in browser.get("/conversation").json()["turns"]] == ["first"]


def test_nobody_without_a_cookie_can_leave_anything_here() -> None:
    page = Page()
    stranger = TestClient(page.app, headers={TAB_HEADER: TAB})
    assert stranger.put("/conversation", content=body({"question": "q"})).status_code == 404
    assert stranger.post("/rating", json={"turn": 0, "verdict": "good"}).status_code == 404
    assert stranger.get("/conversation").json() == {"turns": [], "running": False, "forgotten_in_s": 0}
    assert len(page.chat.sessions) == 0


def test_nonsense_is_refused_and_changes_nothing() -> None:
    browser = Page().browser()
    assert browser.put("/conversation", content="nonsense").status_code == 422
    assert browser.post("/rating", content="nonsense").status_code == 422
    assert browser.get("/conversation").json()["turns"] == []


def test_thumbs_are_counted_without_the_conversation_and_can_be_taken_back() -> None:
    page = Page()
    browser = page.browser()
    browser.put("/conversation", content=body({"question": "a secret", "text": "a"}))
    for verdict, n_good, n_bad in (("good", 1, 0), ("bad", 0, 1), ("", 0, 0), ("good", 1, 0)):
        assert browser.post("/rating", json={"turn": 0, "verdict": verdict}).status_code == 204
        text = page.chat.watch.metrics.text().decode()
        assert f'ratings{{verdict="good"}} {n_good}.0' in text
        if n_bad:
            assert f'ratings{{verdict="bad"}} {n_bad}.0' in text
        assert "secret" not in text
    assert browser.get("/conversation").json()["turns"][0]["verdict"] == "good"
    assert browser.post("/rating", json={"turn": 7, "verdict": "good"}).status_code == 404
    assert browser.post("/rating", json={"turn": 0, "verdict": "great"}).status_code == 422


async def test_there_is_room_until_every_place_is_taken() -> None:
    page = Page()
    async with AsyncClient(transport=ASGITransport(page.app), base_url="http://office") as client:
        assert (await client.get("/room")).json()["free"] is True
        await page.chat.admit("somebody", TAB, "hello")
        assert (await client.get("/room")).json()["free"] is False


async def test_the_head_of_an_open_page_is_another_once_model_or_notice_is() -> None:
    page = Page()
    heads = []
    async with AsyncClient(transport=ASGITransport(page.app), base_url="http://office") as client:
        for change in ("nothing", "notice", "model"):
            if change == "notice":
                page.chat.use(page.chat.settings.model_copy(update={"notice": "Lunch at 12"}))
            elif change == "model":
                page.chat.engine.info = replace(INFO, model_name="Another")
            heads.append((await client.get("/room")).json()["head"])
    assert len(set(heads)) == 3
