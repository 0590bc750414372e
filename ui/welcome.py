"""The empty page: a greeting, questions to start with, and beginnings of common tasks that only need the matter."""

from __future__ import annotations

from html import escape
from typing import Final

from ui.messages import Language, say

N_STARTERS: Final = 3
TASKS: Final = ("weekly", "sql", "translate", "explain", "titles")
"""Each has a name (`task_*`) and a beginning (`begin_*`) that is written into the box, to be completed."""


def welcome_html(language: Language, starters: str = "") -> str:
    """What stands there. `starters`: the owner's own questions, separated by `|`; "" for ours.

    page.js sends `data-ask` at once and writes `data-begin` into the box.
    """
    questions = [part.strip() for part in starters.split("|") if part.strip()]
    questions = questions or [say(language, f"starter_{number}") for number in range(1, N_STARTERS + 1)]
    parts = [
        f"<h2>{escape(say(language, 'welcome'))}</h2><p>{escape(say(language, 'welcome_detail'))}</p>",
        f'<p class="temporary">{escape(say(language, "temporary_on"))}</p>',
        '<div class="starters">',
        *(f'<button type="button" data-ask="{escape(text)}">{escape(text)}</button>' for text in questions),
        f'</div><div class="tasks" role="group" aria-label="{escape(say(language, "tasks"))}">',
        *(_task(language, name) for name in TASKS),
        "</div>",
    ]
    return "".join(parts)


def _task(language: Language, name: str) -> str:
    beginning = escape(say(language, f"begin_{name}")).replace("\n", "&#10;")
    return f'<button type="button" data-begin="{beginning}">{escape(say(language, f"task_{name}"))}</button>'
