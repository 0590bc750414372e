"""The admin page: its sections in order, one Gradio Blocks a language, and how it is reached under /admin.

It is built at its first request, beside the event loop: the chat page's start does not wait for a page that one person
opens now and then. Everything under /admin passes the doorkeeper, which lets nobody but the admin through.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

import gradio as gr
from fastapi import APIRouter, FastAPI
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse

from ui.admin import access as admin_access
from ui.admin import answers as admin_answers
from ui.admin import front_door as front_door_section
from ui.admin import log as admin_log
from ui.admin import models as models_section
from ui.admin import overview as admin_overview
from ui.admin import settings as admin_settings
from ui.admin.first_run import PATH as FIRST_RUN
from ui.admin.section import SectionContext, words
from ui.session_link import SessionLink
from ui.site.interface import NOTHING_ELSE, asset
from ui.site.page_gate import PageEvents, PageGate
from ui.site.theme import make_theme
from ui.words.admin_messages import SENTENCES, tell
from ui.words.messages import LANGUAGES, Language, language_of

if TYPE_CHECKING:
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Receive, Scope, Send

    from appliance.lifecycle import Appliance

PATH: Final = "/admin"
_MAX_STATES: Final = 32
"""Pages whose component states Gradio keeps."""


@dataclass(frozen=True)
class Section:
    """One tab. `name` is its sentence in admin_messages.py, its element id and its address after the #."""

    name: str
    build: Callable[[SectionContext], None]


def _build_address(context: SectionContext) -> None:
    link = SessionLink(context.appliance.persons, context.language)
    section = front_door_section.build(context.language)
    front_door_section.FrontDoorHandlers(context.appliance.door, link).wire(section, context.demo)


def _build_models(context: SectionContext) -> None:
    link = SessionLink(context.appliance.persons, context.language)
    with gr.Column(elem_classes=["part", "models"]):
        to_test = escape(f"{FIRST_RUN}?step=test&lang={context.language}")
        words(f'<p><a href="{to_test}">{escape(context.tell("to_self_test"))}</a></p>', "heading")
        section = models_section.build(context.language)
    models_section.ModelsHandlers(context.appliance.models, link).wire(section, context.demo)


SECTIONS: Final = (
    Section("overview", admin_overview.build),
    Section("address", _build_address),
    Section("models", _build_models),
    Section("settings", admin_settings.build),
    Section("answers", admin_answers.build),
    Section("access", admin_access.build),
    Section("log", admin_log.build),
)


def build(appliance: Appliance, language: Language, sections: Sequence[Section] = SECTIONS) -> gr.Blocks:
    """The page in one language. Starts nothing."""
    demo = gr.Blocks(title=tell(language, "title"), analytics_enabled=False)
    with demo:
        demo.state_session_capacity = _MAX_STATES
        context = SectionContext(appliance, language, demo)
        words(_top_html(language), "top", "top")
        with gr.Tabs(elem_id="sections", overflow_behavior="wrap"):
            for section in sections:
                with gr.Tab(context.tell(section.name), id=section.name, elem_id=f"section-{section.name}"):
                    section.build(context)
    demo.queue(api_open=False)
    return demo


class AdminPages:
    """The ASGI app under /admin: /admin/en/ and /admin/zh/, each built when it is first asked for."""

    def __init__(self, appliance: Appliance, language: Callable[[], str]) -> None:
        """`language`: the owner's preset, "auto" for the browser's."""
        self._appliance = appliance
        self._preset = language
        self._apps: dict[Language, FastAPI] = {}
        self._one_at_a_time = asyncio.Lock()

    @property
    def routes(self) -> list[BaseRoute]:
        """Of what is built."""
        return [route for app in self._apps.values() for route in app.routes]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on to the page of the language that is asked for."""
        name = scope["path"].removeprefix(PATH + "/").partition("/")[0]
        language = next((language for language in LANGUAGES if language == name), None)
        app: ASGIApp = self.entry(Request(scope)) if language is None else await self._built(language)
        await app(scope, receive, send)

    def entry(self, request: Request) -> RedirectResponse:
        """To the page in the reader's language."""
        language = language_of(None, request.headers.get("accept-language"), self._preset())
        return RedirectResponse(f"{PATH}/{language}/", status_code=303, headers={"cache-control": "no-store"})

    def build(self, language: Language) -> gr.Blocks:
        """Build a page and open it. Takes some tenths of a second."""
        demo = build(self._appliance, language)
        gate = Middleware(PageGate, events=PageEvents.of(demo), streams=None, persons=None, at=f"{PATH}/{language}")
        app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
        gr.mount_gradio_app(
            app,
            demo,
            path=f"/{language}",
            **NOTHING_ELSE,
            theme=make_theme(),
            head=_head_html(language),
            app_kwargs={"openapi_url": None, "docs_url": None, "redoc_url": None, "middleware": [gate]},
        )
        self._apps[language] = app
        return demo

    async def _built(self, language: Language) -> FastAPI:
        async with self._one_at_a_time:
            if language not in self._apps:
                await asyncio.to_thread(self.build, language)
        return self._apps[language]


def mount(app: FastAPI, appliance: Appliance, language: Callable[[], str]) -> AdminPages:
    """Open the admin page on `app`. The chat page, which is at "/", must come after it."""
    pages = AdminPages(appliance, language)
    router = APIRouter()
    router.add_api_route(PATH, pages.entry, methods=["GET"])
    app.include_router(router)
    app.include_router(admin_settings.make_settings_router(appliance.admin_service))
    app.mount(PATH, pages)
    return pages


def _top_html(language: Language) -> str:
    other: Language = "en" if language == "zh" else "zh"
    return (
        f'<div class="bar"><h1>{escape(tell(language, "heading"))}</h1><nav>'
        f'<a href="/">{escape(tell(language, "to_chat"))}</a>'
        f'<a href="{PATH}/{other}/" lang="{other}">{escape(tell(language, "switch_language"))}</a>'
        f'<form method="post" action="/logout"><button>{escape(tell(language, "log_out"))}</button></form>'
        "</nav></div>"
    )


def _head_html(language: Language) -> str:
    """Style, script and the words the script needs, as on the chat page."""
    sentences = {key: text for key, text in SENTENCES[language].items() if key.startswith("js_")}
    config = json.dumps({"language": language, "words": sentences}, ensure_ascii=False)
    return "\n".join(
        (
            '<meta name="color-scheme" content="light dark">',
            f'<meta name="office-chat-admin" content="{escape(config)}">',
            f"<style>{asset('admin.css')}</style>",
            f"<script>{asset('admin.js')}</script>",
            f"<script>{asset('upload.js')}</script>",
        )
    )
