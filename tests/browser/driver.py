"""Drives one open page the way a person would."""

from __future__ import annotations

import time
from collections.abc import Callable

from playwright import sync_api

SETTLE_S = 5.0
LONG = "This takes ten seconds to write. " * 15
"""As long as a message may be; the echo engine repeats some fifty characters a second."""


def settled(read: Callable[[], object], expected: object) -> None:
    """The page shows it, now or within five seconds: what the page draws, it draws a moment after it knows it."""
    deadline_s = time.monotonic() + SETTLE_S
    while (got := read()) != expected and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert got == expected


class Chat:
    """One open page, driven the way a person would."""

    def __init__(self, page: sync_api.Page, url: str) -> None:
        self.page = page
        self.url = url
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.set_default_timeout(15_000)

    def open(self) -> Chat:
        self.page.goto(self.url)
        return self.ready()

    def new_tab(self) -> Chat:
        """Another tab of the same browser, not opened yet."""
        return Chat(self.page.context.new_page(), self.url)

    def ready(self) -> Chat:
        self.page.wait_for_selector("html[data-ready=yes]")
        return self

    @property
    def box(self) -> sync_api.Locator:
        return self.page.locator("#box textarea")

    def send(self, text: str) -> None:
        self.box.fill(text)
        self.box.press("Enter")

    def ask(self, text: str) -> str:
        """Send, wait for the end, give the answer."""
        n_before = len(self.answers())
        self.send(text)
        return self.wait_answered(n_before + 1)

    def wait_answered(self, n_answers: int = 1) -> str:
        """Until that many answers are finished; gives the last. A short one is over before `writing` can be seen."""
        self.page.locator("#conversation .bot-row").nth(n_answers - 1).wait_for()
        self.wait_for("idle")
        return self.answers()[-1]

    def wait_for(self, state: str, timeout_s: float = 20) -> None:
        """idle, waiting or writing."""
        self.page.wait_for_selector(f"html[data-chat={state}]", timeout=timeout_s * 1000)

    def wait_writing_text(self) -> None:
        """Until the first words of the running answer are there."""
        self.page.wait_for_selector("#live :is(p, li)")

    def state(self) -> str:
        return str(self.page.evaluate("document.documentElement.dataset.chat"))

    def questions(self) -> list[str]:
        """What stands in the bubbles of the person, the running one included."""
        return self.page.locator("pre.said:visible").all_inner_texts()

    def answers(self) -> list[str]:
        return [text.strip() for text in self.page.locator("#conversation .bot-row").all_inner_texts()]

    def live(self) -> str:
        return self.page.locator("#live").inner_text().strip()

    def click(self, name: str) -> None:
        self.page.click(f"#{name}")

    def is_visible(self, name: str) -> bool:
        return self.page.locator(f"#{name}").is_visible()

    def shows(self, name: str) -> None:
        sync_api.expect(self.page.locator(f"#{name}")).to_be_visible()

    def hides(self, name: str) -> None:
        sync_api.expect(self.page.locator(f"#{name}")).to_be_hidden()

    def refusal(self) -> str:
        """The sentence above the box."""
        return self.page.locator("#box div.validation-error").inner_text()

    def wait_until(self, condition: str, timeout_s: float = 15) -> None:
        """Until a JavaScript expression is true. A function, because our policy forbids evaluating text."""
        self.page.wait_for_function(f"() => {condition}", timeout=timeout_s * 1000)

    def js(self, script: str) -> object:
        return self.page.evaluate(script)


Visit = Callable[..., Chat]
