"""The way in and out: the login page for colleagues and for the admin, without Gradio and without any script.

Its answer is a cookie and the page that was wanted. Wrong passwords are said on the page itself, and slowed down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from html import escape
from pathlib import Path
from string import Template
from typing import Final
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from appliance.access.logins import COOKIE_NAME, KEPT_BY_BROWSER_S
from appliance.access.passwords import Role
from appliance.access.rate_limits import RateLimits
from appliance.access.rights import Access, caller_of
from appliance.access.this_pc import COOKIE_NAME as THIS_PC_COOKIE
from appliance.access.this_pc import KEPT_BY_BROWSER_S as BROWSER_KEEPS_IT_S
from appliance.access.this_pc import PATH as HERE
from appliance.base.errors import Refused, StartFailed, TooFast
from appliance.network.hosts import local_path
from ui.site.forms import read_form
from ui.words.messages import Language, language_of, say

_log = logging.getLogger(__name__)

_PATHS: Final[dict[Role, str]] = {"person": "/login", "admin": "/admin/login"}
_HEADERS: Final = {
    "cache-control": "no-store",
    # With "no-referrer", as everywhere else, browsers send a form with "Origin: null".
    "referrer-policy": "same-origin",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
}


def _auto() -> str:
    return "auto"


def make_login_router(access: Access, limits: RateLimits, preset_language: Callable[[], str] = _auto) -> APIRouter:
    """Login, logout, and the first of the routes behind the admin's door."""
    page = LoginPage(access, limits, preset_language)
    router = APIRouter()
    router.add_api_route("/login", page.show, methods=["GET"])
    router.add_api_route("/login", page.enter, methods=["POST"])
    router.add_api_route("/admin/login", page.show, methods=["GET"])
    router.add_api_route("/admin/login", page.enter, methods=["POST"])
    router.add_api_route("/logout", page.leave, methods=["POST"])
    router.add_api_route(HERE, page.follow, methods=["GET"])

    @router.get("/admin/status")
    async def status() -> JSONResponse:
        state = {
            "access": access.mode,
            "passcode_set": access.passwords.is_set("person"),
            "admin_password_set": access.passwords.is_set("admin"),
            "n_api_keys": len(access.keys.listed()),
        }
        return JSONResponse(state, headers={"cache-control": "no-store"})

    return router


