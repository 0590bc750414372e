"""Enter, Shift+Enter, and an input method's Enter, which must never send."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.driver import Visit, settled
from tests.system.program import Program

PRESS = """(area, options) => {
  for (const type of ["keydown", "keypress", "keyup"]) {
    const enter = {key: "Enter", code: "Enter", bubbles: true, cancelable: true};
    area.dispatchEvent(new KeyboardEvent(type, {...enter, ...options}));
  }
}"""


@pytest.mark.parametrize(
    ("locale", "hint"),
    [("en-US", "Enter sends, Shift + Enter starts a new line"), ("zh-CN", "按 Enter 发送，按 Shift + Enter 换行")],
)
def test_enter_sends_and_shift_enter_starts_a_new_line(app: Program, visit: Visit, locale: str, hint: str) -> None:
    chat = visit(app, locale=locale)
    expect(chat.page.locator("#hint")).to_contain_text(hint)
    chat.box.press_sequentially("one")
    chat.box.press("Shift+Enter")
    chat.box.press_sequentially("two")
    assert chat.box.input_value() == "one\ntwo"
    settled(chat.questions, [])
    chat.box.press("Enter")
    chat.page.wait_for_selector("pre.said")
    settled(chat.questions, ["one\ntwo"])


def test_an_input_methods_enter_does_not_send(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.box.focus()
    keyboard = chat.page.context.new_cdp_session(chat.page)
    keyboard.send("Input.imeSetComposition", {"text": "nihao", "selectionStart": 5, "selectionEnd": 5})
    chat.box.evaluate(PRESS, {"isComposing": True, "keyCode": 229})
    chat.box.evaluate(PRESS, {"isComposing": True})
    chat.page.wait_for_timeout(300)
    settled(chat.questions, [])
    assert chat.box.input_value() == "nihao"
    keyboard.send("Input.insertText", {"text": "你好"})
    assert chat.box.input_value() == "你好"
    chat.box.press("Enter")
    chat.page.wait_for_selector("pre.said")
    chat.wait_for("idle")
    settled(chat.questions, ["你好"])


def test_safari_ends_the_composition_before_its_enter_and_that_does_not_send_either(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.box.fill("你好")
    chat.box.evaluate(
        """area => {
          area.dispatchEvent(new CompositionEvent("compositionstart", {bubbles: true}));
          area.dispatchEvent(new CompositionEvent("compositionend", {data: "你好", bubbles: true}));
        }"""
    )
    chat.box.evaluate(PRESS, {"isComposing": False, "keyCode": 229})
    chat.page.wait_for_timeout(300)
    settled(chat.questions, [])
    assert chat.box.input_value() == "你好"


def test_enter_on_an_empty_box_does_nothing(app: Program, visit: Visit) -> None:
    chat = visit(app)
    assert chat.page.locator("#send").is_disabled()
    chat.box.fill("  \n ")
    chat.box.press("Enter")
    chat.page.wait_for_timeout(200)
    assert chat.state() == "idle"
    settled(chat.questions, [])


def test_enter_while_an_answer_is_written_keeps_the_draft(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.send("a question whose answer takes a second or two to come")
    chat.wait_for("writing")
    chat.box.fill("my next one")
    chat.box.press("Enter")
    chat.page.wait_for_timeout(200)
    assert chat.box.input_value() == "my next one"
    chat.wait_for("idle")
    assert chat.box.input_value() == "my next one"
    assert len(chat.questions()) == 1
    chat.box.press("Enter")
    assert chat.wait_answered(2) == "my next one"


def test_repeated_clicks_ask_once(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.box.fill("just once")
    chat.page.locator("#send").dblclick()
    chat.js("for (let n = 0; n < 5; n++) document.querySelector('#send').click()")
    chat.wait_answered()
    chat.page.wait_for_timeout(500)
    settled(chat.questions, ["just once"])
    settled(chat.answers, ["just once"])
    expect(chat.page.locator("#box div.validation-error")).to_have_count(0)
