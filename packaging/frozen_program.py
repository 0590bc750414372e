"""Drives the frozen program from outside, as a person and a browser would: start, ask, look at it, end it.

Standard library only: the self-test runs wherever the program was built.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

READY_S = 120.0
"""Longer than any start: under strace and on a busy build machine everything takes its time."""
END_S = 15.0
NOBODY = 65534


class NotPassed(Exception):
    """What did not hold, in a sentence."""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether the port can be listened on again."""
    with socket.socket() as sock:
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@dataclass(frozen=True)
class Answer:
    """Status and body of an HTTP answer."""

    status: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Browser:
    """Asks one program, keeps its cookies, and knows of no proxy."""

    def __init__(self, url: str) -> None:
        self.url = url
        cookies = urllib.request.HTTPCookieProcessor(CookieJar())
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        address = urllib.parse.urljoin(self.url, path)
        return self._ask(urllib.request.Request(address, headers=dict(headers or {})))  # noqa: S310 -- our own

    def post(
        self, path: str, body: dict[str, Any] | list[tuple[str, str]], headers: Mapping[str, str] | None = None
    ) -> Answer:
        """A dict is sent as JSON, a list of pairs as a form."""
        kind = "application/json" if isinstance(body, dict) else "application/x-www-form-urlencoded"
        data = json.dumps(body) if isinstance(body, dict) else urllib.parse.urlencode(body)
        sent = {"Content-Type": kind, "Origin": self.url, **(headers or {})}
        return self._ask(urllib.request.Request(self.url + path, data.encode(), sent))  # noqa: S310 -- our own address

    def question(self, text: str, headers: Mapping[str, str] | None = None) -> str:
        """The model's answer over the API. Raises NotPassed."""
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": 16}
        answer = self.post("/v1/chat/completions", body, headers)
        if answer.status != 200:
            raise NotPassed(f"a question got {answer.status}: {answer.body[:300]!r}")
        return str(answer.json()["choices"][0]["message"]["content"])

    def _ask(self, request: urllib.request.Request) -> Answer:
        try:
            with self._opener.open(request, timeout=120) as answer:
                return Answer(answer.status, answer.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read())


class Run:
    """One start of the program. `prefix` is a program that runs it, such as strace."""

    def __init__(
        self,
        command: Sequence[str | Path],
        data_dir: Path,
        *flags: str,
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        port: int = 0,
        streams: str = "kept",
        account: Mapping[str, Any] | None = None,
    ) -> None:
        """`streams`: "kept" to be read by `output`, or "closed" as for a program without a console. `account`: what
        Popen needs to know of it; None takes one without rights.
        """
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.browser = Browser(self.url)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the object
        program = [
            *prefix,
            *map(str, command),
            "--data-dir",
            str(data_dir),
            "--port",
            str(self.port),
            "--no-browser",
            *flags,
        ]
        if streams == "closed":
            program = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *program]
        self.process = subprocess.Popen(
            program,
            env=empty_environment() | dict(env or {}),
            cwd=tempfile.gettempdir(),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            **(as_nobody() if account is None else account),
        )

    def wait_ready(self) -> Run:
        """Returns once it can answer. Raises NotPassed with what it printed."""
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise NotPassed(f"it ended with {self.process.returncode}: {self.output()}")
            with contextlib.suppress(OSError):  # nobody listens yet
                if self.browser.get("/ready").status == 200:
                    return self
            time.sleep(0.1)
        raise NotPassed(f"it was not ready within {READY_S:.0f} s: {self.output()}")

    def wait_end(self) -> int:
        """Its exit code. Raises NotPassed when it does not end."""
        try:
            return self.process.wait(READY_S)
        except subprocess.TimeoutExpired:
            raise NotPassed(f"it did not end: {self.output()}") from None

    def output(self) -> str:
        self._output.seek(0)
        return self._output.read().decode("utf-8", errors="replace")

    def pid(self) -> int:
        """Of the program itself, also behind a prefix."""
        pids = family(self.process.pid)
        return next((pid for pid in pids if "--data-dir" in command_line(pid) and "strace" not in _name(pid)), pids[0])

    def stop(self) -> int:
        """Ask it to end in order; returns its exit code."""
        if sys.platform == "win32":
            self.process.send_signal(signal.CTRL_BREAK_EVENT)
        else:
            os.kill(self.pid(), signal.SIGTERM)
        return self.wait_end()

    def close(self) -> None:
        """End whatever is left of it."""
        pids = family(self.process.pid)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(END_S)
        for pid in pids[1:]:
            if is_alive(pid):
                os.kill(pid, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
        self._output.close()


def empty_environment() -> dict[str, str]:
    """What `env -i` leaves; Windows opens no socket without this one."""
    return {"SYSTEMROOT": os.environ["SYSTEMROOT"]} if sys.platform == "win32" else {}


_AS_NOBODY: Mapping[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []}


@functools.cache
def may_be_nobody() -> bool:
    """Whether we can run something as another account: root can, but not in every container."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return False
    try:
        return subprocess.run(["true"], check=False, **_AS_NOBODY).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def as_nobody() -> dict[str, Any]:
    """Run as an account without rights, where we are root: for root no folder is read-only."""
    return dict(_AS_NOBODY) if may_be_nobody() else {}


def give_to_nobody(folder: Path) -> None:
    """Let that account write into `folder`."""
    if may_be_nobody():
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY)


def family(pid: int) -> list[int]:
    """The process and all below it, as far as the system tells (Linux); else the process alone."""
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text(errors="replace").rpartition(")")[2].split()
            if fields[0] != "Z":
                parents[int(status.parent.name)] = int(fields[1])
        except OSError:
            continue  # it has ended meanwhile
    found = [pid]
    for parent in found:
        found += [child for child, of in parents.items() if of == parent]
    return found


def is_alive(pid: int) -> bool:
    """Whether it runs; a process that waits to be buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _name(pid: int) -> str:
    return command_line(pid)[0] if command_line(pid) else ""
