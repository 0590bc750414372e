"""What the program's two processes take of this PC. Read when somebody looks, never in between."""

from __future__ import annotations

from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class ProcessUse:
    """One process."""

    rss_bytes: int = 0
    cpu_s: float = 0.0
    """Processor time since it started, all threads together."""


def use_of(pid: int | None = None) -> ProcessUse:
    """What process `pid` takes, None: this one; zeros where it is gone or the system does not tell."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return ProcessUse(int(process.memory_info().rss), float(times.user + times.system))
    except psutil.Error:
        return ProcessUse()
