"""The program as a process of its own, as an owner starts it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import httpx
import psutil

from appliance.access.this_pc import new_link
from appliance.base.paths import Paths

ROOT = Path(__file__).resolve().parents[2]
START_S = 60.0
ENGINE_ALONE: dict[str, object] = {"answer_cache_scope": "off", "quick_answers": False}
UNNAMED: dict[str, object] = {"lan_name": ""}
"""Many programs of the tests run at a time, and one network has one office-chat.local."""
AT_EASE: dict[str, object] = {
    "keyless_here": True,
    "questions_per_minute": 0,
    "questions_per_minute_and_address": 0,
    "address_share": 0,
}
"""All the tests' people and programs are one address."""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def command(data_dir: Path, *words: str, typed: str = "") -> str:
    """Run one of the owner's commands; returns what it printed, fails when it fails."""
    done = subprocess.run(
        [sys.executable, "app.py", *words, "--data-dir", str(data_dir)],
        cwd=ROOT,
        input=typed,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Program:
    """One run of app.py. Settings are passed through the environment, as upper-case names without the prefix.

    The engine answers everything unless a test says otherwise: no quick answers, nothing saved, nothing asked once.
    """

    def __init__(
        self,
        data_dir: Path,
        *flags: str,
        env: Mapping[str, str] | None = None,
        port: int = 0,
        reads_file: bool = False,
        **settings: object,
    ) -> None:
        """`reads_file`: everything is left to the settings file, where it may be changed; `port` is the one in it."""
        self.data_dir = data_dir
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.began = time.monotonic()
        given = {} if reads_file else ENGINE_ALONE | UNNAMED | AT_EASE | settings
        variables = {f"OFFICE_CHAT_{name.upper()}": str(value) for name, value in given.items()}
        where = [] if reads_file else ["--no-browser", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [sys.executable, "app.py", "--data-dir", str(data_dir), *where, *flags],
            cwd=ROOT,
            env={**os.environ, **variables, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )

    def wait_ready(self, key: str = "") -> Program:
        """Returns once /ready says so; fails with what the program printed. `key`: an API key, where one is needed."""
        while time.monotonic() - self.began < START_S:
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}: {self.output()}")
            if self.status("/ready", key) == 200:
                return self
            time.sleep(0.05)
        raise AssertionError("not ready in time")

    def owners_link(self, page: str = "/admin") -> str:
        """What the program opens on its owner's screen."""
        return self.url + new_link(Paths(self.data_dir).links, page)

    def status(self, path: str, key: str = "") -> int | None:
        """The status of a GET; None while nobody listens."""
        try:
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            return httpx.get(self.url + path, headers=headers, trust_env=False).status_code
        except httpx.TransportError:
            return None

    def engine_pid(self) -> int:
        """The process that computes."""
        children = psutil.Process(self.process.pid).children()
        (engine,) = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
        return int(engine.pid)

    def terminate(self) -> float:
        """SIGTERM to the web process alone; returns the seconds until it is gone."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(15)
        return time.monotonic() - began

    def output(self) -> str:
        """What it printed; call when it has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.read()

    def log(self) -> str:
        return (self.data_dir / "logs" / "office-chat.log").read_text(encoding="utf-8")

    def close(self) -> None:
        """End whatever still runs of it."""
        if self.process.poll() is None:
            family = psutil.Process(self.process.pid).children(recursive=True)
            self.process.kill()
            self.process.wait(10)
            for process in family:
                if process.is_running():
                    process.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
