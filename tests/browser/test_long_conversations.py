"""Forty turns, a translated page, a phone that sleeps: the page stays quick and whole."""

from __future__ import annotations

import json

from tests.browser.driver import Chat, Visit, settled
from tests.system.program import Program

N_TURNS = 40
LONG = ("word, " * 40).strip()


def keep(chat: Chat, turns: list[dict[str, str]]) -> None:
    """A conversation, put where the page keeps them, and opened."""
    entry = {"title": "a long one", "named": True, "at": 1, "turns": turns}
    chat.page.evaluate(
        "([key, entry]) => localStorage.setItem(key, entry)",
        ["office-chat-c-" + "abcdefgh" * 3, json.dumps(entry)],
    )
    chat.page.reload()
    chat.ready()
    chat.page.locator("#conversations .open").click()
    chat.page.wait_for_function(f"() => document.querySelectorAll('#conversation .said').length === {len(turns)}")
    chat.page.wait_for_function(f"() => document.querySelectorAll('#conversation .acts').length === {2 * len(turns)}")


def test_case_47_a_long_conversation_is_left_alone_while_an_answer_is_written(app: Program, visit: Visit) -> None:
    chat = visit(app)
    keep(
        chat,
        [{"question": f"question {k}", "text": f"**answer** {k}\n\n```python\nx = {k}\n```"} for k in range(N_TURNS)],
    )
    chat.send(LONG)
    chat.wait_writing_text()
    chat.js(
        """() => {
          window.changes = [];
          const everything = {childList: true, subtree: true, characterData: true};
          new MutationObserver((list) => window.changes.push(...list.map(({target}) => target.className)))
            .observe(document.querySelector("#conversation"), everything);
        }"""
    )
    chat.wait_until("document.querySelector('#live p')?.textContent.length > 200")
    assert chat.js("window.changes") == [], "only the answer that is written is drawn anew"
    chat.wait_for("idle")
    settled(lambda: len(chat.questions()), N_TURNS + 1)
    settled(lambda: chat.answers()[-1].endswith(LONG), True)


def test_case_46_a_translator_that_changes_the_page_breaks_no_answer(app: Program, visit: Visit) -> None:
    chat = visit(app)
    chat.js(
        """() => {
          const isOurs = (node) => !node.parentElement.closest("[translate=no], script, style, textarea, font");
          const translate = () => {
            const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            const found = [];
            while (walker.nextNode()) found.push(walker.currentNode);
            for (const node of found.filter((node) => node.data.trim() && isOurs(node))) {
              const font = document.createElement("font");
              node.replaceWith(font);
              font.append(node);
            }
          };
          translate();
          setInterval(translate, 100);
        }"""
    )
    assert chat.ask(LONG[:120]).startswith("word,")
    assert chat.ask("and another") == "and another"
    assert chat.page.locator("#conversation font").count() == 0
    assert chat.errors == []


def test_case_34_a_phone_that_slept_shows_the_answer_when_it_wakes(app: Program, visit: Visit) -> None:
    chat = visit(app, width=360, height=740)
    chat.send(LONG)
    chat.wait_writing_text()
    phone = chat.page.context.new_cdp_session(chat.page)
    phone.send("Page.setWebLifecycleState", {"state": "frozen"})
    chat.page.wait_for_timeout(4000)
    phone.send("Page.setWebLifecycleState", {"state": "active"})
    chat.wait_for("idle")
    settled(lambda: chat.answers()[-1].endswith(LONG), True)
