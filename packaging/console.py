"""What the owner sees during set-up: one sentence a step, a line that moves, and where the log of a failed step is."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

POLL_S = 0.5
PLAIN_LINE_EVERY_S = 15.0  # without a terminal, in CI for one: often enough to show life, seldom enough to read
LAST_LINES = 20
GRACE_S = 20.0  # on a busy PC pip takes its time to remove half a gigabyte of sources


class SetupError(Exception):
    """Stops the set-up. `str(error)` tells the owner what is wrong and what to do."""


def say(sentence: str) -> None:
    """Print one line at once, also into a pipe."""
    print(sentence, flush=True)


def duration(seconds: float) -> str:
    """`75.2` as `1 min 15 s`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class MovingLine:
    """One line rewritten in place on a terminal, a new line every 15 s elsewhere."""

    def __init__(self, label: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._label = label
        self._clock = clock
        self._started_s = clock()
        self._printed_s = clock()
        self._on_terminal = sys.stdout.isatty()

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._started_s

    def show(self, progress: str) -> None:
        """Show `progress` (`41/83`, or empty) beside the label and the time so far."""
        text = "  ".join(part for part in (f"  {self._label}", progress, duration(self.elapsed_s)) if part)
        if self._on_terminal:
            sys.stdout.write(f"\r\x1b[K{text}")
            sys.stdout.flush()
        elif self._clock() - self._printed_s >= PLAIN_LINE_EVERY_S:
            self._printed_s = self._clock()
            say(text)

    def clear(self) -> None:
        """Leave the cursor at the start of an empty line."""
        if self._on_terminal:
            sys.stdout.write("\r\x1b[K")
            sys.stdout.flush()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt first: then pip removes its scratch folders, and ninja ends its compilers, which no signal reaches."""
    if sys.platform == "win32":
        process.kill()
        return
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=GRACE_S)
            return


def run_logged(
    command: Sequence[str],
    *,
    log: Path,
    label: str,
    progress: Callable[[str], str] | None = None,
    env: Mapping[str, str] | None = None,
) -> float:
    """Run `command` with all its output in `log`; returns the seconds it took.

    `progress` turns the log so far into a few characters for the moving line. The command gets a session of its own,
    so that Ctrl-C ends its compilers too. Raises SetupError with the last lines of the log when it fails.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    line = MovingLine(label)
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
            close_fds=False,  # so that it holds the set-up lock on, should we be killed and it live on
        )
    try:
        while True:
            try:
                status = process.wait(timeout=POLL_S)
                break
            except subprocess.TimeoutExpired:
                line.show(progress(log.read_text(errors="replace")) if progress else "")
    finally:
        line.clear()
        if process.returncode is None:
            _end(process)
    if status:
        tail = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        say("\n".join(f"  | {text[:300]}" for text in tail))
        raise SetupError(f"{label}: failed (exit code {status}). Its last lines are above, the whole log is {log}")
    return line.elapsed_s
