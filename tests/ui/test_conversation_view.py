"""What turns into Markdown, what stays as it was typed, and where notices stand."""

from __future__ import annotations

import html
import re
import time
from datetime import datetime

import pytest

from appliance.answers.answer import Origin
from appliance.chat.sessions import Conversation, Turn
from appliance.engine.request import FinishReason
from ui.chat.conversation_view import as_markdown, finished, said


def texts(*turns: Turn) -> list[tuple[str, str]]:
    messages = finished(Conversation(turns), "en", 40)
    return [(message["role"], message["content"][0]["text"]) for message in messages]


@pytest.mark.parametrize(
    "text", ["plain", "<|im_end|>", "a\n\n\tb  c", "**x** $$y$$ \\(z\\)", "</pre><script>", "汉字 👩‍👩‍👧‍👦", "\n\n  x"]
)
def test_what_was_typed_comes_back_out_of_the_html(text: str) -> None:
    shown = said(text)
    assert "\n" not in shown
    inside = re.fullmatch(r'<pre class="said">(?:<span></span>(?=&#10;))?([^<]*)</pre>', shown)
    assert inside is not None
    assert html.unescape(inside[1]) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a <b>c</b>", "a &lt;b>c&lt;/b>"),
        ("1 < 2 <3", "1 < 2 <3"),
        ("`<b>` and <i>", "`<b>` and &lt;i>"),
        ("``a ` <b>`` <i>", "``a ` <b>`` &lt;i>"),
        ("```html\n<b>\n```\n<i>", "```markup\n<b>\n```\n&lt;i>"),
        ("~~~\n<b>\n~~~\n<i>", "~~~\n<b>\n~~~\n&lt;i>"),
        ("- item\n  ```\n  <b>\n  ```\n<i>", "- item\n  ```\n  <b>\n  ```\n&lt;i>"),
        ("```\n<b> still open", "```\n<b> still open"),
        ("    <b> indented", "    <b> indented"),
        ("half `<b", "half `<b"),
        ("<!-- x --><?y?>", "&lt;!-- x -->&lt;?y?>"),
        ("<https://a.example>", "<https://a.example>"),
        ("![alt](http://h/x.png)", "[alt](http://h/x.png)"),
        ("stop! [a](b)", "stop! [a](b)"),
        ("it's $5", "it's $5"),
        (r"\<div>", "&lt;div>"),
        ("it`s\n- <b>`s", "it`s\n- &lt;b>`s"),
        ("```a``` <b>\n\n<i>", "```a``` &lt;b>\n\n&lt;i>"),
        ("```\n```js\n<b>\n```\n<i>", "```\n```js\n<b>\n```\n&lt;i>"),
    ],
)
def test_tags_outside_code_are_text_and_pictures_are_links(text: str, shown: str) -> None:
    assert as_markdown(text) == shown


def test_a_very_long_odd_text_is_read_in_no_time() -> None:
    assert as_markdown("`" * 5000 + "<b" * 5000).count("&lt;") <= 5000


def test_a_finished_turn_is_two_messages() -> None:
    assert texts(Turn("q", "*a*", (), FinishReason.STOP)) == [("user", said("q")), ("assistant", "*a*")]


def test_a_cut_question_is_noted_before_and_a_limit_after_the_answer() -> None:
    shown = texts(Turn("q", "a", (1,), FinishReason.LENGTH, notices=("input_cut", "limit")))
    assert [role for role, _ in shown] == ["user", "assistant", "assistant", "assistant"]
    assert "first 40 characters" in shown[1][1]
    assert shown[2][1] == "a"
    assert "length limit" in shown[3][1]
    assert 'class="note more"' in shown[3][1]


def test_an_answer_the_engine_broke_off_says_so_and_can_go_on() -> None:
    shown = texts(Turn("q", "half", (1,), FinishReason.ERROR, error="engine_failed"))
    assert "engine was restarted" in shown[-1][1]
    assert 'class="note more"' in shown[-1][1]


def test_nothing_written_offers_nothing_to_continue() -> None:
    shown = texts(Turn("q", "", (), FinishReason.ABORT, notices=("stopped",)))
    assert shown[1:] == [("assistant", '<div class="note ">Stopped&#46;</div>')]


def test_an_unknown_notice_is_not_shown() -> None:
    assert len(texts(Turn("q", "a", (), FinishReason.STOP, notices=("something new",)))) == 2


