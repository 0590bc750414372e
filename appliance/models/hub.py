"""One file from a model hub, in a process of its own: the only place that calls anybody outside, when asked to.

A process, because the library reads its environment when it is imported, because the web process has proxies and the
hub itself switched off, and because a download can be ended at any moment.
"""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
import os
import re
import shutil
import signal
import sys
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

_PIECE_BYTES: Final = 2**22
_CHUNK_BYTES: Final = 2**18
"""Written at a time: what of a larger one has come when the connection ends would be lost, and 10 MB is its own."""
_SPARE_BYTES: Final = 200 * 2**20
_ASK_S: Final = 3.5
"""How long the hub may take to say what the file is."""
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Fetch:
    """What is wanted, and where it goes. A part that is there already is gone on with."""

    repo: str
    file: str
    folder: Path
    endpoint: str = ""
    proxy: str = ""


@dataclass(frozen=True)
class Asking:
    """The hub is being asked."""


@dataclass(frozen=True)
class Loading:
    """It is coming."""

    part: Path
    size_bytes: int


@dataclass(frozen=True)
class Checking:
    """All of it is there; its hash is worked out."""


@dataclass(frozen=True)
class Fetched:
    """It is what the hub says it is."""

    path: Path


@dataclass(frozen=True)
class FetchFailed:
    """`code` names the sentence, `download_<code>`, and `values` fill its blanks. What has come is kept for the next
    try, unless it is wrong."""

    code: str
    values: dict[str, object]


Told = Asking | Loading | Checking | Fetched | FetchFailed


def main(connection: Connection, fetch: Fetch) -> None:
    """Entry point of the child process: tells the other end how far it is, Fetched or FetchFailed last."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()
    _surroundings(fetch)
    connection.send(_run(connection, fetch))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _surroundings(fetch: Fetch) -> None:
    """What the library reads when it is imported: our endpoint and proxy and nothing of this user's."""
    for name in [name for name in os.environ if name.startswith("HF_") or name.lower().endswith("_proxy")]:
        del os.environ[name]
    os.environ |= {
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",  # it goes round proxies and mirrors, and cannot be gone on with
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DOWNLOAD_TIMEOUT": "20",
        "HF_HOME": str(fetch.folder),
    }
    if fetch.proxy:
        os.environ |= {"HTTP_PROXY": fetch.proxy, "HTTPS_PROXY": fetch.proxy}
    logging.disable(logging.CRITICAL)
    sys.stderr = None  # a progress bar of the library's has no reader


def _run(connection: Connection, fetch: Fetch) -> Fetched | FetchFailed:
    import httpx2
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.file_download import http_get

    constants.DOWNLOAD_CHUNK_SIZE = _CHUNK_BYTES
    endpoint = fetch.endpoint.rstrip("/") or None
    connection.send(Asking())
    try:
        url = hf_hub_url(fetch.repo, fetch.file, endpoint=endpoint)
        known = get_hf_file_metadata(url, token=False, timeout=_ASK_S, endpoint=endpoint)
        size, digest = known.size or 0, (known.etag or "").lower()
        if not size or not _SHA256.fullmatch(digest):
            return FetchFailed("no_hash", {})
        part = fetch.folder / f"{fetch.file}.{digest[:16]}.part"
        for other in fetch.folder.glob(f"{fetch.file}.*.part"):
            if other != part:
                other.unlink()  # the hub has a newer one
        n_there = part.stat().st_size if part.exists() else 0
        if n_there > size:
            part.unlink()
            n_there = 0
        need, free = size - n_there + _SPARE_BYTES, shutil.disk_usage(fetch.folder).free
        if free < need:
            return FetchFailed("disk", {"need_mb": need // 10**6, "free_mb": free // 10**6})
        connection.send(Loading(part, size))
        with part.open("ab") as file:
            http_get(known.location, file, resume_size=n_there, headers={}, expected_size=size)
            file.flush()
            os.fsync(file.fileno())
    except HfHubHTTPError as error:
        status = error.response.status_code
        return FetchFailed("not_found" if status == 404 else "refused", {"status": status})
    except (httpx2.HTTPError, httpx2.InvalidURL):
        return FetchFailed("no_network", {})
    except OSError as error:
        return FetchFailed("cut" if error.errno is None else "write", {"reason": error.strerror or ""})
    connection.send(Checking())
    if _sha256(part) != digest:
        part.unlink()
        return FetchFailed("wrong_hash", {})
    return Fetched(part)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()
