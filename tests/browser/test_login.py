"""Logging in and out in a real browser, under a LAN-like name: both languages, desktop and phone, without a script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright import sync_api
from playwright.sync_api import expect

from tests.browser.conftest import HOST, page_url
from tests.browser.driver import Chat
from tests.system.program import Program, command

PASSCODE = "open sesame"
WORDS = {
    "en-US": ("Please enter the passcode", "That is not right", "Log out", "delete the conversations kept in this"),
    "zh-CN": ("请输入口令", "输入不正确", "退出登录", "删除此浏览器中保存的对话"),
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A program that asks for the passcode."""
    data_dir = tmp_path_factory.mktemp("guarded")
    command(data_dir, "set-passcode", typed=PASSCODE + "\n")
    key = command(data_dir, "add-key", "monitor").split()[0]
    program = Program(data_dir, backend="echo", access="passcode", allowed_hosts=HOST)
    yield program.wait_ready(key)
    program.close()


@pytest.fixture
def new_page(browser: sync_api.Browser) -> Iterator[object]:
    contexts: list[sync_api.BrowserContext] = []

    def open_page(**options: object) -> sync_api.Page:
        contexts.append(browser.new_context(**options))
        return contexts[-1].new_page()

    yield open_page
    for context in contexts:
        context.close()


def log_in(page: sync_api.Page, password: str) -> None:
    page.fill("#password", password)
    page.press("#password", "Enter")


def shot(page: sync_api.Page, folder: Path, name: str) -> None:
    page.screenshot(path=str(folder / f"{name}.png"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_from_the_address_to_an_answer_and_out_again(guarded, new_page, tmp_path, locale, width, scheme):
    please, wrong, out, sure = WORDS[locale]
    page = new_page(locale=locale, viewport={"width": width, "height": 740}, color_scheme=scheme)
    chat = Chat(page, page_url(guarded))
    page.goto(chat.url + "?a=1")
    assert page.evaluate("document.activeElement.id") == "password"
    expect(page.locator("main")).to_contain_text(please)
    shot(page, tmp_path, "login")
    log_in(page, "wrong one")
    expect(page.locator("#problem")).to_contain_text(wrong)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    shot(page, tmp_path, "wrong")
    log_in(page, PASSCODE)
    chat.ready()
    assert page.url == chat.url + "?a=1"
    assert chat.ask("hello there") == "hello there"
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    if width == 360:
        chat.click("menu")
    page.locator("#log_out").wait_for()
    assert page.inner_text("#log_out") == out
    shot(page, tmp_path, "chat")
    chat.click("log_out")
    assert sure in str(page.get_attribute("#log_out", "data-sure"))
    assert "hello there" in str(page.evaluate("JSON.stringify(localStorage)"))
    chat.click("log_out")
    page.wait_for_selector("#password")
    assert "hello there" not in str(page.evaluate("JSON.stringify([localStorage, sessionStorage])"))
    page.goto(chat.url)
    assert page.url.startswith(chat.url + "login")
    assert all(url.startswith((chat.url, "data:", "blob:")) for url in chat.requests)
    assert chat.errors == []


def test_it_works_without_a_script_and_in_the_other_language(guarded, new_page):
    page = new_page(locale="en-US", java_script_enabled=False)
    page.goto(page_url(guarded) + "ready")
    page.click("text=中文")
    expect(page.locator("main")).to_contain_text("请输入口令")
    log_in(page, PASSCODE)
    assert '"ready"' in page.inner_text("body")


def test_a_login_that_ends_under_an_open_page_leads_to_the_login_and_keeps_the_text(guarded, new_page):
    page = new_page(locale="en-US")
    chat = Chat(page, page_url(guarded))
    page.goto(chat.url)
    log_in(page, PASSCODE)
    chat.ready()
    command(guarded.data_dir, "set-passcode", typed=PASSCODE + "\n")
    chat.send("what I was about to ask")
    page.wait_for_selector("#password")
    log_in(page, PASSCODE)
    chat.ready()
    assert chat.box.input_value() == "what I was about to ask"
    assert chat.errors == []
