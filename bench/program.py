"""The real program in processes of its own, as an owner starts it; and what those processes use."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import httpx
import psutil

from appliance.access.this_pc import new_link
from appliance.base.paths import Paths
from bench.clients import logged_counts

ROOT = Path(__file__).resolve().parent.parent
_START_S = 120.0
_STOP_S = 15.0
_POLL_S = 0.05
_PREFIX = "OFFICE_CHAT_"
_FOR_MANY_CLIENTS: dict[str, object] = {
    "yield_to_others": False,
    "keyless_here": True,
    "questions_per_minute": 0,
    "questions_per_minute_and_address": 0,
    "address_share": 0,
    "answer_cache_scope": "off",
    "quick_answers": False,
}


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@dataclass(frozen=True)
class Memory:
    """Bytes of all processes of the program together."""

    rss: int
    """Pages that two processes share count twice."""
    pss: int
    """Shared pages count once; 0 where the system does not tell."""


class Program:
    """One run of app.py or of the packaged program, in a data folder of its own, on a free port of this PC alone.

    The clients of a measurement would pass for somebody who works at this PC, so stepping back is off unless asked for,
    and so are the limits of what one person and one address may ask; and the engine is measured, so no answer comes
    from a rule or from an earlier one.
    """

    def __init__(
        self,
        model: Path,
        settings: Mapping[str, object] | None = None,
        *,
        limit: Callable[[], None] | None = None,
        packaged: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Start it with settings as in docs/settings.md.

        Args:
            limit: called in the new process before it begins.
            packaged: this file instead of app.py.
            variables: for its environment.
        """
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder = Path(tempfile.mkdtemp(prefix="office-chat-bench-"))
        chosen: dict[str, object] = {"host": "127.0.0.1", "model": model, **_FOR_MANY_CLIENTS, **(settings or {})}
        env = {name: value for name, value in os.environ.items() if not name.startswith(_PREFIX)}
        env |= {_PREFIX + name.upper(): str(value) for name, value in chosen.items()} | dict(variables or {})
        command = [str(packaged)] if packaged else [sys.executable, "app.py"]
        self._printed = (self._folder / "printed.txt").open("w+b")
        self.began_s = time.perf_counter()
        self.process = subprocess.Popen(
            [*command, "--no-browser", "--data-dir", str(self._folder), "--port", str(self.port)],
            cwd=ROOT,
            env=env,
            stdout=self._printed,
            stderr=subprocess.STDOUT,
            preexec_fn=limit,
            start_new_session=True,
        )

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait_ready(self) -> float:
        """Returns the seconds from the start until the page and /ready both answer."""
        self.wait_page()
        return self._wait_for("/ready")

    def wait_page(self) -> float:
        """Returns the seconds from the start until the page answers."""
        return self._wait_for("/")

    def _wait_for(self, path: str) -> float:
        while not self._answers(path):
            if self.process.poll() is not None:
                raise RuntimeError(f"the program ended with {self.process.returncode}: {self.printed()}")
            if time.perf_counter() - self.began_s > _START_S:
                raise RuntimeError(f"not ready after {_START_S:g} s: {self.printed()}")
            time.sleep(_POLL_S)
        return time.perf_counter() - self.began_s

    def printed(self) -> str:
        """The end of what it printed."""
        return (self._folder / "printed.txt").read_text(encoding="utf-8", errors="replace")[-2000:]

    @property
    def data_dir(self) -> Path:
        """Where it keeps its files."""
        return self._folder

    def owners_link(self, page: str) -> str:
        """The path of a link that lets a client in as the owner's browser."""
        return new_link(Paths(self._folder).links, page)

    def counts(self) -> list[tuple[int, int, int]]:
        """(n_prompt, n_cached, n_decoded) of every request that is over, oldest first."""
        logs = sorted((self._folder / "logs").glob("office-chat.log*"), reverse=True)
        return [line for log in logs for line in logged_counts(log.read_text(encoding="utf-8", errors="replace"))]

    def counts_since(self, n_before: int, n_more: int) -> list[tuple[int, int, int]]:
        """The counts of the `n_more` requests after the first `n_before`; a log line may lag behind its answer."""
        for _ in range(100):
            if len(found := self.counts()) >= n_before + n_more:
                return found[n_before : n_before + n_more]
            time.sleep(_POLL_S)
        raise RuntimeError(f"the log tells of {len(found) - n_before} requests where {n_more} were answered")

    def processes(self) -> dict[str, psutil.Process]:
        """By name: web, engine, and others should there be any."""
        web = psutil.Process(self.process.pid)
        named = {"web": web}
        for child in web.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                words = child.cmdline()
                is_engine = "--multiprocessing-fork" in words or any("spawn_main" in word for word in words)
                named["engine" if is_engine else f"other {child.pid}"] = child
        return named

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds used so far, by process."""
        used: dict[str, float] = {}
        for name, process in self.processes().items():
            times = process.cpu_times()
            used[name] = times.user + times.system
        return used

    def memory(self) -> Memory:
        """What all of its processes hold now."""
        rss = pss = 0
        for process in self.processes().values():
            with contextlib.suppress(psutil.Error):
                full = process.memory_full_info()
                rss += full.rss
                pss += getattr(full, "pss", 0)
        return Memory(rss, pss)

    def stop(self) -> None:
        """End it and remove its folder."""
        if self.process.poll() is None:
            family = list(self.processes().values())
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                for process in family:
                    with contextlib.suppress(psutil.Error):
                        process.kill()
                self.process.wait(_STOP_S)
        self._printed.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self, path: str) -> bool:
        try:
            return httpx.get(self.url + path, trust_env=False, timeout=10).status_code == 200
        except httpx.TransportError:
            return False


@contextlib.contextmanager
def programs(model: Path, variants: Mapping[str, Mapping[str, object]]) -> Iterator[dict[str, Program]]:
    """Several at once, all ready: while one is measured the others are idle."""
    with contextlib.ExitStack() as stack:
        started: dict[str, Program] = {}
        for name, settings in variants.items():
            started[name] = stack.enter_context(Program(model, settings))
            started[name].wait_ready()
        yield started


def cpu_share(before: dict[str, float], after: dict[str, float], elapsed_s: float, names: Sequence[str] = ()) -> float:
    """Cores used between two readings of `cpu_s`, by the processes named or by all."""
    chosen = [name for name in after if not names or name in names]
    return sum(after[name] - before.get(name, 0.0) for name in chosen) / elapsed_s
