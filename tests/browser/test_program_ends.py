"""The program ends or dies under open pages: each says so in its reader's language and comes back by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.driver import Chat, Visit, settled
from tests.system.program import Program

pytestmark = pytest.mark.browser

SETTINGS: dict[str, object] = {
    "backend": "echo",
    "allowed_hosts": "office.test",
    "max_batch_size": 1,
    "look_ahead": 0,
    "queue_size": 3,
    "max_input_chars": 2000,
    "max_context_tokens": 4096,
    "max_answer_tokens": 1500,
}
LONG = "word, " * 330
CLOSING = {"en": "The program is being shut down.", "zh": "程序正在关闭"}
KEPT = "JSON.parse(Object.entries(localStorage).find(([key]) => key.startsWith('office-chat-c-'))[1]).turns"
"""What this browser keeps of the one conversation there is."""
LOST = {"en": "The connection to the office PC is lost.", "zh": "与办公室电脑的连接已断开"}


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[list[Program]]:
    started = [Program(tmp_path, **SETTINGS).wait_ready()]
    yield started
    for program in started:
        program.close()


def again(runs: list[Program]) -> None:
    """Start it again where it was."""
    before = runs[-1]
    runs.append(Program(before.data_dir, port=before.port, **SETTINGS).wait_ready())


def writer_and_waiter(visit: Visit, program: Program) -> tuple[Chat, Chat]:
    writer = visit(program)
    writer.send(LONG)
    writer.wait_writing_text()
    waiter = visit(program, locale="zh-CN", width=360, height=740)
    waiter.send("你好")
    waiter.page.wait_for_selector("#place:has-text('您排在第 1 位')")
    return writer, waiter


def says(chat: Chat, sentence: str) -> None:
    chat.page.wait_for_selector(f"#place:has-text('{sentence}')")
    chat.hides("stop")
    assert not chat.page.locator(".toast-body").filter(visible=True).count()


def is_back_with(chat: Chat, text: str) -> None:
    chat.page.wait_for_selector("html:not([data-lost])[data-ready=yes]")
    chat.wait_until(f"document.querySelector('#box textarea')?.value === {text.strip()!r}")
    chat.shows("send")


def test_a_signal_ends_answers_with_a_word_and_the_pages_come_back(runs, visit):
    program = runs[-1]
    writer, waiter = writer_and_waiter(visit, program)
    assert program.terminate() < 4.5
    assert program.process.returncode == 0
    assert "ERROR" not in program.output()
    writer.wait_for("idle")
    assert "The program was shut down while this was being written." in writer.answers()[-1]
    says(waiter, CLOSING["zh"])
    assert waiter.box.input_value() == "你好"
    writer.box.fill("and then")
    writer.box.press("Enter")
    says(writer, LOST["en"])
    again(runs)
    is_back_with(waiter, "你好")
    is_back_with(writer, "and then")


def test_a_killed_program_is_said_to_be_lost_and_the_question_comes_back(runs, visit):
    writer, waiter = writer_and_waiter(visit, runs[-1])
    runs[-1].process.kill()
    says(writer, LOST["en"])
    says(waiter, LOST["zh"])
    assert "word" in writer.live()
    again(runs)
    is_back_with(writer, LONG[: int(str(SETTINGS["max_input_chars"]))])
    is_back_with(waiter, "你好")


def test_an_idle_page_of_an_earlier_run_loads_itself_again_and_says_so(runs, visit):
    chat = visit(runs[-1])
    chat.ask("my name is Ann")
    chat.wait_until(f"{KEPT}.length === 1")
    chat.box.fill("my draft")
    answer = {"free": True, "run": "another one", "closing": False}
    chat.page.route("**/room", lambda route: route.fulfill(json=answer), times=1)
    chat.page.wait_for_selector("#place:has-text('The program was started again')", timeout=30_000)
    is_back_with(chat, "my draft")
    settled(chat.questions, ["my name is Ann"])


def test_an_idle_page_says_that_the_program_is_gone_and_comes_back_with_it(runs, visit):
    chat = visit(runs[-1], locale="zh-CN")
    chat.ask("hello")
    chat.wait_until(f"{KEPT}.length === 1")
    runs[-1].process.kill()
    runs[-1].process.wait()
    chat.page.wait_for_selector(f"#place:has-text('{LOST['zh']}')", timeout=30_000)
    again(runs)
    chat.page.wait_for_selector("html:not([data-lost])[data-ready=yes]", timeout=30_000)
    settled(chat.questions, ["hello"])


def notices_nothing(chat: Chat) -> None:
    """The page takes the program for the one it was loaded from, however long it is away."""
    run = chat.js("window.officeChat.config.run")
    head = chat.js("document.querySelector('#header [data-head]').dataset.head")
    answer = {"free": True, "run": run, "closing": False, "head": head}
    chat.page.route("**/room", lambda route: route.fulfill(json=answer))


@pytest.mark.parametrize("next_event", ["ask", "again"])
def test_an_idle_page_brings_its_conversation_to_the_program_that_was_started_again(runs, visit, next_event):
    chat = visit(runs[-1])
    notices_nothing(chat)
    chat.ask("my name is Ann")
    chat.ask("and a second one")
    chat.wait_until(f"{KEPT}.length === 2")
    runs[-1].process.kill()
    runs[-1].process.wait()
    again(runs)
    if next_event == "ask":
        assert chat.ask("a third one") == "a third one"
    else:
        chat.click("again")
        chat.wait_for("writing")
        chat.wait_for("idle")
    expected = ["my name is Ann", "and a second one", "a third one"][: 3 if next_event == "ask" else 2]
    settled(chat.questions, expected)
    chat.wait_until(f"{KEPT}.length === {len(expected)}")
    assert chat.js(f"{KEPT}.map((turn) => turn.question)") == expected
