"""What draws (highlighter, formulas, tables, diagrams) takes no text away, whatever a model writes."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.driver import Chat, Visit
from tests.system.program import Program
from ui.chat.conversation_view import _GRAMMARS

ODD = ("mermaid", "constructor", "__proto__", "toString", "markup-templating", "c#", "text", "")


def block(name: str) -> str:
    return f"```{name}\nint x = 1; # {{}} <b>\n```"


def shown(chat: Chat, question: str) -> str:
    """The last answer as it is drawn in the end; nothing the page runs may fail."""
    answer = chat.ask(question)
    assert chat.errors == []
    return answer


@pytest.mark.timeout(240)
def test_every_language_is_seen_as_the_first_of_a_page(app: Program, visit: Visit):
    chat = visit(app)
    for name in sorted({*_GRAMMARS.values(), "cpp", *ODD}):
        chat.page.reload()  # which forgets every grammar that was loaded
        chat.ready()
        assert chat.answers() == []
        assert "int x = 1; # {} <b>" in shown(chat, block(name)), name
        chat.click("new_chat")
        chat.wait_until("document.querySelectorAll('.bot-row').length === 0")


def test_every_language_is_seen_after_all_the_others(app: Program, visit: Visit):
    chat = visit(app)
    names = sorted({*_GRAMMARS.values()}, reverse=True)
    for first in range(0, len(names), 8):
        answer = shown(chat, "\n\n".join(block(name) for name in names[first : first + 8]))
        assert answer.count("int x = 1; # {} <b>") == len(names[first : first + 8])
    chat.page.reload()
    chat.ready()
    expect(chat.page.locator("#conversation .bot-row code")).to_have_count(len(names))


@pytest.mark.parametrize("grammar", ["throw new Error('it fails')", None])
def test_a_grammar_that_fails_or_cannot_be_fetched_leaves_the_words(app: Program, visit: Visit, grammar: str | None):
    chat = visit(app)
    chat.page.route(
        "**/prism-python-*",
        lambda route: route.fulfill(body=grammar, content_type="text/javascript") if grammar else route.abort(),
    )
    assert "int x = 1; # {} <b>" in shown(chat, block("python"))
    assert "int x = 1; # {} <b>" in shown(chat, block("c"))


@pytest.mark.parametrize(
    "written",
    [
        "it`s\n```cpp\nint `a`;\n```",
        "-\t```cpp\n\tint `a`;\n\t```",
        "- [ ] ```cpp\n  int `a`;\n  ```",
        "it`s\n```mermaid\nint `a`;\n```",
        "1. one\n\n    ```cpp\n    int `a`;\n    ```",
        "> ```cpp\n> int `a`;",
        ".```mermaid\nint `a`;\n```",
        "- [ ] ```constructor\n  int `a`;\n  ```",
    ],
)
def test_a_block_is_seen_wherever_it_stands(app: Program, visit: Visit, written: str):
    assert "int `a`;" in shown(visit(app), written)


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("$$\\frac{1}{$$ and on", "and on"),
        ("$$\\notacommand{x}$$ after", "after"),
        ("\\(\\begin{matrix}\\) after", "after"),
        ("|a|b|\n|-|\n|1|2|3|\n\nafter", "after"),
        ("```mermaid\ngraph TD; A-->", "graph TD; A-->"),
        ("|a|b|\n|-|-|\n|1|2|3 lost|", "3 lost"),
        ("|a|\n|-|\n|`x|y`|", "y"),
        ("[1]: https://a.example/b", "[1]: https://a.example/b"),
        ("[^1]: a note", "a note"),
        ("![](cat.png)", "cat.png"),
        ("<details><summary>x</summary>inside", "inside"),
        ("\x60\x60\x60\x60\nfour\n\x60\x60\x60\nstill", "still"),
    ],
)
def test_a_formula_a_table_or_a_diagram_that_is_none_leaves_the_words(app: Program, visit: Visit, written, seen):
    assert seen in shown(visit(app), written)


def test_a_page_never_asks_for_what_draws_diagrams(app: Program, visit: Visit):
    chat = visit(app)
    chat.ask("```mermaid\ngraph TD; A-->B;\n```")
    chat.ask(block("cpp"))
    assert [url for url in chat.requests if "mermaid" in url or "Diagram" in url] == []
    assert len([url for url in chat.requests if "prism-" in url]) <= 2


def test_a_formula_draws_over_nothing_and_moves_nothing_aside(app: Program, visit: Visit):
    chat = visit(app)
    assert "after" in shown(chat, "Look: $$\\rule{500em}{40em}$$ after \\(\\rule{500em}{1em}\\) that")
    assert chat.js("document.scrollingElement.scrollWidth") == 1280
    formula, box = (chat.page.locator(css).first.bounding_box() for css in (".bot-row .katex-display", "#writing"))
    assert formula is not None
    assert box is not None
    assert formula["x"] + formula["width"] <= box["x"] + box["width"]


@pytest.mark.parametrize("code", ["    def f():\n        return 1", "\tx\n\ty", "\n\n  after two lines"])
def test_what_a_message_begins_with_stays_everywhere(app: Program, visit: Visit, code: str):
    chat = visit(app)
    chat.ask(code + "\n \n")
    raw = "document.querySelector('#conversation pre.said').textContent"
    assert chat.js(raw) == code
    assert (
        chat.js(
            "fetch('conversation', {headers: {'X-Tab': sessionStorage.getItem('office-chat-tab')}})"
            ".then((r) => r.json()).then((c) => c.turns[0].text)"
        )
        == code
    ), "the engine was given all of it"
    chat.page.reload()
    chat.ready()
    assert chat.js(raw) == code
    chat.page.locator("#conversation .user-row").last.hover()
    chat.page.locator("#conversation .user-row [data-act=edit]").last.click()
    assert chat.box.input_value() == code
