"""From an empty data folder through the first run on this PC to a colleague's first answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright import sync_api
from playwright.sync_api import expect

from tests.browser.conftest import HOST
from tests.browser.driver import Chat
from tests.browser.section_page import shot
from tests.system.program import Program
from ui.words.messages import say

PASSWORD = "correct horse"


@pytest.fixture
def fresh(tmp_path) -> Iterator[Program]:
    program = Program(tmp_path / "data", backend="echo", allowed_hosts=HOST)
    yield program.wait_ready()
    program.close()


@pytest.fixture
def new_page(browser: sync_api.Browser) -> Iterator[object]:
    contexts: list[sync_api.BrowserContext] = []

    def open_page(**options: object) -> sync_api.Page:
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.set_default_timeout(15_000)
        return page

    yield open_page
    for context in contexts:
        context.close()


def heading(page: sync_api.Page, words: str) -> None:
    expect(page.locator("h1")).to_have_text(words)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize(("locale", "language"), [("en-US", "en"), ("zh-CN", "zh")])
def test_from_nothing_to_a_colleagues_first_answer(fresh, new_page, tmp_path, locale, language, width):
    page = new_page(locale=locale, viewport={"width": width, "height": 800})
    page.goto(fresh.owners_link("/admin/first-run"))
    heading(page, say(language, "first_language"))
    shot(page, tmp_path, "1")
    page.get_by_text(say(language, f"first_language_{language}"), exact=True).click()
    page.get_by_role("button", name=say(language, "first_next")).click()
    heading(page, say(language, "first_password"))
    shot(page, tmp_path, "2")
    page.fill("[name=password]", PASSWORD)
    page.fill("[name=again]", "something else")
    page.get_by_role("button", name=say(language, "first_next")).click()
    expect(page.get_by_role("alert")).to_have_text(say(language, "first_password_differ"))
    page.fill("[name=password]", PASSWORD)
    page.fill("[name=again]", PASSWORD)
    page.get_by_role("button", name=say(language, "first_next")).click()
    heading(page, say(language, "first_model"))
    expect(page.locator("main")).to_contain_text("SmolLM2")
    shot(page, tmp_path, "3")
    page.get_by_role("link", name=say(language, "first_next")).click()
    heading(page, say(language, "first_test"))
    shot(page, tmp_path, "4")
    page.get_by_role("button", name=say(language, "first_skip_all")).click()
    Chat(page, "").ready()
    expect(page.locator("#header")).to_contain_text(say(language, "title"))

    colleague = Chat(new_page(locale=locale, viewport={"width": width, "height": 800}), f"http://{HOST}:{fresh.port}/")
    assert colleague.open().ask("hello there") == "hello there"
    # The admin page is the owner's now, from here too.
    stranger = new_page(locale=locale)
    stranger.goto(fresh.owners_link("/admin/first-run"))
    expect(stranger.locator("#password")).to_be_visible()
    stranger.fill("#password", PASSWORD)
    stranger.press("#password", "Enter")
    heading(stranger, say(language, "first_language"))


def test_a_colleague_cannot_set_the_program_up(fresh, new_page):
    page = new_page()
    page.goto(f"http://{HOST}:{fresh.port}/admin/first-run")
    expect(page.locator("main")).to_contain_text("There is no admin password yet")
    expect(page.locator("form")).to_be_hidden()


def test_the_self_test_says_how_many_people_and_what_to_hand_out(fresh, new_page, tmp_path):
    page = new_page(locale="en-US", viewport={"width": 360, "height": 800})
    page.goto(fresh.owners_link("/admin/first-run?step=test"))
    page.get_by_role("button", name="Begin").click()
    expect(page.locator("progress")).to_be_visible()
    expect(page.locator(".promise")).to_contain_text("people at once", timeout=90_000)
    shot(page, tmp_path, "tested")
    page.get_by_role("button", name=say("en", "first_finish")).click()
    Chat(page, "").ready()
