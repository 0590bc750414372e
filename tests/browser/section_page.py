"""A page with one section of the owner's on it, under the program's own headers, served by this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import gradio as gr
import uvicorn
from fastapi import APIRouter, FastAPI

from appliance.http.web import SecurityHeaders
from tests.system.program import START_S, free_port
from ui.site.theme import make_theme


@contextmanager
def served(build: Callable[[gr.Blocks], object], routers: Sequence[APIRouter] = (), script: str = "") -> Iterator[str]:
    """Serve a Blocks that `build` fills, beside `routers` and with `script` in its head; gives its address."""
    with gr.Blocks(title="Office Chat", analytics_enabled=False) as demo:
        build(demo)
    demo.queue(api_open=False)
    app = FastAPI(openapi_url=None)
    for router in routers:
        app.include_router(router)
    app.add_middleware(SecurityHeaders)
    head = f"<script>{script}</script>" if script else None
    mounted = gr.mount_gradio_app(app, demo, path="/", theme=make_theme(), ssr_mode=False, run_history=False, head=head)
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(mounted, host="127.0.0.1", port=port, log_config=None, ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    until = time.monotonic() + START_S
    while not server.started:
        assert thread.is_alive()
        assert time.monotonic() < until
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.should_exit = server.force_exit = True
        thread.join(15)
        demo.close(verbose=False)
        assert not thread.is_alive()


def shot(page: object, folder: Path, name: str) -> None:
    """A picture of the page, for whoever wants to look."""
    page.screenshot(path=str(folder / f"{name}.png"), full_page=True)
