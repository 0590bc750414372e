"""A model hub of the tests' own, on this PC: it answers as the real one does, and fails as the test wants."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

REPO, FILE = "Maker/Small-Instruct-GGUF", "small-instruct-q8_0.gguf"


class OwnHub(ThreadingHTTPServer):
    """One file. What it is asked stands in `asked`: method, path and the Range header."""

    daemon_threads = True

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.content = content
        self.digest = hashlib.sha256(content).hexdigest()
        self.status = 0
        """Answered to everything instead; 0 for none."""
        self.cut_after: int | None = None
        """So many bytes are sent of the next answer, then the connection ends."""
        self.holds_after: int | None = None
        """So many bytes are sent, then nothing until `released` is set."""
        self.is_silent = False
        self.released = threading.Event()
        self.asked: list[tuple[str, str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: OwnHub

    def log_message(self, *_words: object) -> None:
        return

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, path = self.server, urlsplit(self.path).path
        hub.asked.append((self.command, self.path, self.headers.get("Range", "")))
        if hub.is_silent:
            hub.released.wait(30)
            return
        if hub.status or path not in (f"/{REPO}/resolve/main/{FILE}", f"/cdn/{FILE}"):
            self.send_response(hub.status or 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path.startswith("/cdn/"):
            self._send()
        else:
            self.send_response(302)
            # Another host, as the real one does: what is on the same one is looked up at once.
            through_proxy = bool(urlsplit(self.path).netloc)
            host = "cdn.invalid" if through_proxy else self.headers["Host"].replace("127.0.0.1", "localhost")
            self.send_header("Location", f"http://{host}/cdn/{FILE}")
            self.send_header("X-Repo-Commit", "c" * 40)
            if hub.digest:
                self.send_header("X-Linked-Etag", f'"{hub.digest}"')
            self.send_header("X-Linked-Size", str(len(hub.content)))
            self.send_header("Content-Length", "0")
            self.end_headers()

    def _send(self) -> None:
        hub = self.server
        wanted = self.headers.get("Range", "")
        first = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        body = hub.content[first:]
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(body)))
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{len(hub.content) - 1}/{len(hub.content)}")
        self.end_headers()
        if self.command == "HEAD":
            return
        if hub.cut_after is not None:
            self.wfile.write(body[: hub.cut_after])
            hub.cut_after = None
            self.close_connection = True
            return
        if hub.holds_after is not None:
            self.wfile.write(body[: hub.holds_after])
            self.wfile.flush()
            body = body[hub.holds_after :]
            hub.released.wait(30)
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # whoever wanted it has left


@contextmanager
def own_hub(content: bytes) -> Iterator[OwnHub]:
    """Running until the block ends."""
    with OwnHub(content) as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield hub
        finally:
            hub.released.set()
            hub.shutdown()
            thread.join()
