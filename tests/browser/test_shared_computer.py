"""A computer that several people use: asked once, nothing is left for the next person, and the page tells the truth."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.driver import Chat, Visit
from tests.system.program import Program
from ui.words.messages import Language, say


def side(chat: Chat) -> None:
    if chat.js("document.documentElement.dataset.side") != "open":
        chat.click("menu")


def stored(chat: Chat, where: str) -> list[str]:
    keys = chat.js(f"Object.keys({where}).filter((key) => key.startsWith('office-chat-c-'))")
    assert isinstance(keys, list)
    return keys


@pytest.mark.parametrize(("locale", "language", "width"), [("en-US", "en", 1280), ("zh-CN", "zh", 360)])
def test_the_first_visit_asks_and_a_shared_computer_keeps_nothing(
    app: Program, visit: Visit, locale: str, language: Language, width: int
):
    chat = visit(app, locale=locale, width=width)
    expect(chat.page.locator("#whose")).to_contain_text(say(language, "page_whose"))
    chat.page.get_by_role("button", name=say(language, "page_whose_many")).click()
    chat.hides("whose")
    chat.ask("a private matter")
    assert stored(chat, "localStorage") == []
    assert len(stored(chat, "sessionStorage")) == 1
    side(chat)
    expect(chat.page.locator("#forgotten")).to_contain_text(say(language, "page_forgotten_in_shared", n=30)[-12:])
    expect(chat.page.locator("#wishes p")).to_have_text(say(language, "page_wishes_note_shared"))
    chat.page.reload()
    chat.ready()
    assert chat.questions() == ["a private matter"], "a reload is not the next person"
    chat.hides("whose")
    next_person = chat.new_tab().open()
    side(next_person)
    expect(next_person.page.locator("#conversations")).to_have_text(say(language, "page_none_shared"))
    assert next_person.questions() == []
    next_person.hides("whose")


def test_somebody_alone_is_asked_once_and_keeps_their_conversations(app: Program, visit: Visit):
    chat = visit(app)
    chat.page.get_by_role("button", name=say("en", "page_whose_mine")).click()
    chat.ask("mine")
    assert len(stored(chat, "localStorage")) == 1
    other = chat.new_tab().open()
    other.hides("whose")
    side(other)
    expect(other.page.locator("#conversations")).to_contain_text("mine")


def test_what_was_kept_goes_after_a_second_tick_and_the_open_conversation_stays(app: Program, visit: Visit):
    chat = visit(app)
    chat.ask("the first one")
    chat.click("new_chat")
    chat.wait_until("document.querySelectorAll('#conversation .bot-row').length === 0")
    chat.ask("the open one")
    side(chat)
    chat.page.locator("#wishes summary").click()
    chat.page.fill("[data-wish=instructions]", "be brief")
    box = chat.page.locator("#shared input")
    box.click()
    expect(chat.page.locator("#shared")).to_contain_text(say("en", "page_shared_sure", n=1))
    assert len(stored(chat, "localStorage")) == 2
    box.click()
    expect(box).to_be_checked()
    assert stored(chat, "localStorage") == []
    expect(chat.page.locator("#conversations li")).to_have_count(1)
    assert chat.js("localStorage.getItem('office-chat-wishes')") in (None, "")
    assert "be brief" in str(chat.js("sessionStorage.getItem('office-chat-wishes')"))
    assert chat.questions() == ["the open one"]
    box.click()  # and back: what this tab still has is kept again
    expect(box).not_to_be_checked()
    assert len(stored(chat, "localStorage")) == 1
    assert stored(chat, "sessionStorage") == []


def test_the_first_answer_says_what_it_deletes(app: Program, visit: Visit):
    """Somebody chats first and answers later, or has come from a version that did not ask."""
    chat = visit(app)
    chat.ask("what was there before")
    chat.click("new_chat")
    many = chat.page.get_by_role("button", name=say("en", "page_whose_many_kept", n=1))
    many.focus()
    many.press("Enter")
    chat.hides("whose")
    assert stored(chat, "localStorage") == []
    assert "what was there" not in str(chat.js("JSON.stringify({...localStorage})"))
    expect(chat.box).to_be_focused()


def test_another_tab_learns_at_once_whose_computer_it_is(app: Program, visit: Visit):
    chat = visit(app)
    other = chat.new_tab().open()
    chat.page.get_by_role("button", name=say("en", "page_whose_many")).click()
    other.hides("whose")
    side(other)
    expect(other.page.locator("#shared input")).to_be_checked()
    other.ask("written in the other tab")
    assert stored(other, "localStorage") == []
    assert len(stored(other, "sessionStorage")) == 1


def test_the_choice_outlives_forget_me(app: Program, visit: Visit):
    chat = visit(app)
    chat.page.get_by_role("button", name=say("en", "page_whose_many")).click()
    chat.ask("to be forgotten")
    side(chat)
    chat.click("forget")
    chat.click("forget")
    chat.wait_until("document.querySelectorAll('#conversation .bot-row').length === 0")
    assert stored(chat, "sessionStorage") == []
    chat.page.reload()
    chat.ready()
    chat.hides("whose")
    side(chat)
    expect(chat.page.locator("#shared input")).to_be_checked()
