"""Waiting for other processes, and looking at them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil


async def until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    """Returns once it holds; raises TimeoutError when it does not come to hold in time."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - another process changes it, nothing here could set an event
            await asyncio.sleep(0.005)


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that only awaits its parent's attention does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def gone(pids: list[int], within_s: float = 5.0) -> None:
    """Returns once none of them runs."""
    await until(lambda: not any(is_alive(pid) for pid in pids), within_s)


def engine_pids() -> list[int]:
    """Children of ours that are engines: the resource tracker of multiprocessing stays on purpose."""
    children = psutil.Process().children()  # those of programs that other tests started are no concern
    return [c.pid for c in children if "spawn_main" in " ".join(c.cmdline())]


def run_script(path: Path, source: str, arguments: list[str], project_root: Path) -> subprocess.Popen[str]:
    """A Python process of its own that can import the project; its standard output is a pipe."""
    path.write_text(source, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(project_root)}
    return subprocess.Popen([sys.executable, str(path), *arguments], stdout=subprocess.PIPE, text=True, env=environment)
