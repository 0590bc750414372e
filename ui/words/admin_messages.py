"""The sentences of the admin page, in Chinese and English; settings are named in settings.py.

Looked up with `tell(language, key, **values)`. The `js_*` keys are the ones the page's script needs.
"""

from __future__ import annotations

from typing import Final

from ui.words.admin_chinese import CHINESE
from ui.words.admin_english import ENGLISH
from ui.words.messages import Language

SENTENCES: Final[dict[Language, dict[str, str]]] = {"en": ENGLISH, "zh": CHINESE}


def tell(language: Language, key: str, **values: object) -> str:
    """The sentence `key`, its placeholders filled. Raises KeyError for a key or a placeholder that does not exist."""
    sentence = SENTENCES[language][key]
    return sentence.format(**values) if values else sentence


def span_of(language: Language, seconds: float) -> str:
    """A length of time in its largest whole unit."""
    for unit, length_s in (("days", 172_800), ("hours", 7_200), ("minutes", 120)):
        if seconds >= length_s:
            each_s = {"days": 86_400, "hours": 3_600, "minutes": 60}[unit]
            return tell(language, unit, n=int(seconds // each_s))
    return tell(language, "seconds", n=int(seconds))
