"""Takes the pictures of docs/admin.md: `python -m tests.browser.admin_screenshots docs`. To be looked at afterwards.

Three colleagues ask the starter model now and then for two minutes, so that the charts have something to show.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from playwright import sync_api

from tests.browser.conftest import FLAGS, HOST, page_url
from tests.browser.driver import Chat
from tests.browser.test_admin import Admin
from tests.system.program import Program

BUSY_S = 120.0
QUESTIONS = ("What is a good name for a meeting room?", "How do I ask for a day off?", "Three ideas for lunch?")


def main(folder: Path, busy_s: float = BUSY_S) -> None:
    """Start a program and a browser, and take them all."""
    with tempfile.TemporaryDirectory() as scratch, sync_api.sync_playwright() as playwright:
        app = Program(Path(scratch), allowed_hosts=HOST, quick_answers=True, yield_to_others=False).wait_ready()
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)

        def page(locale: str = "en-US", width: int = 1280, scheme: str = "light") -> sync_api.Page:
            context = browser.new_context(
                locale=locale, viewport={"width": width, "height": 900 if width > 600 else 740}, color_scheme=scheme
            )
            return context.new_page()

        def take(admin: Admin, name: str, *, whole: bool = False) -> None:
            admin.page.wait_for_timeout(600)
            admin.page.screenshot(path=folder / f"{name}.png", full_page=whole)

        try:
            ask_for_a_while([Chat(page(), page_url(app)).open() for _ in QUESTIONS], busy_s)
            for locale, width, scheme, suffix in (
                ("en-US", 1280, "light", ""),
                ("en-US", 1280, "dark", "-dark"),
                ("zh-CN", 1280, "light", "-zh"),
                ("zh-CN", 360, "light", "-phone"),
                ("en-US", 360, "dark", "-phone-dark"),
            ):
                opened = page(locale, width, scheme)
                opened.goto(app.owners_link("/admin"))
                admin = Admin(opened, app).ready()
                opened.wait_for_selector("#charts svg")
                for name in ("overview", "settings", "answers", "access", "log", "address", "models"):
                    take(admin.section(name), f"admin-{name}{suffix}", whole=name != "settings")
        finally:
            browser.close()
            app.close()


def ask_for_a_while(chats: list[Chat], busy_s: float) -> None:
    """Each asks again as soon as its answer is there."""
    ends_at_s = time.monotonic() + busy_s
    n_asked = 0
    while time.monotonic() < ends_at_s:
        for chat, question in zip(chats, QUESTIONS, strict=True):
            if chat.page.locator("html[data-chat=idle]").count():
                chat.send(f"{question} ({n_asked})")
                n_asked += 1
        chats[0].page.wait_for_timeout(1000)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else BUSY_S)
