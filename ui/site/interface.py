"""The page as a whole: builds the Blocks around a chat service and mounts it on our own web app."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import gradio as gr
import rjsmin
from starlette.middleware import Middleware

from ui.chat.handlers import ChatHandlers
from ui.chat.page import build_page
from ui.chat.queue_policy import QueuePolicy
from ui.chat.welcome import Offers
from ui.session_link import SessionLink
from ui.site.page_gate import PageEvents, PageGate, PageStreams
from ui.site.page_head import OwnHead
from ui.site.theme import make_theme
from ui.words.messages import LANGUAGES, SENTENCES, Language, say

if TYPE_CHECKING:
    from fastapi import FastAPI

    from appliance.access.person import Persons
    from appliance.access.rate_limits import RateLimits
    from appliance.chat.service import ChatService
    from appliance.settings.schema import Settings

ASSETS: Final = Path(__file__).parents[1] / "assets"
_MAX_STATES: Final = 256
"""Pages whose component states Gradio keeps, 65 KB each; left alone it keeps 10,000. Ours hold nothing of anybody."""
STYLES: Final = ("page.css", "history.css")
SCRIPTS: Final = ("browser.js", "page.js", "turns.js", "history.js")
"""In this order: the first says so where a browser is too old for the others, which are built on page.js."""

NOTHING_ELSE: Final[dict[str, Any]] = {
    "footer_links": [],
    "run_history": False,
    "show_error": False,
    "ssr_mode": False,
    "enable_monitoring": False,
    "mcp_server": False,
    "pwa": False,
    "max_file_size": 1,
}
"""What a page of ours is mounted with: none of what Gradio offers beside the page itself."""


@dataclass(frozen=True)
class Page:
    """The page and what ends it. `build` makes one, `mount` opens it."""

    demo: gr.Blocks
    policy: QueuePolicy
    streams: PageStreams
    link: SessionLink
    built: Language
    run: str
    """Which run of the program it belongs to."""

    def use(self, settings: Settings) -> None:
        """What is told to pages that are loaded from now on."""
        self.link.preset_language = settings.language
        self.link.takes_wishes = settings.own_wishes
        self.policy.keep_page_s = settings.session_ttl_s
        self.policy.resize(settings.n_engine_places)
        self.demo.config["head"] = head_html(settings, self.built, self.run)

    def send_waiters_away(self) -> None:
        """Tell everybody in line that nothing new is taken; the chat service must already refuse."""
        self.policy.let_all_start()

    async def close(self) -> None:
        """End every stream, once the pages have heard how their answers ended."""
        await self.streams.close()
        self.policy.close()


def build(chat: ChatService, settings: Settings, persons: Persons, limits: RateLimits) -> Page:
    """Make the page and its queue, and tell `chat` where people wait. Starts nothing."""
    link = SessionLink(persons, settings.language, takes_wishes=settings.own_wishes)
    policy = QueuePolicy(settings.n_engine_places, link.identify, settings.session_ttl_s)
    language = built_language(settings)
    demo = gr.Blocks(title=say(language, "title"), analytics_enabled=False)
    demo.state_session_capacity = _MAX_STATES  # at once: Gradio makes two holders of states that read it
    with demo:
        page = build_page(language, Offers.of(settings.starter_questions, settings.presets))
        handlers = ChatHandlers(chat, link, policy, limits, settings.max_input_chars)
        handlers.wire(page, demo)
    policy.open_queue(demo)
    chat.attach_page_queue(policy.waiting)
    return Page(demo, policy, PageStreams(policy.is_open), link, language, chat.watch.run)


def mount(app: FastAPI, built: Page, settings: Settings, persons: Persons) -> FastAPI:
    """Mount the page at "/" of `app`. Routes of our own must be on `app` already: later ones are shadowed."""
    app.add_middleware(OwnHead)
    gate = Middleware(PageGate, events=PageEvents.of(built.demo), streams=built.streams, persons=persons)
    mounted: FastAPI = gr.mount_gradio_app(
        app,
        built.demo,
        path="/",
        **NOTHING_ELSE,
        favicon_path=str(ASSETS / "icon.png"),
        theme=make_theme(),
        head=head_html(settings, built.built, built.run),
        app_kwargs={"openapi_url": None, "docs_url": None, "redoc_url": None, "middleware": [gate]},
    )
    return mounted


def built_language(settings: Settings) -> Language:
    """What the page is built in; page.js asks for the other one where the browser prefers it."""
    return "zh" if settings.language == "zh" else "en"


def head_html(settings: Settings, built: Language, run: str) -> str:
    """Style, script and the words the script needs. In the head, because a `js=` argument would need unsafe-eval.

    `built`: the language the page was built in, which it keeps whatever the settings say later. `run`: see `Page`.
    """
    page_words: dict[str, dict[str, Any]] = {
        language: {key: SENTENCES[language][key] for key in SENTENCES[language] if key.startswith("page_")}
        | {"title": say(language, "title")}
        for language in LANGUAGES
    }
    config = {
        "language": settings.language,
        "built": built,
        "words": page_words,
        "limit": settings.max_input_chars,
        "login": settings.access == "passcode",
        "wishes": settings.own_wishes,
        "run": run,
    }
    return "\n".join(
        (
            '<meta name="color-scheme" content="light dark">',
            f'<meta name="office-chat" content="{escape(json.dumps(config, ensure_ascii=False))}">',
            *(f"<style>{asset(name)}</style>" for name in STYLES),
            *(f"<script>{asset(name)}</script>" for name in SCRIPTS),
        )
    )


def asset(name: str) -> str:
    """A style sheet or script without the comments and white space, which only we read."""
    text = (ASSETS / name).read_text(encoding="utf-8")
    if name.endswith(".js"):
        return str(rjsmin.jsmin(text)).strip()
    return re.sub(r"/\*[\s\S]*?\*/|\n\s*", "", text).strip()
