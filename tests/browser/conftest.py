"""The real program with the echo engine, and a real Chromium in front of it.

The page is opened as http://office.test:<port>, a name mapped to this machine: like a LAN address, and unlike
localhost, that is no secure context.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright import sync_api

from tests.browser.driver import Chat, Visit
from tests.system.program import Program

HOST = "office.test"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    f"--host-resolver-rules=MAP {HOST} 127.0.0.1",
]
ROOMY: dict[str, object] = {"max_context_tokens": 2048, "max_answer_tokens": 512}
"""So that the echo of the longest message is not cut."""


class Programs:
    """Starts a program for each set of settings once and keeps it for the whole run: an idle one costs little."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[tuple[tuple[str, object], ...], Program] = {}

    def get(self, **settings: object) -> Program:
        """The program with these settings, ready to answer."""
        key = tuple(sorted(settings.items()))
        if key not in self._running:
            data_dir = self._folder / str(len(self._running))
            self._running[key] = Program(
                data_dir, **{"backend": "echo", "allowed_hosts": HOST, **settings}
            ).wait_ready()
        return self._running[key]

    def close(self) -> None:
        """End them all."""
        for program in self._running.values():
            program.close()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    running = Programs(tmp_path_factory.mktemp("programs"))
    yield running
    running.close()


@pytest.fixture(scope="module")  # not session: while Playwright runs, pytest-asyncio can run no test of another folder
def browser(chromium: str) -> Iterator[sync_api.Browser]:
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def app(programs: Programs) -> Program:
    """Sixteen answers at once, as by default; a short grace, so that a test leaves nothing to the next."""
    return programs.get(disconnect_grace_s=3, **ROOMY)


@pytest.fixture
def narrow_app(programs: Programs) -> Program:
    """One answer at a time, two questions waiting."""
    narrow = {"max_batch_size": 1, "look_ahead": 0, "queue_size": 2}
    return programs.get(**narrow, disconnect_grace_s=1, disconnect_grace_busy_s=1, **ROOMY)


@pytest.fixture
def short_app(programs: Programs) -> Program:
    """Answers of 24 characters and messages of 40."""
    return programs.get(max_answer_tokens=24, max_input_chars=40)


@pytest.fixture
def visit(browser: sync_api.Browser) -> Iterator[Visit]:
    """`visit(app, locale=…, width=…, height=…)` opens the page as somebody new, in a browser of their own."""
    contexts: list[sync_api.BrowserContext] = []
    chats: list[Chat] = []

    def open_page(app: Program, locale: str = "en-US", width: int = 1280, height: int = 800, **options: object) -> Chat:
        context = browser.new_context(locale=locale, viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        chat = Chat(context.new_page(), page_url(app)).open()
        chats.append(chat)
        return chat

    yield open_page
    for context in contexts:
        context.close()
    assert [error for chat in chats for error in chat.errors] == []


def page_url(app: Program) -> str:
    """The page under its LAN-like name."""
    return f"http://{HOST}:{app.port}/"
