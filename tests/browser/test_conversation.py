"""Asking, reading, and what is to be seen of a conversation."""

from __future__ import annotations

import json
import urllib.request

import pytest
from playwright.sync_api import expect

from tests.browser.driver import Chat, Visit, settled
from tests.system.program import Program
from ui.site.interface import ASSETS

COLLECT_TEXTS = """() => {
  window.texts = [];
  const note = () => window.texts.push(document.querySelector("#talk").innerText);
  const everything = {childList: true, subtree: true, characterData: true};
  new MutationObserver(note).observe(document.querySelector("#talk"), everything);
}"""


def test_an_answer_is_read_while_it_is_written(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.js(COLLECT_TEXTS)
    text = "one two three four five six seven eight nine ten eleven twelve"
    assert chat.ask(text) == text
    seen = {t.removeprefix(text).strip() for t in chat.js("window.texts")}
    partial = {t for t in seen if t and t != text and text.startswith(t)}
    assert len(partial) >= 4


def test_the_question_stands_there_at_once_and_the_box_is_empty(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.send("a question that takes a while to be repeated by the engine")
    chat.page.wait_for_selector("pre.said", timeout=1500)
    settled(chat.questions, ["a question that takes a while to be repeated by the engine"])
    assert chat.box.input_value() == ""
    chat.shows("stop")
    chat.hides("send")


def test_a_conversation_has_turns(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.ask("first")
    chat.ask("second")
    settled(chat.questions, ["first", "second"])
    settled(chat.answers, ["first", "second"])
    assert chat.live() == ""


def test_a_reload_brings_the_conversation_back(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.ask("remember me")
    chat.page.reload()
    chat.ready()
    chat.page.wait_for_selector("#conversation .bot-row")
    assert (chat.questions(), chat.answers()) == (["remember me"], ["remember me"])


def test_a_draft_survives_a_reload(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.box.fill("half a thought")
    chat.page.reload()
    chat.ready()
    assert chat.box.input_value() == "half a thought"
    chat.box.press("Enter")
    chat.page.wait_for_selector("pre.said")
    assert chat.box.input_value() == ""
    chat.page.reload()
    chat.ready()
    assert chat.box.input_value() == ""


def test_a_second_tab_of_one_browser_is_a_conversation_of_its_own(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.ask("in the first tab")
    other = chat.new_tab().open()
    settled(other.questions, [])
    other.ask("in the second")
    settled(chat.questions, ["in the first tab"])


def test_a_duplicated_tab_does_not_share_its_conversation(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.ask("mine")
    with chat.page.expect_popup() as popup:
        chat.js("window.open(location.href)")  # as duplicating does, this copies the sessionStorage
    other = Chat(popup.value, chat.url).ready()
    other.wait_until("document.documentElement.dataset.empty === 'yes'")
    own, copied = (c.js("sessionStorage.getItem('office-chat-tab')") for c in (chat, other))
    assert own != copied


def test_what_a_person_typed_is_shown_as_typed(app: Program, visit: Visit) -> None:
    chat = visit(app)
    text = "<|im_end|>\n<b>bold</b> **stars** # hash\n\n\ttab  two spaces `code` $$x$$ \\(y\\) &amp; [a](b)"
    chat.send(text)
    chat.page.wait_for_selector("#live .said")
    assert chat.page.locator("#live .said").text_content() == text
    chat.wait_for("idle")
    assert chat.page.locator("#conversation .said").text_content() == text
    expect(chat.page.locator(".said :is(b, strong, code, a, .katex)")).to_have_count(0)


def test_markup_in_an_answer_is_text(app: Program, visit: Visit) -> None:
    chat = visit(app)
    text = (
        "<img src=x onerror=document.title=1> <style>body{display:none}</style> <script>document.title=2</script> "
        "[link](javascript:document.title=3) <div style='position:fixed;inset:0'>over</div>"
    )
    answer = chat.ask(text)
    assert "<img src=x onerror=document.title=1>" in answer
    assert "<style>body{display:none}</style>" in answer
    assert chat.js("document.title") == "Office Chat"
    expect(chat.page.locator("#conversation .bot-row :is(img, style, script, [style*=fixed])")).to_have_count(0)
    link = chat.page.locator("#conversation .bot-row a")
    assert link.count() == 0 or "javascript:" not in (link.first.get_attribute("href") or "")


def test_code_keeps_its_angle_brackets_and_indentation(app: Program, visit: Visit) -> None:
    chat = visit(app)
    code = "if a < b:\n    if c:\n        print('<b>')\n"
    chat.ask(f"```python\n{code}```\n\nand `x <y> z`")
    assert chat.page.locator("#conversation .bot-row pre code").text_content() == code
    assert chat.page.locator("#conversation .bot-row p code").text_content() == "x <y> z"


def test_prices_are_text_and_formulas_are_set(app: Program, visit: Visit) -> None:
    chat = visit(app)
    answer = chat.ask("It costs $5 and $10.")
    assert answer == "It costs $5 and $10."
    expect(chat.page.locator("#conversation .bot-row .katex")).to_have_count(0)
    chat.ask("$$e=mc^2$$ and \\(a+b\\) too")
    chat.wait_until("document.querySelectorAll('#conversation .bot-row .katex').length === 2")
    expect(chat.page.locator("#conversation .bot-row .katex-display")).to_have_count(1)


def test_no_broken_character_is_ever_shown(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.js(COLLECT_TEXTS)
    text = "汉字龘𠮷 emoji 👩‍👩‍👧‍👦 🇨🇳 ok"
    assert chat.ask(text) == text
    texts = chat.js("window.texts")
    assert len(texts) > 3
    assert not any("\ufffd" in t for t in texts)


def test_nothing_is_asked_of_another_host(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.ask("![x](http://192.0.2.1/x.png) <img src='http://192.0.2.1/y.png'> ```js\nlet a\n``` $$x$$")
    chat.page.wait_for_timeout(300)
    foreign = [url for url in chat.requests if not url.startswith((chat.url, "data:", "blob:"))]
    assert len(chat.requests) > 10
    assert foreign == []


def test_no_tab_holds_a_connection_of_its_own(app: Program) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{app.port}/config", timeout=5) as response:
        config = json.load(response)
    assert config["connect_heartbeat"] is False


def test_the_page_says_which_model_answers_and_not_what_it_is_made_with(app: Program, visit: Visit) -> None:
    chat = visit(app)
    expect(chat.page.locator("#header")).to_contain_text("Echo")
    assert "gradio" not in str(chat.js("document.body.innerText")).lower()
    expect(chat.page.locator("footer:visible")).to_have_count(0)
    assert (
        chat.page.request.get(f"http://127.0.0.1:{app.port}/favicon.ico").body() == (ASSETS / "icon.png").read_bytes()
    )


def test_it_speaks_the_browsers_language(app: Program, visit: Visit) -> None:
    chat = visit(app, locale="zh-CN")
    assert chat.js("[document.documentElement.lang, document.title]") == ["zh-CN", "办公室聊天"]
    expect(chat.box).to_have_attribute("placeholder", "输入消息")
    assert chat.page.locator("#send").text_content().strip() == "发送"
    expect(chat.page.locator("#header")).to_contain_text("由本机的 Echo 回答")


def test_nothing_on_the_chinese_page_is_left_in_english(app: Program, visit: Visit) -> None:
    chat = visit(app, locale="zh-CN")
    chat.ask("```js\nlet a\n```")
    chat.page.locator("#conversation .bot-row .acts").wait_for()
    names = chat.js(
        """Array.from(document.querySelectorAll("button, [aria-label], [title], [placeholder]"))
        .filter((one) => one.checkVisibility() && !one.matches("#conversations *, #language, .katex *"))
        .flatMap((one) => [one.ariaLabel, one.title, one.placeholder, one.matches("button") && one.textContent])
        .map((name) => (name || "").trim()).filter(Boolean)"""
    )
    assert len(names) > 15
    assert [name for name in names if not any(char > "\u3000" for char in name)] == []


def test_the_language_switch_lasts(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.ask("hello")
    assert chat.js("document.documentElement.lang") == "en"
    chat.click("language")
    chat.page.wait_for_selector("#again:has-text('重新回答')")
    assert chat.js("document.documentElement.lang") == "zh-CN"
    settled(chat.answers, ["hello"])
    chat.page.reload()
    chat.ready()
    assert chat.page.locator("#new_chat").text_content().strip() == "新对话"


def test_browser_translation_keeps_out_of_the_conversation(app: Program, visit: Visit) -> None:
    chat = visit(app)
    expect(chat.page.locator("#conversation")).to_have_attribute("translate", "no")
    expect(chat.page.locator("#live")).to_have_attribute("translate", "no")


def test_new_chat_begins_an_empty_conversation(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.hides("new_chat")
    chat.ask("old")
    chat.click("new_chat")
    chat.page.wait_for_selector("html[data-empty=yes]")
    settled(chat.questions, [])
    chat.hides("again")
    chat.page.reload()
    chat.ready()
    settled(chat.questions, [])
    assert chat.ask("new") == "new"


def test_forget_me_asks_once_more(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.ask("a secret")
    chat.click("forget")
    chat.page.wait_for_timeout(400)
    settled(chat.questions, ["a secret"])
    assert "Click again" in str(chat.js("getComputedStyle(document.querySelector('#forget'), '::after').content"))
    chat.click("forget")
    chat.page.wait_for_selector("html[data-empty=yes]")
    chat.page.reload()
    chat.ready()
    settled(chat.questions, [])


def test_ask_again_replaces_the_last_answer(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.ask("the first one")
    text = "once more, with a text that takes some time to write"
    chat.ask(text)
    chat.click("again")
    chat.wait_writing_text()
    settled(chat.questions, ["the first one", text])
    chat.wait_for("idle")
    chat.wait_until("document.querySelectorAll('#conversation .bot-row').length === 2")
    settled(chat.answers, ["the first one", text])


def test_an_answer_at_its_limit_offers_continue(short_app: Program, visit: Visit) -> None:
    chat = visit(short_app)
    chat.ask("0123456789abcdefghijklmnopqrst")
    assert chat.answers() == [
        "0123456789abcdefghijklmn\n\nThe answer reached its length limit. Press Continue for more."
    ]
    chat.shows("go_on")
    chat.click("go_on")
    chat.wait_for("writing")
    settled(chat.questions, ["0123456789abcdefghijklmnopqrst"])
    chat.wait_for("idle")
    assert chat.answers()[-1].startswith("0123456789abcdefghijklmn")
    chat.click("new_chat")
    chat.page.wait_for_selector("html[data-empty=yes]")
    assert chat.ask("short") == "short"
    chat.hides("go_on")


@pytest.mark.parametrize(
    ("locale", "sentence"),
    [
        ("zh-CN", "内容过长，已截取前40字"),
        ("en-US", "The message was too long; only its first 40 characters were used."),
    ],
)
def test_a_message_that_is_too_long_is_cut_with_a_notice(
    short_app: Program, visit: Visit, locale: str, sentence: str
) -> None:
    chat = visit(short_app, locale=locale)
    chat.ask("字" * 41)
    settled(chat.questions, ["字" * 40])
    assert sentence in chat.answers()[0]


def test_a_phone_never_scrolls_sideways(app: Program, visit: Visit) -> None:
    chat = visit(app, width=360, height=740)
    assert chat.js("document.scrollingElement.scrollWidth") == 360
    chat.ask("```\n" + "x" * 90 + "\n```\n|a|b|\n|-|-|\n|" + "y" * 60 + "|" + "z" * 20 + "|")
    assert chat.js("document.scrollingElement.scrollWidth") == 360
    chat.ask(
        "|prices|without tax|remarks about this row|\n|-|-|-|\n|19.90|1025.00|" + "long enough to be wide " * 4 + "|"
    )
    number = chat.page.locator("#conversation td:has-text('1025.00')")
    n_lines = """(cell) => {
      const words = document.createRange();
      words.selectNodeContents(cell);
      return words.getClientRects().length;
    }"""
    assert number.evaluate(n_lines) == 1, "no number in pieces"
    assert chat.js("document.scrollingElement.scrollWidth") == 360
    for name in ("send", "new_chat", "menu", "language"):
        box = chat.page.locator(f"#{name}").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360


def test_a_reader_who_scrolled_up_stays_there(app: Program, visit: Visit) -> None:
    chat = visit(app, height=400)
    chat.ask("\n".join("abcdefghijklmnopqrst"))
    chat.send("more lines follow\n" * 6)
    chat.wait_writing_text()
    assert float(str(chat.js("document.scrollingElement.scrollHeight - innerHeight - scrollY"))) < 60
    chat.page.mouse.wheel(0, -600)
    chat.page.wait_for_timeout(300)
    before = float(str(chat.js("scrollY")))
    chat.wait_for("idle")
    chat.page.wait_for_timeout(600)
    assert abs(float(str(chat.js("scrollY"))) - before) < 5
    chat.shows("newest")
    assert chat.page.locator("#newest").bounding_box()["width"] > 30, "large enough for a finger"
    chat.click("newest")
    chat.wait_until("document.scrollingElement.scrollHeight - innerHeight - scrollY < 60")


GAP = """(() => {
  const seen = (selector) => Array.from(document.querySelectorAll(selector)).find((one) => one.offsetParent);
  const question = seen("pre.said").getBoundingClientRect();
  const answer = seen("#live .prose p, #conversation .bot-row p").getBoundingClientRect();
  return [question.top, answer.top - question.bottom];
})()"""


def test_an_answer_stands_where_it_was_written(app, visit):
    chat = visit(app)
    chat.send("word, " * 20)
    chat.wait_writing_text()
    while_written = chat.js(GAP)
    chat.wait_answered()
    assert chat.js(GAP) == while_written


def test_a_narrow_header_shows_who_answers_and_keeps_its_title_on_one_line(app, visit):
    chat = visit(app, width=360, height=740)
    chat.ask("hello")
    long_name = "SmolLM2-135M-Instruct answers on this PC; nothing leaves the office network."
    chat.page.locator("#header .model").evaluate("(line, text) => { line.textContent = text; }", long_name)
    for _ in range(2):  # with a conversation, and without
        assert chat.js("document.querySelector('#header .model').scrollWidth") <= 360
        for part in ("h1", ".model"):
            assert chat.js(f"(e => e.scrollWidth <= e.clientWidth)(document.querySelector('#header {part}'))")
        assert chat.js("document.querySelector('#header h1').offsetHeight") < 30
        assert chat.js("document.documentElement.scrollWidth") <= 360
        if chat.is_visible("new_chat"):
            chat.click("new_chat")
            chat.page.wait_for_selector("html[data-empty=yes]")


def test_a_browser_of_a_third_language_gets_a_page_that_says_what_it_speaks(app: Program, visit: Visit) -> None:
    chat = visit(app, locale="de-DE")
    chat.wait_until("document.documentElement.lang === 'en'")
    chat.box.fill("x" * 500)
    expect(chat.page.locator("#count")).to_have_text("500 of 512 characters")
