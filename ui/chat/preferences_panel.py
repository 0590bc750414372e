"""What a person may want of every answer, as fields at the side. history.js keeps in the browser what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from appliance.chat.preferences import CREATIVITIES, LENGTHS, MAX_INSTRUCTION_CHARS
from ui.words.messages import Language, say

_CHOICES: Final[tuple[tuple[str, Sequence[str]], ...]] = (("creativity", CREATIVITIES), ("length", LENGTHS))


def wishes_html(language: Language) -> str:
    """One field a wish, named by `data-wish`. In one line: a line break would be Markdown's."""
    instructions = (
        f'<textarea data-wish="instructions" rows="3" maxlength="{MAX_INSTRUCTION_CHARS}" '
        f'placeholder="{escape(say(language, "wish_example"))}"></textarea>'
    )
    fields = [_labelled(language, "instructions", instructions)]
    for wish, choices in _CHOICES:
        names = {choice: escape(say(language, f"wish_{choice or 'usual'}")) for choice in choices}
        options = (f'<option value="{choice}">{name}</option>' for choice, name in names.items())
        fields.append(_labelled(language, wish, f'<select data-wish="{wish}">{"".join(options)}</select>'))
    summary, note = escape(say(language, "wishes")), escape(say(language, "page_wishes_note"))
    return f"<details><summary>{summary}</summary>{''.join(fields)}<p>{note}</p></details>"


def _labelled(language: Language, wish: str, field: str) -> str:
    return f"<label>{escape(say(language, f'wish_{wish}'))}{field}</label>"
