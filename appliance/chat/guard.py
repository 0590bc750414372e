"""What a message may contain and how long it may be. The one unit of its length is the Unicode code point.

Everything here runs on the event loop, so its time grows with the text alone. Composing (NFC) sorts the marks of a
letter, which takes the square of their number: there are never more than MAX_MARKS of them.
"""

from __future__ import annotations

import re
import unicodedata

from appliance.base.errors import EmptyInput, InputTooLong

# Byte order marks, lone surrogates (they cannot be encoded) and control characters other than tab and line feed.
_UNWANTED = re.compile("[\ufeff\ud800-\udfff\x00-\x08\x0b-\x1f\x7f-\x9f]")
MAX_MARKS = 30
"""Combining marks in a row, as in Unicode's stream-safe text (UAX #15): no language has so many."""
_MAYBE_MARKS = re.compile(rf"[^\w\s\x00-\x7f]{{{MAX_MARKS + 1},}}")
"""No combining mark is a word character; what else this finds, as emoji in a row, is looked at and left alone."""
_RAW = 4
"""A text of so many times the longest message is cut before it is composed: a letter has few parts."""


def clean(text: str) -> str:
    """The text in Unicode's composed form (NFC), line ends as `\\n`, without white space at its end and without
    characters that no tokenizer or log can carry. What it begins with stays: it may be the indentation of code."""
    plain = _UNWANTED.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return unicodedata.normalize("NFC", _MAYBE_MARKS.sub(_few_marks, plain)).rstrip()


def cut(text: str, max_chars: int) -> tuple[str, bool]:
    """A cleaned message of at most `max_chars` characters, and whether it was cut (the page's way).

    Raises:
        EmptyInput: nothing is left.
    """
    cleaned = clean(text[: _RAW * max_chars])
    if not cleaned:
        raise EmptyInput("nothing was asked")
    return cleaned[:max_chars], len(cleaned) > max_chars or len(text) > _RAW * max_chars


def refuse_long(text: str, max_chars: int) -> str:
    """A cleaned message, refused instead of cut (the API's way).

    Raises:
        InputTooLong: it has more than `max_chars` characters.
    """
    n_chars = len(text)
    if n_chars <= _RAW * max_chars:
        cleaned = clean(text)
        if (n_chars := len(cleaned)) <= max_chars:
            return cleaned
    raise InputTooLong(f"the message has {n_chars} characters, {max_chars} are allowed")


def _few_marks(run: re.Match[str]) -> str:
    kept, n_marks = [], 0
    for char in run[0]:
        n_marks = n_marks + 1 if unicodedata.category(char)[0] == "M" else 0
        if n_marks <= MAX_MARKS:
            kept.append(char)
    return "".join(kept)
