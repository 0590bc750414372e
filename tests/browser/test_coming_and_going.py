"""Waiting, busy, Stop, reload, leaving: what happens when many people want one engine."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import expect

from tests.browser.driver import LONG, Visit, settled
from tests.system.program import Program

"""238 characters; the echo engine writes one every 20 ms."""


@pytest.mark.parametrize(
    ("locale", "sentence"),
    [
        ("zh-CN", "现在人多，位置已满，请稍后再试。"),
        ("en-US", "Busy right now: every place is taken. Please try again shortly."),
    ],
)
def test_busy_says_so_at_once_and_keeps_the_text(narrow_app: Program, visit: Visit, locale: str, sentence: str) -> None:
    inside = [visit(narrow_app) for _ in range(3)]
    late = visit(narrow_app, locale=locale)
    for chat in inside:
        chat.send(LONG)
    inside[0].wait_for("writing")
    for chat in inside[1:]:
        chat.page.wait_for_selector("html[data-in-line=yes]")
    late.send("let me in")
    late.page.wait_for_selector("#box div.validation-error", timeout=5000)
    assert late.refusal() == sentence
    assert late.box.input_value() == "let me in"
    settled(late.questions, [])
    late.shows("send")
    # The program is not full for what is no question.
    late.click("language")
    late.page.wait_for_selector(f"#language:has-text('{'中文' if locale == 'zh-CN' else 'English'}')")
    visitor = visit(narrow_app)
    visitor.shows("send")
    for chat in inside:
        chat.click("stop")
        chat.wait_for("idle")
    late.box.press("Enter")
    assert late.wait_answered() == "let me in"
    expect(late.page.locator("#box div.validation-error:visible")).to_have_count(0)
    settled(late.questions, ["let me in"])


@pytest.mark.parametrize(("locale", "sentence"), [("zh-CN", "出了点问题"), ("en-US", "Something went wrong here.")])
def test_a_fault_of_the_program_is_said_and_keeps_the_text(
    app: Program, visit: Visit, locale: str, sentence: str
) -> None:
    chat = visit(app, locale=locale)
    chat.page.route("**/queue/join*", lambda route: route.fulfill(status=500, body="no"), times=1)
    chat.send("let me in")
    expect(chat.page.locator("#place")).to_contain_text(sentence)
    chat.wait_for("idle")
    chat.page.wait_for_timeout(500)  # it stays there
    expect(chat.page.locator("#place")).to_contain_text(sentence)
    assert chat.box.input_value() == "let me in"
    chat.box.press("Enter")
    assert chat.wait_answered() == "let me in"
    chat.hides("place")


def test_those_who_wait_see_their_place(narrow_app: Program, visit: Visit) -> None:
    first, second, third = (visit(narrow_app) for _ in range(3))
    first.send(LONG)
    first.wait_for("writing")
    second.send("second")
    second.page.wait_for_selector("#place:has-text('You are number 1 in line')")
    third.send("third")
    third.page.wait_for_selector("#place:has-text('You are number 2 in line')")
    assert third.box.input_value() == "third"
    assert third.js("document.querySelector('#box textarea').readOnly") is True
    first.click("stop")
    third.wait_until(
        "document.querySelector('#place').textContent.includes('number 1') ||"
        " document.documentElement.dataset.chat !== 'waiting'"
    )
    assert [chat.wait_answered() for chat in (second, third)] == ["second", "third"]
    assert third.box.input_value() == ""


def test_stop_while_waiting_gives_the_place_and_the_text_back(narrow_app: Program, visit: Visit) -> None:
    first, second, third = (visit(narrow_app) for _ in range(3))
    first.send(LONG)
    first.wait_for("writing")
    second.send("second")
    second.page.wait_for_selector("html[data-in-line=yes]")
    third.send("third")
    third.page.wait_for_selector("#place:has-text('number 2')")
    second.click("stop")
    second.wait_for("idle", timeout_s=5)
    assert second.box.input_value() == "second"
    settled(second.questions, [])
    third.page.wait_for_selector("#place:has-text('number 1')", timeout=5000)
    first.click("stop")
    first.wait_for("idle")
    assert third.wait_answered() == "third"
    second.box.press("Enter")
    assert second.wait_answered() == "second"


def test_stop_while_writing_keeps_what_was_written(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.send(LONG)
    chat.wait_writing_text()
    chat.click("stop")
    chat.wait_for("idle", timeout_s=5)
    chat.page.wait_for_selector("#conversation .bot-row:has-text('Stopped.')")
    written = chat.answers()[0].split("\n")[0]
    assert written
    assert LONG.startswith(written)
    assert chat.live() == ""
    assert chat.ask("and now?") == "and now?"
    assert len(chat.questions()) == 2


def test_one_persons_stop_leaves_anothers_answer_alone(app: Program, visit: Visit) -> None:
    one, other = visit(app), visit(app)
    text = "An answer that goes on for some time, whatever the neighbour does."
    other.send(text)
    one.send(LONG)
    one.wait_writing_text()
    one.click("stop")
    one.wait_for("idle", timeout_s=5)
    assert other.state() == "writing"
    other.wait_for("idle")
    settled(other.answers, [text])


def test_a_reload_in_the_middle_of_an_answer_comes_back_to_it(app: Program, visit: Visit) -> None:
    chat = visit(app)
    text = LONG[:120].strip()
    chat.send(text)
    chat.wait_writing_text()
    chat.page.reload()
    chat.ready()
    chat.wait_for("writing", timeout_s=5)
    early = chat.live()
    settled(chat.questions, [text])
    chat.shows("stop")
    chat.page.wait_for_timeout(500)
    assert len(chat.live()) > len(early)
    chat.wait_for("idle")
    chat.page.wait_for_selector("#conversation .bot-row")
    assert (chat.questions(), chat.answers()) == ([text], [text])


def test_stop_works_after_a_reload(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.send(LONG)
    chat.wait_writing_text()
    chat.page.reload()
    chat.ready()
    chat.wait_for("writing", timeout_s=5)
    chat.click("stop")
    chat.wait_for("idle", timeout_s=5)
    chat.page.wait_for_selector("#conversation .bot-row:has-text('Stopped.')")


def test_a_closed_tab_frees_its_place_within_the_grace(narrow_app: Program, visit: Visit) -> None:
    leaver, stayer = visit(narrow_app), visit(narrow_app)
    leaver.send(LONG)
    leaver.wait_writing_text()
    stayer.send("my turn")
    stayer.page.wait_for_selector("html[data-in-line=yes]")
    leaver.page.close()
    began = time.monotonic()
    assert stayer.wait_answered() == "my turn"
    assert time.monotonic() - began < 7, "the leaver's answer was written to its end"


def test_a_tab_closed_while_waiting_leaves_the_line(narrow_app: Program, visit: Visit) -> None:
    first, leaver, last = (visit(narrow_app) for _ in range(3))
    first.send(LONG)
    first.wait_for("writing")
    leaver.send("never mind")
    leaver.page.wait_for_selector("html[data-in-line=yes]")
    last.send("me")
    last.page.wait_for_selector("#place:has-text('number 2')")
    leaver.page.close()
    last.page.wait_for_selector("#place:has-text('number 1')", timeout=5000)
    first.click("stop")
    assert last.wait_answered() == "me"


def test_new_chat_while_writing_stops_the_answer(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.send(LONG)
    chat.wait_writing_text()
    chat.click("new_chat")
    chat.wait_for("idle", timeout_s=5)
    chat.page.wait_for_selector("html[data-empty=yes]")
    chat.page.wait_for_timeout(500)
    settled(chat.questions, [])
    assert chat.ask("fresh") == "fresh"


def test_seven_tabs_of_one_browser_are_usable(app: Program, visit: Visit) -> None:
    first = visit(app)
    tabs = [first, *(first.new_tab() for _ in range(6))]
    for tab in tabs[1:]:
        began = time.monotonic()
        tab.open()
        assert time.monotonic() - began < 5
    for number, tab in enumerate(tabs):
        assert tab.ask(f"tab {number}") == f"tab {number}"


def test_a_third_answer_at_once_of_one_browser_is_refused_in_words(app: Program, visit: Visit) -> None:
    first = visit(app)
    tabs = [first, *(first.new_tab().open() for _ in range(2))]
    for tab in tabs[:2]:
        tab.send(LONG)
        tab.wait_for("writing")
    tabs[2].send("and me")
    tabs[2].page.wait_for_selector("#box div.validation-error")
    assert "Another answer of yours is still being written" in tabs[2].refusal()
    assert tabs[2].box.input_value() == "and me"
    for tab in tabs[:2]:
        tab.click("stop")
        tab.wait_for("idle")


def test_four_people_are_answered_side_by_side(app: Program, visit: Visit) -> None:
    people = [visit(app) for _ in range(4)]
    for chat in people:
        chat.send(LONG)
    for chat in people:
        chat.wait_writing_text()
    assert [chat.state() for chat in people] == ["writing"] * 4
    for chat in people:
        chat.click("stop")
        chat.wait_for("idle")
