"""What a person wants of every answer: fields at the side, kept in the browser, sent with each question."""

from __future__ import annotations

import json
from urllib.parse import unquote

import pytest
from playwright.sync_api import expect

from tests.browser.driver import Chat, Visit
from tests.browser.test_looks import serious
from tests.system.program import Program


def open_fields(chat: Chat) -> None:
    if chat.js("document.documentElement.dataset.side") != "open":
        chat.click("menu")
    chat.page.locator("#wishes summary").click()
    chat.page.locator("[data-wish=length]").wait_for()


def sent(chat: Chat) -> list[object]:
    """What goes with each question from now on."""
    seen: list[object] = []

    def look(request: object) -> None:
        if "queue/join" in request.url:
            seen.append(json.loads(unquote(request.headers.get("x-wishes", "null"))))

    chat.page.on("request", look)
    return seen


@pytest.mark.parametrize(("locale", "width"), [("en-US", 1280), ("zh-CN", 360)])
def test_they_are_kept_and_go_with_every_question(app: Program, visit: Visit, locale: str, width: int) -> None:
    chat = visit(app, locale=locale, width=width)
    seen = sent(chat)
    chat.ask("before")
    open_fields(chat)
    chat.page.locator("[data-wish=instructions]").fill("请说中文 & rhyme")
    chat.page.locator("[data-wish=creativity]").select_option("exact")
    assert serious(chat) == []
    assert chat.js("document.scrollingElement.scrollWidth") == width
    if width == 360:
        chat.page.keyboard.press("Escape")
    expect(chat.page.locator("html")).to_have_attribute("data-wishes", "yes")
    chat.ask("one")
    chat.page.reload()
    chat.ready()
    chat.click("again")
    chat.page.wait_for_function("() => document.querySelectorAll('#conversation .bot-row').length === 2")
    wishes = {"instructions": "请说中文 & rhyme", "creativity": "exact"}
    assert seen == [None, wishes, wishes]
    open_fields(chat)
    chat.click("language")
    expect(chat.page.locator("#wishes summary")).to_have_text("我的设置" if locale == "en-US" else "My settings")
    expect(chat.page.locator("[data-wish=instructions]")).to_have_value("请说中文 & rhyme")


def test_a_short_answer_is_shorter(short_app: Program, visit: Visit) -> None:
    chat = visit(short_app)
    assert chat.ask("twenty characters ok") == "twenty characters ok"
    open_fields(chat)
    chat.page.locator("[data-wish=length]").select_option("short")
    answer = chat.ask("twenty characters ok")
    assert answer.startswith("twenty c")
    assert "twenty characters" not in answer
    assert "reached its length limit" in answer


def test_forget_me_forgets_them(app: Program, visit: Visit) -> None:
    chat = visit(app)
    open_fields(chat)
    chat.page.locator("[data-wish=instructions]").fill("my salary is secret")
    chat.click("forget")
    chat.click("forget")
    expect(chat.page.locator("[data-wish=instructions]")).to_have_value("")
    assert "salary" not in str(chat.js("JSON.stringify(localStorage)"))


def test_they_are_the_owners_to_allow(programs, visit: Visit) -> None:
    chat = visit(programs.get(own_wishes=False, max_answer_tokens=24))
    chat.hides("wishes")
    chat.js("localStorage.setItem('office-chat-wishes', JSON.stringify({length: 'short'}))")
    assert chat.ask("twenty characters ok") == "twenty characters ok", "what a browser has kept counts for nothing"


def test_what_cannot_be_used_is_said(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.js("localStorage.setItem('office-chat-wishes', JSON.stringify({instructions: 'x'.repeat(301)}))")
    chat.send("hello")
    chat.page.wait_for_selector("#box div.validation-error:has-text('My settings')")
    assert chat.box.input_value() == "hello"
