"""The page in a real browser: when one can type, and whether a long conversation makes the text come later."""

from __future__ import annotations

import argparse
import json
import shutil
from typing import TYPE_CHECKING

from bench.command import Bench
from bench.interleave import progress
from bench.program import Program
from bench.questions import Questions
from bench.results import Findings, Row
from bench.stats import Target, percentile

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAME = "page-speed"
HELP = "in Chromium: page load to typing; how late streamed text is drawn after 40 turns, against a fresh conversation"

_TYPING = Target(at_most=1.2)
_LAG = Target(at_most=1.25)
_SCRIPTS_KB = Target(at_most=30)
_CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
_SETTINGS = {"backend": "echo", "max_input_chars": 2000, "max_answer_tokens": 2000, "max_context_tokens": 8192}
"""The echo engine, whose speed is known: what is measured is page and browser, not the model."""

_WATCH_TYPING = """(() => {
  const look = () => {
    const box = document.querySelector("#box textarea");
    if (!window.typingAt && document.documentElement?.dataset.ready === "yes" && box && !box.readOnly && !box.disabled)
      window.typingAt = performance.now();
    else requestAnimationFrame(look);
  };
  look();
  const read = ReadableStreamDefaultReader.prototype.read;
  ReadableStreamDefaultReader.prototype.read = async function () {
    const got = await read.call(this);
    if (got.value) window.arrivedAt = performance.now();
    return got;
  };
})()"""
"""Notes when one can type, and when bytes of an answer arrived last. Runs before any script of the page."""
_WATCH_LAG = """() => {
  window.lags = [];
  let isDue = false;
  new MutationObserver(() => {
    if (isDue || !window.arrivedAt) return;
    isDue = true;
    const arrivedAt = window.arrivedAt;
    requestAnimationFrame(() => { isDue = false; window.lags.push(performance.now() - arrivedAt); });
  }).observe(document.querySelector("#live"), {childList: true, subtree: true, characterData: true});
}"""
"""From the bytes of an update to the frame it is drawn in, ms; one for each frame that shows something new."""
_SCRIPTS = """() => Array.from(document.querySelectorAll("head script:not([src])"), (script) => script.textContent)
  .filter((text) => /office-?chat/i.test(text) && !text.includes("gradio_config =")).join("").length"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How long the long one is."""
    parser.add_argument("--turns", type=int, default=40, help="of the long conversation (default: %(default)s)")
    parser.add_argument("--chars", type=int, default=600, help="of the answer that is streamed (default: %(default)s)")


def run(bench: Bench) -> Findings:
    """Measure."""
    from playwright.sync_api import sync_playwright  # the program itself needs no browser

    chromium = next(filter(None, map(shutil.which, _CHROMIUMS)), None)
    if chromium is None:
        raise SystemExit("no Chromium on PATH: run `make test`, which sets one up")
    questions = Questions(bench.seed)
    first_s: list[float] = []
    again_s: list[float] = []
    fresh: list[list[float]] = []
    long: list[list[float]] = []
    n_bytes = 0
    with Program(bench.model, _SETTINGS) as program, sync_playwright() as playwright:
        program.wait_ready()
        browser = playwright.chromium.launch(executable_path=chromium, args=list(_FLAGS))
        for repeat in range(bench.n_repeats):
            progress(f"repeat {repeat + 1} of {bench.n_repeats}")
            page = _new_page(browser)
            first_s.append(_typing_s(page, program.url))
            again_s.append(_typing_s(page, program.url))
            n_bytes = int(page.evaluate(_SCRIPTS))
            fresh.append(_lags_ms(page, questions, bench.options.chars))
            _open_long(page, bench.options.turns)
            long.append(_lags_ms(page, questions, bench.options.chars))
            page.context.close()
        browser.close()
    name = f"{bench.options.turns} turns"
    rows = (
        Row.figure("typing possible, browser new to the page", "s", first_s, _TYPING),
        Row.figure("typing possible, second visit", "s", again_s, _TYPING),
        Row.figure("our scripts", "kB", [n_bytes / 1000], _SCRIPTS_KB),
        _compared(f"{name}: arrival to screen, median", long, fresh, 0.5),
        _compared(f"{name}: arrival to screen, p95", long, fresh, 0.95),
        Row.figure(f"{name}: frames of one answer", "", [len(lags) for lags in long]),
    )
    return Findings(rows, notes=("The echo engine answers: page, web server and browser are measured, no model.",))


def _new_page(browser: Browser) -> Page:
    """Somebody who was never here."""
    page = browser.new_context(viewport={"width": 1280, "height": 800}, locale="en-US").new_page()
    page.add_init_script(_WATCH_TYPING)
    return page


def _typing_s(page: Page, url: str) -> float:
    page.goto(url)
    page.wait_for_function("() => window.typingAt")
    return float(page.evaluate("() => window.typingAt")) / 1000


def _lags_ms(page: Page, questions: Questions, n_chars: int) -> list[float]:
    """Ask for an answer of `n_chars` and watch it being drawn."""
    n_before = page.locator("#conversation .bot-row").count()
    page.evaluate(_WATCH_LAG)
    page.fill("#box textarea", questions.words(n_chars // 5)[:n_chars])
    page.press("#box textarea", "Enter")
    page.locator("#conversation .bot-row").nth(n_before).wait_for(timeout=120_000)
    page.wait_for_selector("html[data-chat=idle]")
    lags = [float(lag) for lag in page.evaluate("() => window.lags")]
    if len(lags) < 10:
        raise RuntimeError(f"{len(lags)} frames were drawn: the answer is too short to tell anything")
    return lags


def _open_long(page: Page, n_turns: int) -> None:
    """Put a conversation where the page keeps those of its reader, and open it."""
    text = "**Answer**\n\n```python\nx = 1\n```\n\n|a|b|\n|-|-|\n|1|2|"
    turns = [{"question": f"question {number}", "text": text} for number in range(n_turns)]
    entry = json.dumps({"title": "long", "named": True, "pinned": True, "at": 1, "turns": turns})
    page.evaluate("(entry) => localStorage.setItem('office-chat-c-' + 'abcdefgh'.repeat(3), entry)", entry)
    page.reload()
    page.wait_for_selector("html[data-ready=yes]")
    page.locator("#conversations .open").first.click()
    page.wait_for_function(f"() => document.querySelectorAll('#conversation .acts').length === {2 * n_turns}")


def _compared(what: str, long: list[list[float]], fresh: list[list[float]], share: float) -> Row:
    theirs = [percentile(lags, share) for lags in fresh]
    return Row.compared(what, "ms", [percentile(lags, share) for lags in long], "a fresh one", theirs, _LAG)
