"""The page with the real starter model behind it."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Programs
from tests.browser.driver import Visit
from tests.browser.test_long_conversations import keep
from tests.system.program import Program

pytestmark = pytest.mark.model


@pytest.fixture
def model_app(programs: Programs, starter_model: Path) -> Program:
    return programs.get(backend="llama", model=starter_model, temperature=0, max_answer_tokens=96)


def test_it_knows_the_capital_of_france(model_app: Program, visit: Visit) -> None:
    chat = visit(model_app)
    expect(chat.page.locator("#header")).to_contain_text("SmolLM2")
    assert "Paris" in chat.ask("What is the capital of France? One word.")


def test_case_41_an_answer_without_end_is_stopped_by_hand_and_delays_nobody(
    programs: Programs, starter_model: Path, visit: Visit
) -> None:
    more = {"max_context_tokens": 2048, "max_answer_tokens": 1024}
    app = programs.get(backend="llama", model=starter_model, temperature=0, **more)
    endless, other = visit(app), visit(app)
    endless.send("Write a very long story about a cat and a dog who travel around the world.")
    endless.wait_writing_text()
    assert "Paris" in other.ask("What is the capital of France? One word.")
    endless.click("stop")
    endless.wait_for("idle")
    expect(endless.page.locator("#conversation .note").last).to_have_text("Stopped.")
    assert endless.ask("What is the capital of France? One word."), "after so much of a story it may say anything"


def test_case_9_the_thirtieth_long_turn_is_answered_and_so_is_the_next(model_app: Program, visit: Visit) -> None:
    chat = visit(model_app, locale="zh-CN")
    long = "请把这段话改写成给客户的邮件，语气要礼貌，内容要简短。" * 6
    keep(chat, [{"question": long, "text": long}] * 29)
    for question in (long, "What is the capital of France?"):
        chat.ask(question)
        expect(chat.page.locator("#conversation .bot-row").last).to_contain_text("最早的内容已不再参考")
        assert chat.js("window.officeChat.turns.at(-1).text.trim().length") > 0
    assert len(chat.questions()) == 31


def test_no_marker_of_the_model_is_ever_shown(model_app: Program, visit: Visit) -> None:
    chat = visit(model_app)
    chat.js(
        """() => {
          window.texts = [];
          const everything = {childList: true, subtree: true, characterData: true};
          const talk = document.querySelector("#talk");
          new MutationObserver(() => window.texts.push(talk.innerText)).observe(talk, everything);
        }"""
    )
    for question in ("Say hello.", "Name three colours.", "用中文说你好。"):
        chat.ask(question)
    texts = chat.js("window.texts")
    assert len(texts) > 10
    assert not [text for text in texts if "<|" in text or "\ufffd" in text]
