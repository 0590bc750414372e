"""The terminal the owner sees, or what stands in for it.

A window that was closed, a pipe nobody reads, a console that cannot show Chinese: none of them may end the program.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import TextIO

_LINE_CHARS = 100


def settle() -> None:
    """Give the process standard streams that can be written to. First of all: a socket that gets the number of a closed
    stream would receive what llama.cpp prints.
    """
    if os.name == "posix":
        for number in (0, 1, 2):
            if not _is_open(number):
                os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest free number
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 -- for good
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def say(text: str, *, to_errors: bool = False) -> None:
    """Tell the owner, at once; whoever listens no more is left alone."""
    stream: TextIO = sys.stderr if to_errors else sys.stdout
    try:
        print(text, file=stream, flush=True)
    except (OSError, ValueError):
        _drop(stream)


def show(text: str) -> None:
    """On a terminal, one line that the next one overwrites; elsewhere, where it would pile up, nothing."""
    if sys.stdout.isatty():
        try:
            sys.stdout.write(f"{text}{' ' * max(0, _LINE_CHARS - 2 * len(text))}\r")  # Chinese takes two columns
            sys.stdout.flush()
        except (OSError, ValueError):
            _drop(sys.stdout)


def ending_signals() -> tuple[int, ...]:
    """Signals beside Ctrl-C that mean "end": a closed terminal too, unless we were started with nohup."""
    hang_up = getattr(signal, "SIGHUP", None)
    if hang_up is None or signal.getsignal(hang_up) is signal.SIG_IGN:
        return (signal.SIGTERM,)
    return (signal.SIGTERM, hang_up)


def hold_window() -> None:
    """Where Windows opened a console for us alone, keep it until Enter: it would vanish with the sentence in it."""
    if sys.platform == "win32" and getattr(sys, "frozen", False) and _is_ours_alone():
        say("\n按回车键关闭此窗口。\nPress Enter to close this window.")
        sys.stdin.readline()


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _drop(stream: TextIO) -> None:
    """Send what else is said there nowhere: Python writes the rest at its end, and would then report an error."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        setattr(sys, "stderr" if stream is sys.stderr else "stdout", None)


def _is_ours_alone() -> bool:
    """Windows: no other program writes into this console, so nobody had opened it before us."""
    import ctypes

    windll = getattr(ctypes, "windll")  # noqa: B009 -- there on Windows only
    processes = (ctypes.c_uint32 * 4)()
    # Two of a onefile build are ours: the one that unpacks and the one that runs.
    return int(windll.kernel32.GetConsoleProcessList(processes, 4)) <= (2 if hasattr(sys, "_MEIPASS") else 1)
