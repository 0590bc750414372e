"""What can be done with a turn: copy as it was written, edit a question, a thumb; the box's counter; starters."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import expect

from tests.browser.driver import Chat, Visit, settled
from tests.system.program import Program

MARKDOWN = "# Title\n\n```python\ndef f(x):\n\treturn x  # <b>\n```\n\n|a|b|\n|-|-:|\n|x|2|\n\n$$e=mc^2$$ **bold**"


def pasted(chat: Chat) -> str:
    """What is in the clipboard, as somebody who pastes it meets it."""
    chat.box.fill("")
    chat.box.press("Control+v")
    return chat.box.input_value()


def act(chat: Chat, what: str, row: str) -> None:
    chat.page.locator(f"#conversation .{row} [data-act={what}]").last.click()


def test_the_page_is_no_secure_context(app: Program, visit: Visit) -> None:
    assert visit(app).js("window.isSecureContext") is False


def test_every_copy_control_copies_what_was_written(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.ask("one")
    chat.ask(MARKDOWN)
    code = chat.page.locator("#conversation .bot-row .copy_code_button")
    code.click()
    expect(code.locator(".check")).to_have_css("opacity", "1")
    icon, tick = (code.locator(css).bounding_box() for css in (".copy-text svg", ".check svg"))
    assert all(abs(icon[side] - tick[side]) < 4 for side in "xy"), "the tick stands where the icon was"
    assert pasted(chat) == "def f(x):\n\treturn x  # <b>"
    act(chat, "copy", "bot-row")
    assert pasted(chat) == MARKDOWN
    act(chat, "copy", "user-row")
    assert pasted(chat) == MARKDOWN
    assert chat.page.locator("[aria-label*=icrophone], [aria-label*=ecord]").count() == 0, "it needs a secure context"
    chat.click("copy_all")
    quoted = "\n".join(f"> {line}" for line in MARKDOWN.split("\n"))
    assert pasted(chat) == f"> one\n\none\n\n{quoted}\n\n{MARKDOWN}\n"


def test_an_answers_code_is_highlighted_and_its_tables_and_formulas_are_set(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.ask(MARKDOWN)
    row = chat.page.locator("#conversation .bot-row")
    row.locator("pre .token.keyword").first.wait_for()
    assert [row.locator("td").nth(k).evaluate("(cell) => getComputedStyle(cell).textAlign") for k in (0, 1)] == [
        "left",
        "right",
    ]
    for part in ("h1", "table td", ".katex-display", "strong"):
        assert row.locator(part).count() >= 1
    assert not [url for url in chat.requests if not url.startswith((chat.url, "data:", "blob:"))]


@pytest.mark.parametrize("width", [1280, 360])
def test_an_edited_question_replaces_what_came_after_it(app: Program, visit: Visit, width: int) -> None:
    chat = visit(app, width=width, height=800)
    for text in ("one", "two", "three"):
        chat.ask(text)
    chat.box.fill("my draft")
    row = chat.page.locator("#conversation .user-row").nth(1)
    row.hover()
    row.locator("[data-act=edit]").click()
    assert chat.box.input_value() == "two"
    expect(chat.page.locator("#edit")).to_contain_text("changing an earlier message")
    chat.box.fill("another two, which takes some time to be written")
    chat.box.press("Enter")
    chat.wait_writing_text()
    settled(chat.questions, ["one", "another two, which takes some time to be written"])
    chat.hides("edit")
    chat.wait_for("idle")
    chat.wait_until("document.querySelectorAll('#conversation .bot-row').length === 2")
    settled(chat.answers, ["one", "another two, which takes some time to be written"])
    chat.hides("edit")
    chat.page.reload()
    chat.ready()
    settled(chat.questions, ["one", "another two, which takes some time to be written"])
    assert chat.ask("three again") == "three again"


def test_editing_can_be_given_up_and_the_draft_is_still_there(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.ask("one")
    chat.box.fill("my draft")
    chat.page.locator("#conversation .user-row").hover()
    act(chat, "edit", "user-row")
    assert chat.box.input_value() == "one"
    chat.click("cancel")
    assert chat.box.input_value() == "my draft"
    act(chat, "edit", "user-row")
    chat.box.press("Escape")
    assert chat.box.input_value() == "my draft"
    chat.box.press("Enter")
    chat.wait_answered(2)
    settled(chat.questions, ["one", "my draft"])


def test_a_thumb_is_counted_and_lasts(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.ask("a secret question")
    thumb = chat.page.locator("#conversation .bot-row [data-act=good]")
    thumb.click()
    chat.page.wait_for_selector("[data-act=good][aria-pressed=true]")
    counted = httpx.get(f"{app.url}/metrics", trust_env=False).text
    assert 'ratings{verdict="good"} 1.0' in counted
    assert "secret" not in counted
    chat.page.reload()
    chat.ready()
    chat.page.wait_for_selector("[data-act=good][aria-pressed=true]")
    thumb.click()
    chat.page.wait_for_selector("[data-act=good][aria-pressed=false]")
    assert 'ratings{verdict="good"} 0.0' in httpx.get(f"{app.url}/metrics", trust_env=False).text


def test_a_counter_appears_near_the_limit_in_characters_as_the_server_counts(short_app: Program, visit: Visit) -> None:
    chat = visit(short_app)
    count = chat.page.locator("#count")
    chat.box.fill("𠮷" * 31)
    expect(count).to_have_text("")
    chat.box.fill("𠮷" * 36)
    expect(count).to_have_text("36 of 40 characters")
    chat.box.fill("𠮷" * 41)
    expect(count).to_have_text("41 of 40 characters: only the first 40 will be used")
    assert count.evaluate("(line) => line.getBoundingClientRect().width") > 400, "no small print"


@pytest.mark.parametrize(("locale", "n_han"), [("en-US", False), ("zh-CN", True)])
def test_the_empty_page_offers_questions_and_beginnings(app: Program, visit: Visit, locale: str, n_han: bool) -> None:
    chat = visit(app, locale=locale)
    texts = chat.page.locator("#welcome button").all_inner_texts()
    assert len(texts) == 8
    assert all(any(char > "\u3000" for char in text) == n_han for text in texts if text != "SQL helper")
    chat.page.locator("#welcome [data-begin]").first.click()
    begun = chat.box.input_value()
    assert begun.endswith("\n\n")
    settled(chat.questions, [])
    chat.box.fill("")
    question = chat.page.locator("#welcome [data-ask]").first
    text = question.inner_text()
    question.click()
    assert chat.wait_answered() == text
    settled(chat.questions, [text])


def test_the_owner_can_ask_other_questions(programs, visit: Visit) -> None:
    chat = visit(programs.get(starter_questions="What is for lunch? | Who <has> the key?"))
    assert chat.page.locator("#welcome [data-ask]").all_inner_texts() == ["What is for lunch?", "Who <has> the key?"]


def test_the_owner_can_offer_other_tasks(programs, visit: Visit) -> None:
    chat = visit(programs.get(presets="titles | Our tone: Rewrite this in our tone:"))
    tasks = chat.page.locator("#welcome [data-begin]")
    assert tasks.all_inner_texts() == ["Title ideas", "Our tone"]
    tasks.last.click()
    assert chat.box.input_value() == "Rewrite this in our tone:\n\n"
    chat.click("language")
    chat.page.wait_for_selector("#welcome:has-text('起标题')")
    assert tasks.all_inner_texts() == ["起标题", "Our tone"]


@pytest.mark.parametrize("missing", ["AbortSignal.timeout", "structuredClone"])
def test_a_browser_that_is_too_old_gets_a_sentence(app: Program, browser, missing: str) -> None:
    from tests.browser.conftest import page_url

    context = browser.new_context()
    page = context.new_page()
    page.add_init_script(f"window.{missing} = undefined" if "." not in missing else f"{missing} = undefined")
    page.goto(page_url(app))
    page.wait_for_selector("p:has-text('This browser is too old')")
    expect(page.locator("body")).to_contain_text("此浏览器版本过低")
    context.close()
