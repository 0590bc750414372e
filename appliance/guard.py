"""What a message may contain and how long it may be. The one unit of its length is the Unicode code point."""

from __future__ import annotations

import re
import unicodedata

from appliance.errors import EmptyInput, InputTooLong

# Byte order marks, lone surrogates (they cannot be encoded) and control characters other than tab and line feed.
_UNWANTED = re.compile("[\ufeff\ud800-\udfff\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    """The text in Unicode's composed form (NFC), line ends as `\\n`, without outer white space and without characters
    that no tokenizer or log can carry."""
    plain = _UNWANTED.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return unicodedata.normalize("NFC", plain).strip()


def cut(text: str, max_chars: int) -> tuple[str, bool]:
    """A cleaned message of at most `max_chars` characters, and whether it was cut (the page's way).

    Raises:
        EmptyInput: nothing is left.
    """
    cleaned = clean(text)
    if not cleaned:
        raise EmptyInput("nothing was asked")
    return cleaned[:max_chars], len(cleaned) > max_chars


def refuse_long(text: str, max_chars: int) -> str:
    """A cleaned message, refused instead of cut (the API's way).

    Raises:
        InputTooLong: it has more than `max_chars` characters.
    """
    cleaned = clean(text)
    if len(cleaned) > max_chars:
        raise InputTooLong(f"the message has {len(cleaned)} characters, {max_chars} are allowed")
    return cleaned
