"""How a conversation looks: turns to the messages of a Chatbot, a running answer to the text of the live component.

Decides what is Markdown and what is shown as it was typed. Knows no components, no requests and no events.
"""

from __future__ import annotations

import re
import string
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from appliance.engine.request import FinishReason
from ui.chat.tables import align_numbers
from ui.words.messages import Language, known, say

if TYPE_CHECKING:
    from appliance.answers.answer import Answer
    from appliance.chat.sessions import Conversation, Turn

LATEX_DELIMITERS: Final[list[dict[str, str | bool]]] = [
    {"left": "$$", "right": "$$", "display": True},
    {"left": "\\[", "right": "\\]", "display": True},
    {"left": "\\(", "right": "\\)", "display": False},
]
"""What is set as mathematics. A single dollar sign is money."""

BEFORE_THE_ANSWER: Final = ("expired", "input_cut", "history_cut", "short_history")
"""Notices that speak of the question stand between question and answer; all others below the answer."""

_AS_ENTITY: Final = str.maketrans({char: f"&#{ord(char)};" for char in string.punctuation + "\n\r\t"})

_ITEM: Final = r"(?:[-*+]|\d{1,9}[.)])[ \t]"


def _code_or_mark(lead: str) -> re.Pattern[str]:
    """`lead`: what may stand before a block on its line."""
    return re.compile(
        rf"""
    ^(?P<lead>{lead})(?P<fence>`{{3,}}(?=[^`\n]*$)|~{{3,}})(?P<info>[^\n]*)
        (?P<code>[\s\S]*?(?:\n[ \t>]*(?P=fence)[`~]*[ \t]*$|\Z))  # a fenced block
    | ^(?:[ ]{{4}}|\t).*$                                          # an indented block
    | ^(?P<before>{lead})\[(?=[^\[\]\n]{{1,200}}\]:)                # a definition, of which nothing would be seen
    | (?<!`)(?P<tick>`+)(?!`)                                    # code within a line, or a few, but no other block
        (?:[^\n]|\n(?![ \t]*(?:\n|[>#~|]|`{{3}}|{_ITEM})))*?(?<!`)(?P=tick)(?!`)
    | `[^\n]*\Z                                                  # the same, not yet closed while it streams
    | \\?(?P<tag><(?=[A-Za-z/!?])(?!https?://))                  # what a browser would take for a tag
    | (?P<image>!(?=\[)(?!\[\]\())                               # an image: a link is shown in its place
    | (?P<nameless>\[(?=\]\())                                   # a link without words, of which nothing would be seen
    """,
        re.VERBOSE | re.MULTILINE,
    )


_IN_LISTS: Final = _code_or_mark(rf"(?:[ \t>]|{_ITEM}|\[[ xX]\][ ])*")
_NO_LISTS: Final = _code_or_mark(r"(?:(?:[ ]{0,3}>)+[ ]{0,4}|[ ]{0,3})")
"""Where there are no lists, four spaces are an indented block, whatever comes then."""
_HAS_ITEMS: Final = re.compile(rf"^[ \t>]*{_ITEM}", re.MULTILINE)

_GRAMMARS: Final[Mapping[str, str]] = {
    name: grammar
    for grammar, names in {
        "bash": "bash sh shell zsh console",
        "c": "c h cpp c++ cc cxx hpp",
        "css": "css",
        "go": "go golang",
        "java": "java",
        "javascript": "javascript js jsx mjs node",
        "json": "json jsonc json5",
        "latex": "latex tex",
        "markup": "markup html xml svg xhtml",
        "php": "php",
        "python": "python py python3",
        "rust": "rust rs",
        "sql": "sql mysql postgresql sqlite",
        "typescript": "typescript ts tsx",
        "yaml": "yaml yml",
    }.items()
    for name in names.split()
}
"""What a block may say it is written in, and the highlighter's grammar for it. Each draws by itself, as the first of a
page; its grammar for C++ throws unless C was there before, and then nothing of the answer is seen. What is not here is
shown as it was written, without colours; so is `mermaid`: docs/adr/0005. Should a grammar fail all the same, page.js
lets the highlighter go on without it."""

Message = dict[str, Any]


def said(text: str) -> str:
    """A person's own words as one line of HTML that shows exactly what was typed.

    Every punctuation mark becomes a character reference, so neither Markdown, mathematics nor HTML can see it. `pre`
    keeps spaces and line breaks, and mathematics is never looked for in it.
    """
    # HTML takes a line break away that comes right after `<pre>`.
    return f'<pre class="said">{"<span></span>" if text.startswith(chr(10)) else ""}{text.translate(_AS_ENTITY)}</pre>'


