"""Words and patterns of the owner's rules: how a text is compared with them. The only module that knows re2.

Patterns run on re2 because its time grows with the text alone: no pattern of an owner's and no message of anybody's
can make it hang.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

import re2

_MAX_PATTERN_BYTES = 16 * 2**20
"""What one compiled pattern may take; a word list becomes one pattern."""
_SPACED = ("LATIN ", "CYRILLIC ", "GREEK ")
"""Scripts that put spaces between words: there a word is not looked for inside another."""
_INVISIBLE = re.compile("[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]")
_CHINESE = re.compile("[\u3400-\u9fff]")
_NOT_LETTER = r"[^\p{Latin}\p{Cyrillic}\p{Greek}\p{Nd}]"


class BadPattern(ValueError):
    """A pattern re2 does not take. `str` says why."""


class Span(NamedTuple):
    """Where in a folded text something was found."""

    start: int
    end: int


def folded(text: str) -> str:
    """The text without differences of case and width, invisible characters and repeated spaces."""
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(_INVISIBLE.sub("", text).split())


def squeezed(text: str) -> str:
    """The same without punctuation, signs and spaces: what is left of "Hello,  world!" is "helloworld"."""
    return "".join(char for char in folded(text) if unicodedata.category(char)[0] in "LNM" or char in "+=<>%")


def is_chinese(text: str) -> bool:
    """Whether anything in it is."""
    return _CHINESE.search(text) is not None


class Pattern:
    """A compiled regular expression in re2's syntax, for folded texts."""

    def __init__(self, source: str) -> None:
        """Raises BadPattern."""
        options = re2.Options()
        options.case_sensitive = False
        options.log_errors = False
        options.max_mem = _MAX_PATTERN_BYTES
        try:
            self._compiled = re2.compile(source, options)
        except re2.error as error:
            reason = error.args[0] if error.args else ""
            raise BadPattern(reason.decode() if isinstance(reason, bytes) else str(reason)) from None
        if self._compiled.fullmatch(""):
            raise BadPattern("it matches an empty text, and so every one")

    def is_all_of(self, folded_text: str) -> bool:
        """Whether it describes the whole text."""
        return self._compiled.fullmatch(folded_text) is not None

    def find(self, folded_text: str) -> Span | None:
        """Where it first occurs."""
        match = self._compiled.search(folded_text)
        return Span(*match.span()) if match is not None else None


def any_word(words: Iterable[str]) -> Pattern:
    """Finds any of the words, and in scripts with spaces only whole ones: "pass" is not in "passage".

    The span may take in one character before and after the word. Raises BadPattern.
    """
    return Pattern("|".join(_word(folded(word)) for word in words))


def _word(word: str) -> str:
    if not word:
        raise BadPattern("a word is empty")
    before = rf"(?:^|{_NOT_LETTER})" if _is_letter(word[0]) else ""
    after = rf"(?:$|{_NOT_LETTER})" if _is_letter(word[-1]) else ""
    return f"{before}{re2.escape(word)}{after}"


def _is_letter(char: str) -> bool:
    return char.isdecimal() or unicodedata.name(char, "").startswith(_SPACED)
