"""Answers that need no engine, as a person sees them: saved ones with their mark, blocked ones, quick ones."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.driver import Visit, settled
from tests.system.program import Program


@pytest.fixture
def knowing_app(programs) -> Program:
    return programs.get(quick_answers=True, answer_cache_scope="first")


@pytest.mark.parametrize(
    ("locale", "mark", "afresh"), [("en-US", "Saved answer, ", "ask afresh"), ("zh-CN", "已保存的回答（", "重新回答")]
)
def test_a_saved_answer_says_so_and_a_press_on_its_mark_asks_afresh(knowing_app, visit: Visit, locale, mark, afresh):
    question = f"the same question {locale}"
    visit(knowing_app).ask(question)
    chat = visit(knowing_app, locale=locale)
    chat.send(question)
    note = chat.page.locator("#conversation .note.afresh")
    note.wait_for()
    assert note.inner_text().startswith(mark)
    assert note.inner_text().endswith(afresh)
    chat.wait_for("idle")
    note.click()
    note.wait_for(state="detached")
    chat.wait_for("idle")
    settled(chat.answers, [question])
    settled(chat.questions, [question])


def test_only_the_last_saved_answer_offers_a_fresh_one(knowing_app, visit: Visit):
    visit(knowing_app).ask("an older question")
    chat = visit(knowing_app)
    chat.ask("an older question")
    chat.ask("and a newer one")
    chat.page.locator("#conversation .bot-row").nth(1).wait_for()
    expect(chat.page.locator("#conversation .note.afresh")).to_have_count(0)
    expect(chat.page.locator("#conversation")).to_contain_text("Saved answer")


def test_a_quick_answer_is_there_at_once_beside_a_full_house(programs, visit: Visit):
    app = programs.get(max_batch_size=1, look_ahead=0, queue_size=0, quick_answers=True, disconnect_grace_busy_s=0)
    busy = visit(app)
    busy.send("a long story about a queue " * 18)
    busy.wait_for("writing")
    for locale, question, part in (("en-US", "Who are you?", "chat assistant"), ("zh-CN", "你好！", "您好")):
        chat = visit(app, locale=locale)
        assert part in chat.ask(question)
        assert chat.box.input_value() == ""
    assert busy.state() == "writing"


def test_markup_in_the_owners_own_words_is_text(knowing_app, visit: Visit):
    """Case 38, where the words are the owner's."""
    answer = "<img src=x onerror=document.title=1><style>body{display:none}</style>[a](javascript:alert(1))"
    rules = f"[[rule]]\nquestions = ['markup']\nanswer = '{answer}'\n"
    (knowing_app.data_dir / "quick_answers.toml").write_text(rules)
    chat = visit(knowing_app)
    title = chat.page.title()
    for number in range(20):
        if "onerror" in chat.ask("markup") and "img" in chat.answers()[-1]:
            break
        chat.page.wait_for_timeout(300)
        assert number < 19
    assert chat.page.title() == title
    assert chat.page.locator("#composer").is_visible()
    expect(chat.page.locator("#conversation a[href^='javascript']")).to_have_count(0)
