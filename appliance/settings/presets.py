"""The tasks offered on the empty page: ours by their names, the owner's by name and beginning."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_COLON: Final = re.compile("[:：]")


@dataclass(frozen=True)
class Preset:
    """A task. `beginning` goes into the box, to be completed; empty for one of ours, whose words the page knows."""

    name: str
    beginning: str = ""


PRESETS: Final = tuple(Preset(name) for name in ("weekly", "sql", "translate", "explain", "titles"))
"""Ours: weekly report, SQL helper, translate, explain code, title ideas."""


def parse_presets(text: str) -> tuple[Preset, ...] | None:
    """Those of a list like "weekly | sql | Our tone: Rewrite this in our tone"; None where one cannot be read."""
    presets = []
    for part in filter(None, (part.strip() for part in text.split("|"))):
        pieces = [piece.strip() for piece in _COLON.split(part, maxsplit=1)]
        if not all(pieces) or (len(pieces) == 1 and Preset(part) not in PRESETS):
            return None
        presets.append(Preset(*pieces))
    return tuple(presets)
