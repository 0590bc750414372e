"""Who means harm, or does harm without meaning it: a script, a colleague's browser, an owner with bad model files.

Each runs in a process of its own, on Linux only while a core is free: in an office it would have its own computer.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from bench.clients import AdminPage, PageClient

SCRIPT_ADDRESS = "127.0.66.6"
"""Of the loopback network, so that its questions are counted apart from other people's (Linux)."""
_MARKS = "a" + "\u0301" * 40_000  # 80 kB: the composition of so many marks grows with their square
_MANY_PARTS = "[" + "[]," * 300_000 + "[]]"
_TURN = {"question": "q" * 1000, "text": "a" * 1000}
_N_AT_ONCE = 4
_EVERY_MODEL_S = 10.0
_EVERY_VISIT_S = 20.0


@dataclass(frozen=True)
class Attack:
    """What an attacker is told."""

    url: str
    seconds: float
    link: str
    """The path of one that lets a client in as the owner."""
    models: Path
    """The folder of the program's models."""
    sound: Path
    """A model that is well built."""


def begin(name: str, attack: Attack) -> int:
    """Do it in this process until the time is over; returns how many times."""
    if sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    return ATTACKERS[name](attack)


def _script(attack: Attack) -> int:
    return asyncio.run(_send_all(attack))


async def _send_all(attack: Attack) -> int:
    until_s = time.monotonic() + attack.seconds
    sending = [asyncio.to_thread(_send, attack.url, until_s) for _ in range(_N_AT_ONCE)]
    done = await asyncio.gather(_ask(attack.url, until_s), *sending)
    return sum(done)


async def _ask(url: str, until_s: float) -> int:
    """The longest questions, each as somebody who was never here before; so fast as they are answered or refused."""
    n = 0
    while time.monotonic() < until_s:
        page = await PageClient(url, SCRIPT_ADDRESS).open()
        for text in (_MARKS, f"{n}\n" + "| a |\n|-|\n" * 200, "".join(map(chr, range(0x4E00, 0x4E00 + 2000)))):
            await page.ask(text)
            n += 1
        await page.close()
    return n


def _send(url: str, until_s: float) -> int:
    """One body after the other, each under a new cookie and tab, as fast as they are refused or taken.

    The bodies are made once: what a client on this PC computes is taken from the program.
    """
    as_json = {"content-type": "application/json"}
    marks, turns = json.dumps([_MARKS]), json.dumps({"turns": [_TURN] * 140})
    kept_marks = json.dumps({"turns": [{"question": _MARKS, "text": _MARKS}]})
    requests = [
        ("POST", "/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": _MARKS}]}), as_json),
        ("PUT", "/conversation", turns, as_json),
        ("PUT", "/conversation", kept_marks, as_json),
        ("PUT", "/conversation", _MANY_PARTS, as_json),
        ("POST", "/gradio_api/queue/join", _MANY_PARTS, as_json),
        *(("POST", "/gradio_api/run/predict", f'{{"data": {marks}, "fn_index": {n}}}', as_json) for n in range(40)),
        ("POST", "/admin/login", f"password={_MARKS}", {"content-type": "application/x-www-form-urlencoded"}),
        ("GET", f"/?x={'x' * 8000}", "", {}),
        ("GET", "/config", "", {}),
    ]
    bodies = [(method, path, body.encode(), headers) for method, path, body, headers in requests]
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=60, source_address=(SCRIPT_ADDRESS, 0))
    n = 0
    for method, path, body, headers in itertools.cycle(bodies):
        if time.monotonic() >= until_s:
            break
        cookie = {}
        with contextlib.suppress(OSError, HTTPException):  # cut off or kept waiting: that is the program's right
            if path == "/conversation":
                connection.request("GET", "/login")
                first = connection.getresponse()
                first.read()
                cookie = {"cookie": first.headers.get("set-cookie", "").partition(";")[0]}
            connection.request(method, path, body, headers | cookie | {"x-tab": secrets.token_urlsafe(16)})
            connection.getresponse().read()
        n += 1
    connection.close()
    return n


