"""The tasks an owner offers on the empty page."""

from __future__ import annotations

import pytest

from appliance.base.errors import SettingsError
from appliance.settings.files import load_settings
from appliance.settings.presets import Preset, parse_presets
from ui.chat.welcome import Offers, welcome_html


def test_ours_by_name_and_the_owners_with_their_beginning():
    assert parse_presets("") == ()
    assert parse_presets("sql | Our tone: Rewrite this: | 语气：请改写") == (
        Preset("sql"),
        Preset("Our tone", "Rewrite this:"),
        Preset("语气", "请改写"),
    )


@pytest.mark.parametrize("text", ["lunch", "Name:", ": beginning", "sql:"])
def test_what_is_neither_stops_the_start_with_a_sentence(text):
    assert parse_presets(text) is None
    with pytest.raises(SettingsError, match=r"PRESETS = .*: expected weekly, sql, translate, explain, titles, or Name"):
        load_settings({"OFFICE_CHAT_PRESETS": text}, {})


def test_the_page_offers_these_and_no_others():
    html = welcome_html("en", Offers.of("", 'titles|<b>: Be "bold"'))
    assert html.count("data-begin=") == 2
    assert "Title ideas" in html
    assert 'data-begin="Be &quot;bold&quot;&#10;&#10;">&lt;b&gt;<' in html
    assert welcome_html("zh").count("data-begin=") == 5
