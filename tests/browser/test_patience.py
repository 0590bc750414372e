"""Busy and waiting: the text waits in the box until there is room, and the wait counts down."""

from __future__ import annotations

import re
import time

import httpx
import pytest
from playwright.sync_api import expect

from tests.browser.conftest import ROOMY, Programs
from tests.browser.driver import LONG, Chat, Visit, settled
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


GIVES_WAY: dict[str, object] = {
    "max_batch_size": 1,
    "look_ahead": 0,
    "queue_size": 6,
    "disconnect_grace_s": 1,
    "disconnect_grace_busy_s": 1,
    "shorter_answers_wait_s": 0,
    "shorter_history_wait_s": 0,
    "saved_only_wait_s": 0,
    "busy_wait_s": 0,
}


def test_that_answers_are_shorter_while_many_ask_is_said_below_them(programs: Programs, visit: Visit) -> None:
    app = programs.get(**ROOMY | GIVES_WAY | {"shorter_answers_wait_s": 2, "short_answer_tokens": 9})
    crowd = _crowd(app, visit, level=1)
    late = visit(app, width=360, height=720)
    late.send("a question whose echo is longer than nine tokens")
    late.wait_for("waiting")
    for chat in crowd:
        chat.click("stop")
    late.wait_answered()
    expect(late.page.get_by_text("Many people are asking right now: answers are shorter than usual.")).to_be_visible()


def test_that_only_saved_answers_are_given_is_said_and_the_text_kept(programs: Programs, visit: Visit) -> None:
    app = programs.get(**ROOMY | GIVES_WAY | {"saved_only_wait_s": 2})
    crowd = _crowd(app, visit, level=3)
    late = visit(app, locale="zh-CN", width=360, height=720)
    late.send("一个字也不会丢")
    expect(late.page.get_by_text("暂时只提供已保存的回答和快捷回答").first).to_be_visible()
    assert late.box.input_value() == "一个字也不会丢"
    for chat in crowd:
        chat.click("stop")


def _crowd(app: Program, visit: Visit, level: int) -> list[Chat]:
    """Three people with long questions, once the program gives way so far."""
    crowd = [visit(app) for _ in range(3)]
    for number, chat in enumerate(crowd):
        chat.send(f"{number} {LONG[2:]}")  # the same one would be answered once for all

    def level_now() -> float:
        lines = httpx.get(f"{app.url}/metrics", trust_env=False).text.splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("office_chat_pressure_rung "))

    deadline_s = time.monotonic() + 20
    while level_now() < level and time.monotonic() < deadline_s:
        time.sleep(0.2)
    assert level_now() == level
    return crowd
