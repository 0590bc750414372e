"""When two requests ask the same, so that one answer does for both. Knows the rules, keeps nothing."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict
from typing import Literal

from appliance.engine.request import Message, Request

Scope = Literal["off", "first", "all"]

_WIDE = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}
_BLANKS = re.compile(r"[^\S\n]+")


class CacheKeys:
    """The digest of everything an answer depends on."""

    def __init__(self, scope: Scope, system_prompt: str, settings_digest: str) -> None:
        """`settings_digest` names the settings an answer depends on beside the request."""
        self._scope = scope
        self._system_prompt = system_prompt
        self._settings_digest = settings_digest

    def is_ours(self, request: Request) -> bool:
        """Whether it is answered under the owner's system prompt: what a program brings its own for is its own."""
        return request.messages[0] == Message("system", self._system_prompt)

    def is_first(self, request: Request) -> bool:
        """Whether it is a conversation's first question."""
        return [message.role for message in request.messages] == ["system", "user"]

    def digest(self, request: Request, model_fingerprint: str) -> str:
        """Equal for requests that one answer does for; empty for one whose answer is its person's alone.

        Two texts are the same if they differ in width and spaces only: case and punctuation can change the meaning.
        """
        if self._scope == "off" or not model_fingerprint or request.messages[-1].role != "user":
            return ""
        if self._scope == "first" and not (self.is_first(request) and self.is_ours(request)):
            return ""
        parts = [
            model_fingerprint,
            self._settings_digest,
            [[message.role, _normalised(message.text)] for message in request.messages],
            asdict(request.sampling),
            request.stop,
            request.max_tokens,
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _normalised(text: str) -> str:
    """Wide forms as ASCII, and on a single line runs of blanks as one space; several lines may be code."""
    text = text.translate(_WIDE).strip()
    return text if "\n" in text else _BLANKS.sub(" ", text)
