"""Server-sent events, Gradio's differences, and what of the live component a person reads as the answer. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

_NOTE = re.compile(r'<div class="note[^"]*">.*?</div>', re.DOTALL)
_QUESTION_END = "</pre>"


def event_data(line: str) -> dict[str, Any] | None:
    """The JSON object of a `data:` line; None for every other line and for the end mark of OpenAI's streams."""
    if not line.startswith("data:"):
        return None
    text = line.removeprefix("data:").strip()
    if not text or text == "[DONE]":
        return None
    data = json.loads(text)
    return data if isinstance(data, dict) else None


def patched(text: str, edits: Sequence[Sequence[Any]]) -> str:
    """A text after Gradio's edits `[action, path, value]`; for a plain text the path is empty."""
    for action, path, value in edits:
        if path or action not in ("replace", "append"):
            raise ValueError(f"an edit that is none of a text: {action} at {path}")
        text = str(value) if action == "replace" else text + str(value)
    return text


class LiveText:
    """The value of a streaming output with one component: whole at first, then as edits."""

    def __init__(self) -> None:
        self.text = ""
        self._is_begun = False

    def take(self, message: dict[str, Any]) -> None:
        """A `process_generating` message."""
        (value,) = message["output"]["data"]
        if self._is_begun and isinstance(value, list):
            self.text = patched(self.text, value)
        elif isinstance(value, str):
            self.text = value
        self._is_begun = True


def visible_answer(live: str) -> str:
    """The answer's own text in the live component: without the question, the place in line and other notes."""
    _, found, rest = live.partition(_QUESTION_END)
    return _NOTE.sub("", rest).strip() if found else ""