def as_markdown(text: str) -> str:
    """A model's words as Markdown in which HTML is text, no picture is fetched and nothing disappears. Code is left
    alone."""
    shown = (_IN_LISTS if _HAS_ITEMS.search(text) else _NO_LISTS).sub(_inert, align_numbers(text))
    return shown.replace("```mermaid", "``` mermaid")  # wherever it is left: Gradio looks for it without the space


def _inert(match: re.Match[str]) -> str:
    if match["tag"]:
        return "&lt;"
    if match["image"]:
        return ""
    if match["nameless"]:
        return "&#91;"
    if match["before"] is not None:
        return f"{match['before']}&#91;"
    if match["fence"]:
        words = match["info"].split(maxsplit=1)
        grammar = _GRAMMARS.get(words[0].lower(), "") if words else ""
        return f"{match['lead']}{match['fence']}{grammar}{match['code']}"
    return match[0]


def running(answer: Answer, language: Language, limit: int, wait_s: float = 0) -> str:
    """What the live component shows of an answer that waits or is being written: the question, then the text so far.

    `limit` is the longest message in characters, for the notice of a message that was cut; `wait_s` how long it may
    still take until the first words, 0 where nobody can tell.
    """
    parts = [said(answer.question)]
    parts += [_note(say_notice(code, language, limit)) for code in answer.notices if code in BEFORE_THE_ANSWER]
    if answer.text:
        parts.append(as_markdown(answer.text))
    elif answer.ahead:
        key = "place_wait" if wait_s >= 1 else "place"
        parts.append(_note(say(language, key, n=answer.ahead + 1, s=round(wait_s)), "waiting"))
    elif answer.ahead == 0:
        parts.append(_note(say(language, "next"), "waiting"))
    else:
        parts.append(_note(say(language, "thinking"), "thinking"))
    if "closing" in answer.notices:
        # The page may never hear how it ended: the program that would tell it is going away.
        parts.append(_note(say_notice("closing", language, limit)))
    return "\n\n".join(parts)


def finished(conversation: Conversation, language: Language, limit: int) -> list[Message]:
    """The turns that are over, in the form the Chatbot's front end takes, oldest first."""
    last = len(conversation.turns) - 1
    return [
        message
        for index, turn in enumerate(conversation.turns)
        for message in _turn(turn, language, limit, is_last=index == last and conversation.running is None)
    ]


def say_notice(code: str, language: Language, limit: int) -> str:
    """The sentence of a notice code; one without a sentence of its own gives an empty string."""
    key = f"notice_{code}"
    return say(language, key, limit=f"{limit:,}") if known(key) else ""


def _turn(turn: Turn, language: Language, limit: int, *, is_last: bool) -> list[Message]:
    """One question and its answer. A notice is a message of its own, so that an unclosed code block ends before it."""
    codes = [*turn.notices, *(["engine_failed"] if turn.finish is FinishReason.ERROR else [])]
    before = _notes([code for code in codes if code in BEFORE_THE_ANSWER], language, limit)
    # page.js offers Continue while the last note of the page has the class `more`.
    after = _notes(
        [code for code in codes if code not in BEFORE_THE_ANSWER], language, limit, "more" if turn.can_continue else ""
    )
    if turn.saved_at is not None:
        when = _when(turn.saved_at, language)
        # page.js takes a press on a note of the class `afresh` for one on Ask again.
        after.append(
            _note(say(language, "saved_afresh", when=when), "afresh")
            if is_last
            else _note(say(language, "saved", when=when))
        )
    texts = [*before, *([as_markdown(turn.text)] if turn.text.strip() else []), *after]
    return [_message("user", said(turn.question)), *(_message("assistant", text) for text in texts)]


def _when(saved_at: float, language: Language) -> str:
    """The time of day on this PC, with the date where it was not today. `saved_at`: Unix time, s."""
    then, now = (datetime.fromtimestamp(at).astimezone() for at in (saved_at, time.time()))
    if then.date() == now.date():
        return f"{then:%H:%M}"
    month = say(language, "months").split()[then.month - 1]
    return say(language, "date", day=then.day, month=month, year=then.year, time=f"{then:%H:%M}")


def _notes(codes: Sequence[str], language: Language, limit: int, css_class: str = "") -> list[str]:
    sentences = [say_notice(code, language, limit) for code in codes]
    return [_note(sentence, css_class) for sentence in sentences if sentence]


def _note(sentence: str, css_class: str = "") -> str:
    return f'<div class="note {css_class}">{sentence.translate(_AS_ENTITY)}</div>'


def _message(role: str, text: str) -> Message:
    # The form after Chatbot.postprocess: the events run with postprocess=False, because postprocess passes every text
    # through inspect.cleandoc, which takes tabs and common indentation out of code.
    return {"role": role, "metadata": None, "content": [{"type": "text", "text": text}], "options": None}
