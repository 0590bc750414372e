"""What the engine takes of this computer's processors, and when it steps back."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from appliance.engine.config import EngineConfig

log = logging.getLogger(__name__)

NICE = {"low": 10, "courteous": 3, "normal": 0, "high": -10}
"""Courteous is mild: the engine's threads wait for each other, so that one of them on short time slows them all."""
_BUSY_CORES = 0.3
"""Other programs using more than this means that somebody is working at the computer."""
_CALM_CORES = 0.15
_LOOK_S = 2.0
_CPU_KEYS = ("model name", "cpu family", "model", "stepping", "flags", "CPU implementer", "CPU part", "Features")
_PAUSE_SHARE = 0.3
"""Of a step's time, left to others after it where the priority cannot be lowered and raised again."""


def physical_cores() -> int:
    """Physical cores this process may run on: a second thread on the same core slows the kernels down."""
    return max(1, min(psutil.cpu_count(logical=False) or 1, len(_allowed_cores())))


def logical_cores() -> int:
    """Cores this process may run on as the system counts them: two for each physical one with two threads."""
    return len(_allowed_cores())


def thread_count(config: EngineConfig) -> int:
    """Threads an engine with this configuration uses."""
    n_cores = physical_cores()
    return config.n_threads or (min(n_cores, len(config.cores)) if config.cores else n_cores)


def cpu_identity(cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[str, str]:
    """The processor's name, and everything the system tells about its kind and instructions."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        name = platform.processor() or platform.machine()
        return name, name
    pairs = [(key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in lines)]
    first = dict(reversed(pairs))
    told = {key: first[key] for key in _CPU_KEYS if key in first}
    name = told.get("model name") or platform.machine()
    return name, " ".join([name, platform.machine(), *told.values()])


def available_ram_bytes() -> int:
    """Memory that programs may still take without swapping."""
    return int(psutil.virtual_memory().available)


def address_space_bytes() -> int:
    """What this process has mapped so far, used or not."""
    return int(psutil.Process().memory_info().vms)


def process_began_at(pid: int) -> float | None:
    """Unix time at which the process of this number began; None when there is none."""
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def take_place(config: EngineConfig) -> None:
    """Apply affinity and priority to this process, before it starts threads. What the system refuses is logged."""
    process = psutil.Process()
    if config.cores and hasattr(process, "cpu_affinity"):
        with _refusable("the choice of cores"):
            process.cpu_affinity(list(config.cores))
    if config.priority == "realtime":
        if len(_allowed_cores()) >= (psutil.cpu_count() or 1):
            log.warning("real-time priority needs a core that the engine leaves to others: set engine_cores")
            return
        with _refusable("real-time priority"):
            _set_realtime(process)
    elif config.priority != "normal":
        with _refusable("the priority"):
            _set_priority(process, config.priority)


class Courtesy:
    """Steps back while other programs are busy: lower priority where it can be raised again, else pauses."""

    def __init__(self, pause: Callable[[float], None] = time.sleep) -> None:
        self._pause = pause
        self.others_busy = False
        self._can_return = os.name == "nt" or _may_raise_priority()
        self._family = [psutil.Process(), psutil.Process().parent()]

    def start(self) -> None:
        """Look around from a thread of its own until the process ends."""
        threading.Thread(target=self._watch, name="courtesy", daemon=True).start()

    def after_step(self, step_s: float) -> None:
        """Called by the step loop: leave others some time, where lower priority is no option."""
        if self.others_busy and not self._can_return:
            self._pause(step_s * _PAUSE_SHARE)

    def note(self, other_cores: float) -> None:
        """Take in how many cores other programs use; changes the priority when that changes the picture."""
        busy = other_cores > (_CALM_CORES if self.others_busy else _BUSY_CORES)
        if busy == self.others_busy:
            return
        self.others_busy = busy
        if self._can_return:
            with _refusable("the priority"):
                _set_priority(psutil.Process(), "courteous" if busy else "normal")

    def _watch(self) -> None:
        all_s, ours_s, then = _busy_s(), self._ours_s(), time.monotonic()
        while True:
            time.sleep(_LOOK_S)
            all_now_s, ours_now_s, now = _busy_s(), self._ours_s(), time.monotonic()
            self.note(max(0.0, all_now_s - all_s - (ours_now_s - ours_s)) / (now - then))
            all_s, ours_s, then = all_now_s, ours_now_s, now

    def _ours_s(self) -> float:
        total = 0.0
        for process in self._family:
            with contextlib.suppress(psutil.Error, AttributeError):
                times = process.cpu_times()
                total += times.user + times.system
        return total


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def _allowed_cores() -> list[int]:
    process = psutil.Process()
    if hasattr(process, "cpu_affinity"):
        return list(process.cpu_affinity())
    return list(range(psutil.cpu_count() or 1))


def _may_raise_priority() -> bool:
    """Whether a Unix process may undo its own niceness."""
    if os.geteuid() == 0:
        return True
    with contextlib.suppress(AttributeError, OSError):
        return int(psutil.Process().rlimit(psutil.RLIMIT_NICE)[0]) >= 20
    return False


def _set_priority(process: psutil.Process, name: str) -> None:
    """On Unix for every thread: niceness belongs to threads there, and the kernels run in several."""
    if os.name == "nt":
        classes = {
            "low": psutil.IDLE_PRIORITY_CLASS,
            "courteous": psutil.BELOW_NORMAL_PRIORITY_CLASS,
            "normal": psutil.NORMAL_PRIORITY_CLASS,
            "high": psutil.ABOVE_NORMAL_PRIORITY_CLASS,
        }
        process.nice(classes[name])
        return
    for thread in process.threads():
        os.setpriority(os.PRIO_PROCESS, thread.id, NICE[name])


def _set_realtime(process: psutil.Process) -> None:
    if os.name == "nt":
        process.nice(psutil.REALTIME_PRIORITY_CLASS)
    else:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


@contextlib.contextmanager
def _refusable(what: str) -> Iterator[None]:
    try:
        yield
    except (psutil.Error, OSError, ValueError, AttributeError) as error:
        log.warning("the system refused %s (%s)", what, type(error).__name__)
