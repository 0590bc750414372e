"""How many threads the engine uses where the owner has not said: the physical cores, unless another number was
measured to be clearly faster here. Kept in the folder of what tuning found.
"""

from __future__ import annotations

import json
import logging
import statistics
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from appliance.base.private_file import write_private
from appliance.engine.config import EngineConfig
from appliance.engine.cpu import cpu_identity, logical_cores, physical_cores
from appliance.engine.kernels import n_passed_over
from appliance.tuning.kernel_file import remembered

if TYPE_CHECKING:
    from appliance.tuning.worker_jobs import Job, Result

_log = logging.getLogger(__name__)

_NAME: Final = "threads.json"
_MIN_GAIN: Final = 1.05
"""In the middle of the rounds, and nearly as much in every one of them: less is what else goes on here."""
_LEAST_GAIN: Final = 1.02
_SPARE_CORES: Final = 4
"""From so many cores on, one that is left to everybody else may make the others quicker: they wait for each other."""

RunJob = Callable[["Job", threading.Event], "Result"]


def candidates(n_physical: int, n_logical: int) -> tuple[int, ...]:
    """Numbers of threads worth a measurement, the physical cores first; only those where nothing else is sensible."""
    counts = [n_physical]
    if n_physical >= _SPARE_CORES:
        counts.append(n_physical - 1)
    n_double = n_logical - n_physical
    if _SPARE_CORES <= n_double < n_physical:  # a mixed processor: the large cores alone have two threads
        counts.append(n_double)
    if n_logical > n_physical:
        counts.append(n_logical)
    return tuple(dict.fromkeys(counts))


def choose_threads(times_s: Mapping[int, Sequence[float]], usual: int) -> int:
    """The number that is fastest in every round and clearly so in most; `usual` where none is. Times as measured."""
    gains = {
        count: [base / took for base, took in zip(times_s[usual], times, strict=True)]
        for count, times in times_s.items()
        if count != usual
    }
    able = {
        count: statistics.median(each)
        for count, each in gains.items()
        if each and statistics.median(each) >= _MIN_GAIN and min(each) >= _LEAST_GAIN
    }
    return max(able, key=able.__getitem__, default=usual)


def for_this_cpu(config: EngineConfig, folder: Path) -> EngineConfig:
    """The configuration without the kernels that failed on this CPU, and with the number of threads measured on it
    where the owner has chosen none.

    Args:
        folder: of what tuning found.
    """
    config = replace(config, n_kernels_passed_over=n_passed_over(remembered(folder)))
    if config.n_threads or config.cores:
        return config
    return replace(config, n_threads=_kept(folder / _NAME))


def tune_threads(config: EngineConfig, folder: Path, cancelled: threading.Event, run: RunJob | None = None) -> int:
    """Measure and keep the number; returns it, 0 where there is nothing to choose. Blocks for some seconds.

    Args:
        config: as the owner has set it, with the model's file.
    Raises:
        ModelFileError, JobFailed, JobCancelled: as the measurement did; then nothing has changed.
        OSError: it cannot be kept.
    """
    counts = candidates(physical_cores(), logical_cores())
    if config.n_threads or config.cores or len(counts) < 2 or config.model_path is None:
        return 0
    from appliance.tuning.measure import measuring_config  # here: numpy is of no use at the start of the program
    from appliance.tuning.worker_jobs import CountThreads, run_job

    measuring = measuring_config(for_this_cpu(config, folder), config.model_path)
    times_s = (run or run_job)(CountThreads(measuring, counts), cancelled)
    assert isinstance(times_s, dict)
    chosen = choose_threads(times_s, counts[0])
    _log.info("threads: %s of %s", chosen, {count: f"{statistics.median(times_s[count]):.2f} s" for count in counts})
    folder.mkdir(parents=True, exist_ok=True)
    write_private(folder / _NAME, json.dumps({"cpu": _cpu(), "n_threads": chosen}).encode())
    return chosen


def _kept(note: Path) -> int:
    """0 where nothing was measured on this CPU."""
    try:
        kept = json.loads(note.read_bytes())
        if kept["cpu"] == _cpu() and kept["n_threads"] in candidates(physical_cores(), logical_cores()):
            return int(kept["n_threads"])
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning("the number of threads that was measured cannot be read (%s)", type(error).__name__)
    return 0


def _cpu() -> str:
    """Its name, and how much of it we may use: a container can be given less."""
    return f"{cpu_identity()[0]}, {physical_cores()} of {logical_cores()}"