def test_a_saved_answer_says_when_it_was_written_and_the_last_one_offers_a_fresh_one() -> None:
    at = time.time()
    clock = f"{datetime.fromtimestamp(at).astimezone():%H:%M}"
    saved = Turn("q", "a", (1,), FinishReason.STOP, origin=Origin.SAVED, saved_at=at)
    first, second = [html.unescape(text) for role, text in texts(saved, saved) if "note" in text]
    assert f"Saved answer, {clock}<" in first
    assert "afresh" not in first
    assert f"Saved answer, {clock} – ask afresh<" in second
    assert 'class="note afresh"' in second
    (note,) = [m["content"][0]["text"] for m in finished(Conversation((saved,)), "zh", 40)[2:]]
    assert f"已保存的回答（{clock}）· 重新回答" in html.unescape(note)


def test_an_answer_saved_on_another_day_says_which() -> None:
    old = Turn("q", "a", (1,), FinishReason.STOP, origin=Origin.SAVED, saved_at=86_400 * 365.0)
    day = datetime.fromtimestamp(86_400 * 365.0).astimezone()
    assert f"Saved answer, {day.day} January 1971, {day:%H:%M}" in html.unescape(texts(old)[-1][1])
    (note,) = [m["content"][0]["text"] for m in finished(Conversation((old,)), "zh", 40)[2:]]
    assert f"已保存的回答（1971年1月{day.day}日 {day:%H:%M}）" in html.unescape(note)


def test_who_comes_back_after_a_long_time_is_told_why_the_conversation_is_empty() -> None:
    shown = texts(Turn("q", "a", (1,), FinishReason.STOP, notices=("expired",)))
    assert "forgotten" in shown[1][1]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("```cpp\nint x = 1;\n```", "```c\nint x = 1;\n```"),
        ("```C++ title=x\nint x;\n```", "```c\nint x;\n```"),
        ("~~~py\nx\n~~~", "~~~python\nx\n~~~"),
        ("- one\n  ```rs\n  x\n  ```", "- one\n  ```rust\n  x\n  ```"),
        ("```mermaid\nno diagram\n```", "```\nno diagram\n```"),
        ("```constructor\nx\n```", "```\nx\n```"),
        ("```__proto__\nx\n```", "```\nx\n```"),
        ("```\nx\n```", "```\nx\n```"),
        ("```js", "```javascript"),
        ("```js```", "```js```"),
        ("it`s\n```cpp\n`a`\n```", "it`s\n```c\n`a`\n```"),
        ("-\t```cpp\n\tx\n\t```", "-\t```c\n\tx\n\t```"),
        ("- [ ] ```cpp\n  x\n  ```", "- [ ] ```c\n  x\n  ```"),
        ("```a``` b\n```cpp\nx\n```", "```a``` b\n```c\nx\n```"),
        ("```\n```js\n```\n```cpp\nx\n```", "```\n```js\n```\n```c\nx\n```"),
        ("1. a\n\n    ```cpp\n    x\n    ```", "1. a\n\n    ```c\n    x\n    ```"),
        ("    ```cpp\n    x\n    ```", "    ```cpp\n    x\n    ```"),
        (".```mermaid\nno diagram", ".``` mermaid\nno diagram"),
        ("````md\n```cpp\nx\n```\n````", "````\n```cpp\nx\n```\n````"),
    ],
)
def test_a_block_names_a_grammar_that_draws_by_itself_or_none(written, shown):
    assert as_markdown(written) == shown


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("See [1].\n\n[1]: https://a.example/b", "See [1].\n\n&#91;1]: https://a.example/b"),
        ("> [^2]: a note", "> &#91;^2]: a note"),
        ("- [x]: y", "- &#91;x]: y"),
        ("[](https://a.example)", "&#91;](https://a.example)"),
        ("![](cat.png)", "!&#91;](cat.png)"),
        ("[1] : no definition", "[1] : no definition"),
        ("    [1]: code", "    [1]: code"),
        ("`[](x)`", "`[](x)`"),
    ],
)
def test_what_markdown_would_show_nothing_of_is_shown_as_it_was_written(written: str, shown: str) -> None:
    assert as_markdown(written) == shown


@pytest.mark.parametrize(
    "odd", ["> " * 20_000, "- " * 20_000, "[" * 40_000, "`\n" * 20_000, "[ ] " * 10_000, "\\" * 40_000]
)
def test_long_rows_of_marks_are_read_in_no_time(odd: str) -> None:
    assert len(as_markdown(odd)) >= len(odd)  # the test's own timeout ends what would take for ever
