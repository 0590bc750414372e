"""The first run on the PC itself: language, admin password, model, self-test. Plain pages with forms, no script.

Every step is a page of its own that can be opened again at any time, skipped, and left half way: nothing depends on its
having been done. Only the admin gets here; until a password is set that is whoever sits at this PC.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final, Literal, get_args
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from appliance.access.logins import COOKIE_NAME, KEPT_BY_BROWSER_S
from appliance.access.passwords import MAX_CHARS, MIN_CHARS, PasswordError
from appliance.access.rights import Access
from appliance.base.errors import SettingsError
from appliance.models.model_library import Entry, ModelLibrary, quality_of
from appliance.network.front_door import FrontDoor, qr_picture
from appliance.operate.self_test import SelfTest
from ui.admin.models import download_html, news_html
from ui.site.forms import read_form
from ui.words.messages import LANGUAGES, Language, language_of, say, size_text
from ui.words.self_test import state_html, verdict_html

if TYPE_CHECKING:
    from appliance.lifecycle import Appliance

_log = logging.getLogger(__name__)

PATH: Final = "/admin/first-run"
Step = Literal["language", "password", "model", "test"]
STEPS: Final[tuple[Step, ...]] = get_args(Step)
_LOOK_AGAIN_S: Final = 2
_HEADERS: Final = {
    "cache-control": "no-store",
    # With "no-referrer", as everywhere else, browsers send a form with "Origin: null".
    "referrer-policy": "same-origin",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
}
_CHOICES: Final = ("auto", *LANGUAGES)


@dataclass(frozen=True)
class FirstRunParts:
    """What of the program the steps show and change."""

    access: Access
    library: ModelLibrary
    self_test: SelfTest
    door: FrontDoor
    language: Callable[[], str]
    """The present setting `language`."""
    save_language: Callable[[str], Awaitable[None]]
    """Raises SettingsError where it cannot be changed, OSError of the disk."""
    finish: Callable[[], None]
    """Called when the owner is through: the next start opens the chat."""


def parts_of(appliance: Appliance) -> FirstRunParts:
    """Of a whole program."""

    async def save_language(language: str) -> None:
        await appliance.store.save({"language": language}, {})

    def language() -> str:
        return appliance.store.in_force.language

    return FirstRunParts(
        appliance.access,
        appliance.models,
        appliance.self_test,
        appliance.door,
        language,
        save_language,
        appliance.finish_first_run,
    )


def make_first_run_router(house: FirstRunParts) -> APIRouter:
    """`/admin/first-run`, its step and language in the query."""
    pages = FirstRun(house)
    router = APIRouter()
    router.add_api_route(PATH, pages.show, methods=["GET"])
    router.add_api_route(PATH, pages.act, methods=["POST"])
    return router


class FirstRun:
    """One method a step, and one an action."""

    def __init__(self, house: FirstRunParts) -> None:
        self._house = house
        self._template = Template((Path(__file__).parents[1] / "assets" / "first_run.html").read_text(encoding="utf-8"))

    async def show(self, request: Request) -> Response:
        """A step as it is now."""
        return await self._page(request, _step(request), self._language(request))

    async def act(self, request: Request) -> Response:
        """Do what was pressed, then show the step it leads to."""
        step, language, form = _step(request), self._language(request), await read_form(request)
        match form.get("action"):
            case "language":
                return await self._set_language(request, form.get("language", ""), language)
            case "password":
                return await self._set_password(request, form, language)
            case "use":
                await self._house.library.begin_change(form.get("model", ""))
            case "download":
                self._house.library.begin_download(form.get("file", ""))
                await asyncio.sleep(0)  # it notes that it runs
            case "stop_download":
                self._house.library.download.stop()
            case "test":
                self._house.self_test.begin(tune=form.get("tune") == "on")
            case "stop_test":
                self._house.self_test.stop()
            case "finish":
                await asyncio.to_thread(self._house.finish)
                return _go_to("/")
        return _go_to(_address(step, language))

    async def _set_language(self, request: Request, chosen: str, language: Language) -> Response:
        if chosen not in _CHOICES:
            return _go_to(_address("language", language))
        # The rest of the steps in the language that was chosen.
        shown = language_of(chosen, request.headers.get("accept-language"))
        if chosen != self._house.language():
            try:
                await self._house.save_language(chosen)
            except SettingsError:
                return await self._page(request, "language", shown, say(shown, "first_language_locked"))
            except OSError as error:
                _log.error("the language cannot be saved (%s)", error.strerror)
                return await self._page(request, "language", shown, say(shown, "first_language_unsaved"))
        return _go_to(_address("password", shown))

    async def _set_password(self, request: Request, form: dict[str, str], language: Language) -> Response:
        passwords = self._house.access.passwords
        if passwords.is_set("admin"):  # another one takes the present one, which the admin page asks for
            return _go_to(_address("model", language))
        text = form.get("password", "")
        if text != form.get("again", ""):
            return await self._page(request, "password", language, say(language, "first_password_differ"))
        try:
            await asyncio.to_thread(passwords.set, "admin", text)
        except PasswordError:
            problem = say(language, "first_password_length", least=MIN_CHARS["admin"], most=MAX_CHARS)
            return await self._page(request, "password", language, problem)
        response = _go_to(_address("model", language))
        ticket = self._house.access.logins.issue("admin")
        response.set_cookie(COOKIE_NAME, ticket, max_age=KEPT_BY_BROWSER_S, httponly=True, samesite="lax")
        return response

    def _language(self, request: Request) -> Language:
        wanted, accepted = request.query_params.get("lang"), request.headers.get("accept-language")
        return language_of(wanted, accepted, self._house.language())

    async def _page(self, request: Request, step: Step, language: Language, problem: str = "") -> HTMLResponse:
        bodies = {
            "language": self._language_html,
            "password": self._password_html,
            "model": self._model_html,
            "test": self._test_html,
        }
        body = await bodies[step](language)
        alert = f'<p role="alert">{escape(problem)}</p>' if problem else ""
        number = STEPS.index(step) + 1
        words = {
            "lang": "zh-CN" if language == "zh" else "en",
            "title": say(language, "first_title"),
            "step": say(language, "first_step", n=number, of=len(STEPS)),
            "heading": say(language, f"first_{step}"),
            "detail": say(language, f"first_{step}_detail", **_blanks(step)),
        }
        parts = {
            "refresh": f'<meta http-equiv="refresh" content="{_LOOK_AGAIN_S}">' if self._goes_on(step) else "",
            "body": alert + body,
            "ways": _ways_html(step, language, is_last=step == "test" and self._house.self_test.verdict is not None),
        }
        html = self._template.substitute({key: escape(value) for key, value in words.items()} | parts)
        return HTMLResponse(html, status_code=422 if problem else 200, headers=_HEADERS)

    def _goes_on(self, step: Step) -> bool:
        """Whether something is on its way that the page should look at again by itself."""
        library = self._house.library
        if step == "model":
            return library.is_at_work
        return step == "test" and self._house.self_test.state.is_running

    async def _language_html(self, language: Language) -> str:
        present = self._house.language()
        choices = (_radio("language", c, say(language, f"first_language_{c}"), is_on=c == present) for c in _CHOICES)
        return _form("language", language, "".join(choices) + _button("language", say(language, "first_next")))

    async def _password_html(self, language: Language) -> str:
        if self._house.access.passwords.is_set("admin"):
            sentence = escape(say(language, "first_password_set"))
            return f"<p>{sentence}</p>{_link('model', language, say(language, 'first_next'))}"
        fields = "".join(
            f'<label>{escape(say(language, key))}<input type="password" name="{name}" maxlength="{MAX_CHARS}" '
            f'autocomplete="new-password" required></label>'
            for name, key in (("password", "first_password_label"), ("again", "first_password_again"))
        )
        return _form("password", language, fields + _button("password", say(language, "first_next")))

    async def _model_html(self, language: Language) -> str:
        library = self._house.library
        entries = await asyncio.to_thread(library.entries)
        able = [entry for entry in entries if entry.problem is None]
        news = news_html(language, library.news) or download_html(language, library.download.state)
        parts = [news]
        if len(able) > 1:
            choices = "".join(_radio("model", e.key, e.name, _about(language, e), is_on=e.answers) for e in able)
            parts.append(_form("model", language, choices + _button("use", say(language, "first_model_use"), "second")))
        else:
            parts += [f"<p>{escape(e.name)}<small>{escape(_about(language, e))}</small></p>" for e in able]
        if library.download.state.is_running:
            parts.append(
                _form("model", language, _button("stop_download", say(language, "first_model_stop"), "second"))
            )
        else:
            for offer in library.offers():
                words = say(language, "first_model_download", size=size_text(offer.size_bytes))
                quality = escape(say(language, f"model_quality_{quality_of(offer.n_weights)}"))
                name = escape(f"{offer.file.removesuffix('.gguf')}, {offer.licence}")
                name = f"<p>{name}<small>{quality}</small></p>"
                hidden = f'<input type="hidden" name="file" value="{escape(offer.file)}">'
                parts.append(_form("model", language, name + hidden + _button("download", words, "second")))
        parts.append(f'<p class="soft">{escape(say(language, "first_model_more"))}</p>')
        return "".join([*parts, _link("test", language, say(language, "first_next"))])

    async def _test_html(self, language: Language) -> str:
        test = self._house.self_test
        parts = [state_html(language, test.state)]
        if test.state.is_running:
            parts.append(_form("test", language, _button("stop_test", say(language, "first_test_stop"), "second")))
            return "".join(parts)
        if test.verdict is not None:
            parts.append(verdict_html(language, test.verdict, is_of_this_model=test.is_of_this_model))
        tune = f'<label><input type="checkbox" name="tune" checked>{escape(say(language, "first_test_tune"))}</label>'
        begin = say(language, "first_test_again" if test.verdict is not None else "first_test_begin")
        kind = "second" if test.verdict is not None else ""
        parts.append(_form("test", language, tune + _button("test", begin, kind)))
        if test.verdict is not None:
            parts.append(await self._address_html(language))
            parts.append(_form("test", language, _button("finish", say(language, "first_finish"))))
        return "".join(parts)

    async def _address_html(self, language: Language) -> str:
        view = await asyncio.to_thread(self._house.door.look)
        if not view.url:
            return ""
        described = escape(say(language, "door_qr", url=view.url))
        return (
            f"<h2>{escape(say(language, 'first_hand_out'))}</h2>"
            f'<p class="address">{escape(view.url)}</p><img src="{qr_picture(view.url)}" alt="{described}">'
        )


def _blanks(step: Step) -> dict[str, object]:
    return {"least": MIN_CHARS["admin"]} if step == "password" else {}


def _about(language: Language, entry: Entry) -> str:
    assert entry.facts is not None
    mark = f"({say(language, 'models_answers')}) " if entry.answers else ""
    quality = mark + say(language, f"model_quality_{quality_of(entry.facts.n_weights)}")
    room = "" if entry.fits else " " + say(language, "models_no_room", size=size_text(entry.memory_bytes))
    return f"{quality} {size_text(entry.facts.size_bytes)}{room}"


def _ways_html(step: Step, language: Language, *, is_last: bool) -> str:
    """Where else to go from here: on, out, and to the other language."""
    number = STEPS.index(step)
    ways = []
    if number + 1 < len(STEPS):
        ways.append(
            f'<a href="{escape(_address(STEPS[number + 1], language))}">{escape(say(language, "first_skip"))}</a>'
        )
    other: Language = "en" if language == "zh" else "zh"
    lang = "zh-CN" if other == "zh" else "en"
    ways.append(
        f'<a href="{escape(_address(step, other))}" lang="{lang}">{escape(say(language, "switch_language"))}</a>'
    )
    leave = "" if is_last else _form(step, language, _button("finish", say(language, "first_skip_all"), "second"))
    return f'{"".join(ways)}<span class="soft">{escape(say(language, "first_later"))}</span>{leave}'


def _form(step: Step, language: Language, inner: str) -> str:
    return f'<form method="post" action="{escape(_address(step, language))}">{inner}</form>'


def _button(action: str, words: str, kind: str = "") -> str:
    return f'<button name="action" value="{action}" class="{kind}">{escape(words)}</button>'


def _link(step: Step, language: Language, words: str) -> str:
    return f'<a class="button" href="{escape(_address(step, language))}">{escape(words)}</a>'


def _radio(name: str, value: str, words: str, about: str = "", *, is_on: bool = False) -> str:
    small = f"<small>{escape(about)}</small>" if about else ""
    checked = "checked" if is_on else ""
    return f'<label><input type="radio" name="{name}" value="{escape(value)}" {checked}>{escape(words)}{small}</label>'


def _step(request: Request) -> Step:
    wanted = request.query_params.get("step")
    return next((step for step in STEPS if step == wanted), STEPS[0])


def _address(step: Step, language: Language) -> str:
    return f"{PATH}?{urlencode({'step': step, 'lang': language})}"


def _go_to(path: str) -> RedirectResponse:
    return RedirectResponse(path, status_code=303, headers={"cache-control": "no-store"})