_FLOOD = """async () => {
  const body = JSON.stringify({turns: Array(140).fill({question: "q".repeat(1000), text: "a".repeat(1000)})});
  const headers = () => ({"content-type": "application/json", "x-tab": crypto.randomUUID()});
  const put = () => fetch("/conversation", {method: "PUT", headers: headers(), body});
  const get = path => fetch(path, {cache: "no-store"});
  const join = () => fetch("/gradio_api/queue/join", {method: "POST", headers: headers(), body});
  const all = Array.from({length: 60}, (_, n) => [put, join, () => get("/config"), () => get("/")][n % 4]());
  await Promise.allSettled(all);
}"""


def _browser(attack: Attack) -> int:
    from playwright.sync_api import Error, sync_playwright

    n = 0
    until_s = time.monotonic() + attack.seconds
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found)
        while time.monotonic() < until_s:
            context = browser.new_context()  # somebody new
            pages = [context.new_page() for _ in range(3)]
            for page, text in zip(
                pages, (_MARKS, "<img src=x onerror=alert(1)>" * 3000, "| a |\n|-|\n" * 8000), strict=True
            ):
                # What a page in distress does to its own person is not the question here.
                with contextlib.suppress(Error):
                    page.goto(attack.url)
                    box = page.locator("#box textarea")
                    box.fill(text, timeout=20_000)
                    for _ in range(5):
                        box.press("Enter")
                    page.evaluate(_FLOOD)
                    page.reload()
                n += 1
            time.sleep(max(0.0, min(_EVERY_VISIT_S, until_s - time.monotonic())))
            with contextlib.suppress(Error):
                for number in range(8):  # event sources that nobody reads
                    pages[0].evaluate(f"new EventSource('/gradio_api/queue/data?session_hash=hostile{number}') && 0")
            context.close()
        browser.close()
    return n


def _models(attack: Attack) -> int:
    return asyncio.run(_use_all(attack))


async def _use_all(attack: Attack) -> int:
    """The owner tries one bad file after the other."""
    until_s = time.monotonic() + attack.seconds
    page = await AdminPage(attack.url, attack.link).open()
    n = 0
    for name, content in itertools.cycle(_bad_files(attack.sound)):
        if time.monotonic() >= until_s:
            break
        path = attack.models / f"{name}.gguf"
        await asyncio.to_thread(path.write_bytes, content)
        await page.use_model(path.stem)
        n += 1
        await asyncio.sleep(min(_EVERY_MODEL_S, max(0.0, until_s - time.monotonic())))
        path.unlink()
    await page.close()
    return n


def _bad_files(sound: Path) -> Iterator[tuple[str, bytes]]:
    whole = sound.read_bytes()
    first = whole.index(b"token_embd.weight") if b"token_embd.weight" in whole else len(whole) // 2
    at = whole.index(b"tokenizer.chat_template") + len(b"tokenizer.chat_template") + 4
    n = int.from_bytes(whole[at : at + 8], "little")
    at += 8

    def with_template(text: str) -> bytes:
        return whole[:at] + text.encode().ljust(n) + whole[at + n :]

    yield "half", whole[: len(whole) // 2]
    yield "layer-missing", whole.replace(b"blk.3.ffn_up.weight", b"blk.3.ffn_xx.weight", 1)
    yield "refuses", with_template("{{ raise_exception('no') }}")
    yield "loops", with_template("{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}")
    yield "grows", with_template("{{ 'x' * 10**9 }}")
    yield "not-a-number", whole[:-5_000_000] + b"\xff" * 5_000_000
    yield "scrambled", whole[: first - 4000] + secrets.token_bytes(4000) + whole[first:]


ATTACKERS = {"script": _script, "browser": _browser, "models": _models}
