"""What the program's two processes take of this PC, and what is left. Read when somebody looks, never in between."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class ProcessUse:
    """One process."""

    rss_bytes: int = 0
    cpu_s: float = 0.0
    """Processor time since it started, all threads together."""


@dataclass(frozen=True)
class PcUse:
    """This PC."""

    memory_bytes: int = 0
    memory_free_bytes: int = 0
    """What programs can still have."""
    n_cores: int = 1
    disk_free_bytes: int = 0
    """Of the disk the data folder is on."""


def pc_use(folder: Path) -> PcUse:
    """What this PC has, and has left. Touches the disk. Zeros for what the system does not tell."""
    try:
        memory = psutil.virtual_memory()
        return PcUse(memory.total, memory.available, psutil.cpu_count() or 1, psutil.disk_usage(str(folder)).free)
    except (psutil.Error, OSError):
        return PcUse()


def use_of(pid: int | None = None) -> ProcessUse:
    """What process `pid` takes, None: this one; zeros where it is gone or the system does not tell."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return ProcessUse(int(process.memory_info().rss), float(times.user + times.system))
    except psutil.Error:
        return ProcessUse()


def give_back_memory() -> None:
    """Return what this process has freed to the system; glibc keeps small pieces for itself. Takes some ms."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