class LoginPage:
    """One method a route."""

    def __init__(self, access: Access, limits: RateLimits, preset_language: Callable[[], str]) -> None:
        self._access = access
        self._limits = limits
        self._preset_language = preset_language
        self._template = Template((Path(__file__).parents[1] / "assets" / "login.html").read_text(encoding="utf-8"))

    async def show(self, request: Request) -> Response:
        """The empty form, or where it would lead whoever needs none."""
        wanted = local_path(request.query_params.get("next", "/"))
        if self._is_in(_role(request), request):
            return _go_to(wanted)
        return self._page(request, dict(request.query_params))

    async def enter(self, request: Request) -> Response:
        """Check the password; with the right one set the cookie and go where the person wanted to."""
        role, form, caller = _role(request), await read_form(request), caller_of(request)
        if not self._access.passwords.is_set(role) or (role == "person" and self._access.mode == "open"):
            return self._page(request, form)
        browser = self._access.logins.knew(role, request.cookies)
        try:
            may_try = partial(self._limits.check_guess, role, caller, browser)
            may_try()
            is_right = await self._access.passwords.matches(role, form.get("password", ""), may_try)
        except Refused as refusal:
            language = self._language(request, form)
            seconds = {"retry-after": str(refusal.wait_s)} if isinstance(refusal, TooFast) else {"retry-after": "5"}
            status = 429 if isinstance(refusal, TooFast) else 503
            sentence = say(language, f"login_{refusal.code}", **refusal.values)
            return self._page(request, form, sentence, status, seconds)
        if not is_right:
            self._limits.wrong_guess(role, caller, browser)
            _log.info("a login as %s failed, from %s", role, caller.address)
            return self._page(request, form, say(self._language(request, form), "login_wrong"), 403)
        response = _go_to(local_path(form.get("next", "/")))
        response.set_cookie(
            COOKIE_NAME, self._access.logins.issue(role), max_age=KEPT_BY_BROWSER_S, httponly=True, samesite="lax"
        )
        return response

    async def follow(self, request: Request) -> Response:
        """A link that the program has opened or printed: this browser on this PC is the owner's from now on."""
        given, caller = dict(request.query_params), caller_of(request)
        cookie = None
        try:
            if caller.is_loopback:
                cookie = await asyncio.to_thread(self._access.this_pc.take, given.get("token", ""))
        except StartFailed as error:
            _log.error("a link could not be taken: %s", error)
        if cookie is None and not caller.is_this_pc:
            detail = "login_link_used" if caller.is_loopback else "login_link_elsewhere"
            return self._page(request, {"next": "/admin"}, status=403, detail=detail)
        response = _go_to(local_path(given.get("next", "/")))
        if cookie is not None:
            response.set_cookie(THIS_PC_COOKIE, cookie, max_age=BROWSER_KEEPS_IT_S, httponly=True, samesite="lax")
        return response

    async def leave(self, request: Request) -> Response:
        """End this login for good, also where its cookie has been copied to."""
        login = caller_of(request).login
        try:
            if login is not None:
                await asyncio.to_thread(self._access.logins.end, login)
        except StartFailed as error:
            _log.error("a logout could not be written down: %s", error)
        response = _go_to("/")
        response.delete_cookie(COOKIE_NAME, httponly=True, samesite="lax")
        return response

    def _is_in(self, role: Role, request: Request) -> bool:
        caller = caller_of(request)
        if role == "admin":
            return caller.is_admin
        return self._access.mode == "open" or caller.login is not None

    def _language(self, request: Request, given: dict[str, str]) -> Language:
        return language_of(given.get("lang"), request.headers.get("accept-language"), self._preset_language())

    def _page(
        self,
        request: Request,
        given: dict[str, str],
        problem: str = "",
        status: int = 200,
        headers: dict[str, str] | None = None,
        detail: str = "",
    ) -> HTMLResponse:
        """The form with what stood in it, but for the password. `detail`: names what is said instead of the usual."""
        role, language = _role(request), self._language(request, given)
        other: Language = "en" if language == "zh" else "zh"
        wanted = local_path(given.get("next", "/"))
        needs_setting = role == "admin" and not self._access.passwords.is_set("admin")
        words = {
            "lang": _lang(language),
            "heading": say(language, f"login_{role}"),
            "detail": say(language, detail or ("login_admin_unset" if needs_setting else f"login_{role}_detail")),
            "label": say(language, f"login_{role}_label"),
            "button": say(language, "login_button"),
            "action": _PATHS[role],
            "next": wanted,
            "chosen": language if given.get("lang") else "",
            "other_href": f"{_PATHS[role]}?{urlencode({'next': wanted, 'lang': other})}",
            "other_lang": _lang(other),
            "other_language": say(language, "switch_language"),
        }
        marks = {
            "hidden": "hidden" if needs_setting else "",
            "described": 'aria-invalid="true" aria-describedby="problem"' if problem else "",
            "problem": f'<p class="problem" id="problem" role="alert">{escape(problem)}</p>' if problem else "",
        }
        html = self._template.substitute({key: escape(value) for key, value in words.items()} | marks)
        return HTMLResponse(html, status_code=status, headers={**_HEADERS, **(headers or {})})


def _role(request: Request) -> Role:
    return "admin" if request.url.path in (_PATHS["admin"], HERE) else "person"


def _lang(language: Language) -> str:
    return "zh-CN" if language == "zh" else "en"


def _go_to(path: str) -> RedirectResponse:
    return RedirectResponse(path, status_code=303, headers={"cache-control": "no-store"})
