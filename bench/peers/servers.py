"""The peers as processes: llama-server and llama-cpp-python's own example server, as their users start them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import httpx

from bench.peers.build import Peers
from bench.program import free_port

_START_S = 120.0
_STOP_S = 10.0
_POLL_S = 0.05


@dataclass(frozen=True)
class Room:
    """What both sides get alike."""

    model: Path
    n_slots: int
    """Answers at the same time."""
    n_ctx: int
    """Tokens of one of them, question and answer."""
    n_threads: int


class PeerServer:
    """One run of a peer on a free port of this computer alone."""

    def __init__(self, command: Sequence[str], url: str, env: Mapping[str, str] | None = None) -> None:
        """Start it; `env` comes on top of ours."""
        self.url = url
        self._folder = Path(tempfile.mkdtemp(prefix="office-chat-peer-"))
        self._printed = (self._folder / "printed.txt").open("w+b")
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=self._printed,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )

    def __enter__(self) -> PeerServer:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(_STOP_S)
        self._printed.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def wait_ready(self) -> None:
        """Until it lists its model. Raises RuntimeError with its last words when it ends or takes two minutes."""
        began_s = time.perf_counter()
        while not self._answers():
            if self._process.poll() is not None:
                raise RuntimeError(f"the peer ended with {self._process.returncode}: {self._last_words()}")
            if time.perf_counter() - began_s > _START_S:
                raise RuntimeError(f"the peer is not ready after {_START_S:g} s: {self._last_words()}")
            time.sleep(_POLL_S)

    def _answers(self) -> bool:
        try:
            # llama-server answers this with 503 as long as it loads.
            return httpx.get(f"{self.url}/v1/models", trust_env=False, timeout=10).status_code == 200
        except httpx.TransportError:
            return False

    def _last_words(self) -> str:
        return (self._folder / "printed.txt").read_text(encoding="utf-8", errors="replace")[-2000:]


def llama_server(peers: Peers, room: Room) -> PeerServer:
    """llama-server with as many slots, as much room in each and as many threads as ours; all else as it comes.

    As it comes: continuous batching (`-cb`), prompts kept in the slots and up to 8 GB of old ones in memory
    (`--cache-prompt`, `--cache-ram`), the slot with the most similar prompt taken, 2048 rows a batch.
    """
    port = free_port()
    options = {
        "--model": room.model,
        "--host": "127.0.0.1",
        "--port": port,
        "--parallel": room.n_slots,  # -np: slots
        "--ctx-size": room.n_slots * room.n_ctx,  # of all slots together
        "--threads": room.n_threads,
    }
    command = [str(peers.server), *(str(word) for option in options.items() for word in option)]
    return PeerServer(command, f"http://127.0.0.1:{port}")


def example_server(peers: Peers, room: Room) -> PeerServer:
    """`examples/server/server.py` of llama-cpp-python: its own scheduler in Python, on the peers' build of llama.cpp.

    Its settings are those of the example's smallest configuration file but for model, slots, room and threads, and
    for what only other models use.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    settings = {
        "server": {"host": "127.0.0.1", "port": port},
        "model": {
            "alias": "model",
            "path": str(room.model),
            "n_ctx": room.n_slots * room.n_ctx,
            "n_seq_max": room.n_slots,
            "n_batch": 128,
            "n_ubatch": 128,
            "threads": room.n_threads,
            "threads_batch": room.n_threads,
            "kv_unified": True,
            "store_logits": False,
        },
    }
    file = peers.example_server.with_name(f"settings-{port}.json")
    file.write_text(json.dumps(settings), encoding="utf-8")
    libraries = str(peers.libraries)
    # Its imports want the multimodal library, which our lean wheel leaves out; the peers' build has it.
    env = {"LLAMA_CPP_LIB_PATH": libraries, "MTMD_CPP_LIB": libraries}
    return PeerServer([sys.executable, str(peers.example_server), "-C", str(file)], url, env)
