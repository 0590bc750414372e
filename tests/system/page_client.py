"""The page as its browsers speak it, without a browser."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets

import httpx

from tests.system.program import Program


class Page:
    """One person with one tab."""

    def __init__(self, program: Program, language: str = "en") -> None:
        tab = secrets.token_urlsafe(16)
        self.session = secrets.token_hex(6)
        self.http = httpx.AsyncClient(
            base_url=program.url,
            timeout=60,
            trust_env=False,
            headers={"X-Tab": tab, "Accept-Language": language},
        )

    async def open(self) -> Page:
        await self.http.get("/")
        config = (await self.http.get("/config")).json()
        self._events = {event["api_name"]: event["id"] for event in config["dependencies"]}
        return self

    async def join(self, text: str, event: str = "ask") -> httpx.Response:
        body = {"data": [text], "fn_index": self._events[event], "session_hash": self.session}
        return await self.http.post("/gradio_api/queue/join", json=body)

    async def read(self) -> str:
        """Follow the answer to its end; the last thing that was shown."""
        shown = ""
        async with self.http.stream("GET", f"/gradio_api/queue/data?session_hash={self.session}") as stream:
            async for line in stream.aiter_lines():
                message = json.loads(line.removeprefix("data: ") or "{}") if line.startswith("data:") else {}
                if message.get("msg") == "process_completed":
                    shown = str(message["output"].get("data"))
                    break
        return shown

    async def place(self) -> int | None:
        ahead: int | None = (await self.http.get("/place")).json()["ahead"]
        return ahead

    async def ask(self, text: str, event: str = "ask") -> str:
        """Ask and read to the end."""
        assert (await self.join(text, event)).status_code == 200
        return await self.read()

    async def conversation(self) -> list[tuple[str, str]]:
        """Role and text of every message on the page, as it would be after a reload."""
        body = {"data": [], "fn_index": self._events["restore"], "session_hash": self.session}
        shown = (await self.http.post("/gradio_api/run/predict", json=body)).json()["data"][0]
        return [(message["role"], message["content"][0]["text"]) for message in shown]


@contextlib.asynccontextmanager
async def people(program: Program, n: int, language: str = "en"):
    pages = [Page(program, language) for _ in range(n)]
    try:
        yield list(await asyncio.gather(*(page.open() for page in pages)))
    finally:
        for page in pages:
            await page.http.aclose()
