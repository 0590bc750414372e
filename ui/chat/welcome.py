"""The empty page: a greeting, questions to start with, and beginnings of common tasks that only need the matter."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Final

from appliance.settings.presets import PRESETS, Preset, parse_presets
from ui.words.messages import Language, say

N_STARTERS: Final = 3


@dataclass(frozen=True)
class Offers:
    """What the owner offers on the empty page."""

    questions: tuple[str, ...] = ()
    """Empty: ours, in the reader's language."""
    presets: tuple[Preset, ...] = PRESETS

    @classmethod
    def of(cls, starter_questions: str, presets: str) -> Offers:
        """From the settings of these names."""
        questions = (part.strip() for part in starter_questions.split("|"))
        return cls(tuple(filter(None, questions)), parse_presets(presets) or PRESETS)


NO_OFFERS: Final = Offers()
"""None of the owner's: ours."""


def welcome_html(language: Language, offers: Offers = NO_OFFERS) -> str:
    """What stands there. page.js sends `data-ask` at once and writes `data-begin` into the box."""
    questions = offers.questions or [say(language, f"starter_{number}") for number in range(1, N_STARTERS + 1)]
    parts = [
        f"<h2>{escape(say(language, 'welcome'))}</h2><p>{escape(say(language, 'welcome_detail'))}</p>",
        f'<p class="temporary">{escape(say(language, "temporary_on"))}</p>',
        '<div class="starters">',
        *(f'<button type="button" data-ask="{escape(text)}">{escape(text)}</button>' for text in questions),
        f'</div><div class="tasks" role="group" aria-label="{escape(say(language, "tasks"))}">',
        *(_task(language, preset) for preset in offers.presets),
        "</div>",
    ]
    return "".join(parts)


def _task(language: Language, preset: Preset) -> str:
    """One of ours has its words in `task_*` and `begin_*`, the owner's has them with it."""
    is_ours = not preset.beginning
    name = say(language, f"task_{preset.name}") if is_ours else preset.name
    beginning = say(language, f"begin_{preset.name}") if is_ours else f"{preset.beginning}\n\n"
    return f'<button type="button" data-begin="{escape(beginning).replace(chr(10), "&#10;")}">{escape(name)}</button>'
