"""Who is behind a gr.Request and in which language they read. The only place that looks into one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from appliance.access.person import Persons
from appliance.access.rights import Caller, caller_of
from appliance.base.errors import UnknownPerson
from appliance.chat.preferences import NO_WISHES, Wishes, take
from ui.words.messages import Language, language_of

if TYPE_CHECKING:
    import gradio as gr
    from fastapi import Request

LANGUAGE_HEADER: Final = "x-lang"
"""Set by page.js beside X-Tab: the language chosen with the switch, else the browser's."""

KEEP_HEADER: Final = "x-keep"
"""Set by the page's script when a sent message was edited: how many turns before it stay."""

WISHES_HEADER: Final = "x-wishes"
"""What the person wants of every answer, see preferences.py; kept in their browser."""


class SessionLink:
    """Reads the person from the signed cookie and the tab from its header."""

    def __init__(self, persons: Persons, preset_language: str = "auto", *, takes_wishes: bool = True) -> None:
        """`takes_wishes`: whether the owner lets people have wishes; without, those of a browser count for nothing."""
        self._persons = persons
        self.preset_language = preset_language
        self.takes_wishes = takes_wishes

    def identify(self, request: Request) -> tuple[str, str] | None:
        """Person and tab of a request, None for a stranger."""
        person = self._persons.of(request.cookies)
        tab = self._persons.tab_of(request.headers)
        return None if person is None or tab is None else (person, tab)

    def who(self, request: gr.Request) -> tuple[str, str]:
        """Person and tab of an event.

        Raises UnknownPerson: no valid cookie, or no tab.
        """
        identity = None if request.request is None else self.identify(request.request)
        if identity is None:
            raise UnknownPerson("no valid person cookie or tab id")
        return identity

    def caller(self, request: gr.Request) -> Caller:
        """What the request of an event proves of who asks.

        Raises UnknownPerson: Gradio gave no request.
        """
        if request.request is None:
            raise UnknownPerson("no request")
        return caller_of(request.request)

    @staticmethod
    def n_kept(request: gr.Request) -> int | None:
        """How many turns an edited question leaves standing; None for a question at the end."""
        value = "" if request.request is None else request.request.headers.get(KEEP_HEADER, "")
        return int(value) if value.isdecimal() and len(value) < 6 else None

    def wishes(self, request: gr.Request) -> Wishes:
        """What the person wants of the answer.

        Raises BadWishes.
        """
        if request.request is None or not self.takes_wishes:
            return NO_WISHES
        return take(request.request.headers.get(WISHES_HEADER, ""))

    def language(self, request: gr.Request) -> Language:
        """The language the sentences of this event are written in."""
        headers = {} if request.request is None else request.request.headers
        return language_of(headers.get(LANGUAGE_HEADER), headers.get("accept-language"), self.preset_language)
