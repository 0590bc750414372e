"""Conversations kept in the person's own browser: found, named, exported, deleted, never lost silently."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.driver import Chat, Visit, settled
from tests.system.program import Program

TITLES = "#conversations .open"
COMPOSED_ENTER = {"key": "Enter", "keyCode": 229, "isComposing": True, "bubbles": True}


def lists(chat: Chat, wanted: list[str]) -> None:
    """The list is, or very soon will be, this one."""
    chat.page.wait_for_function(
        "([css, wanted]) => Array.from(document.querySelectorAll(css), (one) => one.textContent).join() === wanted",
        arg=[TITLES, ",".join(wanted)],
    )


def open_side(chat: Chat) -> None:
    if chat.js("document.documentElement.dataset.side") != "open":
        chat.click("menu")
        chat.page.wait_for_timeout(250)


def open_conversation(chat: Chat, title: str) -> None:
    open_side(chat)
    chat.page.locator(TITLES, has_text=title).click()
    chat.page.wait_for_selector(f"{TITLES}[aria-current]:has-text('{title}')", state="attached")
    chat.page.wait_for_function(
        "([title]) => document.querySelector('#conversation .said')?.textContent === title", arg=[title]
    )


def open_conversation_at(chat: Chat, index: int) -> None:
    open_side(chat)
    chat.page.locator(TITLES).nth(index).click()
    chat.page.wait_for_selector("#conversation .bot-row")


def new_chat(chat: Chat) -> None:
    chat.click("new_chat")
    chat.page.wait_for_selector("html[data-empty=yes]")


def choose(chat: Chat, title: str, what: str) -> None:
    open_side(chat)
    item = chat.page.locator("#conversations li", has_text=title)
    item.locator(".more").click()
    item.locator(f"[data-do={what}]").click()


def n_on_the_server(chat: Chat, tab: object) -> object:
    """How many turns the server has of that tab's conversation."""
    asked = f"window.fetch('conversation', {{headers: {{'X-Tab': '{tab}'}}}})"
    return chat.js(f"{asked}.then((response) => response.json()).then(({{turns}}) => turns.length)")


def forget_on_the_server(chat: Chat) -> None:
    """As the end of its time to live does."""
    chat.page.wait_for_selector("#conversation [data-act=good]")
    chat.js("window.fetch('conversation', {method: 'DELETE'})")


def kept_by_the_browser_only(app: Program, visit: Visit) -> Chat:
    """A page that shows one turn which the server has forgotten."""
    chat = visit(app)
    chat.ask("one")
    forget_on_the_server(chat)
    chat.page.reload()
    chat.ready()
    chat.page.wait_for_selector("#conversation .bot-row")
    return chat


@pytest.mark.parametrize(("locale", "width"), [("en-US", 1280), ("zh-CN", 360)])
def test_yesterdays_conversation_is_found_and_gone_on_with(app: Program, visit: Visit, locale: str, width: int) -> None:
    chat = visit(app, locale=locale, width=width)
    chat.ask("about apples")
    chat.ask("and pears")
    before = chat.js("sessionStorage.getItem('office-chat-tab')")
    new_chat(chat)
    assert n_on_the_server(chat, before) == 0, "New chat drops it there; the browser keeps it"
    chat.ask("about trains")
    open_side(chat)
    lists(chat, ["about trains", "about apples"])
    chat.page.locator("#find").fill("PEARS")
    lists(chat, ["about apples"])
    open_conversation(chat, "about apples")
    if width == 360:  # the list has closed itself, and shows everything when it is opened next
        lists(chat, ["about trains", "about apples"])
    chat.page.locator("#find").fill("", force=True)
    settled(chat.questions, ["about apples", "and pears"])
    settled(chat.answers, ["about apples", "and pears"])
    assert chat.ask("and plums") == "and plums"
    chat.page.reload()
    chat.ready()
    settled(chat.questions, ["about apples", "and pears", "and plums"])


