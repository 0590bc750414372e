"""A file for the owner when the program ends by an error nobody expected: what, where, on which computer.

It holds no message of the error and no value: either may carry words of a conversation.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import TracebackType

from appliance import __version__
from appliance.base.log import FILE_NAME, where
from appliance.engine.cpu import available_ram_bytes, cpu_identity

_N_REPORTS = 5
_N_LOG_LINES = 40
_PATTERN = "crash-*.txt"


def write_when_it_crashes(folder: Path, tell: Callable[[Path], None]) -> None:
    """From now on an unexpected error of the main thread leaves a report in `folder`; `tell` is given its path."""

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, Exception):
            tell(write_report(folder, error))
        else:
            sys.__excepthook__(kind, error, trace)

    sys.excepthook = report


def write_report(folder: Path, error: BaseException) -> Path:
    """Write it, drop the oldest ones; returns its path. Raises OSError."""
    now = datetime.now().astimezone()
    path = folder / f"crash-{now:%Y%m%d-%H%M%S}.txt"
    path.write_text(_text(folder, error, now), encoding="utf-8")
    for old in sorted(folder.glob(_PATTERN))[:-_N_REPORTS]:
        old.unlink()
    return path


def _text(folder: Path, error: BaseException, now: datetime) -> str:
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    lines = [
        f"Office Chat {__version__} ended by an error nobody expected.",
        "This file holds no question and no answer: whoever looks after the program may have it.",
        "",
        f"time    {now:%Y-%m-%d %H:%M:%S %z}",
        *(f"{'error' if place == 0 else 'after':8}{where(each)}" for place, each in enumerate(chain)),
        f"system  {platform.platform()}, Python {platform.python_version()}"
        + (", as one program" if getattr(sys, "frozen", False) else ""),
        f"cpu     {cpu_identity()[0]}",
        f"memory  {available_ram_bytes() // 2**20} MB free",
        "",
        "The last lines of the log:",
        *_log_tail(folder / FILE_NAME),
    ]
    return "\n".join(lines) + "\n"


def _log_tail(log: Path) -> list[str]:
    try:
        return log.read_text(encoding="utf-8", errors="replace").splitlines()[-_N_LOG_LINES:]
    except OSError:
        return []
