"""Busy and waiting: the text waits in the box until there is room, and the wait counts down."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.driver import LONG, Visit, settled
from tests.system.program import Program


@pytest.mark.parametrize(("locale", "button"), [("en-US", "Send when free"), ("zh-CN", "有空位时发送")])
def test_a_refused_message_is_sent_once_a_place_is_free(
    narrow_app: Program, visit: Visit, locale: str, button: str
) -> None:
    inside = [visit(narrow_app) for _ in range(3)]
    late = visit(narrow_app, locale=locale)
    for chat in inside:
        chat.send(LONG)
    for chat in inside[1:]:
        chat.page.wait_for_selector("html[data-in-line=yes]")
    late.send("let me in")
    late.page.wait_for_selector("#when_free:visible")
    expect(late.page.locator("#when_free")).to_have_text(button)
    late.click("when_free")
    late.page.wait_for_selector("#not_now:visible")
    assert late.box.input_value() == "let me in"
    inside[0].click("stop")
    for chat in inside[1:]:
        chat.click("stop")
    assert late.wait_answered() == "let me in"
    late.hides("not_now")


def test_waiting_for_room_can_be_given_up(narrow_app: Program, visit: Visit) -> None:
    inside = [visit(narrow_app) for _ in range(3)]
    late = visit(narrow_app)
    for chat in inside:
        chat.send(LONG)
    for chat in inside[1:]:
        chat.page.wait_for_selector("html[data-in-line=yes]")
    late.send("let me in")
    late.page.wait_for_selector("#when_free:visible")
    late.click("when_free")
    late.click("not_now")
    for chat in inside:
        chat.click("stop")
    late.page.wait_for_timeout(4000)
    settled(late.questions, [])
    assert late.box.input_value() == "let me in"


def test_the_wait_is_told_in_seconds_and_counts_down(narrow_app: Program, visit: Visit) -> None:
    chat = visit(narrow_app)
    chat.page.route("**/place", lambda route: route.fulfill(json={"ahead": 2, "wait_s": 25, "closing": False}))
    first = visit(narrow_app)
    first.send(LONG)
    first.wait_for("writing")
    chat.send("me too")
    chat.page.wait_for_selector("#place:has-text('You are number 3 in line, about')")
    seconds = [int(re.findall(r"about (\d+) s", chat.page.locator("#place").inner_text())[0])]
    chat.page.wait_for_timeout(2500)
    seconds.append(int(re.findall(r"about (\d+) s", chat.page.locator("#place").inner_text())[0]))
    assert seconds[1] < seconds[0] <= 25
    chat.click("stop")
    first.click("stop")