def test_what_the_server_has_forgotten_is_sent_again_with_the_next_question_only(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.ask("my name is Ann")
    chat.ask("```js\nlet a\n```")
    new_chat(chat)
    chat.ask("something else")
    lists(chat, ["something else", "my name is Ann"])
    first = chat.page.locator("#conversations li", has_text="my name").locator(".open")
    ids = chat.js("Object.keys(localStorage).filter((key) => key.startsWith('office-chat-c-'))")
    assert len(ids) == 2
    for key in ids:
        chat.js(f"window.fetch('conversation', {{method: 'DELETE', headers: {{'X-Tab': '{key[14:]}'}}}})")
    chat.page.wait_for_timeout(200)
    first.click()
    chat.page.wait_for_function("() => document.querySelectorAll('#conversation .said').length === 2")
    assert chat.answers()[0] == "my name is Ann"
    chat.page.wait_for_function(
        "() => document.querySelector('#forgotten').textContent.includes('in your browser only')"
    )
    on_server = "window.fetch('conversation').then((r) => r.json()).then(({turns}) => turns.map((t) => t.question))"
    assert chat.js(on_server) == []
    assert chat.ask("what is my name?") == "what is my name?"
    assert chat.js(on_server) == ["my name is Ann", "```js\nlet a\n```", "what is my name?"]
    chat.page.wait_for_function("() => document.querySelector('#forgotten').textContent.includes('30 min')")


def test_a_conversation_forgotten_under_an_open_page_goes_on(app: Program, visit: Visit) -> None:
    chat = kept_by_the_browser_only(app, visit)
    settled(chat.questions, ["one"])
    chat.click("again")
    chat.wait_for("idle")
    chat.page.wait_for_timeout(300)
    settled(chat.answers, ["one"])
    chat.click("language")
    chat.page.wait_for_selector("#again:has-text('重新回答')")
    settled(chat.questions, ["one"])


def test_a_language_switch_keeps_what_only_the_browser_has(app: Program, visit: Visit) -> None:
    chat = kept_by_the_browser_only(app, visit)
    chat.click("language")
    chat.page.wait_for_selector("#again:has-text('重新回答')")
    chat.page.wait_for_timeout(300)
    settled(chat.questions, ["one"])
    expect(chat.page.locator("#forgotten")).to_contain_text("只保存在您的浏览器中")


def test_conversations_that_begin_alike_can_be_told_apart(app: Program, visit: Visit) -> None:
    chat = visit(app)
    for _ in range(3):
        chat.ask("Write an e-mail")
        new_chat(chat)
    lists(chat, ["Write an e-mail (3)", "Write an e-mail (2)", "Write an e-mail"])
    open_conversation_at(chat, 2)
    chat.ask("go on")
    lists(chat, ["Write an e-mail", "Write an e-mail (3)", "Write an e-mail (2)"])


@pytest.mark.parametrize(
    ("locale", "expected"),
    [("en-GB", ["yesterday", "3 days ago", "14/11/2023"]), ("zh-CN", ["昨天", "3天前", "2023/11/14"])],
)
def test_the_list_says_when_in_the_readers_own_way(
    app: Program, visit: Visit, locale: str, expected: list[str]
) -> None:
    chat = visit(app, locale=locale)
    chat.page.evaluate(
        """() => ["days", 1, 3, new Date(2023, 10, 14, 12)].slice(1).forEach((when, k) => {
          const at = new Date(when);
          if (typeof when === "number") at.setTime(new Date().setHours(12, 0, 0, 0) - when * 864e5);
          const entry = {title: "kept " + k, named: true, at: at.getTime(), turns: [{question: "q", text: "a"}]};
          localStorage.setItem("office-chat-c-" + "abcdefgh".repeat(3) + k, JSON.stringify(entry));
        })"""
    )
    chat.page.reload()
    chat.ready()
    settled(chat.page.locator("#conversations time").all_inner_texts, expected)


def test_rename_pin_and_delete(app: Program, visit: Visit) -> None:
    chat = visit(app)
    for text in ("first", "second"):
        chat.ask(text)
        new_chat(chat)
    choose(chat, "first", "rename")
    chat.page.locator("#conversations .name").fill("Invoices")
    chat.page.keyboard.press("Enter")
    lists(chat, ["second", "Invoices"])
    choose(chat, "Invoices", "pin")
    lists(chat, ["Invoices", "second"])
    choose(chat, "second", "delete")
    lists(chat, ["Invoices", "second"])
    chat.page.locator("#conversations [data-do=delete]").click()
    chat.page.wait_for_function("() => document.querySelectorAll('#conversations .open').length === 1")
    chat.page.reload()
    chat.ready()
    lists(chat, ["Invoices"])


def test_a_name_is_typed_with_an_input_method_and_given_up_with_escape(app: Program, visit: Visit) -> None:
    chat = visit(app, locale="zh-CN", width=360, height=740)
    chat.ask("first")
    choose(chat, "first", "rename")
    name = chat.page.locator("#conversations .name")
    name.fill("fa piao")
    name.evaluate("(field, options) => field.dispatchEvent(new KeyboardEvent('keydown', options))", COMPOSED_ENTER)
    expect(name).to_have_value("fa piao")
    chat.page.keyboard.press("Escape")
    lists(chat, ["first"])
    chat.shows("find")


def test_what_was_read_just_before_the_program_died_is_kept(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.ask("one")
    chat.wait_until("window.officeChat.turns.length === 1")
    chat.page.route("**/conversation", lambda route: route.abort())
    chat.ask("two")
    kept = "JSON.parse(Object.entries(localStorage).find(([key]) => key.startsWith('office-chat-c-'))[1])"
    chat.wait_until(f"{kept}.turns.length === 2")
    assert chat.js(f"{kept}.turns.map(({{question, text}}) => [question, text])") == [["one", "one"], ["two", "two"]]
    assert chat.js(f"{kept}.asked") == ""


def test_deleting_the_open_conversation_empties_the_page_and_the_server(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.ask("delete me")
    tab = chat.js("sessionStorage.getItem('office-chat-tab')")
    choose(chat, "delete me", "delete")
    chat.page.locator("#conversations [data-do=delete]").click()
    chat.page.wait_for_selector("html[data-empty=yes]")
    lists(chat, [])
    assert n_on_the_server(chat, tab) == 0


def test_export_gives_the_words_as_they_are(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.ask("**bold** <b>")
    files = {}
    for kind in ("export_md", "export_json"):
        with chat.page.expect_download() as download:
            choose(chat, "**bold** <b>", kind)
        files[kind] = (download.value.suggested_filename, Path(download.value.path()).read_text(encoding="utf-8"))
    assert files["export_md"][1] == "# **bold** <b>\n\n> **bold** <b>\n\n**bold** <b>\n"
    assert files["export_md"][0].endswith(".md")
    kept = json.loads(files["export_json"][1])
    assert [(turn["question"], turn["text"]) for turn in kept["turns"]] == [("**bold** <b>", "**bold** <b>")]


def test_a_temporary_chat_is_kept_nowhere(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.click("temporary")
    expect(chat.page.locator("#welcome")).to_contain_text("not listed here")
    chat.ask("between us")
    lists(chat, [])
    tab = chat.js("sessionStorage.getItem('office-chat-tab')")
    expect(chat.page.locator("#forgotten")).to_contain_text("forgotten everywhere in 30 min")
    new_chat(chat)
    assert chat.js("JSON.stringify(localStorage)").count("between us") == 0
    assert n_on_the_server(chat, tab) == 0
    chat.ask("for the record")
    lists(chat, ["for the record"])


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("new DOMException('full', 'QuotaExceededError')", "memory for this page is full"),
        ("new DOMException('no', 'SecurityError')", "does not let the page keep anything"),
    ],
)
def test_a_store_that_takes_nothing_is_said(app: Program, visit: Visit, fault: str, sentence: str) -> None:
    chat = visit(app)
    chat.js(f"void (Storage.prototype.setItem = () => {{ throw {fault}; }})")
    assert chat.ask("hello") == "hello"
    chat.page.wait_for_selector(f"#place:has-text('{sentence}')")
    assert chat.ask("still here") == "still here"


def test_forget_me_forgets_here_and_there(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.ask("one")
    new_chat(chat)
    chat.ask("two")
    chat.click("forget")
    chat.click("forget")
    chat.page.wait_for_selector("html[data-empty=yes]")
    lists(chat, [])
    assert "office-chat-c-" not in str(chat.js("JSON.stringify(localStorage)"))


def test_a_conversation_open_in_another_tab_is_not_opened_twice(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.ask("mine")
    other = chat.new_tab().open()
    other.page.locator(TITLES, has_text="mine").click()
    other.page.wait_for_selector("#place:has-text('open in another tab')")
    settled(other.questions, [])


def test_leaving_while_an_answer_is_written_stops_and_keeps_it(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.send("word, " * 60)
    chat.wait_writing_text()
    new_chat(chat)
    chat.wait_for("idle")
    chat.ask("the next one")
    open_side(chat)
    chat.page.locator(TITLES, has_text="word, ").click()
    chat.page.wait_for_selector("#conversation .bot-row:has-text('Stopped.')")
    assert chat.answers()[0].startswith("word,")


def test_on_a_phone_the_list_lies_over_the_page_and_closes_by_itself(app: Program, visit: Visit) -> None:
    chat = visit(app, width=360, height=740)
    chat.ask("hello")
    assert not chat.page.locator("#find").is_visible()
    chat.click("menu")
    chat.page.locator("#find").wait_for()
    chat.wait_until("document.activeElement.id === 'find'")
    assert chat.js("document.scrollingElement.scrollWidth") == 360
    chat.page.keyboard.press("Escape")
    chat.wait_until("document.activeElement.id === 'menu'")
    chat.page.locator("#find").wait_for(state="hidden")


def test_whoever_comes_back_too_late_reads_what_was_written_and_why_it_ends(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.send("word, " * 60)
    chat.wait_writing_text()
    chat.page.goto("about:blank")
    chat.page.wait_for_timeout(4500)  # the grace of this program is 3 s
    chat.page.goto(chat.url)
    chat.ready()
    chat.page.wait_for_selector("#conversation .bot-row:has-text('Nobody was reading any more')")
    assert chat.answers()[0].startswith("word,")
    chat.shows("go_on")


def test_a_tab_that_is_closed_gives_a_last_sign(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.ask("remember this")
    tab = chat.js("sessionStorage.getItem('office-chat-tab')")
    with chat.page.expect_request("**/place") as sign:
        chat.js("window.dispatchEvent(new Event('pagehide'))")
    assert sign.value.header_value("x-tab") == tab
