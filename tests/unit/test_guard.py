"""What is taken out of a message, and where it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.errors import EmptyInput, InputTooLong
from appliance.guard import clean, cut, refuse_long

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


def test_marks_surrogates_and_control_characters_are_taken_out():
    assert clean("\ufeffa\ud83d\x00b\x1b\x7fc\x85\t d\r\ne\rf ") == "abc\t d\ne\nf"


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
