"""Both languages say everything, with the same blanks to fill in."""

from __future__ import annotations

from string import Formatter

import pytest

from appliance.base import errors
from ui.words.messages import LANGUAGES, SENTENCES, known, language_of, say


def blanks(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name is not None}


def test_both_languages_have_the_same_sentences() -> None:
    assert SENTENCES["zh"].keys() == SENTENCES["en"].keys()


@pytest.mark.parametrize("key", SENTENCES["en"])
def test_a_sentence_has_the_same_blanks_in_both_languages(key: str) -> None:
    assert blanks(SENTENCES["zh"][key]) == blanks(SENTENCES["en"][key])
    assert all(SENTENCES[language][key].strip() for language in LANGUAGES)


def test_every_refusal_has_a_sentence() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type) and hasattr(value, "code")]
    assert classes
    assert [cls.code for cls in classes if not known(cls.code)] == []


def test_the_notice_of_a_cut_message_names_the_limit() -> None:
    assert say("zh", "notice_input_cut", limit=512) == "内容过长，已截取前512字"


@pytest.mark.parametrize(
    ("wanted", "accepted", "preset", "language"),
    [
        (None, "zh-CN,zh;q=0.9,en;q=0.8", "auto", "zh"),
        (None, "en-GB,zh;q=0.5", "auto", "en"),
        (None, None, "auto", "en"),
        (None, "en", "zh", "zh"),
        ("en", "zh-CN", "zh", "en"),
        ("xx", "zh-TW", "auto", "zh"),
    ],
)
def test_the_pages_choice_comes_before_the_owners_and_the_browsers(
    wanted: str | None, accepted: str | None, preset: str, language: str
) -> None:
    assert language_of(wanted, accepted, preset) == language
