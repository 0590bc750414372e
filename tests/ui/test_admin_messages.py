"""The admin page says everything in both languages, and every setting has a name and a place."""

from __future__ import annotations

from string import Formatter

import pytest

from appliance.settings.schema import Settings, kind_of
from ui.words import settings as setting_words
from ui.words.admin_messages import SENTENCES, span_of, tell
from ui.words.messages import LANGUAGES
from ui.words.settings import GROUP_NAMES, GROUPS, grouped, help_of, name_of, unit_of


def blanks(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name is not None}


def test_both_languages_have_the_same_sentences() -> None:
    assert SENTENCES["zh"].keys() == SENTENCES["en"].keys()


@pytest.mark.parametrize("key", SENTENCES["en"])
def test_a_sentence_has_the_same_blanks_in_both_languages(key: str) -> None:
    assert blanks(SENTENCES["zh"][key]) == blanks(SENTENCES["en"][key])
    assert all(SENTENCES[language][key].strip() for language in LANGUAGES)


def test_what_is_only_told_is_left_as_it_is() -> None:
    assert "{date}" in tell("en", "quick_detail")


def test_every_setting_stands_in_one_group() -> None:
    keys = [key for keys in grouped().values() for key in keys]
    assert sorted(keys) == sorted(Settings.model_fields)
    assert set(GROUPS) == set(GROUP_NAMES)
    assert [key for keys in GROUPS.values() for key in keys if key not in Settings.model_fields] == []


def test_the_names_are_names_of_settings() -> None:
    assert setting_words._WORDS.keys() <= Settings.model_fields.keys()


@pytest.mark.parametrize("key", Settings.model_fields)
def test_every_setting_can_be_shown_in_both_languages(key: str) -> None:
    for language in LANGUAGES:
        assert name_of(language, key)
        assert help_of(language, key)
        assert unit_of(language, kind_of(key).unit) is not None


@pytest.mark.parametrize(
    ("seconds", "english"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h"), (200_000, "2 days")],
)
def test_a_length_of_time(seconds: float, english: str) -> None:
    assert span_of("en", seconds) == english
