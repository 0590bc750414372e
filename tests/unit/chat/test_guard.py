"""What is taken out of a message, and where it is cut."""

from __future__ import annotations

import re
import sys
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.base.errors import EmptyInput, InputTooLong
from appliance.chat.guard import MAX_MARKS, clean, cut, refuse_long

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


def test_marks_surrogates_and_control_characters_are_taken_out():
    assert clean("\ufeffa\ud83d\x00b\x1b\x7fc\x85\t d\r\ne\rf \n ") == "abc\t d\ne\nf"


def test_a_letter_and_its_accent_become_one_character_and_nothing_else_changes():
    assert clean("cafe\u0301 ＡＢＣ ① x²") == "café ＡＢＣ ① x²"


def test_an_emoji_of_several_characters_stays_whole():
    assert clean(FAMILY) == FAMILY


@given(st.text(st.characters()))
def test_a_cleaned_text_can_be_encoded_and_stays_as_it_is(text):
    cleaned = clean(text)
    assert cleaned.encode("utf-8").decode("utf-8") == cleaned
    assert clean(cleaned) == cleaned


@pytest.mark.parametrize("character", ["a", "字", "\U0001f600"])
def test_the_limit_counts_characters_of_any_kind_alike(character):
    assert cut(character * 512, 512) == (character * 512, False)
    assert cut(character * 513, 512) == (character * 512, True)
    assert refuse_long(character * 512, 512) == character * 512
    with pytest.raises(InputTooLong):
        refuse_long(character * 513, 512)


@pytest.mark.parametrize("text", ["", " \n\t", "\ufeff", "\x00\x00", "\ud800"])
def test_nothing_asked_is_refused(text):
    with pytest.raises(EmptyInput):
        cut(text, 512)


def test_what_a_text_begins_with_stays_and_only_its_blank_end_goes():
    code = "    def f():\n        return 1"
    assert clean(code + "  \n\n ") == code
    assert clean("\n\n\tx") == "\n\n\tx"
    assert cut(code, 512) == (code, False)


def test_a_letter_with_endless_marks_keeps_as_many_as_any_language_has():
    heap = "a" + "\u0301" * 100 + "\u0323" * 100 + "b"
    assert len(unicodedata.normalize("NFD", clean(heap))) == 2 + MAX_MARKS
    assert clean("\u0f73" * 100).count("\u0f71") <= MAX_MARKS, "marks that come apart into marks"


def test_no_mark_of_unicode_is_taken_for_a_letter():
    """A mark that was a word character would not be counted."""
    marks = "".join(filter(lambda char: unicodedata.category(char)[0] == "M", map(chr, range(sys.maxunicode + 1))))
    assert len(marks) > 2000
    assert re.search(r"\w", marks) is None
    assert not [
        char for char in map(chr, range(sys.maxunicode + 1)) if unicodedata.combining(char) and char not in marks
    ]


def test_a_row_of_emoji_is_no_row_of_marks():
    assert clean("\U0001f600" * 100) == "\U0001f600" * 100
    assert clean("。" * 100) == "。" * 100


def seconds(work, text):
    """The best of three: others may use this machine."""
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        work(text)
        best = min(best, time.perf_counter() - began)
    return best


@pytest.mark.parametrize(
    "letter",
    [
        "a" + "\u0301" * 20_000 + "\u0323" * 20_000,
        "\u0f73" * 40_000,
        "e\u0301" * 20_000,
        "가" * 40_000,
        "\ufdfa" * 40_000,
    ],
    ids=["two classes of marks", "marks of marks", "many accents", "hangul", "long ligatures"],
)
def test_no_text_takes_more_time_than_its_length(letter):
    """The first one took 7 s, and three times as much of it 65 s, while nobody else was answered."""
    assert seconds(clean, letter) < 0.05
    assert seconds(lambda text: cut(text, 512), letter * 10) < 0.05
