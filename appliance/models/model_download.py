"""Downloading a model the owner asked for: the short list, how far it is, and its place among the others in the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import multiprocessing.connection
import threading
import time
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, Literal

from appliance.base.errors import ApplianceError, ModelFileError
from appliance.models.hub import Asking, Checking, Fetch, Fetched, FetchFailed, Loading, Told, main
from appliance.models.model_file import inspect

_log = logging.getLogger(__name__)

_LOOK_S: Final = 0.2
_BEGIN_S: Final = 30.0
"""How long a busy PC may take to start the process."""
_SENTENCE_S: Final = 4.6
"""After that the owner is told that nobody answers. The library's own limit leaves out looking up the hub's name."""
_LEAST_S: Final = 2.5
"""So long the hub has to answer, however late a busy PC came to ask."""


@dataclass(frozen=True)
class Offer:
    """A model on the short list. The size is what its maker gave out, for the owner to know before."""

    repo: str
    file: str
    size_bytes: int
    licence: str
    n_weights: int


OFFERS: Final = (
    Offer("Qwen/Qwen2.5-0.5B-Instruct-GGUF", "qwen2.5-0.5b-instruct-q8_0.gguf", 676 * 10**6, "apache-2.0", 494 * 10**6),
    Offer(
        "Qwen/Qwen2.5-1.5B-Instruct-GGUF", "qwen2.5-1.5b-instruct-q4_k_m.gguf", 1117 * 10**6, "apache-2.0", 1544 * 10**6
    ),
)
"""Few, small enough for an old PC, free to use at work; the first is the one this program is made for."""


class DownloadFailed(ApplianceError):
    """A download that did not come to its end; `code` names the sentence, `download_<code>`."""

    def __init__(self, code: str, values: dict[str, object] | None = None) -> None:
        super().__init__(f"The download failed: {code}.")
        self.code = code
        self.values = values or {}


Phase = Literal["idle", "asking", "loading", "checking", "done", "failed", "stopped"]


@dataclass(frozen=True)
class DownloadState:
    """How far it is."""

    phase: Phase = "idle"
    file: str = ""
    n_bytes: int = 0
    size_bytes: int = 0
    code: str = ""
    """Of a failed one; see DownloadFailed."""
    values: dict[str, object] = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        """Whether it goes on."""
        return self.phase in ("asking", "loading", "checking")


class ModelDownload:
    """One at a time. `state` may be read from any thread; `run` and `stop` belong to the event loop's."""

    def __init__(self, folder: Path, endpoint: str, proxy: str) -> None:
        """`folder` is where models are; what has come of one is kept there until it is whole."""
        self._folder = folder
        self._endpoint = endpoint
        self._proxy = proxy
        self._stopped = threading.Event()
        self.state = DownloadState()

    async def run(self, offer: Offer) -> Path:
        """Get it; gives the model's file.

        Raises:
            DownloadFailed: nothing is in use that is not whole; what has come is kept for the next try.
        """
        if self.state.is_running:
            raise DownloadFailed("running")
        self._stopped.clear()
        self.state = DownloadState("asking", offer.file, size_bytes=offer.size_bytes)
        try:
            path = await asyncio.to_thread(self._fetch, offer)
        except DownloadFailed as error:
            phase: Phase = "stopped" if error.code == "stopped" else "failed"
            self.state = replace(self.state, phase=phase, code=error.code, values=error.values)
            _log.warning("the download of %s failed: %s", offer.file, error.code)
            raise
        self.state = replace(self.state, phase="done", n_bytes=self.state.size_bytes)
        _log.info("%s was downloaded, %s bytes", offer.file, self.state.size_bytes)
        return path

    def stop(self) -> None:
        """End it soon; the next try goes on from where it was."""
        self._stopped.set()

    def _fetch(self, offer: Offer) -> Path:
        target = self._folder / offer.file
        if target.exists():
            raise DownloadFailed("there")
        part = self._watched(Fetch(offer.repo, offer.file, self._folder, self._endpoint, self._proxy))
        try:
            inspect(part)
            part.replace(target)
        except ModelFileError as error:
            part.unlink(missing_ok=True)
            raise DownloadFailed("no_model") from error
        except OSError as error:
            raise DownloadFailed("write", {"reason": error.strerror or ""}) from error
        return target

    def _watched(self, fetch: Fetch) -> Path:
        """Run the process until its last word."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        child = context.Process(target=main, args=(theirs, fetch), name="download", daemon=True)
        child.start()
        theirs.close()
        try:
            return self._listen(ours, child.sentinel)
        finally:
            child.kill()
            child.join()
            child.close()
            ours.close()

    def _listen(self, connection: Connection, sentinel: int) -> Path:
        began_s = time.monotonic()
        until_s: float | None = began_s + _BEGIN_S
        part: Path | None = None
        while True:
            ready = multiprocessing.connection.wait([connection, sentinel], timeout=_LOOK_S)
            if self._stopped.is_set():
                raise DownloadFailed("stopped")
            if part is not None:
                with contextlib.suppress(OSError):
                    self.state = replace(self.state, n_bytes=part.stat().st_size)
            if until_s is not None and time.monotonic() > until_s:
                raise DownloadFailed("no_network")
            if not ready:
                continue
            match _next(connection):
                case Asking():
                    until_s = _answer_by(began_s, time.monotonic())
                case Loading(part=part, size_bytes=size):
                    until_s = None
                    self.state = replace(self.state, phase="loading", size_bytes=size)
                case Checking():
                    self.state = replace(self.state, phase="checking", n_bytes=self.state.size_bytes)
                case Fetched(path=path):
                    return path
                case FetchFailed(code=code, values=values):
                    raise DownloadFailed(code, values)
                case None:
                    raise DownloadFailed("broken")


def _answer_by(began_s: float, now_s: float) -> float:
    """Until when the hub is waited for that is asked now."""
    return max(began_s + _SENTENCE_S, now_s + _LEAST_S)


def _next(connection: Connection) -> Told | None:
    """What the process says; None when it is gone without a word."""
    try:
        told: Told = connection.recv()
    except (EOFError, OSError):
        return None
    return told
